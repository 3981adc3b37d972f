"""The shape of a model's time: relative forward and backward times of its groups, by source."""

from __future__ import annotations

from pathlib import Path

from perfsim.errors import DataError
from perfsim.models.assemble.group import LayerGroup, groups
from perfsim.models.assemble.modules import read_modules
from perfsim.models.assemble.rates import calibrate, spread
from perfsim.models.assemble.traces import LayerTrace, read_trace

__all__ = ["CALIBRATED_ON", "FORWARD_TO_BACKWARD", "source_path", "start_ms", "weights"]

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
"""Source of layer figures -> the network that it holds."""

FORWARD_TO_BACKWARD = 0.5
"""A product's backward pass is two products of the same size."""
LOSS_PASSES = 4
"""Passes over the logits before the first gradient: log-softmax and loss, read and written."""


def source_path(data: Path, source: str) -> Path:
    """Return the file of one source of layer figures."""
    return data / "profiles" / f"{source}.csv"


def _rates(data: Path, source: str) -> tuple[dict[str, float], dict[str, float]]:
    if source not in CALIBRATED_ON:
        raise DataError(f"no network is known for the layer figures {source!r}")
    model = groups(CALIBRATED_ON[source])
    path = source_path(data, source)
    if source.startswith("pipedream"):
        # Its small dense layers show the synchronisation, not their work.
        forward, backward = read_modules(path, model)
        return calibrate(model, forward, ("linear",)), calibrate(model, backward, ("linear",))
    rates = calibrate(model, read_trace(path, model).layer_ms)
    return {name: rate * FORWARD_TO_BACKWARD for name, rate in rates.items()}, rates


def weights(
    data: Path, shape: tuple[str, str] | None, model: tuple[LayerGroup, ...]
) -> tuple[list[float], list[float]]:
    """Return relative forward and backward times of the groups, from modules or from work.

    Raises
    ------
    DataError
        If the shape is of another kind, or its file is missing or does not fit the network.
    """
    kind, source = shape or ("", "")
    if kind == "modules":
        return read_modules(source_path(data, source), model)
    if kind != "work":
        raise DataError(f"{kind!r} is no kind of layer figures; allowed: modules, work")
    forward, backward = _rates(data, source)
    return spread(model, forward, backward=False), spread(model, backward)


def start_ms(
    trace: LayerTrace, model: tuple[LayerGroup, ...], batch: int, bytes_per_s: float
) -> float:
    """Return what the backward pass does before a trace's first gradient [ms].

    The output layer's products at the trace's own rate (its gradients come out of one
    operation, the first of them at its end), and the passes of the loss over the logits.
    """
    head = model[-1].parts[-1]
    products = spread([LayerGroup((head,))], calibrate(model, trace.layer_ms), backward=False)[0]
    return products + LOSS_PASSES * head.activation_bytes * batch / bytes_per_s * 1e3
