"""Fitting measured points: what `perfsim calibrate` and network files rest on, in one place.

`fit` is the core (`robust`), `fit_line` and `fit_hinge` the two shapes of a message's time
(`hinge`), `segments` the knots of a curve that has no formula.
"""

from __future__ import annotations

from perfsim.calibrate.hinge import fit_hinge, fit_line, hinge
from perfsim.calibrate.parameter import Parameter, Unidentified
from perfsim.calibrate.robust import FitResult, fit
from perfsim.calibrate.segments import Segments, segments

__all__ = [
    "FitResult",
    "Parameter",
    "Segments",
    "Unidentified",
    "fit",
    "fit_hinge",
    "fit_line",
    "hinge",
    "segments",
]
