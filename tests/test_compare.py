"""Methods side by side: their order, what is sure of it, and what time alone does not say."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from comparisons import FIELDS, NO_ERROR, SOME, pair, some

from perfsim.methods import method_class
from perfsim.planning.compare import SORTS, compare
from perfsim.prediction import predict
from perfsim.scenario import make_scenario

# By law.


def test_rows_are_the_predictions_that_each_method_gets_alone() -> None:
    for one in some().rows:
        name = one.scenario["method"]
        alone = predict(make_scenario(FIELDS | {"method": name}))
        assert one.iteration_s == alone.iteration_s
        assert one.to_dict() == alone.to_dict()


def test_standings_are_by_time_and_their_margins_multiply_to_the_last() -> None:
    found = some()
    rows = found.standings()
    assert [row["method"] for row in rows] == [one.scenario["method"] for one in found.rows]
    assert [row["rank"] for row in rows] == list(range(1, len(SOME) + 1))
    steps = [row["next_behind_ratio"] for row in rows]
    assert steps[-1] is None and all(step >= 0 for step in steps[:-1])
    together = math.prod(1 + step for step in steps[:-1])
    assert together == pytest.approx(1 + rows[-1]["behind_first_ratio"])


@pytest.mark.parametrize("sort", SORTS)
def test_sorting_moves_rows_and_no_rank(sort: str) -> None:
    found = compare(make_scenario(FIELDS), SOME, sort=sort)
    keys = [SORTS[sort](one) for one in found.rows]
    assert keys == sorted(keys)
    assert found.standings() == some().standings()


def test_the_baseline_is_ddp_whatever_is_asked_of_the_methods() -> None:
    plain = predict(make_scenario(FIELDS))
    asked = make_scenario(FIELDS | {"overlap": False, "bucket": "1MiB"})
    found = compare(asked, ["ssgd", "topk"])
    assert found.baseline.iteration_s == plain.iteration_s
    assert all(one.baseline_s == pytest.approx(plain.iteration_s) for one in found.rows)
    # Its own row then stands against it as another method's does.
    assert sum(map(len, found.sides().values())) == 2


# What can be told apart, by hand.


@pytest.mark.parametrize(
    ("behind", "errors", "known", "told"),
    [
        # What both rest on moves both: overlapping intervals do not matter.
        (0.01, NO_ERROR, True, True),
        # ... but where no record says so, they do.
        (0.01, NO_ERROR, False, False),
        (99.0, NO_ERROR, False, True),
        # Such predictions have been wrong by more, and by less.
        (0.01, {"topk": 0.02, "powersgd": 0.0}, True, False),
        (0.03, {"topk": 0.02, "powersgd": 0.0}, True, True),
        (0.0, NO_ERROR, True, False),
    ],
)
def test_when_two_are_told_apart(
    behind: float, errors: dict[str, float], known: bool, told: bool
) -> None:
    found = pair(behind, errors=errors, known=known)
    first, second = found.standings()
    assert (first["told_apart"], second["told_apart"]) == (told, None)
    assert second["may_be_fastest"] is not told
    assert ("further than such predictions have been wrong" in found.verdict()[0]) is told
    assert ("do not overlap" in found.rule) is not known


def test_what_only_one_rests_on_keeps_them_together() -> None:
    found = pair(0.2, errors=NO_ERROR)
    first, second = found.rows
    known = found.ranking.known._replace(sizes={"network_measured": 0.3})
    for moves, told in (({"network_measured": (1.0, 1.0)}, False), ({}, True)):
        other = replace(second, moves={"network_measured": (0.0, 0.0)})
        one = replace(first, moves=moves)
        # The first may take exp(0.3) - 1 = 35 % longer while the other does not move.
        assert replace(found.ranking, known=known).apart(one, other) is told


def test_who_is_faster_than_ssgd_and_who_may_be() -> None:
    found = some()
    base = found.baseline
    sides = found.sides()
    assert "ssgd" not in {name for names in sides.values() for name in names}
    assert {name for names in sides.values() for name in names} == {*SOME} - {"ssgd"}
    for name in sides["faster"]:
        assert found.ranking.predictions[name].iteration_s < base.iteration_s
    assert "topk" in sides["faster"]
    assert f"Against S-SGD: {len(sides['faster'])} of 5 are faster" in found.verdict()[1]


# What is said of convergence and memory.


def test_lossy_delayed_and_periodic_methods_are_not_ranked_by_time_alone() -> None:
    note = some().notes[0]
    assert note.startswith("Time per iteration is not convergence")
    assert "sparsification (topk)" in note and "low rank (powersgd)" in note
    assert "fewer exchanges (localsgd)" in note and "delayed updates (lbsgd)" in note
    assert "ssgd (" not in note and "byteps" not in note
    same = compare(make_scenario(FIELDS), ["ssgd", "byteps"])
    assert not any("convergence" in text for text in same.notes)


def test_every_lossy_prediction_says_so_itself() -> None:
    for one in some().rows:
        lossy = method_class(one.scenario["method"]).lossy
        assert any("Time per iteration only" in text for text in one.notes) is lossy


def test_who_does_not_fit_is_named() -> None:
    found = compare(make_scenario(FIELDS | {"model": "bert-large", "gpu": "v100"}), ["ssgd"])
    assert not any("Do not fit" in text for text in found.notes)
    large = replace(found.rows[0], memory_bytes={"parameters": 1e15})
    from perfsim.data.catalog import Catalog
    from perfsim.planning.compare import notes_of

    ranking = replace(found.ranking, predictions={"ssgd": large})
    [note] = [text for text in notes_of(ranking, {}, {"ssgd": {}}, Catalog()) if "fit" in text]
    assert note == "Do not fit into v100's memory: ssgd."


def test_what_all_predictions_say_is_said_once() -> None:
    found = some()
    common = [text for text in found.rows[0].notes if all(text in one.notes for one in found.rows)]
    assert common and found.notes[-len(common) :] == common


def test_told_methods_are_those_predicted() -> None:
    told: list[tuple[int, int, str]] = []
    compare(make_scenario(FIELDS), ["ssgd", "topk"], tell=lambda *of: told.append(of))
    assert told == [(0, 2, "ssgd"), (1, 2, "topk")]
