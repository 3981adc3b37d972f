"""What people run: ``python tests/scripts/NAME.py``."""
