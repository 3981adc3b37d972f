"""The record of jitter: of made traces by hand, of the shipped tables again from the traces."""

from __future__ import annotations

import csv
import gzip
import re
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from jitter_record import (
    DISTRIBUTIONS,
    Trace,
    distribution,
    distributions,
    jitter_text,
    read_traces,
    summary,
    trace_text,
    values,
)
from perfsim.conditions.measured import (
    JITTER_FILE,
    TRACE_COLUMNS,
    TRACE_FILE,
    measured_jitter,
    measured_names,
)
from perfsim.data.catalog import shipped
from support.collected import COLLECTED, needs_data
from support.what_ships import shipped_rows

TRACES = COLLECTED / "modern" / "stragglers_production.csv.gz"


def made(
    steps: int, replicas: int, stages: int, micro_batches: int, sizes: np.ndarray | float
) -> Trace:
    """Return a trace of made-up micro-batches [s], by pass, step, replica, stage, micro-batch."""
    shape = 2, steps, replicas, stages, micro_batches
    each = np.broadcast_to(sizes, shape)
    return Trace("SE", "", each.sum(-1), each.max(-1), micro_batches, np.ones(steps))


def test_values_by_hand() -> None:
    """Two replicas, 12 and 8 s in one step, 8 and 12 in the other, of a GPU twice as slow as one.

    Without what is persistent, 1.2 and 0.8 times the mean; of two steps and two replicas deviations
    are multiplied by sqrt(2 x 2).
    """
    sizes = np.array([[12.0, 16.0], [8.0, 24.0]]).reshape(1, 2, 2, 1, 1) / 2
    found = values(made(2, 2, 1, 1, sizes))
    assert found == pytest.approx(np.array([[1.4, 0.6], [0.6, 1.4]]))


def test_stages_are_weighed_by_their_time() -> None:
    """Stages of 3 s and 1 s, of which the first varies by a tenth: 0.3 of 4 s."""
    sizes = (
        np.array([[[3.3, 1.0], [2.7, 1.0]], [[2.7, 1.0], [3.3, 1.0]]]).reshape(1, 2, 2, 2, 1) / 2
    )
    assert values(made(2, 2, 2, 1, sizes))[0] == pytest.approx([1.15, 0.85])


def test_what_a_made_trace_shows() -> None:
    """Samples vary by 10 % a micro-batch, GPUs by 2 % for good, one GPU is three times slower."""
    chance = np.random.default_rng(0)
    steps, replicas, stages, micro_batches = 200, 16, 2, 4
    samples = 1 + 0.1 * chance.standard_normal((1, steps, replicas, 1, micro_batches))
    gpus = 1 + 0.02 * chance.standard_normal((1, 1, replicas, stages, 1))
    gpus[0, 0, 5, 1, 0] = 3.0
    trace = made(steps, replicas, stages, micro_batches, samples * gpus)
    drawn = distribution("sequence-lengths", [values(trace)])
    told = {key: float(value) for key, value in summary(trace, drawn).items() if "." in value[:3]}
    assert told["spread"] == pytest.approx(0.1 / 2, rel=0.05)
    assert told["stage_spread_high"] == pytest.approx(0.05, rel=0.05)
    assert told["stage_correlation"] == pytest.approx(1.0, abs=1e-3)
    assert told["persistent_share"] == pytest.approx(0.02**2 / (0.02**2 + 0.05**2), abs=0.06)
    assert told["slowed_times"] == pytest.approx(3.0, rel=0.05)
    assert summary(trace, drawn)["slowed_gpus"] == "1"
    assert told["micro_batch_ratio"] == pytest.approx(1.0, abs=0.05)
    assert told["slowest_changing"] == pytest.approx(told["slowest_drawn"], abs=0.01)
    assert told["slowest"] > 1.5


def test_a_trace_with_a_hole_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "traces.csv.gz"
    head = "trace,cause,step,step_span_s,dp_rank,stage,optype,n,sum_s,max_s"
    rows = [
        f"SE,x,1,9,{rank},0,{kind}-compute,2,2.0,1.0" for rank in (0, 1) for kind in ("forward",)
    ]
    rows += ["SE,x,1,9,0,0,backward-compute,2,2.0,1.0"]
    with gzip.open(path, "wt") as file:
        file.write("\n".join([head, *rows]))
    with pytest.raises(ValueError, match="trace SE lacks"):
        read_traces(path)


def shipped_text(name: str) -> str:
    return (shipped() / name).read_text(encoding="utf-8")


def test_every_trace_says_what_it_is_and_makes_a_distribution() -> None:
    rows = shipped_rows(TRACE_FILE)
    assert {row["distribution"] for row in rows} == set(measured_names()) == set(DISTRIBUTIONS)
    for row in rows:
        assert set(row) == set(TRACE_COLUMNS)
        assert (row["licence"], row["kind"]) == ("Apache-2.0", "measured")
        assert row["source"].endswith(f":data/trace-{row['trace']}.parquet")
        assert int(row["steps"]) * int(row["replicas"]) >= 64
        # That a replica's GPUs share a draw rests on these.
        assert float(row["stage_correlation"]) > 0.8


def test_draws_are_as_slow_as_the_traces() -> None:
    """The mean slowest replica of all steps, within two standard errors of 0.016 and 0.0004."""
    within = {"sequence-lengths": 0.032, "steady": 0.0008}
    for row in shipped_rows(TRACE_FILE):
        drawn = measured_jitter(row["distribution"]).slowest(int(row["replicas"]))
        assert drawn == pytest.approx(float(row["slowest_drawn"]), abs=1e-4)
        assert abs(drawn - float(row["slowest_changing"])) < within[row["distribution"]]
        if row["slowed_gpus"] == "0":
            assert abs(drawn - float(row["slowest"])) < within[row["distribution"]]


@needs_data
def test_the_shipped_tables_are_those_of_the_traces() -> None:
    found = read_traces(TRACES)
    one = distributions(found)
    (date,) = re.findall(r"^# date: (.*)$", shipped_text(JITTER_FILE), re.MULTILINE)
    assert jitter_text(list(one.values()), date) == shipped_text(JITTER_FILE)
    rows = [summary(found[trace], one[name]) for name in one for trace in DISTRIBUTIONS[name]]
    assert trace_text(rows, date) == shipped_text(TRACE_FILE)


@needs_data
def test_quantiles_by_hand() -> None:
    """Counted in the file itself: replicas' sums of both passes over the mean of their step."""
    sums: dict[tuple[str, str], float] = defaultdict(float)
    with gzip.open(TRACES, "rt", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if row["trace"] == "SE" and row["optype"] in ("forward-compute", "backward-compute"):
                sums[row["step"], row["dp_rank"]] += float(row["sum_s"])
    by_step: dict[str, list[float]] = defaultdict(list)
    for (step, _), seconds in sums.items():
        by_step[step].append(seconds)
    ratios = sorted(second / fmean(step) for step in by_step.values() for second in step)
    assert len(ratios) == 43 * 32
    one = measured_jitter("sequence-lengths")
    assert fmean(max(step) / fmean(step) for step in by_step.values()) == pytest.approx(
        one.slowest(32), abs=0.032
    )
    # Without any correction a share of values lies as far from 1 to 1.5 % of the mean.
    for share, factor in zip(one.shares, one.factors, strict=True):
        if 0.01 <= share <= 0.99:
            assert ratios[round(share * (len(ratios) - 1))] == pytest.approx(factor, abs=0.015)
