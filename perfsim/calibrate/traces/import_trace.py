"""``perfsim calibrate import`` of a trace: write its profile, and its collectives as a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfsim.calibrate.measure.device import device_name
from perfsim.calibrate.traces import read_trace
from perfsim.calibrate.traces.collectives import (
    CallsOfSize,
    collectives_csv,
    collectives_of_job,
    summary_by_size,
)
from perfsim.calibrate.traces.to_profile import of_another_network, profile_of_trace
from perfsim.calibrate.traces.training_trace import TrainingTrace
from perfsim.calibrate.write_profile import (
    check_profile,
    check_profile_name,
    is_profile_name,
    profile_stem,
    refuse_existing,
    write_files,
)
from perfsim.compute.profile import precision_named
from perfsim.data.catalog import Catalog
from perfsim.data.files import today
from perfsim.errors import DataError, RequestError

__all__ = ["ImportedTrace", "import_trace"]

IMPORT_TRACES_SCHEMA = "perfsim/calibrate-import-trace/1"


@dataclass(frozen=True)
class ImportedTrace:
    """The files written (None: not written), what the trace says, and what makes it doubtful."""

    profile: Path | None
    collectives: Path | None
    trace: TrainingTrace
    by_size: tuple[CallsOfSize, ...]
    warning: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the object that the command prints as JSON."""
        step = self.trace.step
        passes = step and {
            "steps": step.count,
            "forward_s": step.forward_s,
            "backward_s": step.backward_s,
            "optimizer_s": step.update_s,
            "whole_s": step.whole_s,
            "waiting_s": step.waiting_s,
            "device_busy": step.busy,
            "layers": len(step.layers),
            "gradients": len(step.ready_s),
        }
        return {
            "schema": IMPORT_TRACES_SCHEMA,
            "profile": self.profile and str(self.profile),
            "collectives_file": self.collectives and str(self.collectives),
            "device": self.trace.device,
            "library": self.trace.library,
            "step": passes,
            "collectives": [calls.to_dict() for calls in self.by_size],
            "ready_s": dict(self.trace.ready_s),
            "warning": self.warning or None,
        }


def import_trace(
    file: Path,
    *,
    model: str | None,
    batch: int | None,
    precision: str = "fp32",
    gpu: str | None = None,
    sequence: int | None = None,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    folder: Path = Path("profiles"),
    models: Path | None = None,
    force: bool = False,
) -> ImportedTrace:
    """Read a trace; write the profile that it shows, and its collectives if ``nodes`` is given.

    Parameters
    ----------
    file : PyTorch profile or Horovod timeline, plain or gzipped
    model, batch, precision, gpu, sequence : for the profile; a trace does not know them.
        ``gpu`` None is the device that the trace names
    nodes, gpus_per_node : of the job; a trace does not say on which nodes its ranks run
    folder : of profiles; the profile goes below its models/, the collectives into it
    models : the folder of the profile itself; None: models/ of ``folder``
    force : replace files that are there

    Raises
    ------
    RequestError
        If the request lacks what the trace cannot say, or a file is there already.
    DataError
        If the trace is damaged or shows no training step; nothing is written then.
    """
    precision = precision_named(precision)
    counts = {"batch": batch, "sequence": sequence, "nodes": nodes, "gpus_per_node": gpus_per_node}
    _check_request({"model": model, "gpu": gpu}, counts)
    trace = read_trace(file)
    texts: dict[Path, str] = {}
    profile, stem = None, file.name.partition(".")[0]
    if trace.step is not None:
        if model is None or batch is None:
            lacking = "model" if model is None else "batch"
            raise RequestError(lacking, f"is needed for the profile that {file.name} shows.")
        gpu = gpu or _gpu_of_trace(trace)
        about = {"model": model, "gpu": gpu, "precision": precision, "batch": str(batch)}
        about |= {"sequence": str(sequence)} if sequence else {}
        stem = profile_stem(model, gpu, precision, batch, sequence)
        profile = (models or folder / "models") / f"{stem}.csv"
        texts[profile] = profile_of_trace(trace.step, about | _origin(file, trace), file)
    table = None
    if nodes is not None:
        calls, per_node = collectives_of_job(trace, nodes, gpus_per_node)
        if calls:
            table = folder / f"{stem}.collectives.csv"
            texts[table] = collectives_csv(calls, nodes, per_node, file.name, trace)
    for path in texts:
        refuse_existing(path, force)
    if profile is not None:
        try:
            check_profile(profile.name, texts[profile])
        except DataError as error:
            raise DataError(f"makes no profile: {error.why}", path=file) from None
    write_files(texts)
    doubt = of_another_network(trace.step, model) if trace.step and model else ""
    return ImportedTrace(profile, table, trace, tuple(summary_by_size(trace.collectives)), doubt)


def _check_request(words: dict[str, str | None], counts: dict[str, int | None]) -> None:
    for field, word in words.items():
        if word is not None:
            check_profile_name(field, word)
    for field, count in counts.items():
        if count is not None and count < 1:
            why = f"{count} is not allowed: it must be 1 or more."
            raise RequestError(field, why, value=count)


def _gpu_of_trace(trace: TrainingTrace) -> str:
    """Return perfsim's name of the GPU that a trace names."""
    gpu = device_name(trace.device, Catalog()) if trace.device else ""
    if not is_profile_name(gpu):
        raise RequestError("gpu", "the trace does not name its GPU; give its name.")
    return gpu


def _origin(file: Path, trace: TrainingTrace) -> dict[str, str]:
    named = f" on {trace.device}" if trace.device else ""
    return {
        "framework": "PyTorch",
        "source": f"PyTorch profiler trace {file.name}{named}, by perfsim calibrate import",
        "licence": "the measurer's own",
        "date": today(),
    }
