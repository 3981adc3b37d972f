"""Answers that take many predictions, one question a file."""
