"""Import trace."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from perfsim.calibrate.measure.device import device_name
from perfsim.calibrate.traces import read_trace
from perfsim.calibrate.traces.collectives import (
    collectives_csv,
    collectives_of_job,
    summary_by_size,
)
from perfsim.calibrate.traces.to_profile import profile_of_trace
from perfsim.calibrate.traces.training_trace import TrainingTrace
from perfsim.compute.profile import PRECISIONS, read_profile
from perfsim.data.catalog import Catalog
from perfsim.data.files import write_text
from perfsim.errors import DataError, RequestError, unknown

__all__ = ["ImportedTrace", "import_trace"]

IMPORT_TRACES_SCHEMA = "perfsim/calibrate-import-trace/1"


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True)
class ImportedTrace:
    """The files written (None: not), and what the trace said."""

    profile: Path | None
    collectives: Path | None
    traced: TrainingTrace
    by_size: tuple[dict[str, Any], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``calibrate import --json`` prints for a trace."""
        step = self.traced.step
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
            "device": self.traced.device,
            "library": self.traced.library,
            "step": passes,
            "collectives": list(self.by_size),
            "ready_s": dict(self.traced.ready_s),
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
    force: bool = False,
) -> ImportedTrace:
    """Read a trace; write the profile that it shows, and its collectives if ``nodes`` is given.

    Parameters
    ----------
    file : PyTorch profile or Horovod timeline, plain or gzipped
    model, batch, precision, gpu, sequence : what the profile says; a trace does not know them.
        ``gpu`` None is the device that the trace names
    nodes, gpus_per_node : of the job, which a trace does not say; they place its collectives
    folder : of profiles; the profile goes below its models/, the collectives into it
    force : replace files that are there

    Raises
    ------
    RequestError
        If the request lacks what the trace cannot say, or a file is there already.
    DataError
        If the trace is damaged or shows no training step; nothing is written then.
    """
    _check(model, batch, precision, gpu, sequence, nodes, gpus_per_node)
    traced = read_trace(file)
    text, path, stem = None, None, file.name.partition(".")[0]
    if traced.step is not None:
        if model is None or batch is None:
            lacks = "model" if model is None else "batch"
            raise RequestError(f"{lacks}: is needed for the profile that {file.name} shows.")
        known = Catalog().files("devices")
        gpu = gpu or (device_name(traced.device, known) if traced.device else "")
        if not NAME.fullmatch(gpu):
            raise RequestError("gpu", "the trace does not name its GPU; give its name.")
        about = {"model": model, "gpu": gpu, "precision": precision, "batch": str(batch)}
        about |= {"sequence": str(sequence)} if sequence else {}
        parts = [model, gpu, precision, f"b{batch}", *([f"s{sequence}"] if sequence else [])]
        stem = ".".join(parts)
        path = folder / "models" / f"{stem}.csv"
        text = profile_of_trace(traced.step, about | _origin(file, traced), file)
    table, beside = None, None
    if nodes is not None:
        whole, most = collectives_of_job(traced, nodes, gpus_per_node)
        if whole:
            beside = folder / f"{stem}.collectives.csv"
            table = collectives_csv(whole, nodes, most, file, traced)
    _write({path: text, beside: table}, file, force)
    return ImportedTrace(path, beside, traced, tuple(summary_by_size(traced.seen)))


def _check(
    model: str | None,
    batch: int | None,
    precision: str,
    gpu: str | None,
    sequence: int | None,
    nodes: int | None,
    gpus_per_node: int | None,
) -> None:
    for option, word in (("model", model), ("gpu", gpu)):
        if word is not None and not NAME.fullmatch(word):
            raise RequestError(f"{option}: {word!r} is no name; letters, digits, '_' and '-'.")
    if precision not in PRECISIONS:
        raise unknown("precision", precision, PRECISIONS)
    counts = {"batch": batch, "sequence": sequence, "nodes": nodes, "gpus-per-node": gpus_per_node}
    for option, count in counts.items():
        if count is not None and count < 1:
            raise RequestError(f"--{option}: must be at least 1, not {count}.")


def _origin(file: Path, traced: TrainingTrace) -> dict[str, str]:
    named = f" on {traced.device}" if traced.device else ""
    return {
        "framework": "PyTorch",
        "source": f"PyTorch profiler trace {file.name}{named}, by perfsim calibrate import",
        "licence": "the measurer's own",
        "date": date.today().isoformat(),
    }


def _check_profile(trial: Path, file: Path) -> None:
    """Refuse what perfsim would not read back, in the name of the trace."""
    try:
        read_profile(trial)
    except DataError as error:
        said = str(error).partition(": ")[2]
        raise DataError(f"makes no profile: {said}", path=file) from None


def _write(files: Mapping[Path | None, str | None], file: Path, force: bool) -> None:
    """Write all files whole, the profile only if it reads back."""
    wanted = [(path, text) for path, text in files.items() if path is not None and text]
    for path, _ in wanted:
        if path.exists() and not force:
            raise RequestError("out", f"{str(path)!r} is there already; `force` replaces it.")
    for path, text in wanted:
        if path.parent.name == "models":
            with TemporaryDirectory() as work:
                trial = Path(work) / path.name
                trial.write_text(text, encoding="utf-8")
                _check_profile(trial, file)
    for path, text in wanted:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RequestError("out", f"{str(path.parent)!r}: {error.strerror}.") from None
        write_text(path, text)
