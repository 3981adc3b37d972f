"""Errors by group: weights, ways, and the cases where communication matters."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from perfsim import Scenario
from perfsim.compute.device import load_device
from perfsim.validate.cases import CASE_COLUMNS, Case, same_source
from perfsim.validate.groups import (
    PredictedCase,
    best_known,
    group_errors,
    group_tables,
    ranking,
    weighted_quantile,
    width_rank,
)
from perfsim.validate.mapping import Way
from support.what_ships import SHIPPED

COMPUTING = {"forward": 0.03, "backward": 0.06, "update": 0.01}


def row(
    name: str,
    error: float,
    way: Way = "rated",
    gpu: str = "v100",
    exposed_s: float = 0.0,
    interval: tuple[float, float] = (0.5, 1.5),
    **cells: str,
) -> PredictedCase:
    """Return a case that took 1 s and was predicted with an error."""
    texts = dict.fromkeys((column for column in CASE_COLUMNS if column != "value"), "")
    case = Case(**texts | {"metric": "iteration_s", "gpus": "8"} | cells | {"id": name}, value=1.0)
    breakdown = COMPUTING | {"communication_exposed": exposed_s}
    scenario = Scenario(model="resnet50", gpus=8, gpu=gpu)
    return PredictedCase(case, scenario, 1.0 + error, interval, error, way, breakdown)


def test_rows_and_sources_weigh_beside_each_other_by_hand() -> None:
    many = [row(f"a-{n}", 0.01) for n in range(9)]
    rows = [*many, row("b-1", -0.4, interval=(0.5, 0.7))]
    errors = group_errors("way", "rated", rows, "rated")
    assert errors.score.median == pytest.approx(0.01)
    assert errors.bias == pytest.approx((9 * 0.01 - 0.4) / 10)
    assert errors.coverage == 0.9 and errors.sources == 2
    # Half of the weight is a's, half b's.
    assert errors.alike.median == pytest.approx(0.01)
    assert errors.alike.p90 == pytest.approx(0.4)
    assert errors.alike.bias == pytest.approx((0.01 - 0.4) / 2)
    assert errors.alike.coverage == 0.5
    assert group_errors("way", "rated", [], "rated").alike.median is None


def test_a_weighted_quantile_by_hand() -> None:
    weighted = [(0.5, 0.1), (0.1, 0.6), (0.2, 0.3)]
    assert [weighted_quantile(weighted, share) for share in (0.5, 0.6, 0.7, 0.95)] == [
        0.1,
        0.1,
        0.2,
        0.5,
    ]


def test_communication_matters_where_computation_alone_misses() -> None:
    # 0.1 s of computation; predicted 0.1 s beside 1 s measured, or 0.1 s beside 0.1 s.
    assert row("a-1", -0.9).communication_matters
    assert not row("a-1", 0.0).communication_matters
    # Predicted right, a fifth of it exposed; a little more.
    assert not row("a-1", 0.0, exposed_s=0.0249).communication_matters
    assert row("a-1", 0.0, exposed_s=0.0251).communication_matters
    # Measured a fifth faster than computation alone.
    assert row("a-1", 0.21).communication_matters
    assert not row("a-1", 0.0, exposed_s=1.0, metric="exposed_comm_s").communication_matters


def test_each_case_once_in_the_way_that_knows_most() -> None:
    ways: tuple[Way, ...] = ("rated", "blind", "calibrated")
    rows = [row("a-1", 0.1, way) for way in ways] + [row("a-2", 0.2, "blind")]
    assert [(one.case.id, one.way) for one in best_known(rows)] == [
        ("a-1", "calibrated"),
        ("a-2", "blind"),
    ]


def test_what_calibrates_is_not_counted_among_the_best_known() -> None:
    assert best_known([replace(row("a-1", 0.1, "blind"), calibrates=True)]) == []


def test_groups_by_scale_generation_and_way() -> None:
    rows = [
        row("a-1", 0.1, "blind", gpus="8"),
        row("a-1", 0.05, "rated", gpus="8"),
        row("a-2", 0.2, "rated", gpus="64", gpu="a100"),
        row("a-3", 0.3, "rated", gpus="2048", gpu="rtx2080ti"),
    ]
    tables = group_tables(rows)
    assert [(one.name, one.way, one.score.count) for one in tables["scale"]] == [
        ("2 to 8 GPUs", "blind", 1),
        ("2 to 8 GPUs", "rated", 1),
        ("33 to 64 GPUs", "rated", 1),
        ("above 64 GPUs", "rated", 1),
    ]
    assert {one.name for one in tables["generation"]} == {"Volta", "Ampere", "Turing"}


@pytest.mark.parametrize("gpu", sorted(SHIPPED.files("devices")))
def test_the_generation_of_a_gpu_is_its_architecture(gpu: str) -> None:
    architecture = load_device(gpu, SHIPPED).architecture
    known = {"Ada Lovelace": "Ada"}.get(architecture, re.sub(r"CDNA \d", "CDNA", architecture))
    assert row("a-1", 0.0, gpu=gpu).generation == known


def test_pairs_are_ranked_within_a_way() -> None:
    slow = [row("a-1", 0.0, way, system="A") for way in ("blind", "rated")]
    fast = [
        replace(one, case=replace(one.case, id="a-2", system="B", value=0.5), predicted=value)
        for one, value in zip(slow, (1.2, 0.6), strict=True)
    ]
    assert ranking([*slow, *fast]) == (2, 1)


def test_same_people_are_one_source() -> None:
    def case(name: str, provenance: str, source: str = "") -> Case:
        texts = dict.fromkeys((column for column in CASE_COLUMNS if column != "value"), "")
        return Case(**texts | {"id": name}, value=1.0, provenance=provenance, source=source)

    cases = [
        case("a-1", "Owner/one@12ab:x", "A"),
        case("b-1", "owner/other @3:z", "B"),
        case("c-1", "else/thing@1:y", "C"),
    ]
    assert same_source(cases) == {"a": "a b", "b": "a b", "c": "c"}
    assert [one.owner for one in cases] == ["owner", "owner", "else"]


def test_the_rank_of_width_and_error_is_spearmans() -> None:
    from scipy.stats import spearmanr

    errors = [0.1, -0.3, 0.2, 0.2, -0.05, 0.6]
    halves = [0.2, 0.3, 0.1, 0.4, 0.1, 0.5]
    rows = [
        replace(row(f"a-{n}", 0.0), error=error, predicted=1.0, interval=(1 - half, 1 + half))
        for n, (error, half) in enumerate(zip(errors, halves, strict=True))
    ]
    expected = spearmanr(halves, [abs(error) for error in errors])[0]
    assert width_rank(rows) == pytest.approx(expected)
    assert width_rank(rows[:1]) is None


def test_rows_whose_preset_was_measured_on_their_own_cluster_are_shown_apart() -> None:
    rows = [replace(row("a-1", 0.1), own_preset=True), row("b-1", 0.4)]
    found = {one.name: one.score.median for one in group_tables(rows)["preset"]}
    assert found == {
        "measured on the judged cluster": pytest.approx(0.1),
        "measured elsewhere": pytest.approx(0.4),
    }
