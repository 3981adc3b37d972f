"""Intervals: what moves an iteration, how far they reach, and the record that they are made of."""

from __future__ import annotations

import csv
from math import exp, hypot, log, log1p, log2
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interval_record import uncertainty_text
from perfsim import fusion
from perfsim.compute.software import neighbour_eras
from perfsim.data.catalog import Catalog
from perfsim.errors import DataError
from perfsim.interval import (
    GRADES,
    NO_METHOD,
    UNCERTAINTY_FILE,
    UNCERTAINTY_PARTS,
    Uncertainty,
    extra_moves,
    of_ratio,
    uncertainties,
)
from perfsim.methods import load_method
from perfsim.prediction import predict
from perfsim.quantity import Grade
from perfsim.scenario import make_scenario
from perfsim.schedule.costed_graph import CostedGraph, TaskCost
from perfsim.schedule.rounds import schedule
from perfsim.simulate.graph import TaskGraph
from perfsim.what_if import ChangedTimes, moves, steady_s
from support.builders import hand_device, profile, ring_cluster

SIZES = {"compute_given": 0.03, "network_modelled": 0.2, "other": 0.04}
KNOWN = Uncertainty("none", 9, 3, SIZES)
MOVES = {"compute_given": (0.5, 0.6), "network_modelled": (0.2, 0.4), "other": (1.0, 1.0)}


# The interval


def test_parts_add_in_quadrature_each_side_by_itself() -> None:
    low, high = KNOWN.interval(MOVES, 0.1)
    assert low == pytest.approx(0.1 * exp(-(((0.5 * 0.03) ** 2 + 0.04**2 + 0.04**2) ** 0.5)))
    assert high == pytest.approx(0.1 * exp(((0.6 * 0.03) ** 2 + 0.08**2 + 0.04**2) ** 0.5))


@pytest.mark.parametrize("seed", range(5))
def test_it_holds_the_prediction_and_grows_with_every_part(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = dict(zip(UNCERTAINTY_PARTS, rng.lognormal(-2, 2, len(UNCERTAINTY_PARTS)), strict=True))
    moved = {part: tuple(rng.uniform(0, 1, 2)) for part in UNCERTAINTY_PARTS}
    known = Uncertainty("none", 9, 3, sizes)
    low, high = known.interval(moved, 0.1)
    assert 0 < low <= 0.1 <= high
    for part in UNCERTAINTY_PARTS:
        wider = known._replace(sizes=sizes | {part: 2 * sizes[part]}).interval(moved, 0.1)
        assert wider[0] <= low and wider[1] >= high
        further = known.interval(moved | {part: (moved[part][0] * 2, moved[part][1] * 2)}, 0.1)
        assert further[0] <= low and further[1] >= high
    doubled = {part: 2 * size for part, size in sizes.items()}
    wider = known._replace(sizes=doubled).interval(moved, 0.1)
    assert wider[0] / 0.1 == pytest.approx((low / 0.1) ** 2)
    assert wider[1] / 0.1 == pytest.approx((high / 0.1) ** 2)


def test_computation_moves_one_gpus_iteration_as_well() -> None:
    # With nothing but computation the efficiency is 1, however long computation takes.
    alone = of_ratio({"compute_carried": (1.0, 1.0), "other": (1.0, 1.0)})
    assert alone == {"compute_carried": (0.0, 0.0), "other": (1.0, 1.0)}


# What moves an iteration


def one_send(grade: Grade = "modelled") -> CostedGraph:
    """Return 10 ms of compute, then an exposed message of 6 ms, by hand."""
    graph = TaskGraph()
    backward = graph.add("backward", "compute", "backward", 0.010)
    send = graph.add("send", "communication", "communicate", 0.006, [backward])
    graph.add("update", "compute", "update", 0.0, [send])
    return CostedGraph(
        graph, [TaskCost("compute"), TaskCost("network", grade=grade), TaskCost("compute")]
    )


def moved(plans: list[CostedGraph], compute: Grade = "given") -> dict[str, tuple[float, float]]:
    """Return what moves plans."""
    iteration_s = steady_s(plans)
    return moves(ChangedTimes(plans, iteration_s), compute)


def test_a_cause_twice_as_fast_or_slow_by_hand() -> None:
    found = moved([one_send()])
    assert found["compute_given"] == pytest.approx((log2(16 / 11), log2(26 / 16)))
    assert found["network_modelled"] == pytest.approx((log2(16 / 13), log2(22 / 16)))
    assert set(found) == {"compute_given", "network_modelled"}


def test_grades_share_a_cause_by_time_as_variances() -> None:
    both = moved([one_send("measured"), one_send("carried")])
    alone = moved([one_send("measured")])
    for side in (0, 1):
        parts = [both[f"network_{grade}"][side] for grade in ("measured", "carried")]
        assert parts[0] == pytest.approx(parts[1])
        assert hypot(*parts) == pytest.approx(alone["network_measured"][side])


def test_hidden_communication_may_show_but_not_hide_more() -> None:
    found = extra_moves(0.016, {"modelled": 0.008}, (0.7, 0.7), 0.0, 8, 4)
    assert found["hidden_modelled"] == pytest.approx((0.0, log1p(0.5)))
    assert "hidden_carried" not in found


def test_hidden_communication_is_shared_by_evidence_as_variances() -> None:
    by_grade = {"measured": 0.002, "carried": 0.004, "modelled": 0.002}
    found = extra_moves(0.016, by_grade, (0.7, 0.7), 0.0, 8, 4)
    assert found["hidden_carried"][1] == pytest.approx(log1p(0.5) * 0.75**0.5)
    assert found["hidden_modelled"][1] == pytest.approx(log1p(0.5) * 0.5)


def test_what_several_gpus_add_by_hand() -> None:
    found = extra_moves(0.1, {}, (0.4, 0.7), 0.0, 32, 8)
    assert found == {"node": pytest.approx((0.4 * 3, 0.7 * 3)), "other": (1.0, 1.0)}
    assert extra_moves(0.1, {}, (1.0, 1.0), 0.0, 1, 1) == {}


def test_a_batch_that_nobody_measured_widens_both_sides() -> None:
    assert extra_moves(0.1, {}, (1.0, 0.5), log(8), 1, 1) == {
        "batch": pytest.approx((log1p(log(8)), 0.5 * log1p(log(8))))
    }

    def reach(batch: int) -> float:
        moves = predict(make_scenario({"model": "alexnet", "gpus": 1, "batch": batch})).moves
        return moves.get("batch", (0.0, 0.0))[1]

    assert reach(64) == 0.0 and 0.0 < reach(4096) < reach(65536)


def iteration_s(**asked: Any) -> float:
    return predict(make_scenario(asked)).iteration_s


ERA_ASKED = {"model": "resnet50", "gpus": 16, "net": "10gbe"}


@pytest.mark.parametrize("method", ["topk", "dgc", "randk", "efsignsgd", "onebit", "fp16"])
@pytest.mark.parametrize("software", ["torch1.1", "torch1.12", "torch2"])
def test_an_era_whose_kernels_nobody_measured_holds_its_neighbours(
    method: str, software: str
) -> None:
    asked = ERA_ASKED | {"method": method}
    here = predict(make_scenario(asked | {"software": software}))
    low, high = here.iteration_s_interval
    for other in neighbour_eras(software):
        there_s = iteration_s(**asked, software=other)
        assert low <= there_s * (1 + 1e-9) and there_s <= high * (1 + 1e-9)


PINNED = ERA_ASKED | {"model": "resnet101", "single_gpu": "203ms"}
"""Measured on PyTorch, and its own time is given: eras differ by the method's kernels alone."""


def test_only_kernels_that_the_era_measured_have_no_era_in_doubt() -> None:
    asked = PINNED | {"method": "dgc"}
    today = predict(make_scenario(asked))
    before_s = iteration_s(**asked, software="torch1.12")
    assert today.moves["era"] == pytest.approx((0.0, log(before_s / today.iteration_s)))
    assert "era" not in predict(make_scenario(asked | {"software": "torch1.8"})).moves
    assert "era" not in predict(make_scenario(ERA_ASKED)).moves


def test_a_top_k_that_is_named_has_no_era_in_doubt() -> None:
    asked = PINNED | {"method": "topk"}
    slower_s = iteration_s(**asked, software="torch1.12")
    today = predict(make_scenario(asked))
    assert today.moves["era"] == pytest.approx((0.0, log(slower_s / today.iteration_s)))
    for kernel in ("old", "sort", "new"):
        assert "era" not in predict(make_scenario(asked | {"options": {"kernel": kernel}})).moves
    named_s = iteration_s(**asked, options={"kernel": "sort"})
    assert named_s == pytest.approx(slower_s)


def test_kernels_of_an_older_era_run_on_every_type_of_gpu() -> None:
    """In one message after the passes: what the older kernels add, they add to the iteration."""
    mixed = {"model": "resnet50", "gpus": 32, "net": "10gbe", "method": "topk", "fusion": "whole"}
    mixed |= {"gpu": "v100:16,p100:16"}
    today, older = (
        predict(make_scenario(mixed | {"software": era})) for era in ("torch2", "torch1.12")
    )
    longer_s = older.breakdown_s["compression"] - today.breakdown_s["compression"]
    assert today.moves["era"][1] == pytest.approx(log1p(longer_s / today.iteration_s))


def test_one_gpu_moves_with_computation_alone() -> None:
    found = predict(make_scenario({"model": "resnet50", "gpus": 1}))
    causes = {part.partition("_")[0] for part in found.moves}
    assert causes == {"compute"}
    [part] = [part for part in found.moves if part.startswith("compute")]
    assert found.moves[part] == pytest.approx((1.0, 1.0), rel=1e-6)


def test_what_is_known_of_computation_decides_its_part() -> None:
    asked = {"model": "resnet50", "gpus": 8, "net": "10gbe"}
    given = predict(make_scenario(asked | {"single_gpu": "250ms"})).moves
    carried = predict(make_scenario(asked | {"gpu": "titan-xp"})).moves
    assert "compute_given" in given and "compute_carried" in carried


def test_every_charge_has_a_grade_that_its_part_knows() -> None:
    [made] = schedule(
        profile([250_000], [0.010]),
        load_method("topk", {}),
        fusion.load_policy("none").fuse,
        hand_device(),
        ring_cluster(2, "1GB/s,1us"),
    )
    found = moved([made], "measured")
    assert set(found) <= set(UNCERTAINTY_PARTS)
    assert "kernels_modelled" in found and "network_modelled" in found


# The record


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("0.0500", "wide"), "'wide' is not a number"),
        (("uncertainty/7", "uncertainty/9"), "schema"),
    ],
)
def test_a_damaged_record_is_one_sentence(
    tmp_path: Path, change: tuple[str, str], words: str
) -> None:
    record = {NO_METHOD: Uncertainty(NO_METHOD, 9, 3, dict.fromkeys(UNCERTAINTY_PARTS, 0.05))}
    (tmp_path / "measurements").mkdir()
    text = uncertainty_text(record, "2000-01-01").replace(*change)
    (tmp_path / "measurements" / UNCERTAINTY_FILE).write_text(text)
    with pytest.raises(DataError, match=words):
        uncertainties(Catalog(tmp_path))


def test_the_shipped_record_leaves_out_every_source_that_ships() -> None:
    known = uncertainties(Catalog())
    assert known[NO_METHOD].sources >= 10
    for path in Catalog().files("measurements").values():
        with path.open() as file:
            lines = [line for line in file if not line.startswith("#")]
        for cells in csv.DictReader(lines):
            if cells["role"] == "test":
                assert cells["id"].partition("-")[0] in known, cells["id"]
    for one in known.values():
        for cause, grades in GRADES.items():
            sizes = [one.sizes[f"{cause}_{grade}"] for grade in grades]
            assert sizes == sorted(sizes)
        assert one.sizes["other"] > 0 and one.sizes["era"] == 1.0


def test_one_gpus_given_time_is_worth_what_a_repeat_is() -> None:
    found = predict(make_scenario({"model": "resnet50", "gpus": 1, "single_gpu": "107ms"}))
    low, high = found.iteration_s_interval
    known = uncertainties(Catalog())[NO_METHOD]
    assert known.faster is not None
    faster, slower = known.faster["compute_given"], known.sizes["compute_given"]
    assert 0.025 <= faster <= 0.087 and 0.025 <= slower <= 0.087
    assert (low, high) == pytest.approx((0.107 * exp(-faster), 0.107 * exp(slower)), rel=1e-6)


# What uses them


def test_a_prediction_has_the_records_interval_and_says_so() -> None:
    found = predict(make_scenario({"model": "resnet50", "gpus": 16, "net": "10gbe"}))
    known = uncertainties(Catalog())[NO_METHOD]
    assert found.iteration_s_interval == known.interval(found.moves, found.iteration_s)
    assert known.words() in found.notes


def test_without_a_record_costs_scatter_as_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfsim.interval.UNCERTAINTY_FILE", "nowhere.csv")
    found = predict(make_scenario({"model": "resnet50", "gpus": 16, "net": "10gbe"}))
    low, high = found.iteration_s_interval
    assert low < found.iteration_s < high
    assert any("fit residuals and repeats" in note for note in found.notes)
