"""Epochs that methods need, from what others measured: by hand, by law, and as users state them."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.methods import load_method, method_class, method_names
from perfsim.methods.learning import Evidence, Statement
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from perfsim.time_to_accuracy import (
    EpochsFactor,
    EpochsFactors,
    check_epochs_of,
    epochs_factor,
    epochs_ratio,
    learning_notes,
    parse_epochs_of,
    replicas_of,
    spread_of_runs,
)

IMAGES = "image classification"
TEXT = "language model pretraining"
ROW = Evidence(
    method="dgc",
    setting="0.1 %",
    options="density=0.001",
    task=IMAGES,
    model="ResNet-50",
    data="ImageNet",
    tokens=None,
    workers=8,
    measure="epochs_to_quality",
    unit="epochs",
    comparable="yes",
    baseline="SGD",
    baseline_value=100.0,
    value=120.0,
    trained_ratio=None,
    spread="",
    runs=None,
    kind="published",
    source="a",
    locator="table 1",
    licence="MIT",
    date="2020",
    notes="",
)
KEPT = {"density": 0.001}


def middle(*rows: Evidence, data: str = "imagenet") -> float | None:
    """Return the factor of some rows at DGC's own setting."""
    return epochs_factor("dgc", KEPT, rows, task=IMAGES, data=data).middle


# One run.


def test_epochs_to_a_quality_are_a_ratio_and_never_is_infinite() -> None:
    assert epochs_ratio(ROW) == 1.2
    assert epochs_ratio(ROW._replace(value=None)) == inf


def test_a_baseline_that_saw_other_samples_tells_nothing() -> None:
    assert epochs_ratio(ROW._replace(comparable="no")) is None


@pytest.mark.parametrize(
    ("data", "spread", "runs", "below", "as_good"),
    [
        # sqrt(0.76 * 0.24 / 50,000) = 0.19 points; 2 sqrt(2) times that is 0.54.
        ("ImageNet", "", None, 0.53, True),
        ("ImageNet", "", None, 0.55, False),
        # 0.43 points on 10,000 images: 1.21.
        ("CIFAR-10", "", None, 1.20, True),
        ("CIFAR-10", "", None, 1.22, False),
        # A deviation of 0.8 points over four runs: 2 sqrt(2) 0.4 = 1.13.
        ("ImageNet", "sd 0.8", 4, 1.12, True),
        ("ImageNet", "sd 0.8", 4, 1.14, False),
        # The baseline's own 1.2 with it: sqrt((0.8^2 + 1.2^2) / 2) = 1.02; 2 sqrt(2) 0.51 = 1.44.
        ("ImageNet", "sd 0.8, baseline 1.2", 4, 1.43, True),
        ("ImageNet", "sd 0.8, baseline 1.2", 4, 1.45, False),
    ],
)
def test_an_accuracy_within_chance_is_as_good(
    data: str, spread: str, runs: int | None, below: float, as_good: bool
) -> None:
    row = ROW._replace(measure="final_accuracy", unit="percent", baseline_value=76.0)
    run = row._replace(value=76.0 - below, data=data, spread=spread, runs=runs)
    assert epochs_ratio(run) == (1.0 if as_good else inf)


def test_an_accuracy_as_good_after_a_shorter_training_took_that_part_of_its_epochs() -> None:
    """K-FAC as good after 55 of SGD's 90 epochs needs 0.611 of them; worse, it fell short."""
    row = ROW._replace(measure="final_accuracy", unit="percent", baseline_value=76.2)
    short = row._replace(trained_ratio=55 / 90)
    assert epochs_ratio(short._replace(value=76.1)) == pytest.approx(0.611, abs=1e-3)
    assert epochs_ratio(short._replace(value=75.5)) == inf


def test_more_tokens_make_up_for_a_loss() -> None:
    """At 4.8e10 tokens the data's part of the loss is B / D^beta: so many more give 0.01 nats."""
    row = ROW._replace(task=TEXT, measure="final_loss", unit="nats", tokens=4.8e10)
    run = row._replace(baseline_value=2.326, value=2.336)
    more = epochs_ratio(run)
    assert more is not None

    def by_data(tokens: float) -> float:
        return 2085.43 / tokens**0.3658

    assert by_data(4.8e10) - by_data(more * 4.8e10) == pytest.approx(0.01)
    # A loss that no data would make up for, and a perplexity of e times as much.
    assert epochs_ratio(run._replace(value=2.326 + by_data(4.8e10))) == inf
    told = run._replace(measure="final_perplexity", baseline_value=10.0, value=10.1)
    loss = run._replace(baseline_value=0.0, value=0.009950331)
    assert epochs_ratio(told) == pytest.approx(epochs_ratio(loss))
    assert epochs_ratio(run._replace(task="masked language model")) is None


@given(st.floats(0.0, 0.1), st.floats(1e9, 1e13))
def test_a_higher_loss_never_needs_fewer_tokens(above: float, tokens: float) -> None:
    row = ROW._replace(task=TEXT, measure="final_loss", unit="nats", tokens=tokens)
    run = row._replace(baseline_value=2.5, value=2.5 + above)
    worse = run._replace(value=2.5 + 1.1 * above)
    assert 1.0 <= epochs_ratio(run) <= epochs_ratio(worse)


# Several runs.


def test_each_model_of_each_source_weighs_alike() -> None:
    """Ten runs of one model at 1.2, one of another at 1.0, one of a third at 1.1: 1.1."""
    others = [ROW._replace(model="VGG", value=100.0), ROW._replace(source="b", value=110.0)]
    found = epochs_factor("dgc", KEPT, [*[ROW] * 10, *others], task=IMAGES)
    assert found.middle == pytest.approx(1.1)
    assert (found.low, found.high, found.runs, found.short) == (1.1, 1.2, 12, 0)


def test_where_most_fell_short_nothing_is_known() -> None:
    short = ROW._replace(value=None)
    found = epochs_factor("dgc", KEPT, [ROW, short, short], task=IMAGES)
    assert not found.known and found.words == "short"
    assert found.why == "2 of 3 published results fell short of S-SGD's quality"
    assert found.against[0].startswith("ResNet-50 on ImageNet with 0.1 % never reached SGD (a)")
    # Half of the models decide, whatever their runs.
    other = [ROW._replace(model="VGG", value=100.0)] * 5
    half = epochs_factor("dgc", KEPT, [*other, short], task=IMAGES)
    assert half.why == (
        "1 of 6 published results, those of 1 of 2 models, fell short of S-SGD's quality"
    )
    one = epochs_factor("dgc", KEPT, [short], task=IMAGES)
    assert one.why == "the one published result fell short of S-SGD's quality"
    # One in three does not decide, and opens the upper end.
    found = epochs_factor("dgc", KEPT, [ROW, ROW, short], task=IMAGES)
    assert (found.middle, found.low, found.high) == (1.2, 1.2, inf)
    assert found.to_dict()["epochs_factor_interval"] == [1.2, None]


@pytest.mark.parametrize(
    ("density", "value", "known"),
    [
        # A run that sends less and is as good bounds it; one that sends more does not.
        (0.01, 120.0, True),
        (0.0001, 120.0, False),
        # A run that sends more and falls short tells against it; one that sends less does not.
        (0.0001, None, True),
        (0.01, None, False),
    ],
)
def test_settings_bound_each_other(density: float, value: float | None, known: bool) -> None:
    row = ROW._replace(value=value)
    found = epochs_factor("dgc", {"density": density}, [row], task=IMAGES)
    assert (found.runs == 1) is known
    if not known:
        assert found.why == "no published result is at this setting; known: density=0.001"


def test_one_run_at_the_setting_does_not_outweigh_many_that_send_less() -> None:
    there = ROW._replace(options="density=0.01", value=None, source="b")
    less = ROW._replace(value=100.0)
    found = epochs_factor("dgc", {"density": 0.01}, [there, *[less] * 9], task=IMAGES)
    assert (found.runs, found.short) == (10, 1)
    # Where results at the setting suffice, those that send less bound the middle, not the ends.
    three = epochs_factor("dgc", {"density": 0.01}, [*[there] * 3, *[less] * 9], task=IMAGES)
    assert (three.runs, three.short) == (12, 3)
    assert (three.low, three.middle, three.high) == (1.0, 1.0, inf)


def test_what_was_needed_nearer_to_s_sgd_is_needed_further_too() -> None:
    """Two that needed more at ten times the density bound it from below, one at a tenth from above.

    Bounds from below alone promise nothing.
    """
    near = [ROW._replace(options="density=0.01", value=value) for value in (110.0, 130.0)]
    as_good = ROW._replace(options="density=0.01", value=100.0)
    far = ROW._replace(options="density=0.0001", value=100.0)
    found = epochs_factor("dgc", KEPT, [far, *near, as_good], task=IMAGES)
    assert (found.runs, found.low, found.middle, found.high) == (3, 1.0, 1.1, 1.3)
    assert epochs_factor("dgc", KEPT, [*near, as_good], task=IMAGES).why.startswith(
        "no published result is at this setting"
    )


def test_a_setting_needs_no_more_than_one_further_from_s_sgd() -> None:
    """Three that took 1.3 times the epochs, three that sent a tenth and took 1.1 times."""
    near = [ROW._replace(options="density=0.01", value=130.0)] * 3
    far = [ROW._replace(value=value, source="b") for value in (100.0, 110.0, 120.0)]
    found = epochs_factor("dgc", {"density": 0.01}, [*near, *far], task=IMAGES)
    assert (found.low, found.middle, found.high) == (1.0, 1.1, 1.3)
    assert found.runs == 6 and len(found.sources) == 2
    there = epochs_factor("dgc", KEPT, [*near, *far], task=IMAGES)
    assert (there.middle, there.runs) == (1.1, 3)


@pytest.mark.parametrize(
    ("method", "model", "data", "option", "harder"),
    [
        ("diloco", "gpt2-xl", "", "interval", (5, 10, 20, 25, 30, 50, 100, 200, 500)),
        ("powersgd", "resnet18", "cifar10", "rank", (32, 16, 8, 7, 4, 3, 2, 1)),
        ("qsgd", "resnet18", "cifar10", "bits", (8, 7, 6, 5, 4, 3, 2)),
        ("topk", "resnet18", "cifar10", "density", (0.1, 0.01, 0.0039, 0.001, 0.0001)),
        ("dgc", "resnet50", "imagenet", "density", (0.1, 0.01, 0.001, 0.0001)),
    ],
)
def test_what_is_known_grows_with_what_is_left_out(
    method: str, model: str, data: str, option: str, harder: tuple[float, ...]
) -> None:
    """Of what is published; more workers that train apart leave out more, as more steps do."""
    factors, options = EpochsFactors(Catalog(), model, data), load_method(method, {}).model_dump()
    known = [
        [
            inf if one.middle is None else one.middle
            for value in harder
            for one in [factors.of(method, options | {option: value}, replicas)]
        ]
        for replicas in ((2, 4, 8) if method == "diloco" else (None,))
    ]
    assert known[0][0] < inf
    for line in [*known, *zip(*known, strict=True)]:
        assert [*line] == sorted(line)


def test_a_method_without_an_option_does_as_the_rows_method_by_default() -> None:
    """DGC's other code has no half-precision values: a run with them is further from S-SGD."""
    half = ROW._replace(options="density=0.001; value_bytes=2", value=None)
    whole = ROW._replace(value=100.0)
    for method, options in (("dgc", KEPT | {"value_bytes": 4}), ("dgc_k", KEPT)):
        found = epochs_factor(method, options, [half, whole], task=IMAGES)
        assert (found.runs, found.short) == (1, 0)


def test_a_longer_interval_sends_less() -> None:
    row = ROW._replace(method="diloco", options="interval=500", task=TEXT)
    for interval, known in ((100, True), (500, True), (1000, False)):
        assert epochs_factor("diloco", {"interval": interval}, [row], task=TEXT).known is known


def test_the_epochs_of_a_run_come_before_its_final_accuracy() -> None:
    """A run that took 1.2 times the epochs to a quality; its end tells no epochs, only a loss."""
    final = ROW._replace(measure="final_accuracy", unit="percent", baseline_value=76.0)
    for value, against in ((76.0, 0), (70.0, 1)):
        found = epochs_factor("dgc", KEPT, [ROW, final._replace(value=value)], task=IMAGES)
        assert (found.middle, found.runs, found.short) == (1.2, 1, 0)
        assert len(found.against) == against
    # Of another run it counts.
    other = final._replace(value=76.0, locator="table 2")
    assert epochs_factor("dgc", KEPT, [ROW, other], task=IMAGES).runs == 2


def test_more_workers_that_train_apart_are_harder() -> None:
    """DiLoCo's loss grows with its replicas: two say nothing of eight, eight bound two."""
    row = ROW._replace(method="diloco", options="interval=500", task=TEXT, workers=8)
    asked = {"interval": 500}
    for replicas, known in ((2, True), (8, True), (9, False)):
        found = epochs_factor("diloco", asked, [row], task=TEXT, replicas=replicas)
        assert found.known is known
    assert found.why == ("no published result is at this setting; known: interval=500 on 8 workers")
    untold = row._replace(workers=None)
    assert not epochs_factor("diloco", asked, [untold], task=TEXT, replicas=2).known
    # Gradients that are averaged in every iteration keep workers together.
    assert epochs_factor("dgc", KEPT, [ROW], task=IMAGES).known


@pytest.mark.parametrize(
    ("method", "own", "asked", "known"),
    [
        # Eigenvectors are another update than inverses, which lose on large batches (Pauloski et
        # al. 2020, table I).
        ("kaisa", "inversion=eigen; inverse_interval=10", {"inversion": "eigen"}, True),
        ("kaisa", "inversion=eigen; inverse_interval=10", {"inversion": "cholesky"}, False),
        # An inverse that is ten times as old is further from S-SGD's exact one.
        ("kaisa", "inversion=eigen; inverse_interval=10", {"inverse_interval": 1}, True),
        ("kaisa", "inversion=eigen; inverse_interval=10", {"inverse_interval": 100}, False),
        # Weights alone in four bits say nothing of gradients in four bits; both bound weights.
        ("sdp4bit", "quantise_gradients=false", {"quantise_gradients": True}, False),
        ("sdp4bit", "quantise_gradients=true", {"quantise_gradients": False}, True),
        # How values are packed, and a warm-up, change nothing.
        ("dgc", "density=0.001; index_bytes=2; warmup_epochs=4", {"index_bytes": 8}, True),
        # One setting nearer, one further: neither bounds the other.
        (
            "streaming_diloco",
            "interval=100; sync_delay=1",
            {"interval": 30, "sync_delay": 5},
            False,
        ),
    ],
)
def test_what_a_row_says_of_another_setting(
    method: str, own: str, asked: dict[str, object], known: bool
) -> None:
    row = ROW._replace(method=method, options=own)
    assert epochs_factor(method, asked, [row], task=IMAGES).known is known


def test_workers_that_train_apart_are_nodes_sites_or_ranks() -> None:
    factors = EpochsFactors(Catalog(), "gpt2-xl")
    asked = {"interval": 500}
    assert factors.of("diloco", asked, 8).known and not factors.of("diloco", asked, 32).known
    for name in method_names():
        apart = replicas_of(name, {}, 64, 8)
        family = method_class(name).family == "fewer exchanges"
        assert (apart is not None) is (family and name != "lbsgd")
    assert replicas_of("diloco", {"worker": "rank"}, 64, 8) == 64
    fields = {"model": "gpt2-xl", "gpu": "a100", "gpus_per_node": 8, "method": "diloco"}
    for gpus, known in ((64, True), (256, False)):
        made = predict(make_scenario(fields | {"gpus": gpus, "net": "ib200"})).scenario
        assert factors.of_scenario(made).known is known
    sites = {"model": "gpt2-xl", "node": "dgx-h100", "site": "8,8,16", "wan": "1Gbit/s,40ms"}
    made = predict(make_scenario(sites | {"method": "diloco"})).scenario
    assert (made.nodes, factors.of_scenario(made)) == (4, factors.of("diloco", asked, 3))


def test_small_data_say_nothing_of_large() -> None:
    small = ROW._replace(data="CIFAR-10")
    assert middle(small, data="cifar") == 1.2 and middle(ROW, data="cifar") == 1.2
    # Its own data come first where there are any.
    assert middle(small._replace(value=100.0), ROW, data="cifar") == 1.0
    assert middle(small) is None
    found = epochs_factor("dgc", KEPT, [small], task=IMAGES, data="imagenet")
    assert found.why == "published results are on smaller data only: CIFAR-10"


def test_no_task_says_anything_of_another() -> None:
    """What holds for BERT's masked words is not known of GPT's next words, nor the reverse."""
    masked = ROW._replace(task="masked language model")
    assert epochs_factor("dgc", KEPT, [masked], task="masked language model").middle == 1.2
    for task in (TEXT, IMAGES, "fine-tuning"):
        found = epochs_factor("dgc", KEPT, [masked], task=task)
        assert found.why == "published results are of masked language model only"
    assert "is not known" in epochs_factor("dgc", KEPT, [ROW]).why


def test_small_texts_say_nothing_of_the_web() -> None:
    small = ROW._replace(task=TEXT, data="Penn Treebank")
    assert epochs_factor("dgc", KEPT, [small], task=TEXT, data="small text").middle == 1.2
    found = epochs_factor("dgc", KEPT, [small], task=TEXT, data="web")
    assert found.why == "published results are on smaller data only: Penn Treebank"
    large = small._replace(data="C4", value=100.0)
    assert epochs_factor("dgc", KEPT, [small, large], task=TEXT, data="small text").middle == 1.2
    assert epochs_factor("dgc", KEPT, [small, large], task=TEXT, data="web").middle == 1.0


def test_few_runs_get_the_spread_of_many_and_promise_no_advantage() -> None:
    one = epochs_factor("dgc", KEPT, [ROW._replace(value=80.0)], task=IMAGES)
    wide = one.widened(1.25)
    assert (wide.middle, wide.low, wide.high) == (1.0, pytest.approx(0.64), pytest.approx(1.0))
    many = epochs_factor("dgc", KEPT, [ROW._replace(value=80.0)] * 3, task=IMAGES)
    assert many.widened(1.25) == many and many.middle == 0.8
    # Nine of ten of many must have it: one of three that does not takes it away.
    most = [ROW._replace(value=value) for value in (80.0, 85.0, 101.0)]
    some = epochs_factor("dgc", KEPT, most, task=IMAGES).widened(1.25)
    assert (some.middle, some.low, some.high) == (1.0, 0.8, 1.01)


def test_accuracies_that_are_as_good_show_no_spread_of_epochs() -> None:
    final = ROW._replace(
        measure="final_accuracy", unit="percent", baseline_value=76.0, value=76.0, trained_ratio=0.6
    )
    found = epochs_factor("dgc", KEPT, [final] * 5, task=IMAGES)
    assert (found.low, found.high, found.timed) == (0.6, 0.6, 0)
    wide = found.widened(1.25)
    assert (wide.low, wide.middle, wide.high) == pytest.approx((0.48, 0.6, 0.75))
    assert spread_of_runs([final, final._replace(trained_ratio=1.0), final]) == 1.0


def test_the_spread_of_runs_is_that_of_nine_in_ten() -> None:
    runs = [ROW._replace(value=value) for value in (100.0, 110.0, 121.0)]
    assert spread_of_runs(runs) == pytest.approx(1.1)
    assert spread_of_runs(runs[:2]) == 1.0


@given(st.lists(st.floats(0.5, 3.0), min_size=1, max_size=12))
@settings(max_examples=50)
def test_the_middle_lies_between_the_ends(ratios: list[float]) -> None:
    rows = [ROW._replace(value=100.0 * ratio) for ratio in ratios]
    found = epochs_factor("dgc", KEPT, rows, task=IMAGES)
    assert found.low <= found.middle <= found.high
    wide = found.widened(1.5)
    assert wide.low <= found.low and found.high <= wide.high


# What is known of real methods.


def test_what_changes_nothing_in_training_needs_as_many_epochs() -> None:
    for name in ("ssgd", "dear", "byteps", "zero"):
        found = EpochsFactors(Catalog(), "resnet50").of(name, {})
        assert (found.middle, found.basis, found.words) == (1.0, "same arithmetic", "1")


def test_methods_that_make_the_same_update_share_what_is_known() -> None:
    """K-FAC's factors and inverses are the same wherever they are computed and sent."""
    factors = EpochsFactors(Catalog(), "resnet50")
    names = ("d_kfac", "mpd_kfac", "spd_kfac", "kaisa")
    paper = {"inversion": "eigen", "inverse_interval": 500, "factor_interval": 50}
    found = {factors.of(name, paper) for name in names}
    assert len(found) == 1 and found.pop().runs > 2
    assert not factors.of("dp_kfac", {}).known


def test_k_fac_needs_55_of_90_epochs_on_imagenet() -> None:
    """Pauloski et al. 2020, table III: as good after 55 of 90; at 1,000 iterations it is not."""
    factors = EpochsFactors(Catalog(), "resnet50")
    known = factors.of("kaisa", {"inversion": "eigen", "inverse_interval": 500})
    assert (
        known.middle == pytest.approx(55 / 90, abs=1e-3) and known.low < known.middle < known.high
    )
    old = factors.of("kaisa", {"inversion": "eigen", "inverse_interval": 1000})
    assert not old.known and "ended 0.7 points below" in old.against[0]
    inverses = factors.of("kaisa", {"inversion": "cholesky", "inverse_interval": 500})
    assert not inverses.known and "inversion=eigen" in inverses.why


def test_bert_is_not_credited_with_what_is_known_of_gpt() -> None:
    """DiLoCo's, ZeRO++'s and SDP4Bit's results are of GPT's task, 1-bit Adam's of BERT's."""
    bert, llama = EpochsFactors(Catalog(), "bert-large"), EpochsFactors(Catalog(), "llama3-8b")
    for name, options in (("diloco", {"interval": 500}), ("zeropp", {}), ("sdp4bit", {})):
        assert llama.of(name, options, 8 if options else None).known
        assert bert.of(name, options, 8 if options else None).why.endswith(f"{TEXT} only")
    assert bert.of("onebit_adam", {"dense_share": 0.15}).known
    assert not llama.of("onebit_adam", {"dense_share": 0.15}).known


def test_what_is_said_of_several_methods_is_said_once() -> None:
    known = EpochsFactor("evidence", 1.1, 1.0, 1.2, 3, workers=(4, 8), sources=("x (y)",))
    none = EpochsFactor("none", against=("z",), why="no published result")
    notes = learning_notes({"b": known, "a": known, "c": none})
    assert notes == [
        "Epochs of a, b: 1.10 times the epochs of S-SGD (1.00 to 1.20 in 3 published results on"
        " 4 to 8 workers): x (y).",
        "Iteration time only for c: no published result.",
        "`epochs_of` METHOD=FACTOR states the epochs of a method yourself.",
        "Against c: z.",
    ]


def test_authors_words_are_told_for_their_data_only() -> None:
    told = EpochsFactors(Catalog(), "resnet50").of("randk", {"density": 0.001})
    assert not told.known and "BytePS' developers did not train it on ImageNet" in told.against[0]
    small = EpochsFactors(Catalog(), "resnet20-cifar").of("randk", {"density": 0.001}).against
    assert not any("BytePS" in words for words in small)
    given_too = EpochsFactors(Catalog(), "resnet50", given={"randk": 1.5}).of("randk", {})
    assert given_too.middle == 1.5 and given_too.against == told.against
    # Results that fell short are told too where the user states a factor.
    topk = EpochsFactors(Catalog(), "resnet50", given={"topk": 1.5}).of("topk", {"density": 0.001})
    assert topk.known and sum("points below" in words for words in topk.against) == 2


def test_a_statement_for_a_method_is_not_against_it() -> None:
    word = Statement("dgc", "as good", IMAGES, "ImageNet", "fine", "a", "b", "MIT", "2020")
    as_good = epochs_factor("dgc", KEPT, [], [word], IMAGES)
    assert (as_good.against, as_good.why) == ((), "no published result; fine (a)")
    assert epochs_factor("dgc", KEPT, [], [word._replace(verdict="worse")], IMAGES).against


# As users state them.


@pytest.mark.parametrize(
    ("of", "epochs", "factors"),
    [
        (["topk=1.2"], None, {"topk": 1.2}),
        (["TopK = 1.2x", "dgc=0.9"], 90.0, {"topk": 1.2, "dgc": 0.9}),
        (["topk=108epochs"], 90.0, {"topk": 1.2}),
        (["topk=20x"], None, {"topk": 20.0}),
    ],
)
def test_factors_are_read(of: list[str], epochs: float | None, factors: dict[str, float]) -> None:
    assert parse_epochs_of(of, epochs) == pytest.approx(factors)


@pytest.mark.parametrize(
    ("of", "words"),
    [
        ("topk", "'topk' is not METHOD=FACTOR"),
        ("topk=many", "'many' is no factor above 0"),
        ("topk=-1", "'-1' is no factor above 0"),
        ("topk=0", "'0' is no factor above 0"),
        ("topk=0x", "'0x' is no factor above 0"),
        ("topk=inf", "'inf' is no factor above 0"),
        ("=1.2", "'=1.2' is not METHOD=FACTOR"),
        ("topk=nan", "'nan' is no factor above 0"),
        ("topk=100", "'100' would be 100 times the epochs of S-SGD; write 100epochs"),
        ("topk=100epochs", "the epochs of S-SGD are not known here"),
        ("topkk=1.2", "no 'topkk'; did you mean 'topk'"),
    ],
)
def test_wrong_factors_are_refused(of: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_epochs_of([of])
    assert words in str(caught.value) and caught.value.field == "epochs_of"


def test_a_factor_of_a_method_that_is_not_compared_is_refused() -> None:
    check_epochs_of({"topk": 1.2}, ["ssgd", "topk"])
    check_epochs_of(None, [])
    with pytest.raises(RequestError, match=r"randk is not among the methods asked of: ssgd, topk"):
        check_epochs_of({"randk": 1.2}, ["ssgd", "topk"])
