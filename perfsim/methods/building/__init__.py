"""Building blocks that several methods share: one subject per file."""
