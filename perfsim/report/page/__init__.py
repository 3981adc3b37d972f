"""HTML reports: one figure a file, a page a command, the frame that holds them, and a PNG."""
