"""Published training schemes, one a file; the file name is the method's name."""
