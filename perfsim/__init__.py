"""perfsim: iteration time of distributed data-parallel training, predicted from measurements."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfsim.errors import DataError, PerfsimError, RequestError
    from perfsim.planning.capacity import Target, plan
    from perfsim.planning.compare import compare
    from perfsim.planning.explain import explain
    from perfsim.planning.sweep import sweep
    from perfsim.planning.tune import tune
    from perfsim.prediction import predict
    from perfsim.scenario import Scenario

__all__ = [
    "DataError",
    "PerfsimError",
    "RequestError",
    "Scenario",
    "Target",
    "__version__",
    "compare",
    "explain",
    "plan",
    "predict",
    "sweep",
    "tune",
]

__version__ = "1.0.0rc1"

HOME = {
    "DataError": "perfsim.errors",
    "PerfsimError": "perfsim.errors",
    "RequestError": "perfsim.errors",
    "Scenario": "perfsim.scenario",
    "Target": "perfsim.planning.capacity",
    "compare": "perfsim.planning.compare",
    "explain": "perfsim.planning.explain",
    "plan": "perfsim.planning.capacity",
    "predict": "perfsim.prediction",
    "sweep": "perfsim.planning.sweep",
    "tune": "perfsim.planning.tune",
}
"""Where the names of the Python API are; a module is imported when its name is first used."""


def __getattr__(name: str) -> object:
    if name in HOME:
        return getattr(import_module(HOME[name]), name)
    raise AttributeError(f"module 'perfsim' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the names of the Python API."""
    return sorted(__all__)
