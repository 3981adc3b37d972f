"""Answers made of many predictions."""
