"""What families of methods share: one subject a file."""
