"""Emulated clusters measured, predicted and run for real."""
