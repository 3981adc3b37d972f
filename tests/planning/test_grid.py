"""Values of fields, ranges and grids: what a user writes, and what is refused."""

from __future__ import annotations

from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from perfsim.errors import RequestError
from perfsim.planning.grid import (
    Axis,
    SweepGrid,
    axes_of,
    expand,
    parse_vary,
    sweep_grid,
    values_of,
)
from perfsim.scenario import Scenario
from perfsim.units import parse_bytes, parse_rate


def test_a_range_ends_at_or_before_its_end() -> None:
    assert expand("gpus", "8..1024")[-1] == "1024"
    assert expand("gpus", "8..1000")[-1] == "512"
    assert expand("gpus", "8..8") == ["8"]


@drawn(st.integers(1, 1000), st.integers(1, 1000), st.integers(1, 50))
def test_a_stepped_range_is_pythons(first: int, length: int, step: int) -> None:
    last = first + length
    found = expand("gpus", f"{first}..{last}:{step}")
    assert [int(value) for value in found] == list(range(first, last + 1, step))


@drawn(st.floats(0.001, 1.0), st.floats(1.5, 1000.0), st.integers(2, 30))
def test_a_logarithmic_range_grows_by_equal_factors(low: float, high: float, count: int) -> None:
    found = [float(value) for value in expand("options.density", f"{low!r}..{high!r}:log{count}")]
    assert len(found) == count
    assert (found[0], found[-1]) == (low, high)
    factor = (high / low) ** (1 / (count - 1))
    assert all(b / a == pytest.approx(factor) for a, b in pairwise(found))


def test_units_are_kept_and_converted_to_the_first() -> None:
    assert expand("bucket", "512KiB..2MiB") == ["512KiB", "1024KiB", "2048KiB"]
    assert [parse_bytes(value) for value in expand("bucket", "1MiB..25MiB:lin3")] == [
        2**20,
        13 * 2**20,
        25 * 2**20,
    ]
    rates = [value.partition(",")[0] for value in values_of("net", "1Gbit/s..100Gbit/s:log5,5us")]
    assert [parse_rate(rate) * 8e-9 for rate in rates] == pytest.approx(
        [1, 10**0.5, 10, 10**1.5, 100]
    )


def test_a_latency_belongs_to_the_rate_before_it() -> None:
    assert values_of("net", "1gbe,10Gbit/s,50us,ib100") == ["1gbe", "10Gbit/s,50us", "ib100"]
    assert values_of("net", "1Gbit/s..2Gbit/s,1us..2us") == [
        "1Gbit/s,1us",
        "1Gbit/s,2us",
        "2Gbit/s,1us",
        "2Gbit/s,2us",
    ]
    assert values_of("net", "../mine.toml") == ["../mine.toml"]


@pytest.mark.parametrize("field", ["model", "node", "net", "intra_net", "gpu", "beside"])
def test_two_points_of_a_path_are_no_range(field: str) -> None:
    assert values_of(field, "../one.toml,a..b.csv") == ["../one.toml", "a..b.csv"]


@pytest.mark.parametrize(
    ("field", "text", "values"),
    [
        ("site", "8,8", ["8,8"]),
        ("site", "8,8;8,8,16", ["8,8", "8,8,16"]),
        ("wan", "1Gbit/s,4ms", ["1Gbit/s,4ms"]),
        ("stage_layers", "8,8,8,8;7,9,9,7", ["8,8,8,8", "7,9,9,7"]),
        ("gpu", "v100:8+p100:8,v100:16", ["v100:8+p100:8", "v100:16"]),
        ("model", "gpt2,generic:params=1M,layers=2", ["gpt2", "generic:params=1M,layers=2"]),
        (
            "model",
            "transformer:layers=2,heads=4,transformer:layers=4,heads=4,gpt2",
            ["transformer:layers=2,heads=4", "transformer:layers=4,heads=4", "gpt2"],
        ),
    ],
)
def test_a_value_with_commas_is_not_taken_apart(field: str, text: str, values: list[str]) -> None:
    assert values_of(field, text) == values
    assert axes_of({field: text})[0].values == axes_of({field: values})[0].values == tuple(values)


def test_lists_of_numbers_are_values_of_fields_that_are_lists() -> None:
    assert axes_of({"site": [[8, 8], [8, 16]]})[0].values == ("8,8", "8,16")
    assert axes_of({"gpu": ["v100:8,p100:8"]})[0].values == ("v100:8,p100:8",)
    assert axes_of({"wan": ["1Gbit/s,4ms;2Gbit/s,4ms"]})[0].values == ("1Gbit/s,4ms;2Gbit/s,4ms",)
    lists = {
        name
        for name, one in Scenario.model_fields.items()
        if tuple[int, ...] in (one.annotation, *get_args(one.annotation))
    }
    assert lists == {"placement", "site", "stage_layers"}
    for name in lists:
        assert values_of(name, "1,2") == ["1,2"]


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("gpus", "64..8", "is empty"),
        ("gpus", "8,,16", "an empty value"),
        ("gpus", "0..8", "must be above 0"),
        ("gpus", "8..64:0", "must be above 0"),
        ("gpus", "8..64:log", "asks for no values"),
        ("gpus", "8..64:log1", "asks for 1 values"),
        ("gpus", "a..b", "is no number"),
        ("bucket", "1MiB..2ms", "mixes"),
        ("bucket", "1..2MiB", "has no unit where it begins"),
        ("gpus", "1..999999999:1", "more than"),
    ],
)
def test_a_wrong_range_says_what_is_wrong(field: str, text: str, said: str) -> None:
    with pytest.raises(RequestError, match=f"vary.{field}: .*{said}"):
        values_of(field, text)


@pytest.mark.parametrize(
    ("vary", "said"),
    [
        ({"gpuss": "8"}, "no 'gpuss'; did you mean 'gpus'"),
        ({"options": "8"}, "no 'options'"),
        ({"options.": "8"}, "no 'options.'"),
        ({"gpus.x": "8"}, "no 'gpus.x'"),
        ({"gpus": []}, "gpus: has no value"),
        ({"options." + "x" * 2000: "1"}, r"a scenario has no 'options\.x{52}\.\.\.'"),
        ({"gpus": ""}, "gpus: has no value"),
        ({"gpus": [None]}, "no value of a field"),
    ],
)
def test_an_axis_that_is_none_is_refused(vary: dict[str, object], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        axes_of(vary)


def test_pairs_name_fields_as_flags_do() -> None:
    assert parse_vary(["--gpus-per-node=4", "options.first_bucket=1MiB"]) == {
        "gpus_per_node": "4",
        "options.first_bucket": "1MiB",
    }
    for pairs in (["gpus"], ["=8"]):
        with pytest.raises(RequestError, match="not field=values"):
            parse_vary(pairs)
    with pytest.raises(RequestError, match="given twice"):
        parse_vary(["gpus=8", "gpus=16"])


@drawn(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_rows_are_every_combination_once_in_order(sizes: list[int]) -> None:
    names = ("gpus", "batch", "gpus_per_node", "options.rank")
    axes = tuple(
        Axis(name, tuple(range(1, size + 1))) for name, size in zip(names, sizes, strict=False)
    )
    grid = SweepGrid({}, axes)
    rows = [grid.values(row) for row in range(len(grid))]
    assert rows == sorted(set(rows))
    assert len(rows) == len(grid)


def test_a_files_options_are_for_its_own_method() -> None:
    base = {"method": "dgc", "options": {"density": 0.01, "rank": 4}}
    grid = SweepGrid(base, axes_of({"method": "dgc,powersgd"}), own=("density",))
    assert grid.fields(0)["options"] == {"density": 0.01, "rank": 4}
    assert grid.fields(1)["options"] == {"rank": 4}
    assert base["options"] == {"density": 0.01, "rank": 4}


def test_an_option_may_be_one_methods() -> None:
    """As `compare` takes it: the rows of that method have it, over what is set for all."""
    base = {"options": {"density": "1%", "Top-K.density": "2%"}}
    grid = sweep_grid(base, axes_of({"method": "topk,dgc"}))
    assert [grid.fields(row)["options"] for row in (0, 1)] == [
        {"density": "2%"},
        {"density": "1%"},
    ]
    alone = sweep_grid({"method": "topk", "options": {"topk.density": "2%"}}, axes_of({"gpus": 8}))
    assert alone.base["options"] == {"density": "2%"}
    varied = sweep_grid({"method": "topk"}, axes_of({"topk.density": "1%,2%"}))
    assert varied.axes == axes_of({"options.density": "1%,2%"})


@pytest.mark.parametrize(
    ("base", "vary", "said"),
    [
        ({"options": {"dgc.density": 1}}, {"method": "topk,ssgd"}, "options.dgc.density: dgc is"),
        ({}, {"topk.density": "1%,2%"}, "vary.topk.density: topk is not among the .*: ssgd"),
        ({}, {"method": "topk,dgc", "topk.density": "1%,2%"}, "vary.topk.density: rows of other"),
        (
            {"method": "topk"},
            {"options.density": "1%,2%", "topk.density": "3%"},
            "vary.topk.density: options.density varies already",
        ),
    ],
)
def test_an_option_of_a_method_that_is_not_swept_alone_is_refused(
    base: dict[str, object], vary: dict[str, object], said: str
) -> None:
    with pytest.raises(RequestError, match=said):
        sweep_grid(base, axes_of(vary))


def test_a_grid_that_nobody_waits_for_is_refused() -> None:
    with pytest.raises(RequestError, match="rows; at most"):
        SweepGrid({}, axes_of({"gpus": "1..3000:1", "batch": "1..1000:1"}))
