"""Build the shipped profiles from collected figures.

    python profiles/build/build_profiles.py --data DIR --out profiles/models

``profile_recipes.csv`` holds one row a profile: the measured whole-model time, its source, and
which layer figures give the shape inside that time (``layer_shapes``). ``DIR/profiles`` holds the
collected layer figures. Beside the profiles it writes, by arithmetic, the positions of each layer
that K-FAC needs. A maintainer's script: no prediction imports it.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from layer_shapes import (
    CALIBRATED_ON,
    FORWARD_TO_BACKWARD,
    LayerGroup,
    layer_groups,
    read_collected,
    read_ready_trace,
    relative_times,
    source_path,
    start_ms,
)
from perfsim.compute.device import load_rates
from perfsim.compute.execution import execution_of
from perfsim.compute.kernel_time import update_passes
from perfsim.compute.profile import (
    OPTIMIZER_LAUNCHES,
    POSITIONS_COLUMNS,
    POSITIONS_SCHEMA,
    POSITIONS_SUFFIX,
    PROFILE_COLUMNS,
    PROFILE_SCHEMA,
)
from perfsim.data.catalog import Catalog
from perfsim.data.files import write_text
from perfsim.errors import DataError, PerfsimError
from perfsim.models import ModelLayer, build_model
from perfsim.quantity import Kind

__all__ = [
    "RECIPES",
    "ProfileRecipe",
    "build_positions",
    "build_profiles",
    "main",
    "positions_of",
    "positions_text",
    "read_bandwidths",
    "read_recipes",
]

RECIPES = Path(__file__).parent / "profile_recipes.csv"
_TEXT_COLUMNS = ("kind", "framework", "software", "date", "licence", "source", "notes")
_RECIPE_COLUMNS = (
    "model",
    "gpu",
    "precision",
    "batch",
    "sequence",
    "figure_ms",
    "covers",
    "forward_ms",
    "backward_ms",
    "optimizer",
    "shape",
    "forward_shape",
    "split",
    "even_share",
    *_TEXT_COLUMNS,
)


@dataclass(frozen=True, slots=True)
class ProfileRecipe:
    """One profile to build: what was measured of the whole model, and where its shape is from.

    ModelTimes in ms, None where not given. ``covers`` says what ``figure_ms`` is: the iteration, or
    forward_backward. ``shape`` is kind:name (trace, scaled-trace, modules, work);
    ``split`` is a profile's name or ``gemm`` (backward twice the forward); ``even_share`` is the
    part of the time that does not depend on a layer's work (launches, host). ``software`` is the
    era of the total's framework.
    """

    model: str
    gpu: str
    precision: str
    batch: int
    sequence: str
    figure_ms: float | None
    covers: str
    forward_ms: float | None
    backward_ms: float | None
    optimizer: str
    shape: tuple[str, str]
    forward_shape: tuple[str, str] | None
    split: str
    even_share: float
    kind: str
    framework: str
    software: str
    date: str
    licence: str
    source: str
    notes: str

    @property
    def name(self) -> str:
        """Stem of the profile's file."""
        return f"{self.model}.{self.gpu}.{self.precision}.b{self.batch}"


def _pair(text: str) -> tuple[str, str]:
    kind, _, name = text.partition(":")
    return kind, name


def read_recipes(path: Path | None = None) -> list[ProfileRecipe]:
    """Return the recipes of a table; a profile that another takes its ``split`` from comes first.

    Raises
    ------
    DataError
        If a row has an unknown word or an unreadable number.
    """
    path = path or RECIPES
    recipes = []
    for row in read_collected(path, _RECIPE_COLUMNS):
        if row["covers"] not in ("iteration", "forward_backward"):
            raise DataError(f"{row['covers']!r} is not known", path=path, column="covers")
        if row["optimizer"] not in OPTIMIZER_LAUNCHES:
            raise DataError(f"{row['optimizer']!r} is not known", path=path, column="optimizer")
        figure, forward, backward = (
            float(row[column]) if row[column] else None
            for column in ("figure_ms", "forward_ms", "backward_ms")
        )
        recipes.append(
            ProfileRecipe(
                row["model"],
                row["gpu"],
                row["precision"],
                int(row["batch"]),
                row["sequence"],
                figure,
                row["covers"],
                forward,
                backward,
                row["optimizer"],
                _pair(row["shape"]),
                _pair(row["forward_shape"]) if row["forward_shape"] else None,
                row["split"],
                float(row["even_share"] or 0.0),
                *(row[column] for column in _TEXT_COLUMNS),
            )
        )
    return recipes


def read_bandwidths() -> dict[str, float]:
    """Return the memory bandwidth [B/s] of each GPU by its device file."""
    catalog = Catalog()
    return {
        gpu: load_rates(gpu, catalog).memory_bandwidth.value for gpu in catalog.files("devices")
    }


_GEMM_SHARE = FORWARD_TO_BACKWARD / (1 + FORWARD_TO_BACKWARD)
_OWN_SHARE = 0.99
"""Ready moments count as measured while the derived start is below 1 % of the backward pass."""


@dataclass(frozen=True)
class ModelTimes:
    """Times of one profile [ms]: forward by group, ready by tensor, whole iteration, optimizer.

    ``start_ms`` is the derived part of the backward pass before a trace's first gradient.
    """

    model: tuple[LayerGroup, ...]
    forward_ms: list[float]
    ready_ms: dict[str, float]
    iteration_ms: float
    optimizer_ms: float
    start_ms: float
    kinds: dict[str, Kind]

    @property
    def backward_total_ms(self) -> float:
        """Length of the backward pass."""
        return max(self.ready_ms.values())

    @property
    def both_ms(self) -> float:
        """Forward and backward pass together."""
        return sum(self.forward_ms) + self.backward_total_ms


@dataclass(frozen=True)
class _PassTimes:
    """Forward and backward pass [ms]; ``own``: the ready moments are the source's own."""

    forward_ms: list[float]
    ready_ms: dict[str, float]
    start_ms: float = 0.0
    own: bool = False


def _scaled(shape: list[float], total: float, even_share: float = 0.0) -> list[float]:
    even = even_share * total / len(shape)
    return [even + weight * (1 - even_share) * total / sum(shape) for weight in shape]


def _ready(model: tuple[LayerGroup, ...], backward_ms: list[float]) -> dict[str, float]:
    ends = list(accumulate(reversed(backward_ms)))[::-1]
    return {
        tensor: end for group, end in zip(model, ends, strict=True) for tensor, _ in group.tensors
    }


def _from_trace(
    recipe: ProfileRecipe,
    data: Path,
    model: tuple[LayerGroup, ...],
    bytes_per_s: float,
    both: float | None,
    share: float,
) -> _PassTimes:
    kind, source = recipe.shape
    trace = read_ready_trace(source_path(data, source), model)
    start = start_ms(trace, model, recipe.batch, bytes_per_s)
    ready = {tensor: moment + start for tensor, moment in trace.ready_ms.items()}
    backward = max(ready.values())
    own = kind == "trace"
    if not own:
        if both is None:
            raise DataError(f"{recipe.name} has no total to scale its trace to")
        factor = both * (1 - share) / backward
        ready = {tensor: moment * factor for tensor, moment in ready.items()}
        start, backward = start * factor, backward * factor
    if recipe.forward_ms is not None:
        total = recipe.forward_ms
    else:
        total = backward * share / (1 - share) if both is None else both - backward
    forward = _scaled(relative_times(data, recipe.forward_shape, model)[0], total)
    return _PassTimes(forward, ready, start, own and start < (1 - _OWN_SHARE) * backward)


def _from_weights(
    recipe: ProfileRecipe, data: Path, model: tuple[LayerGroup, ...], both: float, share: float
) -> _PassTimes:
    ahead, back = relative_times(data, recipe.shape, model)
    if recipe.forward_ms is not None and recipe.backward_ms is not None:
        totals = recipe.forward_ms, recipe.backward_ms
    else:
        part = share if recipe.split else sum(ahead) / (sum(ahead) + sum(back))
        totals = both * part, both * (1 - part)
    backward = _scaled(back, totals[1], recipe.even_share)
    return _PassTimes(_scaled(ahead, totals[0], recipe.even_share), _ready(model, backward))


def _update_passes(recipe: ProfileRecipe) -> float:
    """Return the update's fp32 passes over the parameters, as the recipe's software runs it."""
    return update_passes(execution_of(recipe.software))[recipe.optimizer]


def model_times(
    recipe: ProfileRecipe,
    data: Path,
    bandwidths: Mapping[str, float],
    done: Mapping[str, ModelTimes],
) -> ModelTimes:
    """Return the times of one profile; ``done`` holds the profiles that were built before.

    Raises
    ------
    DataError
        If the recipe needs a bandwidth, total, profile or file that is not there.
    """
    model = layer_groups(recipe.model)
    if recipe.gpu not in bandwidths:
        raise DataError(f"no memory bandwidth is known for {recipe.gpu!r} ({recipe.name})")
    moved_bytes = _update_passes(recipe) * 4.0 * sum(group.elements for group in model)
    optimizer = moved_bytes / bandwidths[recipe.gpu] * 1e3
    whole = recipe.covers == "iteration"
    both = recipe.figure_ms
    if both is not None and whole:
        both -= optimizer
    share = _GEMM_SHARE
    if recipe.split not in ("", "gemm"):
        if recipe.split not in done:
            raise DataError(f"{recipe.name} needs {recipe.split}, which is not built before it")
        like = done[recipe.split]
        share = sum(like.forward_ms) / like.both_ms
    if recipe.shape[0] in ("trace", "scaled-trace"):
        parts = _from_trace(recipe, data, model, bandwidths[recipe.gpu], both, share)
    elif both is None:
        raise DataError(f"{recipe.name} has no total to scale its layers to")
    else:
        parts = _from_weights(recipe, data, model, both, share)
    own: Kind = "measured" if parts.own else "derived"
    given = whole and recipe.figure_ms is not None and recipe.kind == "published"
    kinds: dict[str, Kind] = {
        "forward_ms": "derived",
        "backward_ms": own,
        "ready_ms": own,
        "iteration_ms": "published" if given else "derived",
        "optimizer_ms": "derived",
    }
    total = sum(parts.forward_ms) + max(parts.ready_ms.values()) + optimizer
    iteration = recipe.figure_ms if given and recipe.figure_ms is not None else total
    return ModelTimes(
        model, parts.forward_ms, parts.ready_ms, iteration, optimizer, parts.start_ms, kinds
    )


_DIGITS = 4
"""Decimals of a millisecond. Running totals are rounded, not single times, so that sums hold."""

_SHAPE_NOTES = {
    "trace": "ready_ms and backward_ms are the gradient-ready moments of a trace of one iteration"
    " plus a derived {start:.3f} ms before its first gradient (loss and output layer)",
    "scaled-trace": "ready_ms and backward_ms are the gradient-ready moments of a trace, with a"
    " derived time before its first gradient, all scaled to the total",
    "modules": "layer times are module times scaled to the total (the source synchronises around"
    " every module); a gradient is ready when its layer ends",
    "work": "layer times are work (FLOPs, bytes) at the rate that layers of the same class have in"
    " a measured {network}, scaled to the total; a gradient is ready when its layer ends",
}
_TRACE_SOURCE = (
    "zhuangwang93/Espresso@a0294e3 model_tensor.py ({source}, Apache-2.0, one V100-32GB)"
)
_MODULES_SOURCE = "msr-fiddle/pipedream@7db6a1c profiler graph ({source}, MIT)"


def _layer_source(shape: tuple[str, str]) -> str:
    _, source = shape
    return (_TRACE_SOURCE if source.startswith("espresso") else _MODULES_SOURCE).format(
        source=source
    )


def _sources(recipe: ProfileRecipe) -> str:
    parts = [f"total: {recipe.source}", f"layers: {_layer_source(recipe.shape)}"]
    if recipe.forward_shape and recipe.forward_shape[1] != recipe.shape[1]:
        parts.append(f"forward shape: {_layer_source(recipe.forward_shape)}")
    return "; ".join(parts)


def _licences(recipe: ProfileRecipe) -> str:
    layers = "Apache-2.0" if recipe.shape[1].startswith("espresso") else "MIT"
    if recipe.forward_shape and recipe.forward_shape[1].startswith("pipedream"):
        layers = f"{layers}, MIT"
    return f"total: {recipe.licence}; layers: {layers}"


def _split(recipe: ProfileRecipe) -> str:
    if recipe.shape[0] == "modules" and not recipe.split:
        return ""
    if recipe.forward_ms is not None:
        given = "forward and backward totals are" if recipe.backward_ms else "forward total is"
        return f"the {given} the source's own"
    if recipe.split == "gemm":
        return "the forward pass is taken as half of the backward pass"
    if recipe.split:
        return f"forward to backward is as in {recipe.split}"
    return "the forward total is the iteration less backward and optimizer"


def _notes(recipe: ProfileRecipe, times: ModelTimes) -> str:
    kind, source = recipe.shape
    network = CALIBRATED_ON.get(source, "")
    parts = [_SHAPE_NOTES[kind].format(source=source, start=times.start_ms, network=network)]
    if recipe.forward_shape:
        how = "module times" if recipe.forward_shape[0] == "modules" else "work"
        parts.append(f"forward_ms is the forward total spread by relative {how}")
    parts.append(_split(recipe))
    if times.kinds["iteration_ms"] == "derived":
        parts.append("iteration_ms is the sum of forward, backward and optimizer")
    parts.append(
        f"optimizer_ms is {_update_passes(recipe):g} fp32 passes over the parameters"
        f" ({recipe.optimizer}) at the GPU's memory bandwidth"
    )
    text = "; ".join(part for part in parts if part) + "."
    return f"{text} {recipe.notes}".strip()


def _running(values: list[float]) -> list[str]:
    ends = [round(total, _DIGITS) for total in accumulate(values)]
    starts = [0.0, *ends]
    return [f"{end - start:.{_DIGITS}f}" for start, end in zip(starts, ends, strict=False)]


def _backward(times: ModelTimes) -> list[str]:
    done, cells = 0.0, []
    for group in reversed(times.model):
        end = max(round(times.ready_ms[tensor], _DIGITS) for tensor, _ in group.tensors)
        cells.append(f"{end - done:.{_DIGITS}f}")
        done = end
    return cells[::-1]


def profile_text(recipe: ProfileRecipe, times: ModelTimes) -> str:
    """Return the text of one profile file."""
    forward, backward = _running(times.forward_ms), _backward(times)
    optimizer = math.floor(times.optimizer_ms * 10**_DIGITS) / 10**_DIGITS
    parts = round(sum(map(float, forward)) + sum(map(float, backward)) + optimizer, _DIGITS)
    figure = times.kinds["iteration_ms"] == "published"
    iteration = max(times.iteration_ms, parts) if figure else parts
    header = {
        "schema": PROFILE_SCHEMA,
        "model": recipe.model,
        "gpu": recipe.gpu,
        "precision": recipe.precision,
        "batch": str(recipe.batch),
        "sequence": recipe.sequence,
        "framework": recipe.framework,
        "software": recipe.software,
        "iteration_ms": f"{iteration:.{_DIGITS}f}",
        "optimizer_ms": f"{optimizer:.{_DIGITS}f}",
        "optimizer": recipe.optimizer,
        "kind": "; ".join(f"{column}={kind}" for column, kind in times.kinds.items()),
        "source": _sources(recipe),
        "licence": _licences(recipe),
        "date": recipe.date or "not stated",
        "notes": _notes(recipe, times),
    }
    out = io.StringIO()
    for key, value in header.items():
        if value:
            out.write(f"# {key}: {value}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(PROFILE_COLUMNS)
    for group, ahead, back in zip(times.model, forward, backward, strict=True):
        for index, (tensor, shape) in enumerate(group.tensors):
            own = (ahead, back) if not index else ("", "")
            axes = "x".join(map(str, shape))
            ready = f"{times.ready_ms[tensor]:.{_DIGITS}f}"
            writer.writerow((group.name, group.kind, tensor, axes, math.prod(shape), *own, ready))
    return out.getvalue()


_KFAC_MODULES = ("conv", "linear")
"""Kinds of layers that the public K-FAC codes register: Conv2d and Linear."""
_WITHOUT_KFAC_MODULES = ("gpt2", "lstm")
"""Networks made of other modules: transformers' Conv1D, PyTorch's LSTM."""


def positions_of(layer: ModelLayer) -> int:
    """Return how many rows of a layer's input matrix one sample gives.

    Examples
    --------
    >>> positions_of(build_model("resnet50")[0]), positions_of(build_model("resnet50")[-1])
    (12544, 1)
    """
    weight = math.prod(layer.tensors[0][1])
    return round(layer.flops / (2.0 * weight))


def positions_text(model: str) -> str:
    """Return the text of a positions file; "" for a network without layers that K-FAC registers."""
    if model in _WITHOUT_KFAC_MODULES:
        return ""
    out = io.StringIO()
    out.write(f"# schema: {POSITIONS_SCHEMA}\n# model: {model}\n")
    out.write("# source: the public network definition (perfsim.models), by arithmetic\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(POSITIONS_COLUMNS)
    for layer in build_model(model):
        if layer.kind in _KFAC_MODULES and layer.tensors:
            writer.writerow((layer.name, positions_of(layer)))
    return out.getvalue()


def build_profiles(data: Path, recipes: Sequence[ProfileRecipe] | None = None) -> dict[str, str]:
    """Return file name -> text of every recipe's profile, built from the figures in ``data``."""
    bandwidths = read_bandwidths()
    done: dict[str, ModelTimes] = {}
    texts: dict[str, str] = {}
    for recipe in read_recipes() if recipes is None else recipes:
        done[recipe.name] = model_times(recipe, data, bandwidths, done)
        texts[f"{recipe.name}.csv"] = profile_text(recipe, done[recipe.name])
    return texts


def build_positions(models: Iterable[str]) -> dict[str, str]:
    """Return file name -> text of the positions files of some models."""
    texts = {f"{model}{POSITIONS_SUFFIX}": positions_text(model) for model in sorted(set(models))}
    return {name: text for name, text in texts.items() if text}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write every shipped profile, built from collected figures; return the exit code."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of collected figures")
    parser.add_argument("--out", type=Path, required=True, help="folder to write profiles to")
    options = parser.parse_args(arguments)
    try:
        recipes = read_recipes()
        profiles = build_profiles(options.data, recipes)
        texts = profiles | build_positions(recipe.model for recipe in recipes)
    except PerfsimError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    options.out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_text(options.out / name, text)
    print(f"{len(profiles)} profiles in {options.out}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
