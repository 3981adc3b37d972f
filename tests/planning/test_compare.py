"""Methods side by side: which are compared, their order, and what is sure of it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

import perfsim.planning.compare as comparing
from perfsim.errors import RequestError
from perfsim.methods import method_class, method_names
from perfsim.note import briefs
from perfsim.planning.compare import (
    SORTS,
    chosen_methods,
    compare,
    comparison_notes,
    options_of_each,
    own_method,
)
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from support.comparisons import FIELDS, NO_ERROR, SOME, pair, some

# By law.


def test_the_winner_of_an_era_is_that_of_a_comparison_asked_in_it() -> None:
    asked = {"model": "bert-large", "gpus": 32, "net": "10gbe"}
    methods = "topk,dgc,powersgd,acpsgd"
    found = compare(make_scenario(asked), methods)
    assert set(found.winners) == {"torch1.1", "torch1.8", "torch1.12", "torch2"}
    for era, winner in found.winners.items():
        there = compare(make_scenario(asked | {"software": era}), methods)
        assert there.ranking.winner == winner
    said = [line for line in found.verdict() if "would win" in line]
    assert len(said) == len(set(found.winners.values()) - {found.ranking.winner}) > 0
    assert not any(found.winners[era] in line for line in said for era in ["torch2"])


def test_other_eras_are_asked_of_where_somebody_reads_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[object] = []
    usual = comparing.steady_s
    monkeypatch.setattr(comparing, "steady_s", lambda rounds: asked.append(rounds) or usual(rounds))
    found = compare(make_scenario(FIELDS), SOME)
    assert found.brief() and found.standings() and not asked
    assert found.to_dict()["winners_by_software"] and asked


def test_rows_are_the_predictions_that_each_method_gets_alone() -> None:
    for one in some().rows:
        name = one.scenario.method
        alone = predict(make_scenario(FIELDS | {"method": name}))
        assert one.iteration_s == alone.iteration_s
        assert one.to_dict() == alone.to_dict()


def test_standings_are_by_time_to_accuracy_and_their_margins_multiply_to_the_last() -> None:
    found = compare(make_scenario(FIELDS), SOME, epochs_of={"topk": 1.5, "localsgd": 1.1})
    every = found.standings()
    assert [row.method for row in every] == [one.scenario.method for one in found.rows]
    rows = [row for row in every if row.rank is not None]
    assert {"ssgd", "byteps", "topk", "localsgd"} == {row.method for row in rows}
    assert [row.rank for row in every] == [*range(1, len(rows) + 1), None, None]
    steps = [row.next_behind_ratio for row in rows]
    assert steps[-1] is None and all(step >= 0 for step in steps[:-1])
    together = math.prod(1 + step for step in steps[:-1])
    assert together == pytest.approx(1 + rows[-1].behind_first_ratio)
    for row in rows:
        own_s = found.ranking.predictions[row.method].iteration_s * row.epochs_ratio
        assert row.accuracy_speedup_ratio == pytest.approx(found.baseline.iteration_s / own_s)
    topk = next(row for row in rows if row.method == "topk")
    assert (topk.epochs_ratio, topk.epochs_basis) == (1.5, "given")


def test_without_evidence_a_method_has_no_rank_and_says_why() -> None:
    found = some()
    rows = {row.method: row for row in found.standings()}
    assert rows["topk"].rank is None and rows["topk"].accuracy_speedup_ratio is None
    assert rows["ssgd"].rank is not None and rows["ssgd"].epochs_ratio == 1.0
    told = " ".join(found.notes)
    short = "Iteration time only for topk: 2 of 2 published results fell short of S-SGD's quality."
    assert short in told
    assert found.ranking.winner not in found.ranking.by_iteration_only


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
    assert (first.told_apart, second.told_apart) == (told, None)
    assert second.may_be_fastest is not told
    assert ("exceeds the error of such predictions" in found.verdict()[0]) is told
    assert ("do not overlap" in found.rule) is not known


def test_what_only_one_rests_on_keeps_them_together() -> None:
    found = pair(0.2, errors=NO_ERROR)
    first, second = found.rows
    known = found.ranking.known._replace(sizes={"network_measured": 0.3})
    for moves, told in (({"network_measured": (1.0, 1.0)}, False), ({}, True)):
        other = second.stating(moves={"network_measured": (0.0, 0.0)})
        one = first.stating(moves=moves)
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
    words = f"By iteration time, {len(sides['faster'])} of 5 are faster than S-SGD"
    assert words in found.verdict()[1]


# What is said of convergence and memory.


def test_lossy_delayed_and_periodic_methods_are_not_ranked_by_time_alone() -> None:
    note = some().notes[0]
    assert note.startswith("These methods learn differently from ssgd")
    assert "sparsification (topk)" in note and "low rank (powersgd)" in note
    assert "fewer exchanges (localsgd)" in note and "delayed updates (lbsgd)" in note
    assert "ssgd (" not in note and "byteps" not in note
    same = compare(make_scenario(FIELDS), ["ssgd", "byteps"])
    assert not any("convergence" in text for text in same.notes)


def test_every_lossy_prediction_says_so_itself() -> None:
    for one in some().rows:
        lossy = method_class(one.scenario.method).lossy
        assert any("Time per iteration only" in text for text in one.notes) is lossy


def test_who_does_not_fit_is_named() -> None:
    found = compare(make_scenario(FIELDS | {"model": "bert-large", "gpu": "v100"}), ["ssgd"])
    assert not any("do not fit" in text for text in found.notes)
    large = replace(found.rows[0], memory_bytes={"parameters": 1e15})
    ranking = replace(found.ranking, predictions={"ssgd": large}, unfit=frozenset({"ssgd"}))
    [note] = [text for text in comparison_notes(ranking, {}, {"ssgd": {}}) if "fit" in text]
    assert note == "These do not fit into v100's memory: ssgd."


def test_what_all_predictions_say_is_said_once() -> None:
    found = some()
    common = [text for text in found.rows[0].notes if all(text in one.notes for one in found.rows)]
    assert common and found.notes[-len(common) :] == common


def test_told_methods_are_those_predicted() -> None:
    told: list[tuple[int, int, str]] = []
    compare(make_scenario(FIELDS), ["ssgd", "topk"], tell=lambda *of: told.append(of))
    assert told == [(0, 2, "ssgd"), (1, 2, "topk")]


@pytest.mark.parametrize(
    ("given", "own", "names"),
    [
        ("SSGD, top-k,,ssgd", None, ["ssgd", "topk"]),
        (["dgc"], "ssgd", ["dgc", "ssgd"]),
        (["dgc"], "dgc", ["dgc"]),
    ],
)
def test_chosen_methods(given: str | list[str], own: str | None, names: list[str]) -> None:
    assert chosen_methods(given, own) == names


def test_all_methods_are_compared_where_none_is_named() -> None:
    assert chosen_methods(None, "dgc") == method_names()


def test_the_own_method_is_one_that_was_stated() -> None:
    assert own_method(make_scenario(FIELDS)) is None
    assert own_method(make_scenario(FIELDS | {"method": "auto"})) is None
    assert own_method(make_scenario(FIELDS | {"method": "ssgd"})) == "ssgd"


def test_options_go_to_those_that_have_them_and_a_methods_own_come_first() -> None:
    asked = make_scenario(FIELDS | {"method": "dgc", "options": {"index_bytes": 4}})
    given = {"dgc.density": "0.1", "density": "0.01"}
    assert options_of_each(asked, "dgc", ["ssgd", "topk", "dgc"], given) == {
        "ssgd": {},
        "topk": {"density": "0.01"},
        "dgc": {"index_bytes": 4, "density": "0.1"},
    }


def test_options_of_a_scenario_without_a_method_are_for_all() -> None:
    asked = make_scenario(FIELDS | {"options": {"density": 0.01}})
    found = options_of_each(asked, None, ["ssgd", "topk"], {})
    assert found == {"ssgd": {}, "topk": {"density": 0.01}}


def test_the_scenarios_own_method_keeps_its_options_and_its_place_is_told() -> None:
    asked = make_scenario(FIELDS | {"method": "powersgd", "options": {"rank": 64}})
    alone = compare(asked, ["topk", "ssgd"])
    [place] = [line for line in alone.verdict() if line.startswith("Your method powersgd")]
    assert place.startswith("Your method powersgd has no rank: no published result is at")
    found = compare(asked, ["topk"], epochs_of={"topk": 1.0, "powersgd": 1.0})
    assert found.ranking.predictions["powersgd"].scenario.options["rank"] == 64
    behind = found.standings()[1].behind_first_ratio
    [place] = [line for line in found.verdict() if line.startswith("Your method powersgd")]
    assert f"has rank 2 of 2: it takes {1 + behind:.2f} times as long as topk" in place


def test_a_time_of_kernels_is_for_the_method_that_the_scenario_states() -> None:
    asked = FIELDS | {"single_gpu_kernels": "400ms"}
    found = compare(make_scenario(asked | {"method": "topk"}), ["dgc"])
    times = {one.scenario.method: one.scenario.single_gpu_kernels_s for one in found.rows}
    assert times == {"topk": 0.4, "dgc": None}
    with pytest.raises(RequestError, match=r"^single_gpu_kernels is for one method; name"):
        compare(make_scenario(asked), ["dgc"])


def test_a_comparison_says_where_nodes_and_where_gpus_train_by_themselves() -> None:
    fields = {"model": "resnet50", "gpus": 8, "net": "10gbe"}
    names = ["ssgd", "diloco", "localsgd", "cpsgd"]

    def told(methods: list[str], **more: object) -> list[str]:
        notes = compare(make_scenario(fields | more), methods).notes
        return [note for note in notes if "trains by itself" in note]

    (note,) = told(names)
    assert "exchange in every iteration (diloco); each GPU (cpsgd, localsgd)." in note
    # Nothing to say where all are alike, or a node is a GPU.
    assert not told(["ssgd", "cpsgd", "localsgd"]) and not told(names, gpus_per_node=1)


def test_the_column_fits_says_who_does_not_fit() -> None:
    asked = make_scenario({"model": "llama3-8b", "gpu": "h100", "gpus": 16, "seq": 4096})
    found = compare(asked, ["ssgd", "fsdp"])
    assert {row["method"]: row["fits"] for row in found.records()} == {"ssgd": False, "fsdp": True}
    for one in found.rows:
        assert one.memory_usable_bytes is not None
        fits = sum(one.memory_bytes.values()) <= one.memory_usable_bytes
        assert [row["fits"] for row in one.records()] == [fits]


def test_who_does_not_apply_is_left_out_with_the_reason() -> None:
    one_node = make_scenario({"model": "resnet50", "gpus": 4})
    between = {"efsignsgd.exchange": "between_nodes"}
    found = compare(one_node, ["ssgd", "efsignsgd"], options=between)
    assert [*found.ranking.predictions] == ["ssgd"] and [*found.ranking.refused] == ["efsignsgd"]
    assert found.to_dict()["left_out"] == found.ranking.refused
    with pytest.raises(RequestError, match=r"^methods: none of them applies: efsignsgd: "):
        compare(one_node, ["efsignsgd"], options=between)


def test_numbers_that_methods_do_not_have_alike_are_told() -> None:
    asked = make_scenario({"model": "resnet18", "gpus": 16, "net": "10gbe"})
    told = " ".join(compare(asked, ["ssgd", "topk", "dgc", "oktopk", "localsgd"]).notes)
    assert "Options that differ (`options` sets one value for all): density" in told
    assert "density 0.001 (dgc, topk), 0.01 (oktopk)." in told
    alike = asked.model_copy(update={"options": {"density": 0.01}})
    assert "Options that differ" not in " ".join(compare(alike, ["ssgd", "topk", "oktopk"]).notes)


def test_unlike_intervals_of_the_two_first_are_a_warning() -> None:
    """The one has 500 iterations from one exchange to the next, the other 20, by default."""
    sites = {"model": "gpt2", "node": "dgx-h100", "gpus": 16, "site": (8, 8), "wan": "1Gbit/s,9ms"}
    names = ["diloco", "streaming_diloco"]
    told = briefs(compare(sites, names).notes, "warning")
    words = "they exchange after unlike iterations (diloco after 500, streaming_diloco after 20)"
    assert f"{words}; `options` interval=N for both" in told
    alike = briefs(compare(sites, names, options={"interval": 100}).notes, "warning")
    assert not any("unlike iterations" in one for one in alike)
