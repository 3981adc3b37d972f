"""PyTorch profiler (Kineto, Chrome JSON).

``torch.profiler.profile(record_shapes=True, schedule=...)`` with ``profiler.step()`` after each
step; ``with_stack=True`` gives layers the names of their modules.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfsim.calibrate.traces.kineto_collectives import MOST, recorded_collectives
from perfsim.calibrate.traces.kineto_recording import Recording, read_recording
from perfsim.calibrate.traces.kineto_step import median_step
from perfsim.calibrate.traces.training_trace import TracedCollective, TrainingTrace
from perfsim.data.files import printable

__all__ = ["matches", "read"]

SIGNS = ('"traceEvents"', '"Operator"', '"cpu_op"', '"External id"', '"schemaVersion"')


def matches(head: str) -> bool:
    """Say whether a trace begins as PyTorch writes it: an object, or its list of events."""
    return any(sign in head for sign in SIGNS)


def read(path: Path) -> TrainingTrace:
    """Read a profile of training steps.

    Raises
    ------
    DataError
        If it is damaged, or shows no step, inference only, or too little to tell the layers.
    """
    recording = read_recording(path)
    told = _told(recording)
    world = told.get("world_size")
    world = world if type(world) is int and 0 < world < MOST else None
    seen = recorded_collectives(recording, world)
    return TrainingTrace(
        step=median_step(recording, path),
        seen=tuple(seen),
        device=_device(recording),
        library=_library(recording, seen),
        version=_plain(told.get("nccl_version", "")),
        world=world,
    )


def _plain(word: object) -> str:
    """Return a word on one line, letters that no file can hold left out."""
    return " ".join(printable(str(word)).encode("ascii", "ignore").decode().split())


def _told(recording: Recording) -> dict[str, Any]:
    told = recording.settings.get("distributedInfo")
    return told if isinstance(told, dict) else {}


def _device(recording: Recording) -> str:
    """Return the name of the GPU whose kernels are shown, "cpu" without any."""
    if not recording.kernels:
        return "cpu"
    told = recording.settings.get("deviceProperties")
    known = [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []
    number = recording.kernels[0][2].thread.partition("/")[0]
    fitting = [one for one in known if str(one.get("id")) == number] or known
    return _plain(fitting[0].get("name", "")) if fitting else ""


def _library(recording: Recording, seen: list[TracedCollective]) -> str:
    if not seen:
        return ""
    noted = (name for name in ("nccl", "gloo", "mpi") if recording.noted(f"{name}:"))
    return next(noted, "nccl" if recording.kernels else "")
