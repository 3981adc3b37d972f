"""How wrong predictions have been, by what they rest on: fitted, never on a case's own source."""

from __future__ import annotations

from math import exp, hypot, log
from pathlib import Path

import numpy as np
import pytest

from interval_record import (
    FitChoices,
    Residual,
    ResidualTable,
    chosen_left_out,
    fit_left_out,
    fit_of,
    fit_sizes,
    held_out,
    read_residuals,
    residuals_of,
    residuals_text,
    uncertainty_text,
)
from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.interval import (
    GRADES,
    NO_METHOD,
    UNCERTAINTY_FILE,
    UNCERTAINTY_PARTS,
    Uncertainty,
    uncertainties,
)
from perfsim.scenario import Scenario
from perfsim.validate.cases import CASE_COLUMNS, Case
from perfsim.validate.measurements import PredictedCase, group_errors, validate_measurements

SCENARIO = Scenario(model="resnet50", gpus=8)
"""What the made-up cases are predicted by; only their numbers count."""

# The fit


def made(sources: int, rows: int, seed: int = 0) -> list[Residual]:
    """Return residuals of made-up sources: network off by 0.3, computation by 0.05."""
    rng = np.random.default_rng(seed)
    found = []
    for source in range(sources):
        for row in range(rows):
            share = rng.uniform(0, 1)
            off = share * rng.normal(0, 0.3) + (1 - share) * rng.normal(0, 0.05)
            part = {"network_modelled": (share, share), "compute_given": (1 - share, 1 - share)}
            found.append(Residual(f"s{source}-{row}", f"s{source}", "blind", off, part))
    return found


def test_the_fit_finds_the_least_price_of_a_normal_distribution() -> None:
    rng = np.random.default_rng(0)
    logs = rng.normal(0, 0.3, 2000)
    rows = [
        Residual(f"s{n % 40}-{n}", f"s{n % 40}", "blind", log_, {"hidden_modelled": (1.0, 1.0)})
        for n, log_ in enumerate(logs.tolist())
    ]
    found = fit_sizes(ResidualTable.from_residuals(rows))[
        UNCERTAINTY_PARTS.index("hidden_modelled")
    ]

    def price(half: float) -> float:
        slower = logs[logs > 0]
        return half + 14.0 * float(np.sum(1 / (1 + (half / slower) ** 5))) / len(logs)

    assert found == pytest.approx(min(np.linspace(0.1, 2.0, 1901).tolist(), key=price), rel=0.01)


def test_new_sources_like_the_old_are_nearly_all_inside() -> None:
    # Real sources are further off than those that the fit knows, so that it asks for over 90 %.
    known = fit_of(ResidualTable.from_residuals(made(40, 20)))
    fresh = made(200, 5, seed=1)
    held = [
        low <= exp(one.log) <= high
        for one in fresh
        for low, high in [known.interval(one.moves, 1.0)]
    ]
    assert 0.93 <= np.mean(held) <= 0.99


def one_part(furthest: float) -> float:
    """Return the size of the one part of 100 rows that are 0.2 off, but one."""
    rows = [
        Residual(
            f"s{n}-1",
            f"s{n}",
            "blind",
            sign * (0.2 if n else furthest),
            {"hidden_modelled": (1, 1)},
        )
        for n, sign in enumerate((1, -1) * 50)
    ]
    sizes = fit_sizes(ResidualTable.from_residuals(rows))
    return float(sizes[UNCERTAINTY_PARTS.index("hidden_modelled")])


def test_the_least_price_by_hand() -> None:
    # Half of the rows are slower. The price rises with h by 1 - 0.5 x 14 s (1 - s) / (0.2 h), where
    # s = 1 / (1 + (h / 0.2)^5) counts them as outside: zero at h = 0.47.
    size = one_part(5.0)
    outside = 1 / (1 + (size / 0.2) ** 5)
    assert 0.49 * 14 * outside * (1 - outside) / (0.2 * size) == pytest.approx(1.0, abs=0.1)


def test_a_row_far_outside_costs_as_much_as_one_that_is_just_outside() -> None:
    assert one_part(50.0) == pytest.approx(one_part(5.0), rel=1e-3)


def test_a_source_weighs_as_the_root_of_its_rows_in_each_way() -> None:
    rows = made(3, 4)
    rows += [one for one in rows if one.source == "s1"] * 3
    rows += [one._replace(way="rated") for one in rows if one.source == "s2"]
    table = ResidualTable.from_residuals(rows)
    weight = {
        (source, way): table.weights[(table.sources == source) & (table.ways == way)].sum()
        for source in table.names
        for way in ("blind", "rated")
    }
    assert weight["s1", "blind"] == pytest.approx(2 * weight["s0", "blind"])
    assert weight["s2", "blind"] == weight["s2", "rated"] == weight["s0", "blind"]
    assert weight["s0", "rated"] == 0.0 and sum(weight.values()) == pytest.approx(1.0)


def test_a_given_time_is_worth_a_repeat_at_least() -> None:
    rng = np.random.default_rng(0)
    rows = [
        Residual(f"s{n}-1", f"s{n}", "rated", 1e-4 * rng.normal(), {"compute_given": (1.0, 1.0)})
        for n in range(8)
    ]
    sizes = fit_left_out(rows)[NO_METHOD].sizes
    assert 0.025 <= sizes["compute_given"] <= 0.087 < sizes["compute_measured"]


def test_what_no_source_shows_keeps_the_size_of_the_start() -> None:
    rows = [
        Residual(f"s{n}-1", f"s{n}", "blind", sign * 0.05, {"other": (1.0, 1.0)})
        for n, sign in enumerate((1, -1) * 4)
    ]
    sizes = fit_sizes(ResidualTable.from_residuals(rows))
    measured, modelled = (UNCERTAINTY_PARTS.index(f"kernels_{one}") for one in GRADES["kernels"])
    assert sizes[measured] == pytest.approx(0.15)
    assert sizes[modelled] == pytest.approx(hypot(0.15, 0.32))


def test_a_source_has_no_part_in_its_own_row() -> None:
    rows = made(5, 6)
    before = fit_left_out(rows)
    altered = [
        one._replace(log=5 * one.log + 1.0, moves={"other": (1.0, 1.0)})
        if one.source == "s3"
        else one
        for one in rows
    ]
    after = fit_left_out([one for one in altered if one.id != "s3-0"])
    assert after["s3"] == before["s3"]
    assert after["s1"] != before["s1"] and after[NO_METHOD] != before[NO_METHOD]


def test_with_one_choice_nothing_is_chosen() -> None:
    rows = made(4, 6)
    rows += [one._replace(way="rated", log=0.5 * one.log) for one in rows]
    fits = fit_left_out(rows)
    shares = chosen_left_out(rows, [FitChoices()])
    by_way = {line["rows"]: line["coverage"] for line in held_out(rows, fits)}
    assert {way: f"{share:.1%}" for way, share in shares.items()} == {
        way: by_way[way] for way in ("blind", "rated")
    }


def test_what_is_judged_has_no_part_in_the_choice() -> None:
    wide, narrow = FitChoices(outside_cost=40.0), FitChoices(outside_cost=0.01)
    for own in (0.2, 0.0):
        rows = [
            Residual(f"s{n % 4}-{n}", f"s{n % 4}", "blind", log_, {"hidden_modelled": (1.0, 1.0)})
            for n in range(16)
            for log_ in [own if n % 4 == 3 else 0.2]
        ]
        # Narrow intervals hold none of the others' rows, whatever s3's own rows are.
        assert chosen_left_out(rows, [narrow, wide]) == chosen_left_out(rows, [wide])


def test_the_order_of_rows_changes_nothing() -> None:
    rows = made(4, 5)
    one, other = fit_left_out(rows)[NO_METHOD], fit_left_out(rows[::-1])[NO_METHOD]
    assert one.sizes == pytest.approx(other.sizes)


def test_weaker_evidence_is_never_taken_for_the_surer() -> None:
    # Carried computation happens to fit better here than that which was given.
    rng = np.random.default_rng(0)
    rows = [
        Residual(f"s{n}-1", f"s{n}", "blind", size * rng.normal(), {part: (1.0, 1.0)})
        for n in range(12)
        for part, size in (("compute_given", 0.2), ("compute_carried", 0.05))
    ]
    sizes = fit_left_out(rows)[NO_METHOD].sizes
    assert sizes["compute_carried"] >= sizes["compute_measured"] >= sizes["compute_given"]


def test_two_sources_are_too_few() -> None:
    with pytest.raises(RequestError, match="2 sources of whole iterations; at least 3"):
        fit_left_out(made(2, 5))


def case(name: str, source: str, provenance: str = "") -> Case:
    """Return a case of an id and where it stands."""
    texts = {column: "" for column in CASE_COLUMNS if column not in ("id", "value")}
    return Case(
        id=name,
        value=1.0,
        source=source,
        provenance=provenance,
        **(texts | {"metric": "iteration_s"}),
    )


def test_origins_of_one_citation_or_owner_are_one_source() -> None:
    cases = [case("a-x-1", "A"), case("a-y-1", "B"), case("b-1", "B"), case("c-1", "C")]
    cases += [case("d-1", "D", "Owner/one@12ab:x"), case("e-1", "E", "owner/other branch y@3:z")]
    rows = [PredictedCase(one, SCENARIO, 0.5, (0.4, 0.7), -0.5) for one in cases]
    found = residuals_of(rows)
    assert [one.source for one in found] == ["a b", "a b", "a b", "c", "d e", "d e"]
    # Predicted half of what was measured.
    assert [one.log for one in found] == pytest.approx([log(2.0)] * 6)


# The files


def test_residuals_and_record_are_read_as_written(tmp_path: Path) -> None:
    rows = made(4, 3)
    (tmp_path / "residuals.csv").write_text(residuals_text(rows, "2000-01-01"))
    again = read_residuals(tmp_path / "residuals.csv")
    assert [one.log for one in again] == pytest.approx([one.log for one in rows], rel=1e-5)
    (tmp_path / "measurements").mkdir()
    record = fit_left_out(rows)
    (tmp_path / "measurements" / UNCERTAINTY_FILE).write_text(
        uncertainty_text(record, "2000-01-01")
    )
    found = uncertainties(Catalog(tmp_path))
    assert set(found) == {NO_METHOD, "s0", "s1", "s2", "s3"}
    assert found["s2"].sizes == pytest.approx(record["s2"].sizes, abs=1e-4)
    assert found["s2"].faster == pytest.approx(record["s2"].faster, abs=1e-4)
    assert [one.way for one in again] == [one.way for one in rows]
    lines = held_out(rows, record)
    assert [line["rows"] for line in lines] == ["all rows", "blind", "s0", "s1", "s2", "s3"]
    assert lines[0]["count"] == "12" and -1.0 <= float(lines[0]["rank"]) <= 1.0


# Beside what was measured


def test_a_source_is_held_against_what_it_had_no_part_in(tmp_path: Path) -> None:
    record = {
        name: Uncertainty(name, 9, 3, dict.fromkeys(UNCERTAINTY_PARTS, 0.0) | {"other": size})
        for name, size in ((NO_METHOD, 0.5), ("t", 0.1))
    }
    (tmp_path / "measurements").mkdir()
    (tmp_path / "measurements" / UNCERTAINTY_FILE).write_text(
        uncertainty_text(record, "2000-01-01")
    )
    table = tmp_path / "cases.csv"
    row = "{}-1,S-SGD DDP,ResNet-50,V100,8,4,PCIe3 in node,64,,,iteration_s,1,"
    lines = [",".join(CASE_COLUMNS), row.format("t"), row.format("u")]
    table.write_text("\n".join(lines) + "\n")
    found = validate_measurements(table, Catalog(tmp_path)).rows
    assert [one.interval[1] / one.predicted for one in found] == pytest.approx([exp(0.1), exp(0.5)])


def test_coverage_and_half_width_are_those_of_rows_with_an_interval() -> None:
    rows = [
        PredictedCase(case("a-1", "A"), SCENARIO, 2.0, (0.9, 2.9), 1.0),
        PredictedCase(case("a-2", "A"), SCENARIO, 2.0, (1.5, 2.1), 1.0),
        PredictedCase(case("a-3", "A"), SCENARIO, 2.0, (2.0, 2.0), 1.0),
    ]
    found = group_errors("all", "", rows)
    assert found.coverage == 0.5
    assert found.half_width == pytest.approx((0.5 + 0.15) / 2)
    assert group_errors("all", "", rows[2:]).coverage is None
    assert group_errors("all", "", []).half_width is None
