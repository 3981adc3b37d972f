"""Horovod's negotiation of the tensors of a cycle: by hand, by law, and in a method."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim import fusion
from perfsim.by_size import one_by_one
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import FusionContext
from perfsim.methods.base import MethodContext
from perfsim.methods.building.negotiation import REQUEST_S, negotiation_s
from perfsim.methods.d_kfac import DKfac
from perfsim.methods.horovod import Horovod


def test_negotiation_takes_the_logarithm_of_nodes() -> None:
    asked = [
        negotiation_s(9, 4 * nodes, nodes, cache=True, message_s=28e-6) for nodes in (1, 2, 5, 8, 9)
    ]
    assert asked == pytest.approx([0, 28e-6, 84e-6, 84e-6, 112e-6])


def test_without_the_cache_the_coordinator_reads_every_ranks_request() -> None:
    # A gather and two broadcasts of three messages each, a gather straight, 10 x 32 requests.
    asked_s = negotiation_s(10, 32, 8, cache=False, message_s=28e-6)
    assert asked_s == pytest.approx(10 * 28e-6 + 320 * REQUEST_S)
    assert negotiation_s(10, 4, 1, cache=False, message_s=28e-6) == pytest.approx(40 * REQUEST_S)


@given(st.integers(0, 500), st.integers(1, 64), st.integers(1, 8), st.floats(0, 1e-3))
def test_the_cache_is_never_slower_and_more_never_faster(
    tensors: int, nodes: int, inside: int, message_s: float
) -> None:
    def asked(tensors: int, nodes: int, cache: bool) -> float:
        return negotiation_s(tensors, nodes * inside, nodes, cache=cache, message_s=message_s)

    assert asked(tensors, nodes, True) <= asked(tensors, nodes, False)
    for cache in (True, False):
        assert asked(tensors, nodes, cache) <= asked(tensors + 1, nodes, cache)
        assert asked(tensors, nodes, cache) <= asked(tensors, nodes + 1, cache)


@pytest.mark.parametrize("kind", [Horovod, DKfac])
def test_methods_on_horovod_negotiate(kind: Any) -> None:
    world = MethodContext(64, 16)
    asked_s = negotiation_s(5, 64, 16, cache=False, message_s=28e-6)
    assert kind(cache=False).negotiation_s(5, world) == pytest.approx(asked_s)
    assert kind().negotiation_s(5, world) == pytest.approx(4 * 28e-6)


def test_the_next_cycle_waits_for_the_negotiation() -> None:
    """Pushed at 0 and 1 ms; cycles of 1 ms, 3 ms of agreement a tensor."""
    gradients = [Gradient(name, (2,), 1e-3 * number, 0) for number, name in enumerate("ab")]
    context = FusionContext(
        None,
        1e-2,
        lambda one: one.size_bytes,
        lambda _: one_by_one(float),
        {"hook": "1s"},
        negotiation_s=lambda tensors: 3e-3 * tensors,
    )
    buckets = fusion.load_policy("threshold").fuse(gradients, context)
    assert [bucket.ready_s for bucket in buckets] == pytest.approx([3e-3, 6e-3])
