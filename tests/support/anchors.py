"""Anchors and a profile that tests can compute by hand, and the profile moved by them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfsim.compute.anchors import Anchor
from perfsim.compute.device import load_device
from perfsim.compute.profile import Gradient, Layer, Profile
from perfsim.compute.software import NEWEST
from perfsim.compute.transfer import TransferredProfile, transfer
from perfsim.quantity import Kind
from support.what_ships import SHIPPED

__all__ = ["Table", "anchor", "milliseconds", "passes_ms", "profile", "transferred"]

Table = dict[str, Sequence[Anchor]]


def anchor(
    batch: int,
    milliseconds: float,
    model: str = "net",
    precision: str = "fp32",
    source: str = "paper",
    covers: str = "iteration",
    use: str = "level",
    software: str = NEWEST,
) -> Anchor:
    """Return what a source measured of a model."""
    seconds = milliseconds / 1e3
    return Anchor(
        model, precision, batch, None, seconds, None, "", software, covers, use, "measured", source
    )


def profile(
    batch: int = 32, gpu: str = "v100", kind: Kind = "derived", share: float = 1.0
) -> Profile:
    """Return a profile of 100 ms: forward 30, backward 60 (conv for ``share``), optimizer 10."""
    kinds: dict[str, Kind] = dict.fromkeys(("forward_ms", "backward_ms", "optimizer_ms"), "derived")
    return Profile(
        "net",
        gpu,
        "fp32",
        batch,
        0.1,
        0.01,
        (
            Layer("a", "conv", 0.03 * share, 0.06 * share),
            Layer("b", "batchnorm", 0.03 * (1 - share), 0.06 * (1 - share)),
        ),
        (Gradient("a.weight", (8, 8), 0.05, 0),),
        {**kinds, "ready_ms": "derived", "iteration_ms": kind},
        {"source": "by hand"},
    )


def transferred(
    table: Table, batch: int, gpu: str = "v100", precision: str = "fp32", own: Profile | None = None
) -> TransferredProfile:
    """Return a profile (:func:`profile`'s) transferred by a table of anchors."""
    return transfer(own or profile(), load_device(gpu, SHIPPED), batch, precision, table)


def passes_ms(result: TransferredProfile) -> float:
    """Return both passes of the transferred iteration [ms]."""
    return (result.profile.forward_s + result.profile.backward_s) * 1e3


def milliseconds(result: TransferredProfile) -> float:
    """Return the transferred iteration [ms]."""
    assert math.isclose(result.profile.iteration_s, result.quantity.value)
    return result.quantity.value * 1e3
