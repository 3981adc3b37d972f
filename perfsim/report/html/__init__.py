"""HTML reports: figures, pages and the frame that holds them."""
