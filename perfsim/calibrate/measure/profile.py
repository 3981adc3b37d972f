"""``perfsim calibrate compute``: measure a model's training step and write its profile."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfsim.calibrate.measure.device import device_name, torch_device
from perfsim.calibrate.measure.subject import find_subject, named_parts
from perfsim.calibrate.measure.training_step import MeasuredModel, find_ranks, measure_compute
from perfsim.calibrate.write_profile import (
    LayerTimes,
    check_profile,
    check_profile_name,
    milliseconds,
    profile_csv,
    profile_stem,
    refuse_existing,
    split_passes,
    write_files,
)
from perfsim.compute.profile import (
    POSITIONS_COLUMNS,
    POSITIONS_SCHEMA,
    PROFILE_SCHEMA,
    precision_named,
)
from perfsim.compute.software import eras_of
from perfsim.data.catalog import Catalog
from perfsim.data.files import today
from perfsim.errors import RequestError

__all__ = [
    "MeasuredProfile",
    "calibrate_compute",
    "measured_layer_times",
    "measured_positions_text",
    "measured_profile_text",
]

CALIBRATE_COMPUTE_SCHEMA = "perfsim/calibrate-compute/1"
MIN_STEPS = 3
"""Steps of each kind at least, so that a median holds off one stall. No source: chosen."""
USUAL_MARK_COST = 0.03
"""Marks that lengthen a step by more than this share are pointed out. No source: chosen."""
USUAL_WAIT = 0.1
"""A process that has no core for more than this share of its time shares its cores.
No source: chosen."""
MEASURED_COLUMNS = ("forward_ms", "backward_ms", "ready_ms", "iteration_ms", "optimizer_ms")
LAYER_KINDS = {
    "Conv1D": "linear",
    "Conv": "conv",
    "BatchNorm": "batchnorm",
    "Linear": "linear",
    "LayerNorm": "layernorm",
    "Embedding": "embedding",
    "LSTM": "lstm",
}
"""Parts of the name of a module's class -> kind of layer, the first that fits; every other module
is a parameter. transformers calls a dense layer with its weight the other way round Conv1D."""
HEADER_OPTIMIZERS = {"sgd": "sgd", "adam": "adam", "adamw": "adam"}
"""Optimizer that is measured -> what a profile calls it, by its passes over the parameters."""


@dataclass(frozen=True)
class MeasuredProfile:
    """The files written, and what was measured."""

    profile: Path
    positions: Path
    measured: MeasuredModel

    def warnings(self) -> list[str]:
        """Return what makes the times doubtful, a sentence each."""
        return [words] if (words := _shared_cores(self.measured)) else []

    def to_dict(self) -> dict[str, Any]:
        """Return the object that the command prints as JSON."""
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
            "waited_for_core": measured.waited,
            "warnings": self.warnings(),
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
    exchanging anything. The whole step is then the slowest rank's, which a synchronous step waits
    for. Rank 0 writes; the others return None.

    Parameters
    ----------
    model : torchvision:resnet50, transformers:bert-base-uncased, timm:..., module:factory
    batch, sequence : samples, and tokens a sample for models that take tokens
    precision, optimizer, repeats : see `measure_compute`
    device : cuda or cpu; None is a GPU if there is one
    gpu : name of the device in perfsim's words; None follows from what the driver says
    name : of the model in perfsim's words; None follows from ``model``
    folder : of profiles; files go below its models/
    force : replace a profile that is there

    Raises
    ------
    RequestError
        If the request cannot be met; nothing is written then.
    BrokenOffError
        If another rank leaves the job before its end.
    """
    precision = precision_named(precision)
    torch, device = torch_device("calibrate compute", device)
    if batch < 1:
        why = f"{batch} is not allowed: it must be 1 or more."
        raise RequestError("batch", why, value=batch)
    if repeats < MIN_STEPS:
        why = f"{repeats} is not allowed: it must be {MIN_STEPS} or more."
        raise RequestError("repeats", why, value=repeats)
    ranks = find_ranks(os.environ)
    if device == "cuda":
        torch.cuda.set_device(ranks.local_rank % torch.cuda.device_count())
    driver_name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    gpu = device_name(driver_name, Catalog()) if gpu is None else gpu
    name = name or re.sub(r"[^A-Za-z0-9_-]+", "-", named_parts(model)[1])
    check_profile_name("name", name)
    check_profile_name("gpu", gpu)
    path = folder / "models" / f"{profile_stem(name, gpu, precision, batch, sequence)}.csv"
    refuse_existing(path, force)
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
    command = f"perfsim calibrate compute --model {model} --optimizer {optimizer}"
    about = {
        "model": name,
        "gpu": gpu,
        "precision": precision,
        "framework": _framework(torch, device),
        "source": f"{command} on {driver_name}",
        "optimizer": HEADER_OPTIMIZERS[optimizer],
        "licence": "the measurer's own",
        "date": today(),
    }
    profile = measured_profile_text(measured, about)
    positions_path = folder / "models" / f"{name}.positions.csv"
    positions = measured_positions_text(measured, name, about["source"])
    check_profile(path.name, profile)
    write_files({path: profile, positions_path: positions})
    return MeasuredProfile(path, positions_path, measured)


def _framework(torch: Any, device: str) -> str:
    parts = [f"PyTorch {torch.__version__}"]
    if device == "cuda":
        parts += [f"CUDA {torch.version.cuda}", f"cuDNN {torch.backends.cudnn.version()}"]
    return ", ".join(parts)


def measured_profile_text(measured: MeasuredModel, about: Mapping[str, str]) -> str:
    """Return the text of the profile's file.

    Parameters
    ----------
    measured : the step
    about : model, gpu, precision, framework, optimizer, source, licence, date, and notes if there
        are any
    """
    scale = measured.iteration_s / measured.moments.step_s
    subject = measured.subject
    header = {
        "schema": PROFILE_SCHEMA,
        "model": about["model"],
        "gpu": about["gpu"],
        "precision": about["precision"],
        "batch": str(subject.samples),
        "framework": about["framework"],
        "software": eras_of(about["framework"])[0],
        "iteration_ms": milliseconds(measured.iteration_s),
        "optimizer_ms": milliseconds(measured.moments.update_s * scale),
        "optimizer": about["optimizer"],
        "kind": "; ".join(f"{column}=measured" for column in MEASURED_COLUMNS),
        "source": about["source"],
        "licence": about["licence"],
        "date": about["date"],
        "notes": "; ".join(_notes(measured, about)),
    }
    if subject.sequence is not None:
        header["sequence"] = str(subject.sequence)
    return profile_csv(header, measured_layer_times(measured))


def _notes(measured: MeasuredModel, about: Mapping[str, str]) -> list[str]:
    notes = [about["notes"]] if about.get("notes") else []
    slowest = f", the slowest of {measured.ranks} ranks that begin together"
    costly = abs(measured.marked - 1) > USUAL_MARK_COST
    notes.append(
        f"median of {len(measured.whole_s)} whole steps without hooks"
        f"{slowest if measured.ranks > 1 else ''} (+-{measured.spread:.1%});"
        f" layers by marks at each module's beginning and each gradient's accumulation, whose steps"
        f" took {measured.marked:.3f} times as long and are scaled to the whole"
        + (f": more than the {USUAL_MARK_COST:.0%} that is usual" if costly else "")
    )
    if shared := _shared_cores(measured):
        notes.append(shared)
    if measured.peak_bytes is not None:
        notes.append(f"peak memory {measured.peak_bytes / 2**30:.2f} GiB")
    return notes


def _shared_cores(measured: MeasuredModel) -> str:
    """Return in a sentence that other processes took this one's cores, or ""."""
    if measured.waited is None or measured.waited <= USUAL_WAIT:
        return ""
    beside = "the ranks beside it or other work" if measured.ranks > 1 else "other work"
    return (
        f"for {measured.waited:.0%} of the time the process had no core: {beside} shares its cores."
        " The step holds for training that shares them alike: run as many ranks at once as train"
        " on a machine, and no other work"
    )


def measured_layer_times(measured: MeasuredModel) -> list[LayerTimes]:
    """Return a step's layers in forward order, scaled so that they add up to the whole step.

    `split_passes` says what counts with which layer.
    """
    scale = measured.iteration_s / measured.moments.step_s
    moments = measured.moments
    kinds = {owner.name: _layer_kind(owner.module) for owner in measured.owners}
    return split_passes(
        moments.begun_s,
        _gradients_by_layer(measured),
        kinds,
        moments.forward_s,
        moments.backward_s,
        scale,
    )


def _gradients_by_layer(
    measured: MeasuredModel,
) -> dict[str, list[tuple[str, tuple[int, ...], float]]]:
    """Return layer -> its gradients; those of a module that is never called go to its parent."""
    moments = measured.moments
    gradients: dict[str, list[tuple[str, tuple[int, ...], float]]] = {}
    for name in moments.begun_s:
        gradients[name] = []
    for owner in measured.owners:
        layer = owner.name
        while layer not in gradients and "." in layer:
            layer = layer.rpartition(".")[0]
        layer = layer if layer in gradients else next(iter(gradients))
        gradients[layer] += [
            (name, tuple(int(axis) for axis in parameter.shape), moments.ready_s[name])
            for name, parameter in owner.parameters
            if name in moments.ready_s
        ]
    return {name: own for name, own in gradients.items() if own}


def _layer_kind(module: Any) -> str:
    class_name = type(module).__name__
    return next((kind for part, kind in LAYER_KINDS.items() if part in class_name), "parameter")


def measured_positions_text(measured: MeasuredModel, model: str, source: str) -> str:
    """Return the file of positions: rows a sample of each convolution's and dense layer's input.

    Parameters
    ----------
    measured : the step
    model : its name in perfsim's words
    source : of the measurement
    """
    text = io.StringIO()
    for key, value in (("schema", POSITIONS_SCHEMA), ("model", model), ("source", source)):
        text.write(f"# {key}: {value}\n")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(POSITIONS_COLUMNS)
    for layer in measured_layer_times(measured):
        if layer.kind in ("conv", "linear"):
            table.writerow((layer.name, measured.positions.get(layer.name, 1)))
    return text.getvalue()
