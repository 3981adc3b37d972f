"""Plans: hours and money by hand, the Pareto front by law, refusals in one sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from perfsim.cli.main import app, code
from perfsim.errors import DataError, RequestError
from perfsim.note import of_grade
from perfsim.notes import TIME_ONLY
from perfsim.planning.capacity import (
    ClusterPlan,
    ParetoChoice,
    Price,
    Prices,
    Target,
    find_prices,
    parse_budget,
    parse_samples,
    plan,
    read_prices,
)
from perfsim.planning.compare import compare
from perfsim.prediction import predict
from perfsim.report.html.pages import plan_page
from perfsim.report.planning import print_plan
from perfsim.scenario import Scenario, make_scenario
from support.commands import answer, run
from support.what_ships import SHIPPED

ASKED = ["plan", "--model", "resnet50", "--dataset", "imagenet", "--epochs", "90"]
PRICES = """schema = "perfsim/prices/1"
currency = "usd"
[[price]]
gpu = "v100"
per_gpu_hour = 2.0
source = "a contract"
date = "2026-11-01"
"""


def scenarios(*counts: int, method: str = "ssgd") -> list[Scenario]:
    fields = {"model": "resnet50", "net": "10gbe", "gpu": "v100", "method": method}
    return [make_scenario(fields | {"gpus": count}) for count in counts]


def prices(per_gpu_hour: float = 2.0, net: str = "") -> Prices:
    return Prices("usd", (Price("v100", net, per_gpu_hour, "s", "2026-11-01"),), Path("p.toml"))


def test_hours_and_money_by_hand() -> None:
    [asked] = scenarios(16)
    found = predict(asked)
    made = plan([asked], Target(1_281_167, 90, budget=1e6, currency="usd"), prices(), SHIPPED)
    iterations = 1_281_167 * 90 / (32 * 16)
    seconds = iterations * found.iteration_s
    [one] = made.choices
    assert one.seconds == pytest.approx(seconds)
    assert one.interval_s == pytest.approx([iterations * end for end in found.iteration_s_interval])
    assert one.cost == pytest.approx(16 * seconds / 3600 * 2.0)


def test_energy_is_that_of_the_power_given() -> None:
    both = [*scenarios(16), *scenarios(4)]
    made = plan(both, Target(1_281_167, 90, gpu_power_w=250.0), prices(), SHIPPED)
    for one in made.choices:
        assert one.energy_kwh == pytest.approx(one.gpu_hours * 0.25)
    assert made.to_dict()["rows"][0]["energy_kwh"] == made.choices[0].energy_kwh
    assert "in one node" in made.choices[1].words and "10gbe" in made.choices[0].words
    silent = plan(both, Target(1_281_167, 90), prices(), SHIPPED)
    assert {one.energy_kwh for one in silent.choices} == {None}


def test_what_nobody_has_trained_is_not_on_the_front() -> None:
    """Rand-k's iteration is shorter; nothing is known of its learning on ImageNet."""
    names = ("ssgd", "dgc", "randk", "randk_maxnorm")
    four = [scenario for name in names for scenario in scenarios(16, method=name)]
    target = Target(1_281_167, 90, data="imagenet")
    made = plan(four, target, Prices("", (), Path()), SHIPPED)
    assert made.fastest.scenario.method == "dgc"
    assert {one.scenario.method for one in made.front} == {"dgc"}
    apart = made.by_iteration_only
    assert {one.scenario.method for one in apart} == {"randk", "randk_maxnorm"}
    assert apart[0].seconds < made.fastest.seconds
    found = made.to_dict()
    assert [row["method"] for row in found["iteration_time_only"]] == [
        one.scenario.method for one in apart
    ]
    assert all(row["iteration_time_only"] for row in found["iteration_time_only"])
    [warning] = [note for note in made.notes if note.startswith("Against randk: ")]
    assert "bytedance/byteps@" in warning
    # Alone, it is planned with and called what it is.
    alone = plan(scenarios(16, method="randk"), target, Prices("", (), Path()), SHIPPED)
    assert not alone.fastest.learning.known


def test_epochs_of_evidence_multiply_the_time() -> None:
    """Rand-k of 10,000 values on CIFAR-10 needs 94 epochs of 80, 106 of 89, and more of others."""
    pair = [
        make_scenario({"model": "resnet50-cifar", "gpus": 4, "net": "10gbe", "method": name})
        for name in ("ssgd", "randk_maxnorm")
    ]
    target = Target(50_000, 100, data="cifar10")
    made = plan(pair, target, Prices("", (), Path()), SHIPPED, ignore_memory=True)
    dense, small = made.choices
    ratio = small.prediction.iteration_s / dense.prediction.iteration_s
    assert dense.learning.middle == 1.0 and 1.0 < small.learning.middle < 1.5
    assert small.seconds / dense.seconds == pytest.approx(ratio * small.learning.middle)
    assert small.row(target)["epochs"] == pytest.approx(100 * small.learning.middle)


def test_epochs_of_one_method_are_its_own() -> None:
    both = [*scenarios(16), *scenarios(16, method="topk")]
    made = plan(both, Target(1000_000, 90, {"topk": 2.0}), Prices("", (), Path()), SHIPPED)
    dense, sparse = made.choices
    ratio = sparse.prediction.iteration_s / dense.prediction.iteration_s
    assert sparse.seconds / dense.seconds == pytest.approx(2 * ratio)
    assert "There are no prices" in " ".join(made.notes)


def test_a_price_on_the_network_comes_before_that_of_any() -> None:
    both = Prices(
        "usd",
        (Price("v100", "", 2.0, "s", "d"), Price("v100", "10gbe", 3.0, "s", "d")),
        Path("p.toml"),
    )
    found = both.of("v100", "10gbe"), both.of("v100", "1gbe"), both.of("a100", "1gbe")
    assert [one and one.per_gpu_hour for one in found] == [3.0, 2.0, None]


def test_money_is_not_compared_with_gpu_hours() -> None:
    fields = {"model": "resnet50", "gpus": 8, "net": "ib100"}
    pair = [make_scenario(fields | {"gpu": gpu}) for gpu in ("v100", "h100")]
    made = plan(pair, Target(1_281_167, 90), prices(30.0), SHIPPED)
    assert len(made.choices) == 2 and made.unit == "GPU h"
    assert made.cheapest.gpu_hours == min(one.gpu_hours for one in made.choices)
    warned = of_grade(made.notes, "warning")[0]
    assert warned.startswith("There is no price of h100 in p.toml")
    limited = Target(1_281_167, 90, budget=1e9, currency="usd")
    dear = plan(pair, limited, prices(30.0), SHIPPED)
    assert [one.scenario.gpu for one in dear.choices] == ["v100"] and dear.unit == "usd"
    assert list(dear.left_out.values()) == ["no price of h100 in p.toml"]


@pytest.mark.parametrize("name", ["V100", "tesla-v100", "Tesla V100"])
def test_a_price_may_stand_under_an_alias(name: str) -> None:
    target = Target(1_281_167, 90)
    under = Prices("usd", (Price(name, "", 2.0, "s", "2026-11-01"),), Path("p.toml"))
    made = plan(scenarios(8), target, under, SHIPPED)
    assert made.fastest.cost == plan(scenarios(8), target, prices(), SHIPPED).fastest.cost
    assert made.fastest.cost is not None and made.unit == "usd"


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["v100", "v10O"], r"^p\.toml: price\[2\]\.gpu: no 'v10O'; did you mean 'v100'\?"),
        (["v100", "V100"], r"^p\.toml: price\[2\]\.gpu: 'v100' stands twice, as 'V100' too$"),
    ],
)
def test_a_price_of_no_gpu_or_of_one_gpu_twice_is_refused(names: list[str], words: str) -> None:
    wrong = tuple(Price(name, "", 2.0, "s", "2026-11-01") for name in names)
    with pytest.raises(DataError, match=words):
        plan(scenarios(8), Target(1000, 1), Prices("usd", wrong, Path("p.toml")), SHIPPED)


@pytest.mark.parametrize(
    ("net", "words"),
    [
        ("10gbee", r"^p\.toml: price\[1\]\.net: no '10gbee'; did you mean '10gbe'\?"),
        ("10Gbit/s", r"^p\.toml: price\[1\]\.net: '10Gbit/s'"),
        ("nvlink", r"^p\.toml: price\[1\]\.net: no 'nvlink'"),
    ],
)
def test_a_price_on_a_network_that_nobody_knows_is_refused(net: str, words: str) -> None:
    wrong = (Price("v100", net, 2.0, "s", "2026-11-01"),)
    with pytest.raises(DataError, match=words):
        plan(scenarios(8), Target(1000, 1), Prices("usd", wrong, Path("p.toml")), SHIPPED)


@pytest.mark.parametrize("net", ["10GbE", "10gbe", ""])
def test_a_price_names_its_network_as_a_scenario_does(net: str) -> None:
    there = (Price("v100", net, 2.0, "s", "2026-11-01"),)
    made = plan(scenarios(8), Target(1000, 1), Prices("usd", there, Path("p.toml")), SHIPPED)
    assert made.fastest.cost is not None and made.unit == "usd"
    twice = (*there, Price("V100", "10gbe" if net else "", 3.0, "s", "2026-11-01"))
    with pytest.raises(DataError, match="stands twice, as 'V100' too"):
        plan(scenarios(8), Target(1000, 1), Prices("usd", twice, Path("p.toml")), SHIPPED)


def test_nothing_that_meets_names_the_nearest() -> None:
    target = Target(1_281_167, 90, deadline_s=3600.0)
    with pytest.raises(RequestError) as caught:
        plan(scenarios(8, 16, 32), target, Prices("", (), Path()), SHIPPED)
    told = str(caught.value)
    assert told.startswith("nothing is done within 1 h; the nearest is ssgd on 32 v100 over 10gbe")


def test_a_method_of_unknown_learning_is_told_apart_where_nothing_meets() -> None:
    both = [*scenarios(16), *scenarios(16, method="topk")]
    dense, sparse = plan(both, Target(1_281_167, 90), prices(), SHIPPED).choices
    assert sparse.seconds < dense.seconds and not sparse.learning.known
    limit = Target(1_281_167, 90, deadline_s=(sparse.seconds + dense.seconds) / 2)
    also = "topk on 16 v100 over 10gbe would meet it by iteration time alone (epochs not known)."
    with pytest.raises(RequestError) as caught:
        plan(both, limit, prices(), SHIPPED)
    assert "the nearest is ssgd on 16" in str(caught.value) and str(caught.value).endswith(also)
    with pytest.raises(
        RequestError, match=r"by iteration time alone \(its epochs are not known\)\.$"
    ):
        plan(both[1:], replace(limit, deadline_s=1.0), prices(), SHIPPED)


@pytest.mark.parametrize(
    ("methods", "compared"),
    [
        (["ssgd", "topk"], "(time to S-SGD's accuracy)"),
        (["topk"], "(iteration time only, as if with S-SGD's epochs)"),
    ],
)
def test_the_head_of_the_front_says_what_is_compared(
    methods: list[str], compared: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [one for name in methods for one in scenarios(16, method=name)]
    print_plan(plan(asked, Target(1_281_167, 90), prices(), SHIPPED))
    said = " ".join(capsys.readouterr().out.split())
    assert f"Pareto front: nothing else is both faster and cheaper {compared} method" in said


@pytest.mark.parametrize(
    ("late", "marked"),
    [
        ({"net": "1gbe"}, False),  # behind the front, so that no row shows it
        ({"gpus": 1}, True),  # cheaper, so that it is on the front
        ({"gpus": 2, "method": "topk"}, True),  # listed apart, by iteration time only
    ],
)
def test_the_mark_of_what_misses_is_explained_where_a_row_has_it(
    late: dict[str, Any], marked: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    [fast] = scenarios(8)
    asked = [fast, fast.model_copy(update=late)]
    free = plan(asked, Target(1_281_167, 90), prices(), SHIPPED)
    between = sum(one.seconds for one in free.choices) / 2
    print_plan(plan(asked, replace(free.target, deadline_s=between), prices(), SHIPPED))
    out = capsys.readouterr().out
    assert ("! misses the target" in out) == marked == ("!\n" in out)


def test_screen_page_notebook_and_refusal_say_the_limits_alike(
    capsys: pytest.CaptureFixture[str],
) -> None:
    prices = Prices("eur", (Price("v100", "", 2.0, "s", "d"),), Path("p.toml"))
    target = Target(1_281_167, 1, deadline_s=2 * 86400.0, deadline="2 days", budget=50.0)
    target = replace(target, currency="eur")
    found = plan(scenarios(8, 16), target, prices, SHIPPED)
    said = "1,281,167 samples, 1 epoch of S-SGD within 2 days for at most 50 eur"
    print_plan(found)
    assert " ".join(capsys.readouterr().out.split()).startswith(f"{said}: 2 clusters and methods")
    assert f"{said}." in plan_page(found)
    assert said in found._repr_html_()
    with pytest.raises(RequestError, match=r"^nothing is done within 2 days for at most 1 eur;"):
        plan(scenarios(8), replace(target, budget=1.0), prices, SHIPPED)


def test_a_budget_needs_prices_of_its_currency() -> None:
    target = Target(1000, 1, budget=5.0, currency="usd")
    with pytest.raises(RequestError, match="has no prices"):
        plan(scenarios(8), target, Prices("usd", (), Path("p.toml")), SHIPPED)
    with pytest.raises(RequestError, match=r"is in eur, the prices of p\.toml are in usd"):
        plan(scenarios(8), Target(1000, 1, budget=5.0, currency="eur"), prices(), SHIPPED)


def test_a_global_batch_without_effect_is_told_or_refused() -> None:
    target, nothing = Target(1000, 1), Prices("", (), Path())
    made = plan(scenarios(8), target, nothing, SHIPPED, global_batch=512)
    assert of_grade(made.notes, "warning")[0] == (
        "`global_batch` 512 has no effect: parallelism was not searched, and each GPU has `batch`"
        " samples."
    )
    plain = of_grade(plan(scenarios(8), target, nothing, SHIPPED).notes, "warning")
    assert not any("global_batch" in one for one in plain)
    with pytest.raises(RequestError, match=r"^global_batch is for parallelism, which is switched"):
        plan(scenarios(8), target, nothing, SHIPPED, global_batch=512, parallelism=False)


@pytest.mark.parametrize(
    ("fields", "parallelism", "helps"),
    [
        (
            {"model": "gpt2-large", "batch": 64},
            False,
            "a smaller batch, recompute full, parallelism or ignore_memory",
        ),
        ({"batch": 4}, False, "parallelism or ignore_memory"),
        ({"batch": 1, "recompute": "full"}, False, "parallelism or ignore_memory"),
        ({"model": "resnet50", "batch": 4096}, None, "a smaller batch or ignore_memory"),
        ({"batch": 4096, "tp": 1, "pp": 1}, True, "a smaller batch, more gpus or ignore_memory"),
        ({"batch": 4, "tp": 1, "pp": 1, "method": "ssgd"}, True, "more gpus or ignore_memory"),
    ],
)
def test_what_is_set_already_or_leaves_too_large_a_state_would_not_help(
    fields: dict[str, Any], parallelism: bool | None, helps: str
) -> None:
    asked = make_scenario({"model": "gpt2-xl", "gpu": "t4", "gpus": 2, "net": "ib100"} | fields)
    with pytest.raises(RequestError) as caught:
        plan([asked], Target(9, 1), Prices("", (), Path()), SHIPPED, parallelism=parallelism)
    assert f"({helps} would help)" in str(caught.value)


@pytest.mark.parametrize("flag", ["--gpu-types", "--nets", "--methods"])
def test_an_unknown_name_is_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    known = {"--gpu-types": "v100", "--nets": "10gbe", "--methods": "ssgd"}[flag]
    assert code([*ASKED, "--counts", "8", flag, f"{known},foo"]) == 2
    assert capsys.readouterr().err.startswith(f"perfsim: {flag}: no 'foo'")


def test_the_screen_speaks_of_a_target_only_where_there_is_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert code([*ASKED, "--counts", "8,16"]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0] == ("1,281,167 samples, 90 epochs of S-SGD: 2 clusters and methods")
    assert "x epochs: that it needs, as a multiple of S-SGD's." in text
    assert code([*ASKED, "--counts", "16", "--deadline", "24h"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    counted = "1 cluster and method, 1 meets the target fastest"
    assert text.startswith(f"1,281,167 samples, 90 epochs of S-SGD within 24h: {counted}")
    assert code([*ASKED, "--counts", "16", "--deadline", "1s"]) == 2
    assert "nothing is done within 1s;" in capsys.readouterr().err


def test_what_may_go_wrong_with_the_answers_is_said() -> None:
    """A late end of the interval, nodes that are not full, and what was assumed."""
    fields = {"model": "resnet50", "net": "10gbe", "node": "dgx-a100", "batch": 32}
    asked = [make_scenario(fields | {"gpus": 12})]
    first = plan(asked, Target(samples=1_281_167, epochs=90))
    assert not any("would do" in one for one in first.notes)  # two nodes of six, and two needed
    thirds = plan([make_scenario(fields | {"gpus": 33})], Target(samples=1e6, epochs=1.0))
    (nodes,) = [one for one in of_grade(thirds.notes, "warning") if "would do" in one]
    assert nodes.startswith("33 a100: 3 GPUs a node") and "11 nodes where 5 would do" in nodes
    soon = Target(samples=1_281_167, epochs=90, deadline_s=first.fastest.seconds * 1.001)
    late = [one for one in of_grade(plan(asked, soon).notes, "warning") if "deadline" in one]
    assert late == [
        f"{first.fastest.words} may miss the deadline: its 90 % interval ends at"
        f" {first.fastest.interval_s[1] / 3600:.4g} hours."
    ]
    far = Target(samples=1_281_167, epochs=90, deadline_s=first.fastest.interval_s[1])
    assert not any("may miss" in one for one in plan(asked, far).notes)
    bare = plan([make_scenario({"model": "resnet50", "gpus": 8, "net": "10gbe"})], Target(1000, 1))
    assert any("v100" in one for one in of_grade(bare.notes, "assumption"))


def test_numbers_are_written_alike_and_tokens_as_they_were_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    long = ["plan", "--model", "gpt2", "--dataset", "1e14tokens", "--epochs", "1"]
    assert code([*long, "--counts", "8", "--node", "dgx-h100"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("100,000,000,000,000 tokens, 1 epoch of S-SGD")
    assert "e+" not in text


def test_a_reason_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert code([*ASKED, "--gpu-types", "v100,h100", "--precision", "fp8"]) == 0
    text = capsys.readouterr().out
    assert text.count("has no 'fp8' rate") == 1
    assert "ssgd on 128 v100 over nd40, ssgd on 16 v100 over nd40 and 4 more:" in text


def test_what_is_left_out_names_the_network_that_would_be_taken() -> None:
    fields = {"model": "gpt2", "gpus": 16, "gpu": "h100", "optimizer": "adamw"}
    fields |= {"offload": "optimizer"}
    both = [make_scenario(fields | {"method": method}) for method in ("zero", "fsdp")]
    found = plan(both, Target(1e6, 1), catalog=SHIPPED)
    assert list(found.left_out) == ["fsdp on 16 h100 over dgx-h100"]


def test_methods_too_close_to_the_fastest_are_named() -> None:
    """As compare has it: DGC saves some per cent, and its epochs are known to a fifth."""
    asked = [*scenarios(64, method="dgc"), *scenarios(64)]
    made = plan(asked, Target(1_281_167, 90), None, SHIPPED)
    assert made.fastest.scenario.method == "dgc" and made.close == ("ssgd",)
    told = [note for note in made.notes if "too close to dgc on 64 v100 over 10gbe to call" in note]
    assert len(told) == 1 and told[0].startswith("ssgd on the same cluster")
    ranking = compare(asked[1], "ssgd,dgc", catalog=SHIPPED).ranking
    assert ranking.undecided() == ["ssgd"]
    assert not any(note.partition(": ")[2].startswith(TIME_ONLY) for note in made.notes)
    # Another cluster is no rival of this kind, and nine times the epochs are not close.
    assert plan(scenarios(64, 8), Target(1_281_167, 90), None, SHIPPED).close == ()
    assert plan(asked, Target(1_281_167, 90, epochs_of={"dgc": 9.0}), None, SHIPPED).close == ()


def test_an_option_goes_to_the_methods_that_have_it(capsys: pytest.CaptureFixture[str]) -> None:
    asked = "plan --model gpt3-350m --counts 32 --gpu a100 --nets 1gbe --methods ssgd,DiLoCo"
    alone = predict(
        make_scenario(
            {"model": "gpt3-350m", "gpus": 32, "gpu": "a100", "net": "1gbe", "method": "diloco"}
            | {"options": {"interval": 100}}
        )
    )
    for option in ("interval=100", "diloco.interval=100"):
        found = answer(f"{asked} --dataset 1e9tokens --epochs 1 --set {option}", capsys)
        times = {one["method"]: one["iteration_s"] for one in found["rows"]}
        assert set(times) == {"ssgd", "diloco"}
        assert times["diloco"] == pytest.approx(alone.iteration_s)


def test_what_does_not_fit_is_left_out_with_the_reason() -> None:
    fields = {"model": "gpt2", "gpu": "v100", "net": "ib100", "gpus": 8}
    made = plan([make_scenario(fields)], Target(1000, 1), Prices("", (), Path()), SHIPPED)
    assert len(made.choices) == 1
    refused = make_scenario(fields | {"method": "dgc", "options": {"density": 0.5}, "gpus": 1024})
    with pytest.raises(RequestError, match=r"needs least, .* GB, and the GPU has"):
        plan([refused], Target(1000, 1), Prices("", (), Path()), SHIPPED)


@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(1, 1e6)), min_size=1, max_size=30))
def test_the_front_is_what_nothing_beats(pairs: list[tuple[float, float]]) -> None:
    base = FOUND
    choices = [ParetoChoice(base, seconds, (seconds, seconds), cost) for seconds, cost in pairs]
    front = ClusterPlan(Target(1, 1), choices, {}, prices()).front
    for one in choices:
        beaten = any(
            other.seconds <= one.seconds
            and other.spent <= one.spent
            and (other.seconds, other.spent) != (one.seconds, one.spent)
            for other in choices
        )
        shown = any((f.seconds, f.spent) == (one.seconds, one.spent) for f in front)
        assert shown != beaten


FOUND = predict(scenarios(8)[0])


def test_the_shipped_price_table_is_empty_and_says_what_to_write() -> None:
    found = find_prices(SHIPPED, None)
    assert found.prices == () and found.currency == "usd"
    assert "per_gpu_hour" in found.path.read_text()


LONG = f'[[price]]\ngpu = "{"9" * 5000}"\nper_gpu_hour = 1.0\nsource = "s"\ndate = "2026-11-01"'


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("per_gpu_hour = 2.0", "per_gpu_hour = 0", "allowed is a number, above 0 and below 1e6"),
        ("gpu =", "gpus =", "did you mean 'gpu'"),
        ("prices/1", "prices/2", "this perfsim reads 'perfsim/prices/1'"),
        ('date = "2026-11-01"', "", "price[1].date: is missing"),
        ("[[price]]", f"{LONG}\n{LONG}\n[[price]]", f"'{'9' * 59}... stands twice"),
    ],
)
def test_a_damaged_price_table_is_one_sentence(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(PRICES.replace(old, new, 1))
    with pytest.raises(DataError) as caught:
        read_prices(path)
    assert words in str(caught.value) and "prices.toml" in str(caught.value)


@pytest.mark.parametrize("text", ["500", "usd", "0usd", "-5usd", "5 dollars"])
def test_a_budget_has_a_currency(text: str) -> None:
    with pytest.raises(RequestError, match="as 500usd"):
        parse_budget(text)


def test_a_data_set_is_known_or_has_its_unit() -> None:
    with pytest.raises(RequestError, match="did you mean 'imagenet'"):
        parse_samples("imagnet")
    with pytest.raises(RequestError, match="1281167samples"):
        parse_samples("1000000")


def test_the_command_plans_with_prices(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(PRICES)
    asked = [*ASKED, "--deadline", "48h", "--budget", "900usd", "--prices", str(path)]
    asked += ["--counts", "8..64", "--nets", "10gbe,ib100"]
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 0, shown.output
    assert "cheapest" in shown.output and max(map(len, shown.output.splitlines())) <= 80
    found = json.loads(CliRunner().invoke(app, [*asked, "--json"]).output)
    assert found["schema"] == "perfsim/plan/1" and len(found["rows"]) == 8
    assert found["cheapest"]["cost"] == min(row["cost"] for row in found["rows"] if row["meets"])
    assert found["fastest"]["hours"] == min(row["hours"] for row in found["rows"] if row["meets"])


@pytest.mark.parametrize(
    "wrong",
    [
        ["--budget", "500usd"],
        ["--gpu-power", "250"],
        ["--gpu-power", "0W"],
        ["--deadline", "1min"],
        ["--deadline", "24"],
        ["--deadline", "0h"],
        ["--dataset", "1e400samples"],
        ["--counts", "64..8"],
        ["--counts", "8", "--gpus", "16"],
        ["--nets", "10gbe", "--net", "1gbe"],
        ["--methods", "ssgd,dgc", "--method", "topk"],
        ["--gpu-types", "v100", "--gpu", "a100"],
    ],
)
def test_wrong_requests_are_one_sentence(
    wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [*ASKED, *wrong]
    assert code(asked if "--counts" in wrong else [*asked, "--counts", "8"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("perfsim: ") and told.count("\n") == 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("--counts 8,2000000", "--counts: '2000000' is not allowed"),
        ("--counts 8 --placement 3,6", "places 9 GPUs, --counts says 8; the two must agree"),
        ("--counts=8 --gpu-types x", "--gpu-types: no 'x'"),
        ("--counts 8 --nets 1gbx", "--nets: no '1gbx'"),
        ("--counts 8 --methods tokp", "--methods: no 'tokp'"),
        ("--counts 8 --net 1gbx", "--net: no '1gbx'"),
        ("--counts 8 --gpus 8", "--counts: --gpus is given too"),
    ],
)
def test_an_error_names_the_flag_that_was_given(
    wrong: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    left, _, err = run(" ".join([*ASKED, wrong]), capsys)
    assert left == 2 and said in err


def test_a_data_set_of_tokens_is_so_many_samples(capsys: pytest.CaptureFixture[str]) -> None:
    """Of 2048 tokens a sample, 2,048,001 tokens are 1001 samples; other lengths, other samples."""
    assert parse_samples("2048001tokens", 2048) == 1001
    with pytest.raises(RequestError, match="not over text; give samples"):
        parse_samples("2048001tokens")
    asked = "plan --model gpt3-125m --gpu h100 --gpus 8 --net 100gbe --epochs 1"
    for more, samples in (("", 1_000_000), (" --seq 1024", 2_000_000)):
        found = answer(f"{asked} --dataset 2048000000tokens{more}", capsys)
        assert found["target"]["samples"] == samples
    left, out, err = run("plan --model resnet50 --gpus 8 --dataset 3e9tokens --epochs 1", capsys)
    assert (left, out) == (2, "")
    assert err == "perfsim: --dataset: '3e9tokens': the model is not over text; give samples.\n"
