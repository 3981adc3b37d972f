"""Write profile."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from perfsim.compute.profile import PROFILE_COLUMNS

__all__ = ["LayerTimes", "milliseconds", "profile_csv", "split_passes"]


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """One layer: its kind, its gradients with shape and ready time, its two passes [s]."""

    name: str
    kind: str
    gradients: tuple[tuple[str, tuple[int, ...], float], ...]
    forward_s: float
    backward_s: float


def split_passes(
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
    >>> layers = split_passes({"a": 0.5, "b": 1.5}, held, {}, 4.0, 3.5)
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
