"""The shape of a model's time: how forward and backward times divide over its layers.

Three kinds of collected figures give it: traces of gradient-ready moments (Espresso,
zhuangwang93/Espresso@a0294e3, Apache-2.0, all on a V100), module times (PipeDream,
msr-fiddle/pipedream@7db6a1c, MIT) and the work of each layer at rates that such figures show. Only
ratios between layers matter: ``build_profiles`` scales them to a measured total.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfsim.data.tables import csv_rows, read_lines
from perfsim.errors import DataError
from perfsim.models import build_model
from perfsim.models.layers import LayerShape, ModelLayer

__all__ = [
    "CALIBRATED_ON",
    "FORWARD_TO_BACKWARD",
    "LayerGroup",
    "ReadyTrace",
    "layer_groups",
    "read_collected",
    "read_module_times",
    "read_ready_trace",
    "relative_times",
    "source_path",
    "start_ms",
    "times_from_work",
    "work_rates",
]

CALIBRATED_ON = {
    "espresso_resnet50": "resnet50",
    "espresso_resnet101": "resnet101",
    "espresso_vgg16": "vgg16",
    "espresso_bert": "bert-base-squad",
    "espresso_bert_large": "bert-large-squad",
    "espresso_gpt2": "gpt2",
    "espresso_lstm": "lstm",
    "pipedream_densenet121": "densenet121",
    "pipedream_inception_v3": "inception-v3",
}
"""Source of layer figures -> the network that was measured."""

FORWARD_TO_BACKWARD = 0.5
"""Forward over backward time of a matrix product: its backward pass is two products as large."""


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """A layer with parameters, and the layers without parameters that follow it."""

    parts: tuple[ModelLayer, ...]

    @property
    def name(self) -> str:
        """Name of the layer that holds the parameters."""
        return self.parts[0].name

    @property
    def kind(self) -> str:
        """Kind of the layer that holds the parameters."""
        return self.parts[0].kind

    @property
    def tensors(self) -> tuple[tuple[str, LayerShape], ...]:
        """Its parameters."""
        return self.parts[0].tensors

    @property
    def elements(self) -> int:
        """Number of its parameters."""
        return sum(math.prod(shape) for _, shape in self.tensors)


def layer_groups(model: str) -> tuple[LayerGroup, ...]:
    """Return the layers of one network as a profile lists them: one group a layer with parameters.

    Examples
    --------
    >>> [len(group.parts) for group in layer_groups("gpt2")[2:5]]
    [1, 2, 1]
    """
    parts_by_group: list[list[ModelLayer]] = []
    for layer in build_model(model):
        if layer.tensors:
            parts_by_group.append([layer])
        else:
            parts_by_group[-1].append(layer)
    return tuple(LayerGroup(tuple(parts)) for parts in parts_by_group)


def read_collected(path: Path, needed: tuple[str, ...]) -> list[dict[str, str]]:
    """Return the rows of a collected table (CSV after ``#`` lines) as column -> text.

    Raises
    ------
    DataError
        If the file cannot be read, lacks one of the ``needed`` columns or has a row cut short.
    """
    lines = read_lines(path)
    start = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return [cells for _, cells in csv_rows(lines, start, needed, path)]


_RENAMED = {"dense_act.": "dense."}
"""The fused dense layer of NVIDIA's BERT, under the name that transformers gives it."""
_PADDED_ROWS = {30528: 30522}
"""Rows of a vocabulary padded to a multiple of eight -> rows without the padding."""


@dataclass(frozen=True, slots=True)
class ReadyTrace:
    """When each gradient became ready, counted from the first ready gradient.

    ``ready_ms`` maps tensor to moment. ``layer_ms`` is the time that each group took; that of the
    last group, where the backward pass begins, counts only from its first gradient.
    """

    ready_ms: dict[str, float]
    layer_ms: tuple[float, ...]


def _size(name: str, elements: int, width: int) -> int:
    """Return the elements of a tensor without the padding of its vocabulary."""
    entries, rest = divmod(elements, width)
    padded = name.endswith("word_embeddings.weight") and not rest
    return _PADDED_ROWS.get(entries, entries) * width if padded else elements


def read_ready_trace(path: Path, model: tuple[LayerGroup, ...]) -> ReadyTrace:
    """Read one trace and check it against a network's tensors.

    Raises
    ------
    DataError
        If tensors, sizes or the backward order differ from the network definition.
    """
    group_of = {tensor: index for index, group in enumerate(model) for tensor, _ in group.tensors}
    shapes = {tensor: shape for group in model for tensor, shape in group.tensors}
    ready_ms: dict[str, float] = {}
    layer_ms = [0.0] * len(model)
    before = len(model)
    for row in read_collected(path, ("tensor", "elements", "gap_us", "ready_us")):
        name = row["tensor"]
        for old, new in _RENAMED.items():
            name = name.replace(old, new)
        if name not in shapes or name in ready_ms:
            raise DataError(f"tensor {row['tensor']!r} is not one of the network's", path=path)
        if _size(name, int(row["elements"]), shapes[name][-1]) != math.prod(shapes[name]):
            raise DataError(f"{name!r} has {row['elements']} elements", path=path)
        if group_of[name] > before:
            raise DataError(f"{name!r} comes out of the backward order", path=path)
        before = group_of[name]
        ready_ms[name] = int(row["ready_us"]) / 1e3
        layer_ms[before] += int(row["gap_us"]) / 1e3
    missing = sorted(set(shapes) - set(ready_ms))
    if missing:
        raise DataError(f"lacks {missing[0]!r}", path=path)
    return ReadyTrace(ready_ms, tuple(layer_ms))


def read_module_times(path: Path, model: tuple[LayerGroup, ...]) -> tuple[list[float], list[float]]:
    """Return forward and backward milliseconds of each group, in forward order.

    The source's profiler synchronises around every module, so that sums are up to a third too
    long: the times serve as a shape, not as a total. Modules without parameters count to the one
    before them. The first module's forward time includes the copy of the input, and is at most
    its backward time: the weight gradient alone is as much work as the forward pass.

    Raises
    ------
    DataError
        If the parameters of the modules are not those of the network, in its order.
    """
    forward: list[float] = []
    backward: list[float] = []
    for row in read_collected(path, ("node", "fwd_ms", "bwd_ms", "params")):
        if row["op"] == "Input":
            continue
        if int(row["params"]):
            index = len(forward)
            if index >= len(model) or model[index].elements != int(row["params"]):
                raise DataError(f"module {row['node']} is not the network's next layer", path=path)
            forward.append(0.0)
            backward.append(0.0)
        if forward:
            forward[-1] += float(row["fwd_ms"])
            backward[-1] += float(row["bwd_ms"])
            if len(forward) == 1 and int(row["params"]):
                forward[0] = min(forward[0], backward[0])
    if len(forward) != len(model):
        raise DataError(f"has {len(forward)} layers, the network {len(model)}", path=path)
    return forward, backward


_PRODUCT_CLASSES = ("conv", "conv1x1", "linear", "attention", "lstm")
_ANY_PRODUCT = "any product"
_FIRST_CONV_SHARE = 0.5
"""Backward work of the first convolution over another's: it makes no gradient of its input."""


def work_class(layer: ModelLayer) -> str:
    """Return the class whose rate a layer has: its kind; 1x1 kernels are a class apart."""
    if layer.kind == "conv" and layer.tensors[0][1][2:] == (1, 1):
        return "conv1x1"
    return layer.kind


def _work(layer: ModelLayer) -> float:
    """Return FLOPs of matrix products, bytes written of normalisations and embeddings."""
    return layer.flops if work_class(layer) in _PRODUCT_CLASSES else layer.activation_bytes


def work_rates(
    model: Sequence[LayerGroup], layer_ms: Sequence[float], leave_out: tuple[str, ...] = ()
) -> dict[str, float]:
    """Return milliseconds a unit of work by class of layer, from measured times of the groups.

    The last group is left out, as its time holds the loss, and so is a first convolution (copy of
    the input, no input gradient). Attention takes what its group takes beyond the dense layer
    before it.
    """
    spent: defaultdict[str, float] = defaultdict(float)
    done: defaultdict[str, float] = defaultdict(float)
    inner = list(zip(model, layer_ms, strict=True))[:-1]
    if model[0].kind != "embedding":
        inner = inner[1:]
    for group, time_ms in inner:
        name = work_class(group.parts[0])
        if len(group.parts) == 1 and name not in leave_out:
            spent[name] += time_ms
            done[name] += _work(group.parts[0])
    rates = {name: spent[name] / done[name] for name in done if done[name]}
    for group, time_ms in inner:
        if len(group.parts) > 1:
            first, rest = group.parts[0], group.parts[1]
            name = work_class(rest)
            spent[name] += max(0.0, time_ms - rates[work_class(first)] * _work(first))
            done[name] += _work(rest)
            rates[name] = spent[name] / done[name]
    products = [name for name in rates if name in _PRODUCT_CLASSES]
    if products:
        rates[_ANY_PRODUCT] = sum(spent[n] for n in products) / sum(done[n] for n in products)
    return rates


def _layer_ms(layer: ModelLayer, rates: Mapping[str, float]) -> float:
    name = work_class(layer)
    if name in _PRODUCT_CLASSES and name not in rates:
        name = _ANY_PRODUCT
    if name == "parameter":
        return 0.0
    if name not in rates:
        raise DataError(f"no rate for {layer.kind} layers such as {layer.name!r} was calibrated")
    return rates[name] * _work(layer)


def times_from_work(
    model: Sequence[LayerGroup], rates: Mapping[str, float], backward: bool = True
) -> list[float]:
    """Return the relative time of each group: its work times the rate [ms a unit] of its class."""
    times = [sum(_layer_ms(layer, rates) for layer in group.parts) for group in model]
    if backward and model[0].kind == "conv":
        times[0] *= _FIRST_CONV_SHARE
    return times


_LOSS_PASSES = 4
"""Passes over the logits before the first gradient: log-softmax and loss, read and written."""


def source_path(data: Path, source: str) -> Path:
    """Return the file of one source of layer figures."""
    return data / "profiles" / f"{source}.csv"


def _rates(data: Path, source: str) -> tuple[dict[str, float], dict[str, float]]:
    if source not in CALIBRATED_ON:
        raise DataError(f"no network is known for the layer figures {source!r}")
    model = layer_groups(CALIBRATED_ON[source])
    path = source_path(data, source)
    if source.startswith("pipedream"):
        # Its small dense layers show the synchronisation, not their work.
        forward, backward = read_module_times(path, model)
        return work_rates(model, forward, ("linear",)), work_rates(model, backward, ("linear",))
    rates = work_rates(model, read_ready_trace(path, model).layer_ms)
    return {name: rate * FORWARD_TO_BACKWARD for name, rate in rates.items()}, rates


def relative_times(
    data: Path, shape: tuple[str, str] | None, model: tuple[LayerGroup, ...]
) -> tuple[list[float], list[float]]:
    """Return relative forward and backward times of the groups, from module times or from work.

    Raises
    ------
    DataError
        If the shape is of another kind, or its file is missing or does not fit the network.
    """
    kind, source = shape or ("", "")
    if kind == "modules":
        return read_module_times(source_path(data, source), model)
    if kind != "work":
        raise DataError(f"{kind!r} is no kind of layer figures; allowed: modules, work")
    forward, backward = _rates(data, source)
    return times_from_work(model, forward, backward=False), times_from_work(model, backward)


def start_ms(
    trace: ReadyTrace, model: tuple[LayerGroup, ...], batch: int, bytes_per_s: float
) -> float:
    """Return the time of the backward pass before a trace's first gradient [ms].

    It is the output layer's product at the trace's own rate (one operation makes its gradients,
    and the first of them is ready at its end) and the passes of the loss over the logits.
    """
    head = model[-1].parts[-1]
    rates = work_rates(model, trace.layer_ms)
    [products_ms] = times_from_work([LayerGroup((head,))], rates, backward=False)
    return products_ms + _LOSS_PASSES * head.activation_bytes * batch / bytes_per_s * 1e3
