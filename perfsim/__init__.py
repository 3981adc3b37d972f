"""perfsim: iteration time of distributed data-parallel training, predicted from measurements."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfsim.planning.compare import compare
    from perfsim.planning.sweep import sweep
    from perfsim.prediction import predict
    from perfsim.scenario import Scenario

__all__ = ["Scenario", "__version__", "compare", "predict", "sweep"]

__version__ = "0.1.0"

HOME = {
    "Scenario": "perfsim.scenario",
    "compare": "perfsim.planning.compare",
    "predict": "perfsim.prediction",
    "sweep": "perfsim.planning.sweep",
}
"""Where the names of the Python API are; a module is imported when its name is first used."""


def __getattr__(name: str) -> object:
    if name in HOME:
        return getattr(import_module(HOME[name]), name)
    raise AttributeError(f"module 'perfsim' has no attribute {name!r}")
