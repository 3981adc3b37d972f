"""PyTorch profiler (Kineto, Chrome JSON).

Record with ``torch.profiler.profile(record_shapes=True, schedule=...)`` and ``profiler.step()``
after each step; ``with_stack=True`` gives layers the names of their modules.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfsim.calibrate.traces.kineto_collectives import MAX_ELEMENTS, recorded_collectives
from perfsim.calibrate.traces.kineto_recording import Recording, read_recording
from perfsim.calibrate.traces.kineto_step import median_step
from perfsim.calibrate.traces.training_trace import TracedCollective, TrainingTrace
from perfsim.data.files import printable

__all__ = ["matches", "read"]

_SIGNS = ('"traceEvents"', '"Operator"', '"cpu_op"', '"External id"', '"schemaVersion"')


def matches(head: str) -> bool:
    """Say whether a trace begins as PyTorch writes it: an object, or its list of events."""
    return any(sign in head for sign in _SIGNS)


def read(path: Path) -> TrainingTrace:
    """Read a profile of training steps.

    Raises
    ------
    DataError
        If it is damaged, or shows no step, inference only, or too little to separate layers.
    """
    recording = read_recording(path)
    distributed = recording.settings.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    world = distributed.get("world_size")
    world = world if type(world) is int and 0 < world < MAX_ELEMENTS else None
    collectives = recorded_collectives(recording, world)
    return TrainingTrace(
        step=median_step(recording, path),
        collectives=tuple(collectives),
        device=_device(recording),
        library=_library(recording, collectives),
        version=_one_line(distributed.get("nccl_version", "")),
        world=world,
    )


def _one_line(word: object) -> str:
    """Return a word on one line, without letters that no file can hold."""
    return " ".join(printable(str(word)).encode("ascii", "ignore").decode().split())


def _device(recording: Recording) -> str:
    """Return the name of the GPU whose kernels are shown, "cpu" if there are none."""
    if not recording.kernels:
        return "cpu"
    said: Any = recording.settings.get("deviceProperties")
    gpus = [gpu for gpu in said if isinstance(gpu, dict)] if isinstance(said, list) else []
    number = recording.kernels[0].span.thread.partition("/")[0]
    fitting = [gpu for gpu in gpus if str(gpu.get("id")) == number] or gpus
    return _one_line(fitting[0].get("name", "")) if fitting else ""


def _library(recording: Recording, collectives: Sequence[TracedCollective]) -> str:
    """Return the library that carried the collectives, "" if there are none."""
    if not collectives:
        return ""
    noted = (name for name in ("nccl", "gloo", "mpi") if recording.noted(f"{name}:"))
    return next(noted, "nccl" if recording.kernels else "")
