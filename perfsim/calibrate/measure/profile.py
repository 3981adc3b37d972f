"""One model's step measured: whole without marks, then layer by layer, and the two compared."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from perfsim.calibrate.measure.device import (
    device_name,
    torch_device,
)
from perfsim.calibrate.measure.subject import find_subject, named_parts
from perfsim.calibrate.measure.training_step import (
    AGREES,
    MeasuredModel,
    find_ranks,
    measure_compute,
)
from perfsim.calibrate.write_profile import LayerTimes, milliseconds, profile_csv, split_passes
from perfsim.compute.profile import POSITIONS_COLUMNS as POSITION_COLUMNS
from perfsim.compute.profile import POSITIONS_SCHEMA as POSITIONS
from perfsim.compute.profile import PROFILE_SCHEMA, read_profile
from perfsim.data.catalog import Catalog
from perfsim.data.files import write_text
from perfsim.errors import RequestError

__all__ = [
    "LayerTimes",
    "MeasuredProfile",
    "calibrate_compute",
    "layer_times",
    "measured_positions_text",
    "measured_profile_text",
]


WORDS = {
    "Conv": "conv",
    "BatchNorm": "batchnorm",
    "Linear": "linear",
    "LayerNorm": "layernorm",
    "Embedding": "embedding",
    "LSTM": "lstm",
}
"""Words of a module's class, and the kind of layer that it is; anything else is a parameter."""


def layer_times(measured: MeasuredModel) -> list[LayerTimes]:
    """Return a step's layers in forward order, scaled so that all of it adds up to the whole step.

    What counts with which layer is said at `split_passes`.
    """
    scale = measured.iteration_s / measured.moments.step_s
    moments = measured.moments
    held = _held(measured)
    kinds = {owner.name: _kind(owner.module) for owner in measured.owners}
    return split_passes(moments.begun_s, held, kinds, moments.forward_s, moments.backward_s, scale)


def measured_profile_text(measured: MeasuredModel, about: Mapping[str, str]) -> str:
    """Return the profile's file.

    Parameters
    ----------
    measured : the step
    about : model, gpu, precision, framework, source, licence, date, and notes if there are any
    """
    scale = measured.iteration_s / measured.moments.step_s
    subject = measured.subject
    kinds = "; ".join(f"{column}=measured" for column in KINDS)
    notes = [about["notes"]] if about.get("notes") else []
    slowest = f", the slowest of {measured.ranks} ranks that begin together"
    notes.append(
        f"median of {len(measured.whole_s)} whole steps without hooks"
        f"{slowest if measured.ranks > 1 else ''} (+-{measured.spread:.1%});"
        f" layers by marks at each module's beginning and each gradient's accumulation, whose steps"
        f" took {measured.marked:.3f} times as long and are scaled to the whole"
        + ("" if abs(measured.marked - 1) <= AGREES else ": more than the 3 % that is usual")
    )
    if measured.peak_bytes is not None:
        notes.append(f"peak memory {measured.peak_bytes / 2**30:.2f} GiB")
    header = {
        "schema": PROFILE_SCHEMA,
        "model": about["model"],
        "gpu": about["gpu"],
        "precision": about["precision"],
        "batch": str(subject.samples),
        "framework": about["framework"],
        "iteration_ms": milliseconds(measured.iteration_s),
        "optimizer_ms": milliseconds(measured.moments.update_s * scale),
        "kind": kinds,
        "source": about["source"],
        "licence": about["licence"],
        "date": about["date"],
        "notes": "; ".join(notes),
    }
    if subject.sequence is not None:
        header["sequence"] = str(subject.sequence)
    return profile_csv(header, layer_times(measured))


def measured_positions_text(measured: MeasuredModel, model: str, source: str) -> str:
    """Return the file of positions: rows a sample of each convolution's and dense layer's input."""
    text = io.StringIO()
    for key, value in (("schema", POSITIONS), ("model", model), ("source", source)):
        text.write(f"# {key}: {value}\n")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(POSITION_COLUMNS)
    for layer in layer_times(measured):
        if layer.kind in ("conv", "linear"):
            table.writerow((layer.name, measured.positions.get(layer.name, 1)))
    return text.getvalue()


KINDS = ("forward_ms", "backward_ms", "ready_ms", "iteration_ms", "optimizer_ms")


def _held(measured: MeasuredModel) -> dict[str, list[tuple[str, tuple[int, ...], float]]]:
    """Return layer -> its gradients; of a module never called they are its parent's."""
    moments = measured.moments
    held: dict[str, list[tuple[str, tuple[int, ...], float]]] = {}
    for name in moments.begun_s:
        held[name] = []
    for owner in measured.owners:
        home = owner.name
        while home not in held and "." in home:
            home = home.rpartition(".")[0]
        home = home if home in held else next(iter(held))
        held[home] += [
            (name, tuple(int(axis) for axis in parameter.shape), moments.ready_s[name])
            for name, parameter in owner.parameters
            if name in moments.ready_s
        ]
    return {name: of for name, of in held.items() if of}


def _kind(module: Any) -> str:
    word = type(module).__name__
    return next((kind for part, kind in WORDS.items() if part in word), "parameter")


CALIBRATE_COMPUTE_SCHEMA = "perfsim/calibrate-compute/1"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True)
class MeasuredProfile:
    """The files written, and what was measured."""

    profile: Path
    positions: Path
    measured: MeasuredModel

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``calibrate compute --json`` prints."""
        measured = self.measured
        return {
            "schema": CALIBRATE_COMPUTE_SCHEMA,
            "profile": str(self.profile),
            "positions": str(self.positions),
            "iteration_s": measured.iteration_s,
            "iteration_relative_half_width": measured.spread,
            "ranks": measured.ranks,
            "samples_per_s": measured.subject.samples / measured.iteration_s,
            "marked_over_whole": measured.marked,
            "forward_s": measured.moments.forward_s,
            "backward_s": measured.moments.backward_s,
            "optimizer_s": measured.moments.update_s,
            "gradients": len(measured.moments.ready_s),
            "without_gradient": list(measured.unused),
            "peak_memory_bytes": measured.peak_bytes,
        }


def calibrate_compute(
    model: str,
    batch: int,
    *,
    precision: str = "fp32",
    sequence: int | None = None,
    optimizer: str = "sgd",
    repeats: int = 20,
    device: str | None = None,
    gpu: str | None = None,
    name: str | None = None,
    folder: Path = Path("profiles"),
    force: bool = False,
) -> MeasuredProfile | None:
    """Measure a model on this machine and write its profile and positions.

    As a job of several ranks (torchrun, srun, mpirun) all of them train side by side without
    exchanging anything, and the whole step is the slowest rank's: what a synchronous step waits
    for. Rank 0 writes; the others return None.

    Parameters
    ----------
    model : torchvision:resnet50, transformers:bert-base-uncased, timm:..., module:factory
    batch, sequence : samples, and tokens a sample where it has any
    precision, optimizer, repeats : see `measure_compute`
    device : cuda or cpu; None is a GPU if there is one
    gpu : name of the device in perfsim's words; None is found from what the driver says
    name : of the model in perfsim's words; None is made of ``model``
    folder : of profiles; files go below its models/
    force : replace a profile that is there

    Raises
    ------
    RequestError
        If the request cannot be met; nothing is written then.
    """
    torch, device = torch_device("calibrate compute", device)
    if batch < 1 or repeats < 3:
        raise RequestError("`batch` must be at least 1 and `repeats` at least 3.")
    ranks = find_ranks(os.environ)
    if device == "cuda":
        torch.cuda.set_device(ranks.local_rank % torch.cuda.device_count())
    word = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    gpu = gpu or device_name(word, Catalog().files("devices"))
    name = name or re.sub(r"[^A-Za-z0-9_-]+", "-", named_parts(model)[1])
    if not NAME.fullmatch(name):
        raise RequestError("name", f"{name!r} is no name; letters, digits, '_' and '-'.")
    parts = [name, gpu, precision, f"b{batch}", *([f"s{sequence}"] if sequence else [])]
    path = folder / "models" / f"{'.'.join(parts)}.csv"
    if path.exists() and not force:
        raise RequestError("out", f"{str(path)!r} is there already; `force` replaces it.")
    measured = measure_compute(
        lambda: find_subject(model, batch, sequence, device),
        precision,
        optimizer,
        repeats,
        device,
        ranks,
    )
    ranks.close()
    if ranks.rank:
        return None
    about = {
        "model": name,
        "gpu": gpu,
        "precision": precision,
        "framework": _framework(torch, device),
        "source": f"perfsim calibrate compute --model {model} --optimizer {optimizer} on {word}",
        "licence": "the measurer's own",
        "date": date.today().isoformat(),
    }
    text = measured_profile_text(measured, about)
    positions = folder / "models" / f"{name}.positions.csv"
    _write(path, text, positions, measured_positions_text(measured, name, about["source"]))
    return MeasuredProfile(path, positions, measured)


def _write(path: Path, text: str, positions: Path, positions_csv: str) -> None:
    """Write both files whole, the profile only if it reads back."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError("out", f"{str(path.parent)!r}: {error.strerror}.") from None
    with TemporaryDirectory() as work:
        trial = Path(work) / path.name
        trial.write_text(text, encoding="utf-8")
        read_profile(trial)
    write_text(path, text)
    write_text(positions, positions_csv)


def _framework(torch: Any, device: str) -> str:
    parts = [f"PyTorch {torch.__version__}"]
    if device == "cuda":
        parts += [f"CUDA {torch.version.cuda}", f"cuDNN {torch.backends.cudnn.version()}"]
    return ", ".join(parts)
