"""Methods that cross the end of the iteration, by hand; formulas and options of all such, too."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim import fusion
from perfsim.compute.profile import Gradient
from perfsim.errors import RequestError
from perfsim.fusion.policies import blocks_of
from perfsim.methods import load_method
from perfsim.schedule.run import run
from support.builders import ring_cluster
from support.layered import context, milliseconds, model, names, plan
from support.one_matrix import by_formula, mean, one_matrix


def test_dear_hides_the_gathers_behind_the_next_forward_pass() -> None:
    found = plan(load_method("dear", {}))
    assert names(found, "all_gather") == ["all_gather 0.1", "all_gather 0.0"]
    # After backward (30): the first layer's halves (7.5), its update and forward (1 + 5), behind
    # which the other gather hides; then 1 + 5.
    assert milliseconds(found) == pytest.approx(30 + 7.5 + 6 + 6)
    assert found.calls == 4


def test_dear_without_overlap_adds_everything_up() -> None:
    found = plan(load_method("dear", {}), overlap=False)
    assert milliseconds(found) == pytest.approx(42 + 4 * 3.75)


@pytest.mark.parametrize(
    ("limit_bytes", "groups"),
    # 8 bytes a tensor; the middle layer has two, which stay together.
    [(17.0, ["d", "cb", "a"]), (25.0, ["d", "cba"]), (24.0, ["d", "cb", "a"]), (1e9, ["dcba"])],
)
def test_dear_fills_groups_of_whole_layers_from_the_front(
    limit_bytes: float, groups: list[str]
) -> None:
    tensors = [
        Gradient(name, (2,), ready_s, layer)
        for name, ready_s, layer in (("d", 1.0, 2), ("c", 2.0, 1), ("b", 3.0, 1), ("a", 4.0, 0))
    ]
    found = fusion.load_policy("dear").fuse(tensors, context(limit_bytes))
    assert ["".join(one.name for one in each.gradients) for each in found] == groups


@given(
    sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=6),
    ranks=st.integers(2, 16),
    name=st.sampled_from(["dear", "bytescheduler"]),
)
@settings(max_examples=30)
def test_what_crosses_sends_what_ssgd_sends_and_never_waits_idle(
    sizes: list[int], ranks: int, name: str
) -> None:
    of, cluster = model(sizes, [2.0] * len(sizes), 3.0), ring_cluster(ranks, "1GB/s,20us")
    dense = plan(load_method("ssgd", {}), of, cluster)
    found = plan(load_method(name, {}), of, cluster)
    assert found.sent_bytes == pytest.approx(dense.sent_bytes)
    # Computing or sending goes on all the time, so no more than all of it one after the other.
    total_s = sum(float(task.duration_s) for task in found.graph.tasks)
    assert run(found).period_s <= total_s * (1 + 1e-9)
    assert run(found).period_s >= of.iteration_s * (1 - 1e-9)


def test_bytescheduler_lets_the_first_layer_overtake() -> None:
    # 0.5 MB and 2 MB in parts of 0.5 MB, 6 + 0.75 ms each. The last layer's go at 15, 21.75 and
    # 28.5; the first layer's, ready at 30, goes before the fourth: 35.25 to 42, then to 48.75.
    # Forward: update 0.4 and 5 from 42 on; the second layer waits for 48.75, then 1.6 and 5.
    options = {"partition": 125_000, "credit": 0}
    of = model([125_000, 500_000], [5.0, 5.0])
    found = plan(load_method("bytescheduler", options), of)
    assert found.calls == 5
    assert milliseconds(found) == pytest.approx(48.75 + 6.6)
    # With credit for all, the last layer's four are handed over before: 42, then 48.75; forward
    # from there: 0.4 and 5, 1.6 and 5.
    handed = plan(load_method("bytescheduler", {"partition": 125_000}), of)
    assert milliseconds(handed) == pytest.approx(48.75 + 12.0)


def test_bytescheduler_over_servers_pushes_and_pulls_each_part() -> None:
    method = load_method("bytescheduler", {"partition": 125_000, "transport": "ps"})
    found = plan(method)
    # Parts of 0.5 MB: a push or a pull takes 1 + 0.375; two parts of the first layer are exposed.
    assert found.calls == 8
    assert milliseconds(found) == pytest.approx(42 + 4 * 1.375)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("zero", {"reduction": "reduce"}),
        ("zero", {"reduction": "reduce_scatter"}),
        ("zero", {"stage": 3}),
        ("fsdp", {"shard": "grad"}),
        ("fsdp", {"shards": 4, "shard": "hybrid"}),
        ("fsdp", {"shards": 4, "shard": "hybrid", "version": 1}),
        ("distributed_optimizer", {"sharded": False}),
        ("hybrid_zero", {"overlap_broadcast": True}),
        ("p3", {"servers": 3}),
        ("byteps", {"servers": 8}),
        ("bytescheduler", {"servers": 20, "transport": "ps"}),
        ("dct", {"servers": 3}),
        ("dct", {"exchange": "all_gather"}),
        ("omnireduce", {"aggregators": "dedicated", "block_density": 0.1}),
    ],
)
def test_the_formula_of_bytes_holds_with_options(name: str, options: dict[str, object]) -> None:
    method = load_method(name, options)
    sent = mean(one_matrix(method, 8), "sent_bytes")
    assert sent == pytest.approx(by_formula(method, 8), rel=1e-9)


def test_bytescheduler_refuses_servers_without_pushes() -> None:
    with pytest.raises(RequestError, match="has no servers where transport is all_reduce"):
        plan(load_method("bytescheduler", {"servers": 2}))


def test_blocks_are_read_off_the_names() -> None:
    tensors = [
        Gradient(name, (1,), ready_s, 0)
        for ready_s, name in enumerate(
            [
                "fc.weight",
                "layer2.0.bn.weight",
                "layer2.0.conv.weight",
                "layer1.3.conv.weight",
                "c.b",
            ]
        )
    ]
    found = fusion.load_policy("block").fuse(tensors, context(None))
    assert [len(one.gradients) for one in found] == [1, 2, 1, 1]
    assert blocks_of(["layer2.0.conv.weight"]) == ["layer2.0"]


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("bytescheduler", "transport", "tcp"),
        ("bytescheduler", "partition", 0),
        ("p3", "slice", 0),
        ("byteps", "servers", -1),
        ("byteps", "switch", 0),
        ("zero", "stage", 4),
        ("zero", "reduction", "sum"),
        ("fsdp", "prefetch", "early"),
        ("fsdp", "shard", "node"),
        ("fsdp", "version", 3),
        ("fsdp", "shards", -1),
    ],
)
def test_options_are_checked(name: str, option: str, value: object) -> None:
    with pytest.raises(RequestError, match=option):
        load_method(name, {option: value})
