"""Builds the shipped profiles from collected figures: ``python -m perfsim.models.assemble``.

Maintainers' code; no prediction imports it. ``anchors.csv`` holds one row a profile: the measured
whole-model time, its source, and which layer figures give the shape inside that time.
"""
