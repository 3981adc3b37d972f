"""The HTML report of a prediction: one figure a file, the page that holds them, and a PNG."""
