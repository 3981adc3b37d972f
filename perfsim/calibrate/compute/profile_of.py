"""A measured step as a profile: its layers, gradients, and the rows of its factors."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from perfsim.calibrate.compute.measure import AGREES, Measured
from perfsim.calibrate.profile_csv import (
    LayerTimes,
    between_moments,
    milliseconds,
    profile_csv,
)
from perfsim.positions import COLUMNS as POSITION_COLUMNS
from perfsim.positions import SCHEMA as POSITIONS
from perfsim.profile_file import SCHEMA

__all__ = ["LayerTimes", "layer_times", "positions_text", "profile_text"]

WORDS = {
    "Conv": "conv",
    "BatchNorm": "batchnorm",
    "Linear": "linear",
    "LayerNorm": "layernorm",
    "Embedding": "embedding",
    "LSTM": "lstm",
}
"""Words of a module's class, and the kind of layer that it is; anything else is a parameter."""


def layer_times(measured: Measured) -> list[LayerTimes]:
    """Return a step's layers in forward order, scaled so that all of it adds up to the whole step.

    What counts with which layer is said at `between_moments`.
    """
    scale = measured.iteration_s / measured.moments.step_s
    moments = measured.moments
    held = _held(measured)
    kinds = {owner.name: _kind(owner.module) for owner in measured.owners}
    return between_moments(
        moments.begun_s, held, kinds, moments.forward_s, moments.backward_s, scale
    )


def profile_text(measured: Measured, about: Mapping[str, str]) -> str:
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
        "schema": SCHEMA,
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


def positions_text(measured: Measured, model: str, source: str) -> str:
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


def _held(measured: Measured) -> dict[str, list[tuple[str, tuple[int, ...], float]]]:
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
