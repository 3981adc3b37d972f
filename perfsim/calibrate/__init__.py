"""Calibration: from what was measured to the numbers that predictions rest on."""
