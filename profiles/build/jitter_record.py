"""Make the measured distributions of jitter from traces of production training.

    python profiles/build/jitter_record.py --data ../shared/data --date DATE [--check]

It writes ``profiles/conditions/jitter.csv`` (the distributions) and ``jitter_traces.csv`` (what
each trace shows); ``--check`` prints how far they are from the traces, from steps and traces that
they were not made of, and writes nothing.

The traces are three jobs of ByteDance: 43 steps of 32 replicas of 2 stages whose samples differ in
length (SE), 32 steps of 2 replicas of 4 stages of unequal work (ST), 44 steps of 4 replicas of 4
stages with one GPU that was slowed on purpose (AR). They hold the sums of forward and backward
computation, by step, replica and stage; of groups of GPUs that divide a layer (4 tensor-parallel
GPUs in AR, 2 that divide sequences in SE) they have one record.

What is made of them: a replica's time in a step is the sum over its stages, each GPU's times
first divided by its own mean over all steps and multiplied by the median of its stage. That takes
out what is persistent: GPUs that are always slower, which a scenario states by ``straggler``. A
value of the distribution is this time over the mean of all replicas in that step. That mean has
the replica itself in it, and each GPU's mean has the step itself in it: deviations are multiplied
by sqrt(P/(P-1) T/(T-1)) of P replicas and T steps, which makes their variance unbiased.

What the traces show, in columns of ``jitter_traces.csv``:

- SE: replicas differ by 11.6 % (one standard deviation), skewed to long steps (the slowest of 32
  takes 1.31 times the mean). Nothing of it is persistent: the slowest replica is another one each
  time.
- ST and AR: 0.5 and 0.4 %. A third of the variance of their GPUs is persistent (0.3 to 0.4 %), not
  counting the one that was slowed 2.35 times. Both agree though they are of other jobs, so that
  they make one distribution.
- The stages of a replica are slow together: what changes from step to step has a correlation of
  0.999 among them in SE, 0.85 in ST and 0.96 in AR. So it comes with the samples, which all GPUs of
  a replica share, also where lengths hardly differ: they share one draw.
- In SE a GPU's longest micro-batch is as far above its mean as that of independent micro-batches is
  (ratio 1.09; ST 1.24; 0.68 in AR, where a part is alike in all of a step). So with n such
  micro-batches a step, the spread of SE goes as 1/sqrt(n).
- In SE the first stage varies by 14 %, the last by 10 %: the output layer, which only the last has,
  takes as long for any lengths. The distribution is that of the whole model. In a pipeline, where
  the slowest stage sets the pace, it says a little too much: 1.30 where SE's pipelines show 1.27.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfsim.conditions.measured import (
    JITTER_COLUMNS,
    JITTER_FILE,
    JITTER_SCHEMA,
    TRACE_COLUMNS,
    TRACE_FILE,
    TRACE_SCHEMA,
    MeasuredJitter,
)
from perfsim.data.files import write_text
from perfsim.schedule.pipeline import StageTimes, pipeline_run

__all__ = [
    "DISTRIBUTIONS",
    "Trace",
    "distribution",
    "jitter_text",
    "read_traces",
    "summary",
    "trace_text",
    "values",
]

DISTRIBUTIONS = {"sequence-lengths": ("SE",), "steady": ("ST", "AR")}
"""Names of distributions, and the traces whose values make them."""

SHARES = (
    *(0.0, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4),
    *(0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99, 0.995, 0.9975, 0.999),
    1.0,
)
"""Shares at which a distribution is kept, denser at its ends, which the slowest of many replicas
depends on."""

SLOWED = 1.1
"""A GPU that takes so many times the median of its stage in the mean of all steps was slowed.

The traces have GPUs up to 1.01 times, and one that takes 2.4 times."""

_SOURCE = "ByteDance-Seed/StragglerAnalysis@8efcd7f37f158af26ac64d0b6fbf1f22d28a6e83"
_SOURCES = {name: f"{_SOURCE}:data/trace-{name}.parquet" for name in ("SE", "ST", "AR")}
_LICENCE = "Apache-2.0"
_PASSES = ("forward-compute", "backward-compute")

Floats = NDArray[np.float64]


class Trace(NamedTuple):
    """A trace: what each GPU computed in each step.

    Parameters
    ----------
    name, cause : as the source calls it, and why its job was slow
    passes_s : by forward and backward pass, step, replica and stage: sum of all micro-batches [s]
    longest_s : the same of the longest micro-batch [s]
    micro_batches : of a step
    span_s : whole steps [s]
    """

    name: str
    cause: str
    passes_s: Floats
    longest_s: Floats
    micro_batches: int
    span_s: Floats

    @property
    def computed_s(self) -> Floats:
        """What each GPU computed, by step, replica and stage [s]."""
        return self.passes_s.sum(axis=0)

    @property
    def changing_s(self) -> Floats:
        """The same, each GPU brought to the median of its stage in the mean of all steps [s]."""
        levels = self.computed_s.mean(axis=0)
        return self.computed_s / levels * np.median(levels, axis=0)


def read_traces(path: Path) -> dict[str, Trace]:
    """Read the collected sums by step, replica, stage and operation."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["optype"] in _PASSES]
    found = {}
    for name in dict.fromkeys(row["trace"] for row in rows):
        own = [row for row in rows if row["trace"] == name]
        (cause,) = {row["cause"] for row in own}
        (micro_batches,) = {int(row["n"]) for row in own}
        steps = sorted({int(row["step"]) for row in own})
        replicas, stages = (1 + max(int(row[key]) for row in own) for key in ("dp_rank", "stage"))
        sums = np.full((2, 2, len(steps), replicas, stages), np.nan)
        for row in own:
            place = steps.index(int(row["step"])), int(row["dp_rank"]), int(row["stage"])
            sums[(slice(None), _PASSES.index(row["optype"]), *place)] = row["sum_s"], row["max_s"]
        if np.isnan(sums).any():
            raise ValueError(f"trace {name} lacks some of its replicas or stages")
        spans = {int(row["step"]): float(row["step_span_s"]) for row in own}
        span_s = np.array([spans[step] for step in steps])
        found[name] = Trace(name, cause, sums[0], sums[1], micro_batches, span_s)
    return found


def values(trace: Trace) -> Floats:
    """Return how many times as long as the mean a replica computes, by step and replica."""
    times = trace.changing_s.sum(axis=2)
    return 1.0 + _unbiased(times / times.mean(axis=1, keepdims=True) - 1.0)


def _unbiased(away: Floats) -> Floats:
    """Return deviations, by step and replica, whose variance is not too small."""
    steps, replicas = away.shape[:2]
    return away * np.sqrt(replicas / (replicas - 1) * steps / (steps - 1))


def distribution(name: str, found: Iterable[Floats]) -> MeasuredJitter:
    """Return the distribution of values, with a mean of 1."""
    pooled = np.concatenate([one.ravel() for one in found])
    made = MeasuredJitter(name, SHARES, tuple(np.quantile(pooled, SHARES).tolist()))
    off = made.mean - 1.0
    return made._replace(factors=tuple(round(factor - off, 5) for factor in made.factors))


def distributions(traces: dict[str, Trace]) -> dict[str, MeasuredJitter]:
    """Return every distribution, made of its traces."""
    return {
        name: distribution(name, [values(traces[trace]) for trace in used])
        for name, used in DISTRIBUTIONS.items()
    }


def summary(trace: Trace, drawn: MeasuredJitter) -> dict[str, str]:
    """Return what a trace shows, by column; ``drawn`` is the distribution made of it."""
    computed, changing = trace.computed_s, trace.changing_s
    steps, replicas, stages = computed.shape
    whole, own = computed.sum(axis=2), changing.sum(axis=2)
    relative = changing / changing.mean(axis=1, keepdims=True)
    by_stage = _unbiased(relative - 1.0).std(axis=(0, 1))
    slowed, share = _persistent(computed)
    levels = computed.mean(axis=0) / np.median(computed.mean(axis=0), axis=0)
    correlation = np.mean(
        [
            np.corrcoef(relative[..., one].ravel(), relative[..., other].ravel())[0, 1]
            for one, other in combinations(range(stages), 2)
        ]
    )
    return {
        "distribution": drawn.name,
        "trace": trace.name,
        "cause": trace.cause,
        "source": _SOURCES[trace.name],
        "licence": _LICENCE,
        "kind": "measured",
        "steps": str(steps),
        "replicas": str(replicas),
        "stages": str(stages),
        "micro_batches": str(trace.micro_batches),
        "spread": f"{values(trace).std():.4f}",
        "stage_spread_low": f"{by_stage.min():.4f}",
        "stage_spread_high": f"{by_stage.max():.4f}",
        "slowed_gpus": str(slowed),
        "slowed_times": f"{levels.max():.3f}" if slowed else "",
        "persistent_share": f"{share:.2f}",
        "stage_correlation": f"{correlation:.4f}",
        "micro_batch_ratio": f"{_micro_batch_ratio(trace):.2f}",
        "slowest": f"{_slowest(whole):.4f}",
        "slowest_changing": f"{_slowest(own):.4f}",
        "slowest_drawn": f"{drawn.slowest(replicas):.4f}",
    }


def _slowest(times: Floats) -> float:
    """Return the mean over steps of the slowest replica's time over the mean of all."""
    return float(np.mean(times.max(axis=1) / times.mean(axis=1)))


def _persistent(computed: Floats) -> tuple[int, float]:
    """Return how many GPUs were slowed, and the persistent share of the others' variance.

    Variance components of one-way analysis: GPUs of a stage differ by their means over all steps,
    less what the means of so many steps differ by chance.
    """
    steps = len(computed)
    slowed = 0
    within = between = 0.0
    free = 0
    for stage in range(computed.shape[2]):
        times = computed[..., stage]
        means = times.mean(axis=0)
        kept = times[:, means <= SLOWED * np.median(means)]
        slowed += times.shape[1] - kept.shape[1]
        relative = kept / kept.mean(axis=1, keepdims=True)
        own = relative.mean(axis=0)
        within += float(((relative - own) ** 2).sum()) / (steps - 1)
        between += float(((own - 1.0) ** 2).sum())
        free += kept.shape[1] - 1
    changing = within / free
    persistent = between / free - changing / steps
    return slowed, max(0.0, persistent / (persistent + changing))


def _micro_batch_ratio(trace: Trace) -> float:
    """Return how far above the mean the longest micro-batch is, over that of independent ones.

    Independent micro-batches vary by sqrt(n) times what their mean does (that of its replica in
    the step, over the other replicas), and the largest of n normal numbers is known. Mean of both
    passes and all stages.
    """
    count = trace.micro_batches
    sums, longest = trace.passes_s, trace.longest_s
    levels = sums.mean(axis=1, keepdims=True)
    changing = sums / levels
    relative = changing / changing.mean(axis=2, keepdims=True)
    above = (longest / (sums / count)).mean(axis=(1, 2)) - 1.0
    spread = np.stack([_unbiased(one - 1.0).std(axis=(0, 1)) for one in relative])
    return float(np.mean(above / (_largest_normal(count) * np.sqrt(count) * spread)))


def _largest_normal(count: int) -> float:
    """Return the mean of the largest of so many standard normal numbers, by its integral."""
    from scipy.stats import norm

    places = np.linspace(-8.0, 8.0, 16001)
    return float(np.trapezoid((places > 0) - norm.cdf(places) ** count, places))


def jitter_text(made: Sequence[MeasuredJitter], date: str) -> str:
    """Return the table of distributions."""
    lines = [
        f"# schema: {JITTER_SCHEMA}",
        "# title: How many times as long as the mean of all replicas a replica computes in a step",
        f"# source: {_SOURCE}, by trace in {Path(TRACE_FILE).name}",
        f"# licence: {_LICENCE}",
        "# kind: measured (quantiles; persistent differences of GPUs taken out, mean 1)",
        f"# date: {date}",
        "# notes: factor: what this share of all values does not exceed (ratio, no unit); straight"
        " between shares; python profiles/build/jitter_record.py",
        ",".join(JITTER_COLUMNS),
    ]
    for one in made:
        pairs = zip(one.shares, one.factors, strict=True)
        lines += [f"{one.name},{share:g},{factor:.5f}" for share, factor in pairs]
    return "\n".join(lines) + "\n"


def trace_text(rows: Iterable[dict[str, str]], date: str) -> str:
    """Return the table of traces."""
    lines = [
        f"# schema: {TRACE_SCHEMA}",
        "# title: What each trace shows of how replicas and GPUs differ",
        f"# source: {_SOURCE}",
        f"# date: {date}",
        "# notes: spread: one standard deviation over the mean, of a replica, and of a GPU among"
        " those of its stage (low, high: of all stages), persistent differences taken out;"
        " slowed_gpus take slowed_times the median of their stage; persistent_share: of the other"
        " GPUs' variance within their stage; stage_correlation: mean over pairs of stages;"
        " micro_batch_ratio: 1 where each micro-batch is drawn by itself; slowest: mean over steps"
        " of the slowest replica over the mean of all, as traced, without persistent differences,"
        " and of as many draws; all without unit",
        ",".join(TRACE_COLUMNS),
    ]
    lines += [",".join(row[column] for column in TRACE_COLUMNS) for row in rows]
    return "\n".join(lines) + "\n"


def check(traces: dict[str, Trace]) -> None:
    """Print the slowest of a step's replicas: as traced, and as drawn of other steps and traces."""
    made = distributions(traces)
    for name, used in DISTRIBUTIONS.items():
        for trace in (traces[one] for one in used):
            times, drawn = trace.changing_s, made[name].slowest(trace.computed_s.shape[1])
            print(f"{trace.name}, drawn of {name}: {drawn:.4f}")
            print(f"  sums of stages as traced   {_words(trace.computed_s.sum(axis=2))}")
            print(f"  without what is persistent {_words(times.sum(axis=2))}")
            for stage in range(times.shape[2]):
                print(f"  stage {stage} without it         {_words(times[..., stage])}")
    lengths = traces["SE"]
    whole = lengths.computed_s.sum(axis=2)
    steps, replicas = whole.shape
    for words, axis, part in (
        ("odd steps", 0, np.arange(steps) % 2 == 1),
        ("late steps", 0, np.arange(steps) >= steps // 2),
        ("odd replicas", 1, np.arange(replicas) % 2 == 1),
    ):
        for chosen, which in ((part, words), (~part, f"all but {words}")):
            one = distribution("", [np.compress(chosen, values(lengths), axis)])
            left = np.compress(~chosen, whole, axis)
            print(f"SE, drawn of {which}: {one.slowest(left.shape[1]):.4f}, others {_words(left)}")
    for name, other in (("ST", "AR"), ("AR", "ST")):
        left = traces[other].changing_s.sum(axis=2)
        one = distribution("", [values(traces[name])])
        print(f"{other}, drawn of {name}: {one.slowest(left.shape[1]):.4f}, {_words(left)}")
    pipelines = _pipelines_s(lengths)
    print(f"SE, pipelines of 1f1b of equal micro-batches: {_words(pipelines)}")
    waits = pipelines.max(axis=1) - pipelines.mean(axis=1)
    span, drawn = lengths.span_s.mean(), made["sequence-lengths"].slowest(replicas)
    even = span - waits.mean()
    print(
        f"SE, whole steps: {span:.3f} s, {even:.3f} s without waits for the slowest: measured"
        f" {span / even:.4f}, drawn {1 + (drawn - 1) * pipelines.mean() / even:.4f}"
    )


def _words(times: Floats) -> str:
    """Say how slow the slowest replica is, with the standard error over steps."""
    found = times.max(axis=1) / times.mean(axis=1)
    return f"{found.mean():.4f} +- {found.std(ddof=1) / np.sqrt(len(found)):.4f}"


def _pipelines_s(trace: Trace) -> Floats:
    """Return how long each replica's pipeline takes, by step and replica, micro-batches alike."""
    count = trace.micro_batches
    _, steps, replicas, _ = trace.passes_s.shape
    found = np.empty((steps, replicas))
    for step in range(steps):
        for replica in range(replicas):
            stages = [StageTimes(*times) for times in trace.passes_s[:, step, replica].T / count]
            found[step, replica] = pipeline_run("1f1b", [stages], count, 0.0).total_s
    return found


def main() -> None:
    """Write the tables, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, default=Path("profiles"))
    parser.add_argument("--date", default="")
    parser.add_argument("--check", action="store_true", help="judge on what was left out")
    options = parser.parse_args()
    traces = read_traces(options.data / "modern" / "stragglers_production.csv.gz")
    if options.check:
        check(traces)
        return
    if not options.date:
        parser.error("--date is needed")
    made = distributions(traces)
    rows = []
    for name, one in made.items():
        rows += [summary(traces[trace], one) for trace in DISTRIBUTIONS[name]]
        print(f"{name}: spread {one.spread:.4f}, mean {one.mean:.6f}")
    write_text(options.out / JITTER_FILE, jitter_text(list(made.values()), options.date))
    write_text(options.out / TRACE_FILE, trace_text(rows, options.date))


if __name__ == "__main__":
    main()
