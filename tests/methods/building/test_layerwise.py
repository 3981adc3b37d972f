"""Starts of layers in a pass, slices of tensors and servers' loads, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.collectives import Hops
from perfsim.collectives.parameter_server import pull_sent_bytes as pulled_bytes
from perfsim.collectives.parameter_server import push_sent_bytes as pushed_bytes
from perfsim.collectives.parameter_server import server_loads
from perfsim.compute.profile import Gradient, Layer, Profile
from perfsim.methods.base import MethodContext, PassPoint, Send
from perfsim.methods.building.layerwise import LayerStarts, crossing_jobs, update_shares
from perfsim.methods.building.tensor_slices import split_evenly, split_whole
from support.builders import bucket, profile

MS = 1e-3


def three_layers() -> Profile:
    """Layers of 1, 2 and 3 ms forward and twice that backward, with 10, 30 and 60 values."""
    layers = tuple(
        Layer(name, "linear", t * MS, 2 * t * MS) for name, t in zip("abc", (1, 2, 3), strict=True)
    )
    gradients = (
        Gradient("a", (10,), 12 * MS, 0),
        Gradient("b", (30,), 10 * MS, 1),
        Gradient("c", (60,), 6 * MS, 2),
    )
    return replace(profile([1], [1.0]), layers=layers, gradients=gradients)


def test_layers_start_where_those_before_them_end() -> None:
    starts = LayerStarts.of(MethodContext(2, profile=three_layers()))
    assert starts.forward_s == pytest.approx((0.0, 1 * MS, 3 * MS))
    assert starts.backward_s == pytest.approx((10 * MS, 6 * MS, 0.0))


def test_a_bucket_starts_at_its_first_layer() -> None:
    model = three_layers()
    starts = LayerStarts.of(MethodContext(2, profile=model))
    first, second, third = model.gradients
    both = bucket(third, second)
    assert starts.needed(both) == PassPoint("next", 1 * MS)
    assert starts.backward_start_s(both) == 0.0
    assert (starts.first_index(both), starts.first_index(bucket(first))) == (1, 0)


def test_a_context_without_a_model_has_no_starts() -> None:
    with pytest.raises(ValueError, match="no profile"):
        LayerStarts.of(MethodContext(2))


def test_jobs_cross_into_the_next_forward_pass() -> None:
    model = three_layers()
    first, second, third = model.gradients
    jobs = crossing_jobs(
        [bucket(third), bucket(second, first)],
        MethodContext(2, profile=model),
        lambda one, rank: [Send("all_reduce", one.size_bytes, priority=-rank)],
    )
    assert [job.begins for job in jobs] == [
        PassPoint("backward", 6 * MS),
        PassPoint("backward", 12 * MS),
    ]
    assert [job.holds for job in jobs] == [PassPoint("next", 3 * MS), PassPoint("next", 0.0)]
    assert [job.updates for job in jobs] == pytest.approx([0.6, 0.4])
    assert [job.stages[0].priority for job in jobs] == [-2, 0]  # type: ignore[union-attr]


@given(sizes=st.lists(st.integers(1, 10**8), min_size=1, max_size=9))
def test_shares_of_the_update_make_it_whole(sizes: list[int]) -> None:
    buckets = [bucket(Gradient(f"{size}", (size,), 0.0, 0)) for size in sizes]
    assert sum(update_shares(buckets)) == pytest.approx(1.0)


@given(rows=st.integers(1, 500), row=st.integers(1, 50), most=st.integers(1, 4000), data=st.data())
def test_parts_are_the_whole_in_rows(rows: int, row: int, most: int, data: st.DataObject) -> None:
    parts = split_evenly(Gradient("w", (rows, row), 0.0, 0), most)
    assert sum(parts) == rows * row
    assert max(parts) - min(parts) in (0, row)
    assert len(parts) == min(rows, -(-rows * row // most))
    assert sum(split_whole(rows * row, most)) == rows * row
    assert max(split_whole(rows * row, most)) <= most


def test_servers_of_their_own_take_more_of_the_load() -> None:
    # N = 4, k = 2: D = 16 + 8 - 4 = 20; a node keeps 2/20, a machine of its own 2 x 3/20.
    hops = Hops.flat(4, 1e-5, 1e-9)._replace(servers=2)
    assert server_loads(hops) == pytest.approx((0.1, 0.3))
    # A node sends all but its own tenth there, and as a server its tenth to three others.
    assert pushed_bytes(1.0, hops) == pytest.approx(0.9)
    assert pulled_bytes(1.0, hops) == pytest.approx(0.3)


@given(nodes=st.integers(1, 64), servers=st.integers(0, 80))
def test_the_servers_keep_everything_once(nodes: int, servers: int) -> None:
    hops = Hops.flat(nodes, 1e-5, 1e-9)._replace(servers=servers)
    on_node, apart = server_loads(hops)
    assert nodes * on_node + min(servers, nodes) * apart == pytest.approx(1.0)
    assert on_node >= 0 and apart >= 0
