"""Layer times from work: milliseconds a unit of work by class of layer, from a measured network.

Work is FLOPs for convolutions and other products, bytes written for normalisations and embeddings
(tokens x width, not the size of the table). Only ratios between layers matter: the sum is
scaled to a measured total.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from perfsim.errors import DataError
from perfsim.models.assemble.group import LayerGroup
from perfsim.models.layers import ModelLayer

__all__ = ["calibrate", "spread", "work_class"]

PRODUCTS = ("conv", "conv1x1", "linear", "attention", "lstm")
ANY_PRODUCT = "any product"
FIRST_CONV_SHARE = 0.5
"""The first convolution makes no gradient of its input: half the backward work of another."""


def work_class(layer: ModelLayer) -> str:
    """Return the class whose rate a layer has: its kind, 1x1 convolutions apart."""
    if layer.kind == "conv" and layer.tensors[0][1][2:] == (1, 1):
        return "conv1x1"
    return layer.kind


def _work(layer: ModelLayer) -> float:
    return layer.flops if work_class(layer) in PRODUCTS else layer.activation_bytes


def calibrate(
    model: Sequence[LayerGroup], layer_ms: Sequence[float], leave_out: tuple[str, ...] = ()
) -> dict[str, float]:
    """Return milliseconds a unit of work, by class.

    The last group and a first convolution are left out (loss beside the one; input copy and no
    input gradient with the other). Attention is what its group takes beyond the dense layer
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
    products = [name for name in rates if name in PRODUCTS]
    if products:
        rates[ANY_PRODUCT] = sum(spent[n] for n in products) / sum(done[n] for n in products)
    return rates


def _layer_ms(layer: ModelLayer, rates: Mapping[str, float]) -> float:
    name = work_class(layer)
    if name in PRODUCTS and name not in rates:
        name = ANY_PRODUCT
    if name == "parameter":
        return 0.0
    if name not in rates:
        raise DataError(f"no rate for {layer.kind} layers such as {layer.name!r} was calibrated")
    return rates[name] * _work(layer)


def spread(
    model: Sequence[LayerGroup], rates: Mapping[str, float], backward: bool = True
) -> list[float]:
    """Return the relative time of each group: its work times the rate [ms a unit] of its class."""
    times = [sum(_layer_ms(layer, rates) for layer in group.parts) for group in model]
    if backward and model[0].kind == "conv":
        times[0] *= FIRST_CONV_SHARE
    return times
