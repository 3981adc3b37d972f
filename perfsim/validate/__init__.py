"""Validation: what perfsim predicts beside what others measured."""
