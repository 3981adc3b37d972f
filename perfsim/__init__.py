"""perfsim: iteration time of distributed data-parallel training, predicted from measurements."""

from __future__ import annotations

__all__ = ["__version__", "predict"]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name == "predict":
        from perfsim.prediction import predict

        return predict
    raise AttributeError(f"module 'perfsim' has no attribute {name!r}")
