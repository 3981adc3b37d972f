"""What answers and pictures of the gallery read off what a command found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfsim.data.catalog import Catalog
from perfsim.scenario_file import read_scenario
from perfsim.units import format_seconds
from perfsim.validate.cases import Case


def methods(asked: Any) -> dict[str, Mapping[str, Any]]:
    """Return a comparison's rows by method."""
    return {row["scenario"]["method"]: row for row in asked.found["rows"]}


def against(found: Mapping[str, Any], method: str) -> str:
    """Return how a method compares with S-SGD: faster, slower, or not told apart."""
    [told] = [row["against_ssgd"] for row in found["standings"] if row["method"] == method]
    return str(told)


def measured(asked: Any, row: Mapping[str, Any], name: str) -> float:
    """Return what was published of a row [s]."""
    return measured_s(asked.measured[name], row["samples_per_s"] * row["iteration_s"])


def seconds(row: Mapping[str, str]) -> float:
    """Return the iteration of a sweep's row [s]."""
    return float(row["iteration_s"])


def rate(row: Mapping[str, str]) -> float:
    """Return the samples a second of a sweep's row."""
    return float(row["samples_per_s"])


def fits(row: Mapping[str, str]) -> bool:
    """Say whether the training of a sweep's row fits into the GPU's memory."""
    return row["fits"] == "true"


def tokens(asked: Any) -> int:
    """Return the tokens of a sample, as the question's scenario has them."""
    return int(read_scenario(Catalog().scenario(asked.name))["scenario"]["seq"])


def axes(asked: Any) -> list[str]:
    """Return the fields that a sweep varies."""
    columns = list(asked.found[0])
    return columns[: columns.index("iteration_s")]


def by_axes(asked: Any) -> dict[tuple[str, ...], Mapping[str, str]]:
    """Return a sweep's rows by the values of what it varies."""
    return {tuple(row[axis] for axis in axes(asked)): row for row in asked.found}


def gpus(asked: Any, row: Mapping[str, str]) -> int:
    """Return the GPUs of a sweep's row, those of the scenario where it does not vary them."""
    return int(row.get("gpus") or read_scenario(Catalog().scenario(asked.name))["scenario"]["gpus"])


def each(asked: Any, row: Mapping[str, str]) -> float:
    """Return the tokens a second of one GPU in a sweep's row."""
    return rate(row) * tokens(asked) / gpus(asked, row)


def samples(row: Mapping[str, str]) -> float:
    """Return the samples of an iteration of a sweep's row."""
    return rate(row) * seconds(row)


def measured_each(asked: Any, row: Mapping[str, str]) -> float | None:
    """Return the tokens a second of one GPU that were published of a sweep's row, if any."""
    case = asked.measured.get(" ".join(row[axis] for axis in axes(asked)))
    if case is None:
        return None
    count = samples(row)
    return count * tokens(asked) / measured_s(case, count) / gpus(asked, row)


def overlap(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Say whether the intervals of two rows' rates overlap."""
    ends = []
    for row in (one, other):
        ends.append([samples(row) / float(row[f"iteration_s_{end}"]) for end in ("high", "low")])
    return ends[0][0] < ends[1][1] and ends[1][0] < ends[0][1]


def time(row: Mapping[str, Any]) -> str:
    """Return an iteration in three digits."""
    return format_seconds(row["iteration_s"], 3)


def ratio(slow: Mapping[str, Any], fast: Mapping[str, Any]) -> float:
    """Return how many times as long one takes."""
    return float(slow["iteration_s"] / fast["iteration_s"])


def bits(bytes_per_s: float) -> str:
    """Return a rate in Gbit/s."""
    return f"{8 * bytes_per_s / 1e9:.0f} Gbit/s"


def listed(names: Sequence[str]) -> str:
    """Return names with an "and" before the last."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def measured_s(case: Case, samples: float) -> float:
    """Return a published iteration [s]; ``samples`` are those of an iteration."""
    assert case.metric in ("iteration_s", "throughput"), case.metric
    return case.value if case.metric == "iteration_s" else samples / case.value
