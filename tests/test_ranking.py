"""``--method auto``: every applicable method, soonest at S-SGD's accuracy first."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest

from perfsim.errors import RequestError
from perfsim.methods import method_class, method_names
from perfsim.methods.fusion_settings import for_method
from perfsim.planning.compare import compare
from perfsim.prediction import predict
from perfsim.ranking import CAVEAT, Ranking, rank
from perfsim.report.comparison_screen import print_ranking
from perfsim.scenario import Scenario, make_scenario
from perfsim.time_to_accuracy import EpochsFactor

FIELDS = {"model": "resnet50", "gpus": 8, "net": "1gbe", "method": "auto"}


@cache
def ranked() -> Ranking:
    """Return the ranking of the one scenario that these tests ask."""
    return rank(make_scenario(FIELDS))


def test_every_method_is_ranked_or_refused() -> None:
    ranking = ranked()
    assert {*ranking.predictions, *ranking.refused} == set(method_names())
    known, apart = ranking.ranked, ranking.by_iteration_only
    assert [*known, *apart] == list(ranking.predictions) and known and apart
    assert all(ranking.factor(name).known for name in known)
    assert not any(ranking.factor(name).known for name in apart)
    for names in (known, apart):
        times = [ranking.accuracy_s(name) for name in names]
        assert times == sorted(times)


def test_what_nobody_has_trained_is_never_first() -> None:
    """Rand-k's iteration is shorter than all that are ranked; its learning is not known."""
    ranking = ranked()
    first_s = ranking.predictions[ranking.winner].iteration_s
    for name in ("randk", "randk_maxnorm"):
        assert ranking.predictions[name].iteration_s < first_s
        assert name in ranking.by_iteration_only and name not in ranking.undecided()
    assert "no published result for this model and setting" in ranking.verdict()
    [against] = [line for line in ranking.warnings() if line.startswith("Against randk:")]
    assert "ImageNet" in against and "bytedance/byteps@" in against


def test_epochs_that_the_user_states_rank_a_method() -> None:
    ranking = rank(make_scenario(FIELDS), epochs_of={"randk": 3.0})
    assert ranking.factor("randk").basis == "given"
    own_s = ranking.predictions["randk"].iteration_s
    assert ranking.accuracy_s("randk") == pytest.approx(3 * own_s)
    # 0.36 s against dgc's 0.13 and S-SGD's own 1.85.
    order = ranking.ranked
    assert order.index("dgc") < order.index("randk") < order.index("ssgd")


def test_the_spread_of_epochs_decides_who_is_surely_sooner() -> None:
    """Twice the iteration, and half to twice the epochs: it may be as soon."""
    ranking = replace(ranked(), errors=dict.fromkeys(method_names(), 0.0))
    first = ranking.predictions["ssgd"]
    second = replace(ranking.predictions["dgc"], iteration_s=2.2 * first.iteration_s).stating(
        moves=first.moves
    )
    pair = {"ssgd": first, "dgc": second}
    for low, close in ((0.4, ["dgc"]), (0.5, [])):
        factor = EpochsFactor("evidence", 1.0, low, 2.0, 4)
        two = replace(ranking, predictions=pair, learning={"dgc": factor})
        assert two.undecided() == close


def test_the_winner_is_the_fastest_prediction_and_the_margin_that_over_the_next() -> None:
    ranking = ranked()
    first, second = ranking.ranked[:2]
    alone = [
        predict(make_scenario(FIELDS | {"method": name})).iteration_s * ranking.factor(name).middle
        for name in (first, second)
    ]
    assert ranking.winner == first
    assert ranking.margin == pytest.approx(alone[1] / alone[0] - 1)
    assert first in ranking.verdict() and second in ranking.verdict()


def test_the_fastest_of_those_that_learn_as_ssgd_is_named() -> None:
    ranking = ranked()
    same = [name for name in ranking.predictions if not method_class(name).lossy]
    assert ranking.same_learning == same[0]
    assert f"{same[0]}, the fastest that changes nothing in training, takes" in ranking.verdict()


def test_without_a_record_undecided_methods_reach_into_the_winners_interval() -> None:
    ranking = replace(ranked(), known=None)
    first = ranking.predictions[ranking.winner]
    for name in ranking.ranked[1:]:
        one = ranking.predictions[name]
        if one.iteration_s_interval[0] <= first.iteration_s_interval[1]:
            assert name in ranking.undecided()


def test_what_moves_both_decides_nothing_between_them() -> None:
    ranking = replace(ranked(), errors=dict.fromkeys(method_names(), 0.0))
    second = list(ranking.predictions)[1]
    first = ranking.predictions[ranking.winner]
    twin = replace(ranking.predictions[second], iteration_s=1.01 * first.iteration_s).stating(
        moves=first.moves
    )
    alike = replace(ranking, predictions={ranking.winner: first, second: twin})
    assert alike.undecided() == []
    # The winner waits for its network all the time, the other never.
    network = {"network_modelled": (1.0, 1.0)}
    waits, computes = first.stating(moves=network), twin.stating(moves={})
    unlike = replace(alike, predictions={ranking.winner: waits, second: computes})
    assert unlike.undecided() == [second]


def test_what_is_within_the_known_error_is_not_decided() -> None:
    ranking = ranked()
    second = list(ranking.predictions)[1]
    sure = replace(ranking, errors=dict.fromkeys(ranking.predictions, 0.0))
    unsure = replace(ranking, errors=dict.fromkeys(ranking.predictions, 1e9))
    assert set(sure.undecided()) <= set(unsure.undecided())
    assert len(unsure.undecided()) == len(ranking.ranked) - 1
    assert "Too close to call" in unsure.verdict()
    alone = replace(sure, errors={second: 0.4})
    assert alone.known_error(ranking.winner) == pytest.approx(0.4)


def test_on_one_gpu_all_are_alike_but_those_that_work_alone() -> None:
    ranking = rank(make_scenario(FIELDS | {"gpus": 1}))
    assert ranking.winner == "ssgd"
    best_s = ranking.predictions["ssgd"].iteration_s
    for name, found in ranking.predictions.items():
        if method_class(name).works_alone:
            assert found.iteration_s > 1.5 * best_s
        else:
            assert found.iteration_s == pytest.approx(best_s, rel=1e-9)


def test_json_is_the_ranking_with_the_winners_prediction() -> None:
    ranking = ranked()
    found = json.loads(json.dumps(ranking.to_dict()))
    assert found["schema"] == "perfsim/ranking/1" and found["caveat"] == CAVEAT
    assert found["winner"] == found["prediction"]["scenario"]["method"] == ranking.winner
    assert found["prediction"] == ranking.predictions[ranking.winner].to_dict()
    assert [row["method"] for row in found["methods"]] == list(ranking.predictions)
    assert found["left_out"] == ranking.refused and found["kept_own_fusion"] == {}


ASKED = make_scenario(FIELDS | {"fusion": "threshold", "bucket": "4MiB"})


@pytest.mark.parametrize(
    ("asked", "name", "fusion", "bucket", "kept"),
    [
        # S-SGD's own fusion gives way; another is part of what a method is.
        (ASKED, "ssgd", "threshold", "4MiB", []),
        (ASKED, "horovod", "threshold", "4MiB", []),
        (ASKED, "zero", None, "4MiB", ["`fusion` threshold"]),
        (ASKED, "mgwfbp", None, None, ["`fusion` threshold", "`bucket` 4MiB"]),
        (ASKED, "eightbit", None, None, ["`fusion` threshold", "`bucket` 4MiB"]),
    ],
)
def test_flags_of_fusion_go_where_they_apply(
    asked: Scenario, name: str, fusion: str | None, bucket: str | None, kept: list[str]
) -> None:
    made, left = for_method(asked, name)
    assert (made.method, made.fusion, made.bucket, left) == (name, fusion, bucket, kept)


def test_options_of_a_fusion_go_to_the_methods_that_use_it() -> None:
    asked = make_scenario(FIELDS | {"fusion_options": {"cycle_time": "2ms"}})
    assert for_method(asked, "horovod") == (asked.model_copy(update={"method": "horovod"}), [])
    made, left = for_method(asked, "ssgd")
    assert (made.fusion_options, left) == ({}, ["`fusion_options.cycle_time`"])


def test_a_bucket_leaves_no_method_out_and_says_who_keeps_its_own() -> None:
    fields = FIELDS | {"gpus": 4, "bucket": "4MiB"}
    ranking = rank(make_scenario(fields))
    kept = ranking.kept["`bucket` 4MiB"]
    assert "mgwfbp" in kept and "ssgd" not in kept
    assert not any("bucket" in reason for reason in ranking.refused.values())
    alone = predict(make_scenario(fields | {"method": "wfbp", "bucket": None}))
    assert ranking.predictions["wfbp"].iteration_s == alone.iteration_s
    [sentence] = ranking.kept_words()
    assert sentence.startswith(
        "`bucket` 4MiB applies only to fusion policies that do not set their own sizes"
    )


def test_who_is_left_out_is_said_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    ranking = replace(ranked(), refused={"a": "needs x", "b": "takes y", "c": "needs x"})
    assert ranking.left_out() == {"needs x": ["a", "c"], "takes y": ["b"]}
    print_ranking(ranking)
    brief = capsys.readouterr().out
    assert brief.startswith(ranking.brief()[0][:60]) and "left out        3 methods" in brief
    assert len(brief.splitlines()) <= 30 and max(map(len, brief.splitlines())) <= 80
    print_ranking(ranking, verbose=True)
    shown = capsys.readouterr().out
    assert shown.startswith("Ranked by time to the same accuracy")
    every = len(ranking.predictions) + 3
    assert f"left out, 3 of {every}:\n  a, c: needs x\n  b: takes y\n" in shown


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cycle": "2ms"}, "fusion has no 'cycle'; did you mean 'cycle_time'"),
        ({"cycle_time": "2"}, "fusion_options.cycle_time: '2' is not a time"),
    ],
)
def test_a_wrong_option_of_fusion_is_said_once(options: dict[str, str], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        rank(make_scenario(FIELDS | {"fusion_options": options}))


def test_options_of_one_method_are_refused() -> None:
    with pytest.raises(RequestError, match="options: density is for one method"):
        rank(make_scenario(FIELDS | {"options": {"density": "0.01"}}))


def test_what_no_method_can_do_is_said_once() -> None:
    with pytest.raises(RequestError, match=r"^model: no"):
        rank(make_scenario(FIELDS | {"model": "resnet5O"}))


def test_methods_that_make_one_update_differ_by_their_iterations_only() -> None:
    """DGC's two codes need as many epochs, whatever these are: their spread decides nothing."""
    ranking = replace(ranked(), errors=dict.fromkeys(method_names(), 0.0))
    first, second = ranking.predictions["dgc"], ranking.predictions["dgc_k"]
    later = replace(second, iteration_s=1.1 * first.iteration_s).stating(moves=first.moves)
    factor = EpochsFactor("evidence", 1.0, 0.8, 1.2, 4)
    pair = {"dgc": first, "dgc_k": later}
    alike = replace(ranking, predictions=pair, learning=dict.fromkeys(pair, factor))
    assert alike.undecided() == []
    other = {"dgc": first, "topk": later}
    apart = replace(ranking, predictions=other, learning=dict.fromkeys(other, factor))
    assert apart.undecided() == ["topk"]


def test_the_winners_evidence_is_told_with_its_spread_and_workers() -> None:
    verdict = ranked().verdict()
    assert "dgc needs 1.00 times the epochs of S-SGD (" in verdict
    assert "published results on 4 to 256 workers, 1 fell short)" in verdict


def test_what_does_not_fit_into_memory_is_no_rival_of_what_does() -> None:
    """Of three, the first fits: the second, which does not, is neither next nor too close."""
    ranking = replace(ranked(), errors=dict.fromkeys(method_names(), 0.0), learning={}, refused={})
    first = ranking.predictions["ssgd"]
    made = {
        name: replace(ranking.predictions[name], iteration_s=times * first.iteration_s)
        for name, times in (("ssgd", 1.0), ("wfbp", 1.01), ("mgwfbp", 3.5))
    }
    three = replace(ranking, predictions=made, unfit=frozenset({"wfbp"}))
    assert "ssgd is fastest among the 2 that fit into memory, 3.5 times as soon as mgwfbp" in (
        three.verdict()
    )
    assert three.to_dict()["does_not_fit"] == ["wfbp"]
    assert "randk" not in replace(ranked(), unfit=frozenset(ranked().by_iteration_only)).verdict()
    none = replace(three, unfit=frozenset({"ssgd"}))
    assert "ssgd does not fit into the GPU's memory; of those that do, wfbp is first." in (
        none.verdict()
    )


def test_methods_take_the_same_time_only_if_all_do() -> None:
    """Two level and a third that takes twice as long: the first is level with the second."""
    ranking = replace(ranked(), learning={}, refused={}, unfit=frozenset())
    first = ranking.predictions["ssgd"]
    made = {
        name: replace(ranking.predictions[name], iteration_s=times * first.iteration_s)
        for name, times in (("ssgd", 1.0), ("wfbp", 1.0), ("mgwfbp", 2.0))
    }
    three = replace(ranking, predictions=made)
    assert three.verdict().startswith("ssgd is fastest, level with wfbp.")
    del made["mgwfbp"]
    assert replace(ranking, predictions=made).verdict() == (
        "No difference: ssgd and wfbp take the same time."
    )


def test_with_an_update_on_the_host_s_sgd_beside_it_updates_on_the_gpu() -> None:
    """One method's code has it; the others are refused, and S-SGD is still what it is against."""
    fields = {"model": "gpt2", "gpus": 8, "gpu": "h100", "optimizer": "adamw"}
    asked = make_scenario(fields | {"offload": "optimizer"})
    ranking = rank(asked)
    assert list(ranking.predictions) == ["zero"]
    found = compare(asked, "zero,ssgd")
    ssgd = predict(make_scenario(fields))
    assert found.baseline.iteration_s == ssgd.iteration_s == found.rows[0].baseline.iteration_s
    assert list(found.ranking.refused) == ["ssgd"]
    assert any("the CPUs of a host take" in note for note in found.notes)


def test_where_no_method_applies_one_sentence_says_why() -> None:
    fields = {"model": "gpt2", "gpus": 8, "gpu": "h100", "offload": "optimizer"}
    with pytest.raises(RequestError, match=r"none applies; zero: .* set optimizer adamw"):
        rank(make_scenario(fields | {"optimizer": "lamb"}))
