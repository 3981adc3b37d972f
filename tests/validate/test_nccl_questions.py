"""The questions of ``perfsim validate nccl`` on sets small enough to work out, and its scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.network.gathering import Gathering, NodeSheet
from perfsim.network.measured import CollectiveCurve
from perfsim.network.node_law import NodeLaw, law_without, node_law
from perfsim.network.scaling_laws import ScalingLaw
from perfsim.validate.accuracy import Score, score
from perfsim.validate.nccl import NcclRow, in_range, other_collective, scale, validate_nccl
from perfsim.validate.nccl import choice as choosing
from perfsim.validate.nccl.row import PlainRing
from perfsim.validate.node_clusters import measured_nodes
from support.ring_curves import SIZES, curve, of

# Scores


def test_score_by_hand() -> None:
    """Of 0.1 to 1.1 in elevenths: the middle is 0.6, nine tenths of the way 1.0."""
    found = score([place / 10 for place in range(11, 0, -1)])
    assert found == Score(11, 0.6, 1.0, 1.1)
    assert score([]).to_dict() == {"count": 0, "median": None, "p90": None, "worst": None}


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=40))
def test_score_is_numpys_percentile(errors: list[float]) -> None:
    found = score(errors)
    assert found.median == pytest.approx(float(np.percentile(errors, 50)), abs=1e-9)
    assert found.p90 == pytest.approx(float(np.percentile(errors, 90)), abs=1e-9)
    assert (found.count, found.worst) == (len(errors), max(errors))


def test_bands_of_a_row() -> None:
    bands = [
        NcclRow("x", "c", "w", size, 1.0, 1.0).band
        for size in (8.0, 65536.0, 65537.0, 4194304.0, 4194305.0)
    ]
    assert bands == ["up to 64 KiB", "up to 64 KiB", "to 4 MiB", "to 4 MiB", "above"]
    assert NcclRow("x", "c", "w", 8.0, 2.0, 1.0).error == 0.5


# The baseline


@given(st.floats(1e-7, 1e-3), st.floats(1e-12, 1e-8), st.sampled_from([2, 4, 16]))
def test_plain_ring_finds_the_ring_that_made_the_curves(
    alpha_s: float, beta: float, ranks: int
) -> None:
    """By closed form: 2 (P-1) alpha + 2 (P-1)/P n beta, and the same for more ranks."""

    def exact(count: int, size: float) -> float:
        return 2 * (count - 1) * (alpha_s + size / count * beta)

    seconds = tuple(exact(ranks, size) for size in SIZES)
    made = CollectiveCurve("all_reduce", ranks, ranks, 1, SIZES, seconds, "measured", "made up")
    plain = PlainRing([made])
    for size in (8.0, 1e6, 1e8):
        told = plain.seconds("all_reduce", 64, size)
        assert told == pytest.approx(exact(64, size), rel=0.02)
    assert plain.alpha_s >= 0 and plain.beta_s_per_byte >= 0


# Questions by hand


def test_in_range_predicts_what_it_has_not_seen() -> None:
    """Sizes 1, 3, 5 of five fit; 2 and 4 are asked. One of them is twice what its sides say."""
    sizes, seconds = (1e3, 1e4, 1e5, 1e6, 1e7), (1e-4, 1e-4, 1e-4, 2e-3, 1e-2)
    made = CollectiveCurve("broadcast", 2, 2, 1, sizes, seconds, "measured", "made up")
    rows = in_range.predict_rows(of("c", made))
    assert [(row.size_bytes, row.measured_s) for row in rows] == [(1e4, 1e-4), (1e6, 2e-3)]
    assert rows[0].error == pytest.approx(0.0)
    assert rows[1].predicted_s == pytest.approx(1e-3)  # half way from 0.1 to 10 ms, in logs
    assert rows[1].error == pytest.approx(0.5)
    assert rows[1].others["log interpolation"] == pytest.approx(1e-3)
    assert in_range.predict_rows(of("c", replace(made, kind="fitted"))) == []
    short = replace(made, size_bytes=sizes[:4], seconds=seconds[:4])
    assert in_range.predict_rows(of("c", short)) == []


def test_scale_asks_every_larger_number_of_nodes_from_every_smaller() -> None:
    """Nodes 1, 2, 4, 8, 32: one node says nothing; ratios are of nodes to the most fitted."""
    curves = of("c", *(curve(nodes) for nodes in (2, 4, 8, 32)), curve(1, 2))
    found = [
        (sorted(one.nodes for one in fitted), target.nodes, ratio)
        for _, fitted, target, ratio in scale.larger_targets(curves)
    ]
    assert sorted(found) == [
        ([2], 4, 2.0),
        ([2], 8, 4.0),
        ([2], 32, 16.0),
        ([2, 4], 8, 2.0),
        ([2, 4], 32, 8.0),
        ([2, 4, 8], 32, 4.0),
    ]
    rows = scale.predict_rows(curves)
    asked = {(row.question, row.what) for row in rows}
    assert asked == {
        ("scale_2x", "all_reduce, 2 to 4 nodes"),
        ("scale_2x", "all_reduce, 4 to 8 nodes"),
        ("scale_4x", "all_reduce, 2 to 8 nodes"),
        ("scale_4x", "all_reduce, 8 to 32 nodes"),
        ("scale_beyond", "all_reduce, 2 to 32 nodes"),
        ("scale_beyond", "all_reduce, 4 to 32 nodes"),
        ("two_nodes_2x", "all_reduce, 2 to 4 nodes"),
        ("two_nodes_4x", "all_reduce, 2 to 8 nodes"),
        ("two_nodes", "all_reduce, 2 to 4 nodes"),
        ("two_nodes", "all_reduce, 2 to 8 nodes"),
        ("two_nodes", "all_reduce, 2 to 32 nodes"),
    }
    by_question = {(row.question, row.what, row.size_bytes): row.predicted_s for row in rows}
    for (question, what, size), seconds in by_question.items():
        if question == "scale_beyond" and what.startswith("all_reduce, 2 to"):
            assert by_question["two_nodes", what, size] == seconds


def test_scale_keeps_clusters_collectives_and_sizes_apart() -> None:
    two = curve(2)
    others = (
        ("d", curve(4)),
        ("c", curve(4, collective="all_gather")),
        ("c", curve(4, gpus=2)),
        ("c", curve(4, library="mpi")),
        ("c", curve(4, algorithm="ring")),
    )
    assert list(scale.larger_targets([("c", two), *others])) == []
    wider = curve(4, sizes=(1.0, *SIZES, 1e12))
    rows = [row for row in scale.predict_rows(of("c", two, wider)) if row.question == "scale_2x"]
    assert [row.size_bytes for row in rows] == list(SIZES)  # beyond what was fitted: not asked


def test_scale_of_a_perfect_ring_is_right_where_its_steps_were_measured() -> None:
    """By closed form: the law gives the ring that made the curves; 'unchanged' does not."""
    rows = scale.predict_rows(of("c", curve(2), curve(4)))
    assert rows[-1].predicted_s == pytest.approx(rows[-1].measured_s, rel=0.02)
    assert rows[-1].plain_s == pytest.approx(rows[-1].measured_s, rel=1e-6)
    assert rows[0].others["unchanged"] == curve(2).seconds[0]


def test_other_collective_leaves_the_smallest_message_out() -> None:
    whole, gather = curve(4), curve(4, collective="all_gather")
    rows = other_collective.predict_rows(of("c", whole, gather, curve(4, collective="broadcast")))
    assert [row.size_bytes for row in rows] == list(SIZES[1:])
    half = Gathering(ScalingLaw([whole]), "all_gather", 4, 4, latency_s=gather.seconds[0])
    for row in rows:
        assert row.predicted_s == half.seconds(row.size_bytes)
    # Above its floor a gather is half of an all_reduce; at 32 B nothing stands above it.
    assert rows[-1].error < 0.01
    assert rows[0].predicted_s == gather.seconds[0]


def test_other_collective_without_small_messages_scores_all() -> None:
    whole, gather = curve(4), curve(4, collective="all_gather", sizes=SIZES[8:])
    rows = other_collective.predict_rows(of("c", whole, gather))
    assert [row.size_bytes for row in rows] == list(SIZES[8:])
    assert rows[0].predicted_s == rows[0].others["all_reduce alone"]


def test_other_collective_is_judged_by_a_law_without_the_clusters_family() -> None:
    """A cluster with a stated data sheet: the law's numbers of its own family are not used."""
    series = "sophia-a100-ib200-pxb"
    words = {"library": "nccl", "series": series}
    whole, gather = (curve(2, 8, name, **words) for name in ("all_reduce", "all_gather"))
    nodes = measured_nodes()[series]
    rows = other_collective.predict_rows(of("c", whole, gather))

    def half(law: NodeLaw) -> list[float]:
        sheet = NodeSheet(nodes.of(whole), law)
        one = Gathering(ScalingLaw([whole]), "all_gather", 16, 2, sheet, gather.seconds[0])
        return [one.seconds(row.size_bytes) for row in rows]

    assert [row.predicted_s for row in rows] == half(law_without(nodes.family)) != half(node_law())
    without = Gathering(ScalingLaw([whole]), "all_gather", 16, 2)
    assert [row.others["neither"] for row in rows] == [
        without.seconds(row.size_bytes) for row in rows
    ]


def test_other_collective_needs_the_same_ranks_of_the_same_cluster() -> None:
    gather = curve(4, collective="all_gather")
    assert other_collective.predict_rows([("c", curve(8)), ("c", gather)]) == []
    assert other_collective.predict_rows([("d", curve(4)), ("c", gather)]) == []
    assert other_collective.predict_rows([("c", curve(4, gpus=2)), ("c", gather)]) == []


def held(algorithm: str, times_ms: tuple[float, ...], **more) -> CollectiveCurve:
    sizes = tuple(2.0**20 * 2**place for place in range(len(times_ms)))
    seconds = tuple(one * 1e-3 for one in times_ms)
    words = {"algorithm": algorithm, "version": "2.18.3", "gpu": "A100"} | more
    return CollectiveCurve("all_reduce", 8, 8, 1, sizes, seconds, "measured", "made up", **words)


def test_choice_counts_only_differences_above_a_tenth() -> None:
    """Asked are sizes 2, 4, 6; at the fourth the two are 9 % apart."""
    ring = held("ring", (4.0, 4.0, 4.0, 10.0, 20.0, 20.0, 20.0))
    tree = held("tree", (2.0, 2.0, 2.0, 10.9, 40.0, 40.0, 40.0))
    rows = choosing.predict_rows([("c", ring), ("d", tree)])
    assert [row.size_bytes for row in rows] == [2.0**21, 2.0**25]
    assert [row.measured_s for row in rows] == [2e-3, 20e-3]
    assert [row.error for row in rows] == [0.0, 0.0]
    assert [row.plain_s for row in rows] == [4e-3, 20e-3]  # always ring


def test_choice_wrong_is_its_regret() -> None:
    """The tree is half as fast at every size fitted and twice as fast at one between."""
    ring = held("ring", (10.0, 10.0, 10.0, 10.0, 10.0))
    tree = held("tree", (20.0, 20.0, 20.0, 5.0, 20.0))
    report = validate_nccl([("c", ring), ("c", tree)])
    found = report.to_dict()["questions"]["choice"]
    assert [row.error for row in report.of("choice")] == [0.0, 1.0]
    assert (found["count"], found["right"], found["always_ring_right"]) == (2, 1, 1)
    assert found["regret_median"] == 0.5
    assert "choice: right is 50.0%, the target is at least 90%" in report.misses()


def test_choice_pairs_only_what_differs_in_the_algorithm_alone() -> None:
    ring = held("ring", (4.0,) * 5)
    for change in ({"version": "2.21.5"}, {"gpu": "H100"}, {"protocol": "ll"}, {"fabric": "other"}):
        assert choosing.predict_rows([("c", ring), ("c", held("tree", (2.0,) * 5, **change))]) == []
    free = replace(ring, algorithm="")
    assert choosing.predict_rows([("c", free), ("c", held("tree", (2.0,) * 5))]) == []
