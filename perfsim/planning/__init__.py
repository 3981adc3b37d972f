"""Planning: what to choose, what to change, and why an iteration takes as long as it does."""
