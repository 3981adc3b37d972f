"""Which layer an operator of the forward pass belongs to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from perfsim.calibrate.kineto.recording import Span

__all__ = ["Home", "homes", "kind_of"]

VIEWS = {f"aten::{name}" for name in ("t", "transpose", "to", "_to_copy", "permute", "view")}
"""Operators that only turn a weight for the next one; PyTorch before 1.9 calls them apart."""
ODD = re.compile(r"[^A-Za-z0-9_.-]")
"""What a layer's name does not hold."""
WORDS = ("conv", "batchnorm", "layernorm", "embedding", "lstm", "linear")
ALIASES = {"addmm": "linear", "matmul": "linear", "mm": "linear", "baddbmm": "linear"}


class Home:
    """A layer: the innermost module around an operator, else its outermost operator."""

    __slots__ = ("begun", "end", "name", "word")

    def __init__(self, name: str, word: str, begun: float, end: float) -> None:
        self.name, self.word, self.begun, self.end = name, word, begun, end


def homes(operations: Sequence[Span], modules: Sequence[Span]) -> list[Home]:
    """Return the home of each operator of one thread, both lists sorted by start.

    A module's layer begins with its first operator. Without modules, layers are called after
    their operators and numbered in the order that they run: conv2d_0, linear_0, conv2d_1.
    """
    outer = _outermost(operations)
    around = _innermost(operations, modules)
    known: dict[str, Home] = {}
    numbers: Counter[str] = Counter()
    made = []
    for top, module in zip(outer, around, strict=True):
        key = module.name if module else f"{top.name} {top.start}"
        if key not in known:
            name = ODD.sub("_", module.name if module else top.name.rpartition("::")[2])
            if module is None:
                number, numbers[name] = numbers[name], numbers[name] + 1
                known[key] = Home(f"{name}_{number}", name, top.start, top.end)
            else:
                known[key] = Home(name, name, top.start, top.end)
        known[key].end = max(known[key].end, top.end)
        made.append(known[key])
    return made


def kind_of(word: str) -> str:
    """Return the kind of layer that a module's or operator's name tells.

    Examples
    --------
    >>> kind_of("BatchNorm2d_3"), kind_of("native_layer_norm"), kind_of("addmm"), kind_of("mul")
    ('batchnorm', 'layernorm', 'linear', 'parameter')
    """
    plain = word.lower().replace("_", "")
    return next((one for one in WORDS if one in plain), ALIASES.get(plain, "parameter"))


def _outermost(operations: Sequence[Span]) -> list[Span]:
    """Return the outermost operator around each; of one that only turns, the one after it."""
    tops: list[Span] = []
    places = []
    for operation in operations:
        if not tops or operation.start >= tops[-1].end:
            tops.append(operation)
        places.append(len(tops) - 1)
    target = list(range(len(tops)))
    for place in range(len(tops) - 2, -1, -1):
        if tops[place].name in VIEWS:
            target[place] = target[place + 1]
    return [tops[target[place]] for place in places]


def _innermost(operations: Sequence[Span], modules: Sequence[Span]) -> list[Span | None]:
    """Return the innermost module around each operator, None outside of all."""
    found: list[Span | None] = []
    stack: list[Span] = []
    place = 0
    for operation in operations:
        while place < len(modules) and modules[place].start <= operation.start:
            while stack and stack[-1].end <= modules[place].start:
                stack.pop()
            stack.append(modules[place])
            place += 1
        while stack and stack[-1].end <= operation.start:
            stack.pop()
        found.append(stack[-1] if stack else None)
    return found
