"""The command line: a thin skin that reads options, calls the library and prints."""
