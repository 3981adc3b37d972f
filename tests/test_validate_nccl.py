"""``perfsim validate nccl``: its questions on sets small enough to work out, and its targets."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.catalog import Catalog, shipped
from perfsim.cli.main import code
from perfsim.cluster.growth.sibling import sibling
from perfsim.cluster.measured import Curve
from perfsim.report.validation import print_validation
from perfsim.validate.nccl import Report, Row, in_range, other_collective, scale, validate_nccl
from perfsim.validate.nccl import choice as choosing
from perfsim.validate.nccl.plain import PlainRing
from perfsim.validate.nccl.record import growth_table
from perfsim.validate.nccl.report import ORDER, questions
from perfsim.validate.nccl.source import from_folder, shipped_curves
from perfsim.validate.score import Score, score

COLLECTED = Path(__file__).resolve().parents[2] / "shared" / "data" / "nccl"
needs_curves = pytest.mark.skipif(
    not COLLECTED.is_dir(), reason="the collected curves are not in this checkout"
)
SIZES = tuple(8.0 * 4**power for power in range(13))


def curve(nodes: int, gpus: int = 1, collective: str = "all_reduce", sizes=SIZES, **more) -> Curve:
    """Return a ring's exact times: 20 us a step, 1 GB/s."""
    ranks = nodes * gpus
    rounds = 2 if collective == "all_reduce" else 1
    seconds = tuple(rounds * (ranks - 1) * (2e-5 + size / ranks * 1e-9) for size in sizes)
    words = {"library": "gloo"} | more
    return Curve(collective, ranks, nodes, gpus, sizes, seconds, "measured", "made up", **words)


def of(cluster: str, *curves: Curve) -> list[tuple[str, Curve]]:
    return [(cluster, one) for one in curves]


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
        Row("x", "c", "w", size, 1.0, 1.0).band
        for size in (8.0, 65536.0, 65537.0, 4194304.0, 4194305.0)
    ]
    assert bands == ["up to 64 KiB", "up to 64 KiB", "to 4 MiB", "to 4 MiB", "above"]
    assert Row("x", "c", "w", 8.0, 2.0, 1.0).error == 0.5


# The baseline


@given(st.floats(1e-7, 1e-3), st.floats(1e-12, 1e-8), st.sampled_from([2, 4, 16]))
def test_plain_ring_finds_the_ring_that_made_the_curves(
    alpha_s: float, beta: float, ranks: int
) -> None:
    """By closed form: 2 (P-1) alpha + 2 (P-1)/P n beta, and the same for more ranks."""

    def exact(count: int, size: float) -> float:
        return 2 * (count - 1) * (alpha_s + size / count * beta)

    seconds = tuple(exact(ranks, size) for size in SIZES)
    made = Curve("all_reduce", ranks, ranks, 1, SIZES, seconds, "measured", "made up")
    plain = PlainRing([made])
    for size in (8.0, 1e6, 1e8):
        told = plain.seconds("all_reduce", 64, size)
        assert told == pytest.approx(exact(64, size), rel=0.02)
    assert plain.alpha_s >= 0 and plain.beta_s_per_byte >= 0


# Questions by hand


def test_in_range_predicts_what_it_has_not_seen() -> None:
    """Sizes 1, 3, 5 of five fit; 2 and 4 are asked. One of them is twice what its sides say."""
    sizes, seconds = (1e3, 1e4, 1e5, 1e6, 1e7), (1e-4, 1e-4, 1e-4, 2e-3, 1e-2)
    made = Curve("broadcast", 2, 2, 1, sizes, seconds, "measured", "made up")
    rows = in_range.rows(of("c", made))
    assert [(row.size_bytes, row.measured_s) for row in rows] == [(1e4, 1e-4), (1e6, 2e-3)]
    assert rows[0].error == pytest.approx(0.0)
    assert rows[1].predicted_s == pytest.approx(1e-3)  # half way from 0.1 to 10 ms, in logs
    assert rows[1].error == pytest.approx(0.5)
    assert rows[1].others["log interpolation"] == pytest.approx(1e-3)
    assert in_range.rows(of("c", replace(made, kind="fitted"))) == []
    short = replace(made, size_bytes=sizes[:4], seconds=seconds[:4])
    assert in_range.rows(of("c", short)) == []


def test_scale_asks_every_larger_number_of_nodes_from_every_smaller() -> None:
    """Nodes 1, 2, 4, 8, 32: one node says nothing; ratios are of nodes to the most fitted."""
    curves = of("c", *(curve(nodes) for nodes in (2, 4, 8, 32)), curve(1, 2))
    found = [
        (sorted(one.nodes for one in fitted), target.nodes, ratio)
        for _, fitted, target, ratio in scale.transfers(curves)
    ]
    assert sorted(found) == [
        ([2], 4, 2.0),
        ([2], 8, 4.0),
        ([2], 32, 16.0),
        ([2, 4], 8, 2.0),
        ([2, 4], 32, 8.0),
        ([2, 4, 8], 32, 4.0),
    ]
    rows = scale.rows(curves)
    asked = {(row.question, row.what) for row in rows}
    assert asked == {
        ("scale_2x", "all_reduce, 2 to 4 nodes"),
        ("scale_2x", "all_reduce, 4 to 8 nodes"),
        ("scale_4x", "all_reduce, 2 to 8 nodes"),
        ("scale_4x", "all_reduce, 8 to 32 nodes"),
        ("scale_beyond", "all_reduce, 2 to 32 nodes"),
        ("scale_beyond", "all_reduce, 4 to 32 nodes"),
    }


def test_scale_keeps_clusters_collectives_and_sizes_apart() -> None:
    two = curve(2)
    others = (
        ("d", curve(4)),
        ("c", curve(4, collective="all_gather")),
        ("c", curve(4, gpus=2)),
        ("c", curve(4, library="mpi")),
        ("c", curve(4, algorithm="ring")),
    )
    assert list(scale.transfers([("c", two), *others])) == []
    wider = curve(4, sizes=(1.0, *SIZES, 1e12))
    rows = scale.rows(of("c", two, wider))
    assert [row.size_bytes for row in rows] == list(SIZES)  # beyond what was fitted: not asked


def test_scale_of_a_perfect_ring_is_right_where_its_steps_were_measured() -> None:
    """By closed form: the law gives the ring that made the curves; 'unchanged' does not."""
    rows = scale.rows(of("c", curve(2), curve(4)))
    assert rows[-1].predicted_s == pytest.approx(rows[-1].measured_s, rel=0.02)
    assert rows[-1].plain_s == pytest.approx(rows[-1].measured_s, rel=1e-6)
    assert rows[0].others["unchanged"] == curve(2).seconds[0]


def test_other_collective_leaves_the_smallest_message_out() -> None:
    whole, gather = curve(4), curve(4, collective="all_gather")
    rows = other_collective.rows(of("c", whole, gather, curve(4, collective="broadcast")))
    assert [row.size_bytes for row in rows] == list(SIZES[1:])
    for row in rows:
        assert row.predicted_s == sibling(whole, row.size_bytes, gather.seconds[0])
    # Above its floor a gather is half of an all_reduce; at 32 B nothing stands above it.
    assert rows[-1].error < 0.01
    assert rows[0].predicted_s == gather.seconds[0]


def test_other_collective_without_small_messages_scores_all() -> None:
    whole, gather = curve(4), curve(4, collective="all_gather", sizes=SIZES[8:])
    rows = other_collective.rows(of("c", whole, gather))
    assert [row.size_bytes for row in rows] == list(SIZES[8:])
    assert rows[0].predicted_s == rows[0].others["all_reduce alone"]


def test_other_collective_needs_the_same_ranks_of_the_same_cluster() -> None:
    gather = curve(4, collective="all_gather")
    assert other_collective.rows([("c", curve(8)), ("c", gather)]) == []
    assert other_collective.rows([("d", curve(4)), ("c", gather)]) == []
    assert other_collective.rows([("c", curve(4, gpus=2)), ("c", gather)]) == []


def held(algorithm: str, times_ms: tuple[float, ...], **more) -> Curve:
    sizes = tuple(2.0**20 * 2**place for place in range(len(times_ms)))
    seconds = tuple(one * 1e-3 for one in times_ms)
    words = {"algorithm": algorithm, "version": "2.18.3", "gpu": "A100"} | more
    return Curve("all_reduce", 8, 8, 1, sizes, seconds, "measured", "made up", **words)


def test_choice_counts_only_differences_above_a_tenth() -> None:
    """Asked are sizes 2, 4, 6; at the fourth the two are 9 % apart."""
    ring = held("ring", (4.0, 4.0, 4.0, 10.0, 20.0, 20.0, 20.0))
    tree = held("tree", (2.0, 2.0, 2.0, 10.9, 40.0, 40.0, 40.0))
    rows = choosing.rows([("c", ring), ("d", tree)])
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
        assert choosing.rows([("c", ring), ("c", held("tree", (2.0,) * 5, **change))]) == []
    free = replace(ring, algorithm="")
    assert choosing.rows([("c", free), ("c", held("tree", (2.0,) * 5))]) == []


# The report


def test_misses_are_what_lies_outside_a_limit() -> None:
    def rows(question: str, *errors: float, size: float = 8.0) -> list[Row]:
        return [Row(question, "c", "w", size, 1.0, 1.0 + one, 2.0) for one in errors]

    large = rows("in_range", 0.06, 0.06) + rows("scale_2x", 0.12, size=8e6)
    assert Report((), tuple(rows("in_range", 0.06, 0.06))).misses() == []
    found = Report((), tuple(rows("in_range", 0.061, 0.061))).misses()
    assert found == ["in_range: median is 6.1%, the target is at most 6%"]
    found = Report((), tuple(large)).misses()
    assert found == ["scale_2x: median above is 12.0%, the target is at most 8%"]
    assert Report((), tuple(rows("scale_2x", 0.12))).misses() == []  # no row above 4 MiB
    assert Report((), ()).misses() == []


def test_curve_and_model_worse_than_log_interpolation_is_a_miss() -> None:
    """By hand: errors 2 and 2 % against 1 and 1 %, then the same, then both exact."""

    def asked(model: float, logs: float) -> list[str]:
        others = {"curve and model": 1.0 + model, "log interpolation": 1.0 + logs}
        return Report((), (Row("in_range", "c", "w", 8.0, 1.0, 1.0, 1.0, others),) * 2).misses()

    assert asked(0.02, 0.01) == [
        f"in_range: curve and model / log interpolation, {part} is 200.0%,"
        " the target is at most 100%"
        for part in ("median", "p90")
    ]
    assert asked(0.01, 0.01) == asked(0.0, 0.0) == asked(0.01, 0.02) == []
    assert len(asked(0.01, 0.0)) == 2


def test_links_predict_without_a_curve_and_each_collective_is_told() -> None:
    """By closed form: a ring's links give the ring back, and nothing of what shows no rate."""
    nccl = {"library": "nccl", "version": "2.18.3", "algorithm": "ring"}
    whole = curve(4, **nccl)
    report = validate_nccl(of("c", whole, curve(2, **nccl)))
    for row in report.of("in_range"):
        assert row.others["links"] == pytest.approx(row.measured_s, rel=0.02)
    found = report.to_dict()["questions"]["in_range"]["collectives"]
    assert list(found) == ["all_reduce"] and found["all_reduce"]["count"] == 12
    assert found["all_reduce"]["others"]["links"]["p90"] < 0.02
    small = replace(whole, size_bytes=SIZES[:6], seconds=whole.seconds[:6])
    assert all("links" not in row.others for row in in_range.rows(of("c", small)))


def test_scale_from_fitted_knots_is_the_law_on_few_points() -> None:
    """A straight curve's knots are its ends and bends: the same law within their tolerance."""
    rows = scale.rows(of("c", curve(2), curve(4)))
    for row in rows:
        assert row.others["from fitted knots"] == pytest.approx(row.predicted_s, rel=0.12)


def test_every_question_has_its_limits_and_the_issues_targets() -> None:
    limits = {name: one for module in questions().values() for name, one in module.LIMITS.items()}
    assert limits == {
        "in_range": {
            "median": 0.06,
            "p90": 0.25,
            "curve and model / log interpolation, median": 1.0,
            "curve and model / log interpolation, p90": 1.0,
        },
        "scale_2x": {"median": 0.12, "p90": 0.45, "median above": 0.08},
        "scale_4x": {"median": 0.18},
        "scale_beyond": {"median": 0.30},
        "other_collective": {"median": 0.15},
        "choice": {"right": 0.90},
    }
    assert set(limits) == set(ORDER)


# The command


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    capsys.readouterr()
    left = code(["validate", "nccl", *(str(one) for one in arguments)])
    out, err = capsys.readouterr()
    return left, out, err


def write(folder: Path, name: str, times_us: dict[float, float]) -> None:
    folder.mkdir(exist_ok=True)
    lines = [f"all_reduce,4,4,1,{size:.0f},{time}" for size, time in times_us.items()]
    head = "collective,ranks,nodes,gpus_per_node,size_bytes,time_us"
    (folder / f"{name}.csv").write_text("\n".join([head, *lines]) + "\n")


def test_json_is_the_contract(capsys) -> None:
    left, out, err = run(capsys, "--json")
    found = json.loads(out)
    assert (left, err) == (0, "")
    assert found["schema"] == "perfsim/validation-nccl/1"
    assert list(found["questions"]) == list(ORDER)
    for name, one in found["questions"].items():
        if name == "choice":
            assert {"count", "right"} <= set(one) and 0 <= one["right"] <= one["count"]
        else:
            assert {"count", "median", "p90", "worst"} <= set(one)
            assert 0 <= one["median"] <= one["p90"] <= one["worst"]
            assert sum(band["count"] for band in one["bands"].values()) == one["count"]
    assert (
        sum(row["count"] for row in found["clusters"] if row["question"] == "in_range")
        == found["questions"]["in_range"]["count"]
    )


def test_a_target_missed_is_exit_code_4_with_the_table(capsys, tmp_path) -> None:
    """Times at random: nothing between two sizes can be told from them."""
    random = np.random.default_rng(1)
    times = {8.0 * 2**place: float(10 ** random.uniform(1, 4)) for place in range(25)}
    write(tmp_path / "curves", "noise", times)
    left, out, _ = run(capsys, "--data", tmp_path / "curves")
    assert left == 4
    assert "targets missed\n  - in_range: median is " in out and "in_range " in out
    assert "noise" in out and "time falls by more than 10 %" in out
    left, out, _ = run(capsys, "--data", tmp_path / "curves", "--json")
    assert left == 4 and json.loads(out)["misses"]


def test_smooth_curves_are_exit_code_0(capsys, tmp_path) -> None:
    times = {8.0 * 2**place: 20.0 + 8.0 * 2**place / 1e3 for place in range(25)}
    write(tmp_path / "curves", "smooth", times)
    out_file = tmp_path / "report.json"
    left, out, _ = run(capsys, "--data", tmp_path / "curves", "--out", out_file)
    assert left == 0 and "all targets reached that these curves can tell" in out
    assert "choice: no curves with ring and tree each held fixed; these data cannot tell" in out
    assert json.loads(out_file.read_text())["questions"]["in_range"]["count"] == 12


def test_a_folder_without_curves_is_refused(capsys, tmp_path) -> None:
    left, out, err = run(capsys, "--data", tmp_path)
    assert (left, out) == (3, "")
    assert err == f"perfsim: {tmp_path}: holds no file with measurements of collectives\n"


def test_the_table_names_every_question_cluster_and_baseline(capsys) -> None:
    curves = of("ours", curve(2), curve(4), curve(4, collective="all_gather"))
    print_validation(validate_nccl(curves))
    out = capsys.readouterr().out
    assert out.startswith("3 measured curves of 1 clusters; errors are |predicted / measured - 1|")
    names = ("log interpolation", "links", "unchanged", "from fitted knots", "all_reduce alone")
    for word in (*ORDER, *names, "plain ring", "median, p90 at most of log interpolation"):
        assert word in out
    assert "target" in out and "median 6%, p90 25%" in out
    (line,) = [one for one in out.splitlines() if one.startswith("scale_4x")]
    assert line.split()[1:3] == ["0", "-"]


# The targets


@cache
def collected() -> Report:
    return validate_nccl(from_folder(COLLECTED)[0])


@cache
def carried() -> Report:
    return validate_nccl(shipped_curves(Catalog(shipped())))


REPORTS = [carried, pytest.param(collected, marks=needs_curves)]


@pytest.mark.parametrize("report", REPORTS)
def test_targets_are_reached(report) -> None:
    found = report()
    assert found.misses() == []
    for question in ORDER:
        assert found.of(question), question  # a question without rows reaches nothing


@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("question", ["in_range", "scale_2x", "scale_4x", "scale_beyond"])
def test_the_plain_ring_is_further_off(report, question: str) -> None:
    found = report()
    assert found.score(question).median < found.plain(question).median
    assert found.score(question).p90 < found.plain(question).p90


@pytest.mark.parametrize("report", REPORTS)
def test_curve_and_model_is_never_worse_than_log_interpolation(report) -> None:
    others = report().others("in_range")
    for name in ("median", "p90"):
        assert getattr(others["curve and model"], name) <= getattr(
            others["log interpolation"], name
        )


@needs_curves
def test_recorded_errors_are_those_of_today() -> None:
    path = shipped() / "networks" / "growth_errors.csv"
    text = path.read_text()
    (date,) = [line[8:] for line in text.splitlines() if line.startswith("# date: ")]
    assert growth_table(collected(), date) == text
