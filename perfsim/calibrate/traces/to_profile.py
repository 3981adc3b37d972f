"""From a trace of training to a profile, and to a table of the collectives that it shows."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from perfsim.calibrate.formats.own_csv import CURVES_CSV_SCHEMA
from perfsim.calibrate.measure.launch import device_name
from perfsim.calibrate.traces import read_trace
from perfsim.calibrate.traces.traced import Seen, TensorShape, Traced, TracedLayer, TracedStep
from perfsim.collectives import COLLECTIVES
from perfsim.compute.profile import PRECISIONS, PROFILE_COLUMNS, PROFILE_SCHEMA, read_profile
from perfsim.data.catalog import Catalog
from perfsim.data.files import write_text
from perfsim.errors import DataError, RequestError, unknown
from perfsim.models import build_model, defined_models

__all__ = [
    "Imported",
    "LayerTimes",
    "as_known",
    "between_moments",
    "by_size",
    "calls_table",
    "import_trace",
    "milliseconds",
    "placed",
    "profile_csv",
    "profile_of_trace",
]


def placed(traced: Traced, nodes: int, gpus_per_node: int | None) -> tuple[list[Seen], int]:
    """Return the calls of known size among all ranks of the job, and the GPUs a node.

    Where the ranks of a part of the job stand, a trace does not say: those calls are left out.

    Raises
    ------
    RequestError
        If the ranks do not fit on the nodes.
    """
    ranks = traced.world or max((one.ranks or 0 for one in traced.seen), default=0)
    whole = [
        one
        for one in traced.seen
        if one.size_bytes and one.ranks == ranks > 1 and one.collective in COLLECTIVES
    ]
    most = gpus_per_node or max(1, -(-ranks // nodes))
    if whole and not nodes <= ranks <= nodes * most:
        raise RequestError(
            "nodes", f"the trace's {ranks} ranks do not fit on {nodes} nodes of {most} GPUs."
        )
    return whole, most


def calls_table(whole: list[Seen], nodes: int, most: int, file: Path, traced: Traced) -> str:
    """Return every call as a row of perfsim's table of measured collectives."""
    text = io.StringIO()
    header = {"schema": CURVES_CSV_SCHEMA, "source": f"trace {file.name}", "kind": "measured"}
    header |= {"library": traced.library, "version": traced.version}
    for key, value in header.items():
        if value:
            text.write(f"# {key}: {' '.join(value.split())}\n")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("collective", "ranks", "nodes", "gpus_per_node", "size_bytes", "time_us"))
    for one in whole:
        time_us = f"{one.seconds * 1e6:.3f}"
        rows.writerow((one.collective, one.ranks, nodes, most, one.size_bytes, time_us))
    return text.getvalue()


def by_size(seen: Iterable[Seen]) -> list[dict[str, Any]]:
    """Return the calls by collective, ranks and size: how many, least and median seconds."""
    found: dict[tuple[str, int | None, int | None], list[float]] = {}
    for one in seen:
        found.setdefault((one.collective, one.ranks, one.size_bytes), []).append(one.seconds)
    order = sorted(found, key=lambda key: (key[0], key[1] or 0, key[2] or 0))
    return [
        {
            "collective": key[0],
            "ranks": key[1],
            "size_bytes": key[2],
            "calls": len(found[key]),
            "least_s": min(found[key]),
            "median_s": median(found[key]),
        }
        for key in order
    ]


Tensor = tuple[str, TensorShape]


def as_known(step: TracedStep, model: str) -> TracedStep | None:
    """Return a step with the names, and missing shapes, of a model's definition.

    None where perfsim has no such model, or its layers are not these in this order.
    """
    if model not in defined_models():
        return None
    defined = [layer for layer in build_model(model) if layer.tensors]
    if len(defined) != len(step.layers):
        return None
    begun, ready, layers = {}, {}, []
    for traced, known in zip(step.layers, defined, strict=True):
        pairs = _paired(traced, known.tensors)
        if pairs is None:
            return None
        begun[known.name] = step.begun_s[traced.name]
        for name, (own, _) in pairs:
            ready[own] = step.ready_s[name]
        layers.append(TracedLayer(known.name, known.kind, tuple(own for _, own in pairs)))
    return replace(step, layers=tuple(layers), begun_s=begun, ready_s=ready)


def _paired(traced: TracedLayer, tensors: Sequence[Tensor]) -> list[tuple[str, Tensor]] | None:
    """Return (traced name, defined tensor) in the definition's order, None if they differ."""
    if len(tensors) != len(traced.gradients):
        return None
    left = list(traced.gradients)
    if all(shape is None for _, shape in left):
        if traced.kind == "linear":
            # The bias is a result of the product's node itself, the weight of a later node.
            left.reverse()
        return [(name, own) for (name, _), own in zip(left, tensors, strict=True)]
    pairs = []
    for tensor in tensors:
        found = next((one for one in left if one[1] == tuple(tensor[1])), None)
        if found is None:
            return None
        left.remove(found)
        pairs.append((found[0], tensor))
    return pairs


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """One layer: its kind, its gradients with shape and ready time, its two passes [s]."""

    name: str
    kind: str
    gradients: tuple[tuple[str, tuple[int, ...], float], ...]
    forward_s: float
    backward_s: float


def between_moments(
    begun_s: Mapping[str, float],
    held: Mapping[str, Sequence[tuple[str, tuple[int, ...], float]]],
    kinds: Mapping[str, str],
    forward_s: float,
    backward_s: float,
    scale: float = 1.0,
) -> list[LayerTimes]:
    """Return the layers in forward order, so that all of them add up to the two passes.

    A layer's forward time goes from its beginning to that of the next layer with parameters, so
    that what stands between (activations, pooling, the loss) counts with the layer before. Its
    backward time goes from the moment that the gradients before it were ready to its own. The
    first layer to begin also gets what came before it, the last gradient what came after it.

    Parameters
    ----------
    begun_s : when each layer begins, from the start of the forward pass [s]
    held : layer -> its gradients: name, shape, ready from the start of the backward pass [s];
        layers in the order that they begin
    kinds : layer -> conv, linear, ...
    forward_s, backward_s : whole passes [s]
    scale : factor on every time

    Examples
    --------
    >>> held = {"a": [("a.w", (2,), 3.0)], "b": [("b.w", (2,), 1.0)]}
    >>> layers = between_moments({"a": 0.5, "b": 1.5}, held, {}, 4.0, 3.5)
    >>> [(layer.name, layer.forward_s, layer.backward_s) for layer in layers]
    [('a', 1.5, 2.5), ('b', 2.5, 1.0)]
    """
    begun = [0.0, *(begun_s[name] for name in list(held)[1:]), forward_s]
    forward = dict(zip(held, (after - before for before, after in pairwise(begun)), strict=True))
    last = {name: max(ready for _, _, ready in of) for name, of in held.items()}
    backward, before = {}, 0.0
    for name in sorted(last, key=last.__getitem__):
        backward[name], before = last[name] - before, last[name]
    end = max(last, key=last.__getitem__)
    backward[end] += backward_s - before
    return [
        LayerTimes(
            name,
            kinds.get(name, "parameter"),
            tuple((tensor, shape, ready * scale) for tensor, shape, ready in of),
            forward[name] * scale,
            backward[name] * scale,
        )
        for name, of in held.items()
    ]


def profile_csv(header: Mapping[str, str], layers: Iterable[LayerTimes]) -> str:
    """Return a profile's file: ``# key: value`` lines, then one row a gradient in forward order."""
    text = io.StringIO()
    for key, value in header.items():
        text.write(f"# {key}: {' '.join(value.split())}\n")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(PROFILE_COLUMNS)
    for layer in layers:
        times = (milliseconds(layer.forward_s), milliseconds(layer.backward_s))
        for tensor, shape, ready in layer.gradients:
            elements = 1
            for axis in shape:
                elements *= axis
            worded = "x".join(map(str, shape)) or "1"
            done = milliseconds(ready)
            table.writerow((layer.name, layer.kind, tensor, worded, elements, *times, done))
            times = ("", "")
    return text.getvalue()


def milliseconds(seconds: float) -> str:
    """Return a time [s] as profiles write it, in milliseconds.

    Examples
    --------
    >>> milliseconds(0.00125)
    '1.250000'
    """
    return f"{seconds * 1e3:.6f}"


IDLE = 0.9
"""Below this share of a busy device the passes hold launches, waits or the profiler's own work."""


def profile_of_trace(step: TracedStep, about: Mapping[str, str], path: Path) -> str:
    """Return the file of the profile that a trace shows.

    The iteration is that of the trace without the time in which only collectives ran: a profile
    is of one device alone. Layers take the names of perfsim's definition of the model if it has
    the same ones.

    Parameters
    ----------
    step : medians of the trace
    about : model, gpu, precision, batch, framework, source, licence, date, maybe sequence
    path : of the trace, for the error

    Raises
    ------
    DataError
        If the trace does not say the gradients' shapes, and no definition does.
    """
    known = as_known(step, about["model"])
    named = known or step
    held: dict[str, list[tuple[str, tuple[int, ...], float]]] = {}
    for layer in named.layers:
        held[layer.name] = []
        for tensor, shape in layer.gradients:
            if shape is None:
                raise DataError(
                    "does not say the shapes of its gradients: record it with"
                    " record_shapes=True, or give a --model that perfsim knows and whose layers"
                    " are these",
                    path=path,
                )
            held[layer.name].append((tensor, shape or (1,), named.ready_s[tensor]))
    kinds = {layer.name: layer.kind for layer in named.layers}
    layers = between_moments(named.begun_s, held, kinds, step.forward_s, step.backward_s)
    passes_s = step.forward_s + step.backward_s + step.update_s
    iteration_s = max(step.whole_s - step.waiting_s, passes_s * (1 + 1e-9))
    told = "derived" if step.waiting_s else "measured"
    kind = {"forward_ms": "measured", "backward_ms": "measured", "ready_ms": "measured"}
    kind |= {"iteration_ms": told, "optimizer_ms": "measured"}
    header = {
        "schema": PROFILE_SCHEMA,
        **{key: about[key] for key in ("model", "gpu", "precision", "batch", "framework")},
        "iteration_ms": milliseconds(iteration_s),
        "optimizer_ms": milliseconds(step.update_s),
        "kind": "; ".join(f"{column}={word}" for column, word in kind.items()),
        **{key: about[key] for key in ("source", "licence", "date")},
        "notes": "; ".join(_notes(step, known is not None, about["model"])),
    }
    if "sequence" in about:
        header["sequence"] = about["sequence"]
    return profile_csv(header, layers)


def _notes(step: TracedStep, known: bool, model: str) -> list[str]:
    notes = [f"median of {step.count} traced steps; the profiler's own cost is in all times"]
    if known:
        notes.append(f"layers named as in perfsim's definition of {model}")
    else:
        notes.append("layers and tensors named after the trace's modules or operators")
    if step.waiting_s:
        notes.append(
            f"iteration without the {milliseconds(step.waiting_s)} ms in which only collectives ran"
        )
    if step.busy < IDLE:
        notes.append(
            f"the device was busy in {step.busy:.0%} of the passes: the rest is launches, waits"
            " or the profiler"
        )
    return notes


IMPORT_TRACES_SCHEMA = "perfsim/calibrate-import-trace/1"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True)
class Imported:
    """The files written (None: not), and what the trace said."""

    profile: Path | None
    collectives: Path | None
    traced: Traced
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
) -> Imported:
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
        whole, most = placed(traced, nodes, gpus_per_node)
        if whole:
            beside = folder / f"{stem}.collectives.csv"
            table = calls_table(whole, nodes, most, file, traced)
    _write({path: text, beside: table}, file, force)
    return Imported(path, beside, traced, tuple(by_size(traced.seen)))


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


def _origin(file: Path, traced: Traced) -> dict[str, str]:
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
