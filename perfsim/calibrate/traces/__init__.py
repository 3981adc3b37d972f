"""Reading traces of training: one format a file, recognised by a trace's first characters.

A format is a module of this folder, named in `trace_formats`. It holds ``matches(head) -> bool``
and ``read(path) -> TrainingTrace``, and a docstring whose first line names the format.
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
    """Read a trace of any known format, plain or gzipped.

    Raises
    ------
    DataError
        If it cannot be read, is damaged, of no known format, or shows no training.
    """
    path = Path(path)
    head = read_head(path)
    for module in trace_formats().values():
        if module.matches(head):
            trace: TrainingTrace = module.read(path)
            return trace
    docstrings = (module.__doc__ or "" for module in trace_formats().values())
    known = "; ".join(text.partition("\n")[0] for text in docstrings)
    raise DataError(f"is no trace in a form that is known: {known}", path=path)
