"""Predictions beside what others measured: a table of cases, each asked as a scenario.

``case`` reads the table, ``rules`` says what its words mean, ``single`` finds what the source
itself measured on one GPU, ``ask`` makes the scenario, ``answer`` reads the metric off the
prediction, ``report`` counts the errors.
"""

from __future__ import annotations

from perfsim.validate.measurements.report import MeasurementsReport, validate_measurements

__all__ = ["MeasurementsReport", "validate_measurements"]
