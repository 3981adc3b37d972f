"""Change the formulas a word at a time, and see which test notices."""
