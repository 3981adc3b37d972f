"""Reading traces of training: one format a file, found by its file name.

A new file in this folder is a new format; nothing else lists it. It holds
``matches(head) -> bool``, of the first characters of a trace, and ``read(path) -> Traced``, and a
docstring whose first line names the format.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from perfsim.calibrate.traces.chrome_json import read_head
from perfsim.calibrate.traces.training_trace import TrainingTrace
from perfsim.errors import DataError

__all__ = ["read_trace", "trace_formats"]


@cache
def trace_formats() -> dict[str, ModuleType]:
    """Return name -> module of every format.

    Examples
    --------
    >>> list(trace_formats())
    ['horovod', 'kineto']
    """
    return {name: import_module(f"{__name__}.{name}") for name in ("horovod", "kineto")}


def read_trace(path: Path | str) -> TrainingTrace:
    """Read a trace of any format that this folder knows, plain or gzipped.

    Raises
    ------
    DataError
        If it cannot be read, is damaged, of no known format, or shows no training.
    """
    path = Path(path)
    text = read_head(path)
    for module in trace_formats().values():
        if module.matches(text):
            made: TrainingTrace = module.read(path)
            return made
    known = "; ".join((one.__doc__ or "").partition("\n")[0] for one in trace_formats().values())
    raise DataError(f"is no trace in a form that is known: {known}", path=path)
