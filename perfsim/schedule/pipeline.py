"""Lay out the micro-batches of one iteration over the stages of a pipeline, and time them.

A stage holds one chunk of the model, or several. Each micro-batch passes forward (F) through all
chunks and backward (B) through them again; zero-bubble schedules split the backward pass into the
gradient of the input (B), which the stage before waits for, and the gradients of the weights (W),
which nobody waits for. A schedule says in which order a stage runs its passes. `pipeline_run` times
the passes: each begins when its stage is free and its input has arrived.

============ ============================================================ =====================
schedule     order of stage i of p (from 0)                               source, section
============ ============================================================ =====================
gpipe        all forwards, then all backwards                             Huang et al. 2019
1f1b         p-i-1 forwards, then one forward one backward, then the rest Narayanan et al. 2021a
interleaved  2(p-i-1) + (v-1)p forwards of v chunks, then as 1f1b, micro- Narayanan et al. 2021b
             batches in groups of p by chunk
zb-h1        1f1b with W put off: at most p micro-batches held            Qi et al. 2024a, 2
zb-h2        2(p-i)-1 forwards before the first backward: 2p-1 held       Qi et al. 2024a, 2
zbv          two chunks; the second runs back from stage p-1 to stage 0:  Qi et al. 2024a, 6
             p micro-batches held
dualpipev    the chunks of zbv; in the main part a forward of one runs    DeepSeek-AI 2024, 3.2.1
             with a backward of the other: p + 1/2 held
============ ============================================================ =====================

In zero-bubble schedules the order of F and B is fixed. A W runs where the stage would wait for a
message, and where the next forward would hold more activations than the schedule allows; what is
left runs last. Two rules are tried, a W that fits the wait as a whole or by half, and the shorter
iteration is taken, as sail-sg's scheduler takes the best of four. Equal stages with free messages
end by the closed forms of the papers where W is no longer than F and B.

The order of DualPipeV fixes each W too: most run with their B. A forward and a backward that run
together begin once both inputs are there, send when both are over, and take as long as both; what
they hide of each other's messages among experts is not in the times of the passes. Where F, B less
W, and W of a chunk take as long, its bubble is (p-1)(tF + 2 tB - 3 tW), tB the whole backward pass.

Messages overlap with computation by default; a link carries one message at a time in each
direction, and the next may follow while the latency of the one before passes. With ``blocking`` a
message occupies its sender and its receiver, which begin it
together: so Megatron-LM runs plain 1F1B (``batch_isend_irecv`` and a device synchronisation), and
the interleaved schedule without ``overlap_p2p_comm``. (With it, Megatron-LM overlaps messages where
forwards alternate with backwards, and while the pipeline fills and drains only with
``overlap_p2p_comm_warmup_flush``; here they overlap everywhere.)

Left out: the optimizer's step and the exchange of gradients, the host's launches, links that share
a NIC. An activation counts as held until its W has run; some of it is free after its B.

References
----------
Huang et al. 2019, GPipe, NeurIPS; Narayanan et al. 2021a, Memory-Efficient Pipeline-Parallel DNN
Training, ICML (PipeDream-Flush); Narayanan et al. 2021b, SC21, arXiv 2104.04473, section 2.2;
Qi et al. 2024a, Zero Bubble Pipeline Parallelism, ICLR, arXiv 2401.10241; Qi et al. 2024b, arXiv
2405.15362. DeepSeek-AI 2024, DeepSeek-V3 Technical Report, arXiv 2412.19437, and
deepseek-ai/DualPipe@3da1bbea dualpipe/dualpipev.py, step; two inputs and two outputs together:
pytorch/pytorch, torch/distributed/pipelining/schedules.py, OVERLAP_F_B. Megatron-LM,
megatron/core/pipeline_parallel/schedules.py.

Examples
--------
Four stages and eight micro-batches; the bubble is (p-1)(tF+tB) = 9 s:

>>> stages = [StageTimes(1.0, 2.0, 1.0)] * 4
>>> run = pipeline_run("1f1b", [stages], 8, 0.0)
>>> run.total_s, run.in_flight.tolist()
(33.0, [4.0, 3.0, 2.0, 1.0])
>>> pipeline_run("zb-h1", [stages], 8, 0.0).total_s
27.0
>>> halves = [StageTimes(0.5, 1.0, 0.5)] * 4
>>> pipeline_run("interleaved", [halves, halves], 8, 0.0).total_s
28.5
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate, pairwise
from math import inf
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfsim.models.split import FOLDED, SPLIT_BACKWARD, ZERO_BUBBLE, check_schedule
from perfsim.sums import sum_in_order

__all__ = [
    "PassKind",
    "PipelinePass",
    "PipelineRun",
    "StageTimes",
    "pipeline_run",
]

PassKind = Literal["F", "B", "W"]

Floats = NDArray[np.float64]

Integers = NDArray[np.int64]

_KINDS: tuple[PassKind, ...] = ("F", "B", "W")

_FILLS = (1.0, 0.5)
"""The share of a W that must fit into a wait, by rule (see the module's docstring)."""

_SAME_TIME = 1e-9
"""Two times are one where they differ by less than this share of a pass."""

_NO_PERIOD = -(2**31)
"""Stands for the period of what is no pass."""

_MAX_KEPT_PASSES = 50_000
"""Programs of more passes, some 8 MB, are made anew for each run."""

_FEW_GROUPS = 3
"""Periods of the interleaved schedule after which to look whether they repeat."""

_STEADY = 1e-11
"""A period repeats the one before where no pass moved by more than this share of the period."""


class StageTimes(NamedTuple):
    """Times of one chunk of one stage, for one micro-batch [s].

    Parameters
    ----------
    forward_s : the forward pass
    backward_s : the whole backward pass: gradients of the input and of the weights
    weights_s : the part of ``backward_s`` that computes gradients of the weights
    """

    forward_s: float
    backward_s: float
    weights_s: float = 0.0


class PipelinePass(NamedTuple):
    """One pass of a micro-batch through a chunk of a stage.

    Parameters
    ----------
    kind : F forward, B backward, W gradients of the weights where they are put off
    """

    stage: int
    chunk: int
    micro_batch: int
    kind: PassKind
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, eq=False)
class PipelineRun:
    """One iteration of a pipeline: when its stages compute. Arrays are by stage.

    Parameters
    ----------
    schedule, stages, chunks, micro_batches : what ran
    total_s : from the start to the end of the last pass of all stages [s]
    starts_s, ends_s : of the first and of the last pass of each stage [s]
    busy_s : time in passes [s]
    idle_s : time without a pass from the start of the iteration to ``ends_s`` [s]; messages that
        block the stage are idle time
    chunk_backward_starts_s, chunk_backward_ends_s : by chunk and stage: the pass that makes the
        gradients of the chunk's weights final: the last micro-batch's backward, W where it is split
    in_flight : the most activations held at once, in micro-batches of the whole stage (a chunk
        counts 1/v); held from the forward pass to the end of the backward pass, W where it is split
    """

    schedule: str
    stages: int
    chunks: int
    micro_batches: int
    total_s: float
    starts_s: Floats
    ends_s: Floats
    busy_s: Floats
    idle_s: Floats
    chunk_backward_starts_s: Floats
    chunk_backward_ends_s: Floats
    in_flight: Floats
    _replay: Callable[[], Iterator[PipelinePass]]

    @property
    def period_s(self) -> float:
        """Return the least time between two iterations whose stages wait for each other no more.

        A stage then begins the next iteration when its own passes are over, which zero-bubble
        schedules count on; with a barrier between iterations the time is ``total_s``.
        """
        return float((self.ends_s - self.starts_s).max())

    def passes(self) -> list[PipelinePass]:
        """Return all passes, by stage and in the order in which each stage runs them."""
        return list(self._replay())


def pipeline_run(
    schedule: str,
    chunks: Sequence[Sequence[StageTimes]],
    micro_batches: int,
    send_s: float | Sequence[float],
    *,
    latency_s: float = 0.0,
    blocking: bool = False,
) -> PipelineRun:
    """Time one iteration of a pipeline.

    Parameters
    ----------
    chunks : times by chunk and stage: one chunk, two of ``zbv`` and ``dualpipev`` (the second runs
        back from the last stage to the first), two or more of ``interleaved`` (each runs from the
        first to the last)
    send_s : a message between neighbouring stages [s], in both directions; one number, or one by
        boundary (``interleaved``: then from the last stage to the first)
    latency_s : the part of each message's time in which its link is free for the next [s]
    blocking : whether a message occupies both stages (see the module's docstring)

    Examples
    --------
    Four stages and 16 micro-batches take 57 s with free messages. Messages of 0.1 s beside
    computation cost GPipe only the filling and draining; 1F1B, which holds no more micro-batches
    than it needs, waits for them all along:

    >>> stages = [StageTimes(1.0, 2.0)] * 4
    >>> [round(pipeline_run(one, [stages], 16, 0.1).total_s, 6) for one in ("gpipe", "1f1b")]
    [57.6, 59.8]
    >>> round(pipeline_run("1f1b", [stages], 16, 0.1, blocking=True).total_s, 6)
    60.5
    """
    times = _times(chunks, send_s, latency_s, schedule)
    request = _Request(schedule, len(chunks[0]), len(chunks), micro_batches, blocking)
    check_schedule(schedule, request.stages, request.chunks, micro_batches)
    if blocking and schedule in SPLIT_BACKWARD:
        raise ValueError(f"{schedule} sends beside computation: nobody runs it with blocking sends")
    if schedule in ZERO_BUBBLE:
        fill, finished = _least([(fill, _finished(request, times, fill)) for fill in _FILLS])
    elif schedule == "gpipe" and request.stages > 1 and not blocking:
        fill, finished = 0.0, _finished_gpipe(request, times)
    else:
        fill, finished = 0.0, _finished(request, times)
    count = 2 * len(times.weights)
    through = np.array(times.passes[:count]).reshape(len(chunks), -1, 2).sum(axis=(0, 2))
    weights = np.array(times.weights).reshape(len(chunks), -1)
    busy = (through + weights.sum(axis=0)) * micro_batches
    return PipelineRun(
        schedule=schedule,
        stages=request.stages,
        chunks=request.chunks,
        micro_batches=micro_batches,
        total_s=float(finished.ends_s.max()),
        starts_s=finished.starts_s,
        ends_s=finished.ends_s,
        busy_s=busy,
        # Sums of many times in different orders: no idle time is below 0.
        idle_s=np.maximum(finished.ends_s - busy, 0.0),
        chunk_backward_starts_s=finished.final_starts_s,
        chunk_backward_ends_s=finished.final_ends_s,
        in_flight=np.array(finished.held) / request.chunks,
        _replay=partial(_replayed, request, times, fill),
    )


class _Request(NamedTuple):
    """What is run."""

    schedule: str
    stages: int
    chunks: int
    micro_batches: int
    blocking: bool

    def program(self, micro_batches: int) -> _Program:
        """Return the program for a number of micro-batches."""
        kept = 2 * self.chunks * self.stages * micro_batches <= _MAX_KEPT_PASSES
        make = _program if kept else _program.__wrapped__
        return make(self.schedule, self.stages, self.chunks, micro_batches, self.blocking)

    def limit(self) -> int:
        """Return the most chunks that a zero-bubble schedule holds on a stage."""
        if self.schedule == "zb-h2":
            return 2 * self.stages - 1
        return self.stages * self.chunks


class _Finished(NamedTuple):
    """When stages begin and end, and their last backward passes by chunk [s]; chunks held."""

    starts_s: Floats
    ends_s: Floats
    final_starts_s: Floats
    final_ends_s: Floats
    held: list[int]


def _least(runs: Sequence[tuple[float, _Finished]]) -> tuple[float, _Finished]:
    """Return the run that ends first; of several, the one whose stages are done soonest."""
    shortest = min(float(run.ends_s.max()) for _, run in runs) * (1 + _SAME_TIME)
    kept = [one for one in runs if one[1].ends_s.max() <= shortest]
    return min(kept, key=lambda one: float((one[1].ends_s - one[1].starts_s).max()))


# --- Times by pass and by message ---------------------------------------------------------------


class _Times(NamedTuple):
    """The times of one request, as the loops below look them up [s].

    Parameters
    ----------
    passes : of a pass (chunk, stage, kind) at 2 (chunk stages + stage) + kind; then those of whole
        backward passes and of Ws (chunk, stage) at chunk stages + stage; last 0.0, for none
    weights : of a W at chunk stages + stage
    messages : of link l at 2 l + 1 (one way) and 2 l + 2 (the other); first 0.0, for none
    latencies : the part of each message's time in which its link is free for the next
    """

    passes: list[float]
    weights: list[float]
    messages: list[float]
    latencies: list[float]

    @property
    def carried(self) -> list[float]:
        """How long each message has its link."""
        pairs = zip(self.messages, self.latencies, strict=True)
        return [whole - latency for whole, latency in pairs]


def _times(
    chunks: Sequence[Sequence[StageTimes]],
    send_s: float | Sequence[float],
    latency_s: float,
    schedule: str,
) -> _Times:
    """Return the times of a request, checked."""
    stages = len(chunks[0]) if chunks else 0
    if not stages or any(len(chunk) != stages for chunk in chunks):
        raise ValueError("every chunk needs times of the same stages, one or more")
    split = schedule in ZERO_BUBBLE or (schedule in SPLIT_BACKWARD and stages > 1)
    passes: list[float] = []
    weights: list[float] = []
    for chunk in chunks:
        for forward, backward, weight in chunk:
            passes += (float(forward), float(backward - weight if split else backward))
            weights.append(float(weight) if split else 0.0)
    links = stages if schedule == "interleaved" and stages > 1 else stages - 1
    sends = (
        [float(send_s)] * links if isinstance(send_s, (int, float)) else list(map(float, send_s))
    )
    if len(sends) != links:
        raise ValueError(f"{links} links between stages, but {len(sends)} times of messages")
    messages = [0.0, *(one for one in sends for _ in range(2))]
    latencies = [min(float(latency_s), one) for one in messages]
    every = passes + weights + messages + latencies
    if not (min(every) >= 0.0 and sum_in_order(every) < inf):
        raise ValueError("times must be finite, 0 or more, and weights_s within backward_s")
    whole = [float(backward) for chunk in chunks for _, backward, _ in chunk]
    return _Times([*passes, *whole, *weights, 0.0], weights, messages, latencies)


# --- Orders -------------------------------------------------------------------------------------


def _levels(schedule: str, stages: int, chunks: int, micro_batches: int) -> Integers:
    """Return the level of each forward and backward pass: by kind, chunk, stage and micro-batch.

    Levels are whole numbers. A stage runs its passes by rising level, and a pass has a higher level
    than the one that its input comes from, so that levels alone are the schedule. Those of ZBV are
    when passes begin where F, B and W of a chunk take 1 and messages nothing.
    """
    level = np.empty((2, chunks, stages, micro_batches), dtype=np.int64)
    stage = np.arange(stages)[:, None]
    number = np.arange(micro_batches)
    if stages == 1:  # no pipeline: each micro-batch through all chunks and back
        level[0, :, 0] = number * 2 * chunks + np.arange(chunks)[:, None]
        level[1, :, 0] = number * 2 * chunks + np.arange(2 * chunks - 1, chunks - 1, -1)[:, None]
    elif schedule == "zbv":
        first, last = 2 * (stages - stage) - 1, 2 * stages - 1 - stage
        level[0, 0] = np.where(
            number < first,
            stage + number,
            np.where(
                number < last,
                2 * number - 2 * stages + 3 * stage + 2,
                6 * number - 7 * stages + 4 * stage + 5,
            ),
        )
        level[0, 1] = np.where(
            number < stage,
            2 * number + last,
            np.where(
                number < stages,
                3 * number + 2 * stages - 1 - 2 * stage,
                6 * number - stages + 2 - 2 * stage,
            ),
        )
        level[1, 1] = np.where(
            number < stages - stage,
            3 * number + 2 * stages + stage,
            6 * number - stages + 4 * stage + 3,
        )
        level[1, 0] = 6 * number + 5 * stages - 2 * stage
    else:
        # Forward number n of a stage stands at 2n + slope stage; backward number n follows the
        # forward that comes ``filling`` later. Groups of micro-batches go chunk by chunk.
        filling = np.array(_fillings(schedule, stages, chunks, micro_batches))[:, None]
        slope = 2 if schedule in {"interleaved", "zb-h2"} else 1
        groups, member = np.divmod(number, _group(schedule, stages))
        for chunk in range(chunks):
            turn = (groups * chunks + chunk) * _group(schedule, stages) + member
            level[0, chunk] = 2 * turn + slope * stage
            level[1, chunks - 1 - chunk] = 2 * (turn + filling) + slope * stage + 1
    return level


def _fillings(schedule: str, stages: int, chunks: int, micro_batches: int) -> list[int]:
    """Return how many forwards each stage runs before those that alternate with backwards.

    More than there are, if all come first; not for ZBV.
    """
    after = range(stages - 1, -1, -1)
    if schedule == "gpipe":
        return [micro_batches + more for more in after]
    if schedule == "interleaved":
        return [2 * more + (chunks - 1) * stages for more in after]
    return [(2 if schedule == "zb-h2" else 1) * more for more in after]


def _group(schedule: str, stages: int) -> int:
    """Return by how many micro-batches a period of the order moves on."""
    return stages if schedule == "interleaved" else 1


class _Steady(NamedTuple):
    """What repeats in the order of each stage.

    Parameters
    ----------
    starts : the place in each stage's order at which the first period begins
    length : passes of a period
    periods : that all stages repeat
    """

    starts: list[int]
    length: int
    periods: int


def _steady(schedule: str, stages: int, chunks: int, micro_batches: int) -> _Steady:
    """Return what repeats of a schedule."""
    if stages == 1:
        return _Steady([0], 2 * chunks, micro_batches)
    if schedule == "dualpipev":
        starts = [5 * stages - 3 * stage - 3 for stage in range(stages)]
        return _Steady(starts, 4, max(micro_batches - 2 * stages + 1, 0))
    if schedule == "zbv":
        starts = [4 * stages - 2 * stage - 1 for stage in range(stages)]
        return _Steady(starts, 4, max(micro_batches - 2 * stages + 1, 0))
    count = micro_batches * chunks
    starts = [min(one, count) for one in _fillings(schedule, stages, chunks, micro_batches)]
    turns = _group(schedule, stages) * chunks
    return _Steady(starts, 2 * turns, (count - starts[0]) // turns)


class _Source(NamedTuple):
    """Where a pass's input comes from: a chunk of another stage, by one way of a link."""

    stage: int
    chunk: int
    way: int


_Place = tuple[int, int, int]
"""Kind, chunk and stage of a pass."""


def _sources(schedule: str, stages: int, chunks: int) -> dict[_Place, _Source]:
    """Return where the input of each kind of pass comes from, if from another stage.

    The model goes down the stages, and again from the first for each chunk; the second chunk of a
    folded one goes back up. Links are numbered by the stage above them; the last closes the ring.
    """
    places = [(chunk, stage) for chunk in range(chunks) for stage in range(stages)]
    if schedule in FOLDED:
        places[stages:] = [(1, stage) for stage in reversed(range(stages))]
    found = {}
    for (chunk, stage), (chunk_below, below) in pairwise(places):
        if stage == below:
            continue
        one, other = 2 * stage + 1, 2 * stage + 2
        if schedule in FOLDED and stage > below:
            one, other = 2 * below + 2, 2 * below + 1
        found[0, chunk_below, below] = _Source(stage, chunk, one)
        found[1, chunk, stage] = _Source(below, chunk_below, other)
    return found


# --- Programs: orders with what each pass waits for, ready to be timed ----------------------------


_Rows = tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int]]
"""Columns of the rows that the loops read."""


@dataclass(frozen=True, slots=True, eq=False)
class _Program:
    """The passes of a schedule, ready to be timed.

    A program times nodes, numbered from 1 in an order in which each follows what it waits for;
    number 0 is the start of the iteration.

    Parameters
    ----------
    rows : what the loops read of nodes, in four columns: see `_overlapped_rows`, `_blocking_rows`
    numbers : of the passes, by kind, chunk, stage and micro-batch
    orders : numbers of the passes, by stage and place in its order; where a stage has fewer than
        others, its last one again
    queued : the place of the last micro-batch's backward pass among the backward passes of its
        stage, by chunk and stage
    held : the most chunks between forward and the end of backward, by stage
    finals : numbers of the passes that make the gradients of weights final, by chunk and stage
    steady : numbers of the passes, by stage, period and place in it
    reach : so many periods back a pass may wait for another
    """

    rows: _Rows
    numbers: Integers
    orders: Integers
    queued: Integers
    held: list[int]
    finals: Integers
    steady: Integers
    reach: int


@lru_cache(maxsize=32)  # depends on its arguments alone
def _program(
    schedule: str, stages: int, chunks: int, micro_batches: int, blocking: bool
) -> _Program:
    """Return the program of a schedule."""
    if schedule == "dualpipev" and stages > 1:
        return _together_program(schedule, stages, micro_batches)
    shape = (2, chunks, stages, micro_batches)
    level = _levels(schedule, stages, chunks, micro_batches)
    turn = np.argsort((level * stages + np.arange(stages)[:, None]).ravel())
    by_stage = np.argsort(np.unravel_index(turn, shape)[2], kind="stable")
    order = turn[by_stage].reshape(stages, -1)  # flat indices of passes, by stage in its order
    sources = _sources(schedule, stages, chunks)
    starts, length, periods = _steady(schedule, stages, chunks, micro_batches)
    if blocking:
        made = _blocking_rows(order.tolist(), shape, sources, schedule, starts)
    else:
        made = _overlapped_rows(turn, shape, sources)
    rows, waits, numbers = made
    orders = numbers.ravel()[order]
    backward = order >= numbers.size // 2
    queued = [
        np.searchsorted(orders[stage, backward[stage]], numbers[1, :, stage, -1])
        for stage in range(stages)
    ]
    steady = [
        row[start : start + periods * length] for row, start in zip(orders, starts, strict=True)
    ]
    period = np.full(len(rows[0]) + 1, _NO_PERIOD)
    period[orders] = (np.arange(orders.shape[1]) - np.array(starts)[:, None]) // length
    return _Program(
        rows=rows,
        numbers=numbers,
        orders=orders,
        queued=np.array(queued).T,
        held=np.where(backward, -1, 1).cumsum(axis=1).max(axis=1).tolist(),
        finals=numbers[1, :, :, -1],
        steady=np.array(steady, dtype=np.int64).reshape(stages, periods, length),
        reach=_reach(period, waits, periods),
    )


class _Step(NamedTuple):
    """A pass in the order of a stage: its kind, its chunk, whether a backward pass has its W."""

    kind: PassKind
    chunk: int
    whole: bool = False


def _dualpipev_order(stage: int, stages: int, micro_batches: int) -> list[tuple[_Step, ...]]:
    """Return the passes of a stage of DualPipeV in its order; those of a tuple run together.

    Passes of a kind and chunk come by rising micro-batch. A W is that of the first B whose W has
    not run; its chunk is that of the B.
    """
    early, both = stages - stage - 1, stage + 1
    down, up = _Step("F", 0), _Step("F", 1)
    queue: list[int] = []
    order: list[tuple[_Step, ...]] = [*[(down,)] * (2 * early), *[(down,), (up,)] * both]

    def backward(chunk: int, *, whole: bool) -> _Step:
        if not whole:
            queue.append(chunk)
        return _Step("B", chunk, whole)

    def weights() -> _Step:
        return _Step("W", queue.pop(0))

    for _ in range(early):
        order += [(backward(1, whole=False),), (weights(),), (up,)]
    for number in range(micro_batches - 2 * stages + both):
        if number == 0 and stage == stages - 1:  # the turn: apart, it waits less
            order += [(down,), (backward(1, whole=True),)]
        else:
            order.append((down, backward(1, whole=True)))
        order.append((up, backward(0, whole=True)))
    for _ in range(early):
        order += [(backward(1, whole=True),), (up, backward(0, whole=True))]
    first = both // 2 * 2 + 1 - stage % 2  # from which of these backward passes on W is put off
    for number in range(2 * both):
        order.append((backward(1 - number % 2, whole=number < first),))
    for _ in range(early):
        order += [(weights(),), (backward(0, whole=False),)]
    order += [(weights(),) for _ in range(both)]
    return order


class _Together:
    """The nodes of a schedule that fixes its Ws and runs some passes together, as they are added.

    Besides passes there are nodes without time: one before passes that run together waits for the
    inputs of all but the first; those behind send what all but the last put out. Arrays of numbers
    are by kind, chunk, stage and micro-batch.
    """

    def __init__(self, schedule: str, stages: int, micro_batches: int) -> None:
        shape = (3, 2, stages, micro_batches)
        self.stages = stages
        self.sources = _sources(schedule, stages, 2)
        self.ways = {(kind, s.chunk, s.stage): s.way for (kind, *_), s in self.sources.items()}
        self.rows: list[tuple[int, int, int, int]] = []
        self.waits: list[tuple[int, int]] = []
        self.numbers, self.sent = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.orders: list[list[int]] = [[] for _ in range(stages)]
        self.held: list[list[int]] = [[] for _ in range(stages)]  # chunks more, by pass
        self._latest = [0] * stages
        self._done = np.zeros(shape[:3], np.int64)

    def run(self, stage: int, steps: tuple[_Step, ...]) -> bool:
        """Add passes that run together; False while the input of one has not been sent."""
        inputs = [self._input(step, stage) for step in steps]
        if None in inputs:
            return False
        for source in inputs[1:]:
            if source:
                self._add(stage, source, 0, -1)
        later: list[tuple[tuple[int, int, int, int], int]] = []
        for at, step in enumerate(steps, start=1):
            place = _KINDS.index(step.kind), step.chunk, stage
            own = (*place, int(self._done[place]))
            way = self.ways.get(place, 0)
            source, last = (inputs[0] or 0) if at == 1 else 0, at == len(steps)
            number = self._add(stage, source, way if last else 0, self._time(step, stage))
            self.numbers[own] = self.sent[own] = number
            self._done[place] += 1
            if step.whole:  # its W is a part of it
                weights = (2, step.chunk, stage)
                self.numbers[(*weights, int(self._done[weights]))] = number
                self._done[weights] += 1
            if way and not last:
                later.append((own, way))
            self.orders[stage].append(number)
            self.held[stage].append(1 if step.kind == "F" else -int(step.whole or place[0] == 2))
        for own, way in later:
            self.sent[own] = self._add(stage, 0, way, -1)
        return True

    def steady(self, periods: int) -> Integers:
        """Return the numbers of the nodes that repeat, by stage, period and place in it."""
        found = np.empty((self.stages, periods, 6), np.int64)
        for stage in range(self.stages):
            before = self.stages - stage - 1
            firsts = ((0, 0, self.stages + before), (1, 1, before), (0, 1, self.stages), (1, 0, 0))
            columns = []
            for kind, chunk, first in firsts:
                own = kind, chunk, stage, slice(first, first + periods)
                columns += [self.numbers[own]] if kind else [self.numbers[own], self.sent[own]]
            found[stage] = np.array(columns).T
        return found

    def _input(self, step: _Step, stage: int) -> int | None:
        """Return the number of the node that sends a pass its input; 0: none; None: not yet."""
        place = _KINDS.index(step.kind), step.chunk, stage
        source = self.sources.get(place)
        if source is None:
            return 0
        sent = self.sent[place[0], source.chunk, source.stage, self._done[place]]
        return int(sent) or None

    def _add(self, stage: int, source: int, way: int, time: int) -> int:
        self.rows.append((stage, source, way, time))
        self.waits.append((source, self._latest[stage]))
        self._latest[stage] = len(self.rows)
        return len(self.rows)

    def _time(self, step: _Step, stage: int) -> int:
        """Return the index of a pass's time (see `_Times`)."""
        own, count = step.chunk * self.stages + stage, 2 * self.stages
        if step.kind == "W":
            return 3 * count + own
        return 2 * count + own if step.whole else 2 * own + _KINDS.index(step.kind)


def _together_program(schedule: str, stages: int, micro_batches: int) -> _Program:
    """Return the program of a schedule that fixes its Ws and runs some passes together."""
    made = _Together(schedule, stages, micro_batches)
    left = [_dualpipev_order(stage, stages, micro_batches)[::-1] for stage in range(stages)]
    while any(left):
        for stage, steps in enumerate(left):
            while steps and made.run(stage, steps[-1]):
                steps.pop()
    starts, length, periods = _steady(schedule, stages, 2, micro_batches)
    period = np.full(len(made.rows) + 1, _NO_PERIOD)
    for order, start in zip(made.orders, starts, strict=True):
        period[order] = (np.arange(len(order)) - start) // length
    owns, sources, ways, times = zip(*made.rows, strict=True)
    most = max(map(len, made.orders))
    return _Program(
        rows=(owns, sources, ways, times),
        numbers=made.numbers,
        orders=np.array([one + one[-1:] * (most - len(one)) for one in made.orders]),
        queued=np.empty(0, np.int64),
        held=[max(accumulate(one)) for one in made.held],
        finals=made.numbers[2, :, :, -1],
        steady=made.steady(periods),
        reach=_reach(period, np.array(made.waits), periods),
    )


def _reach(period: Integers, waits: Integers, periods: int) -> int:
    """Return how many periods back a pass may wait for another.

    Parameters
    ----------
    period : by number; `_NO_PERIOD` of a node that is no pass, which gets that of what it waits for
    waits : the numbers that each node waits for; 0 where fewer
    """
    for number in np.flatnonzero(period[1:] == _NO_PERIOD) + 1:
        before = waits[number - 1]
        period[number] = min(period[before[before > 0]])
    own = np.broadcast_to(period[1:, None], waits.shape)
    back = (own - period[waits])[(waits > 0) & (own >= 0) & (own < periods)]
    return max(int(back.max(initial=1)), 1)


def _overlapped_rows(
    turn: Integers, shape: tuple[int, ...], sources: Mapping[_Place, _Source]
) -> tuple[_Rows, Integers, Integers]:
    """Return rows of passes whose messages go beside computation, what they wait for, numbers.

    A row is the stage, the number of the input's pass, the way of the output, the index of the
    pass's time; input and way are 0 where there is none.
    """
    numbers = np.empty(shape, dtype=np.int64)
    numbers.ravel()[turn] = np.arange(1, turn.size + 1)
    inputs = np.zeros_like(numbers)
    ways = np.zeros_like(numbers)
    for (kind, chunk, stage), source in sources.items():
        inputs[kind, chunk, stage] = numbers[kind, source.chunk, source.stage]
        ways[kind, source.chunk, source.stage] = source.way
    kinds, chunks, stages, _ = np.unravel_index(turn, shape)
    waits = inputs.ravel()[turn]
    rows = (
        stages.tolist(),
        waits.tolist(),
        ways.ravel()[turn].tolist(),
        (2 * (chunks * shape[2] + stages) + kinds).tolist(),
    )
    return rows, waits[:, None], numbers


_Joint = tuple[tuple[int, ...], tuple[int, ...]]
"""Places of a stage's order whose outputs are sent, and whose inputs are received, together."""


def _exchanges(interleaved: bool, place: int, alternating: range, backward: bool) -> list[_Joint]:
    """Return the exchanges after a place of a stage's order, as Megatron-LM makes them.

    While the pipeline fills and drains, 1F1B (and GPipe) receives, computes and sends, one after
    the other; between, what goes to a neighbour goes together with what comes from it. The
    interleaved schedule sends and receives together: after each pass, between after each pair.

    Parameters
    ----------
    alternating : places where forwards alternate with backwards
    """
    after = place + 1
    if interleaved and place in alternating:
        ahead = (after, after + 1) if after in alternating else (after,)
        return [((place - 1, place), ahead)] if backward else []
    if interleaved and after == alternating.start and alternating:
        return [((place,), (after, after + 1))]
    if place in alternating and after in alternating:
        return [((place,), (after,))]
    if interleaved and after != alternating.start:
        return [((place,), (after,))]
    return [((place,), ()), ((), (after,))]


_Slot = tuple[int, int]
"""One side of a message: twice the index of the pass that waits for it, plus 1 on the sender's
side; and the link that it goes by."""


def _blocking_rows(
    orders: Sequence[Sequence[int]],
    shape: tuple[int, ...],
    sources: Mapping[_Place, _Source],
    schedule: str,
    starts: Sequence[int],
) -> tuple[_Rows, Integers, Integers]:
    """Return rows of passes whose messages block both stages, what they wait for, numbers.

    A message begins when both stages have come to it. A row is two numbers, of what the stage and
    its neighbour did before, the way of the message between them, and the index of the pass's time;
    rows that are no passes join messages.
    """
    _, chunks, stages, micro_batches = shape
    # By kind, chunk and stage as one number: links of inputs; who waits for the output, by which.
    into: dict[int, int] = {}
    out: dict[int, tuple[int, int]] = {}
    for (kind, chunk, stage), source in sources.items():
        receiver = (kind * chunks + chunk) * stages + stage
        link = source.way - 1 + source.way % 2  # both ways take the same time
        into[receiver] = link
        out[(kind * chunks + source.chunk) * stages + source.stage] = receiver, link
    every: list[list[int | list[_Slot]]] = []
    for order, start in zip(orders, starts, strict=True):
        items: list[int | list[_Slot]] = []
        blocks = [divmod(one, micro_batches) for one in order]
        alternating = range(start, len(order) - start)
        for place in range(-1, len(order)):
            joints: list[_Joint] = [((), (0,))]
            if place >= 0:
                items.append(order[place])
                backward = blocks[place][0] >= chunks * stages
                joints = _exchanges(schedule == "interleaved", place, alternating, backward)
            for sent, received in joints:
                slots = []
                for at in sent:
                    block, number = blocks[at]
                    if block in out:
                        receiver, link = out[block]
                        slots.append((2 * (receiver * micro_batches + number) + 1, link))
                for at in received:
                    if at < len(order) and blocks[at][0] in into:
                        slots.append((2 * order[at], into[blocks[at][0]]))
                if slots:
                    items.append(slots)
        every.append(items)
    return _rows_of_exchanges(every, shape)


def _rows_of_exchanges(
    every: Sequence[Sequence[int | list[_Slot]]], shape: tuple[int, ...]
) -> tuple[_Rows, Integers, Integers]:
    """Return the rows of `_blocking_rows` from each stage's passes and exchanges."""
    _, chunks, stages, micro_batches = shape
    rows: list[tuple[int, int, int, int]] = []
    numbers = [0] * (2 * chunks * stages * micro_batches)
    came = [-1] * (2 * len(numbers))
    place = [0] * stages
    before = [(0, 0, 0)] * stages

    def joined(row: tuple[int, int, int]) -> int:
        if not (row[1] or row[2]):
            return row[0]
        rows.append((*row, -1))
        return len(rows)

    def exchanged(stage: int, slots: list[_Slot]) -> bool:
        own = joined(before[stage])
        before[stage] = (own, 0, 0)
        for slot, _ in slots:
            came[slot] = own
        joining = {(own, came[slot ^ 1], link) for slot, link in slots}
        if any(other < 0 for _, other, _ in joining):
            return False
        while len(joining) > 1:
            one, other, *more = sorted(joining)
            joining = {(joined(one), joined(other), 0), *more}
        (before[stage],) = joining
        return True

    moved = True
    while moved:
        moved = False
        for stage, items in enumerate(every):
            while place[stage] < len(items):
                item = items[place[stage]]
                if isinstance(item, int):
                    kind, own = divmod(item // micro_batches, chunks * stages)
                    rows.append((*before[stage], 2 * own + kind))
                    numbers[item] = len(rows)
                    before[stage] = (len(rows), 0, 0)
                elif not exchanged(stage, item):
                    break
                place[stage] += 1
                moved = True
    owns, others, ways, times = zip(*rows, strict=True)
    return (owns, others, ways, times), np.array((owns, others)).T, np.array(numbers).reshape(shape)


# --- Timing -------------------------------------------------------------------------------------


class _Timed(NamedTuple):
    """When the passes of a program end.

    Parameters
    ----------
    ends_s : by number [s]
    arrives_s : when their messages arrive, by number [s]
    weights_s : when each stage's Ws end, in their order [s]
    filled : how many Ws the stage had run before the pass ended, by number
    held : the most chunks held at once, by stage
    """

    ends_s: list[float]
    arrives_s: list[float]
    weights_s: list[list[float]]
    filled: list[int]
    held: list[int]


def _overlapped(program: _Program, times: _Times) -> _Timed:
    """Time passes whose messages go beside computation, one at a time on each way of a link."""
    passes, carried, latencies = times.passes, times.carried, times.latencies
    free, sent = [0.0] * len(program.orders), [0.0] * len(carried)
    ends, arrives = [0.0], [0.0]
    for stage, source, way, time in zip(*program.rows, strict=True):
        end = free[stage]
        arrived = arrives[source]
        end = (arrived if arrived > end else end) + passes[time]
        free[stage] = end
        ends.append(end)
        if way:
            last = sent[way]
            sent[way] = end = (last if last > end else end) + carried[way]
            end += latencies[way]
        arrives.append(end)
    return _Timed(ends, arrives, [], [], program.held)


def _filled(program: _Program, times: _Times, fill: float, limit: int) -> _Timed:
    """Time passes as `_overlapped` does, and run the Ws that they leave between them.

    A W runs where the stage waits for at least ``fill`` of its time, and before a forward that
    would hold more than ``limit`` chunks; the rest runs last.
    """
    passes, weights, carried, latencies = (
        times.passes,
        times.weights,
        times.carried,
        times.latencies,
    )
    stages = len(program.orders)
    free, sent = [0.0] * stages, [0.0] * len(carried)
    held, most = [0] * stages, [0] * stages
    queues: list[list[float]] = [[] for _ in range(stages)]
    done: list[list[float]] = [[] for _ in range(stages)]
    ends, arrives, filled = [0.0], [0.0], [0]
    fill *= 1 - _SAME_TIME
    for stage, source, way, time in zip(*program.rows, strict=True):
        end = free[stage]
        queue, ran = queues[stage], done[stage]
        backward = time & 1
        if not backward:
            while held[stage] >= limit:
                end += queue[len(ran)]
                ran.append(end)
                held[stage] -= 1
        arrived = arrives[source]
        if arrived > end:
            while len(ran) < len(queue) and arrived - end > queue[len(ran)] * fill:
                end += queue[len(ran)]
                ran.append(end)
                held[stage] -= 1
        end = (arrived if arrived > end else end) + passes[time]
        if backward:
            queue.append(weights[time >> 1])
        else:
            held[stage] += 1
            most[stage] = max(most[stage], held[stage])
        free[stage] = end
        ends.append(end)
        filled.append(len(ran))
        if way:
            last = sent[way]
            sent[way] = end = (last if last > end else end) + carried[way]
            end += latencies[way]
        arrives.append(end)
    for last, queue, ran in zip(free, queues, done, strict=True):
        end = last
        for weight in queue[len(ran) :]:
            end += weight
            ran.append(end)
    return _Timed(ends, arrives, done, filled, most)


def _blocking(program: _Program, times: _Times) -> _Timed:
    """Time passes whose messages block both stages."""
    passes, messages = times.passes, times.messages
    ends = [0.0]
    for own, other, way, time in zip(*program.rows, strict=True):
        start, met = ends[own], ends[other]
        ends.append((start if start > met else met) + messages[way] + passes[time])
    return _Timed(ends, ends, [], [], program.held)


def _timed(request: _Request, program: _Program, times: _Times, fill: float) -> _Timed:
    """Time a program as the request says."""
    if request.schedule in ZERO_BUBBLE:
        return _filled(program, times, fill, request.limit())
    return _blocking(program, times) if request.blocking else _overlapped(program, times)


def _finished(request: _Request, times: _Times, fill: float = 0.0) -> _Finished:
    """Time a request; where its periods come to repeat, by fewer of them."""
    program, timed, later_s = _settled(request, times, fill)
    ends = np.array(timed.ends_s)
    last = ends[program.orders[:, -1]]
    finals = ends[program.finals]
    backward = np.array(times.passes)[np.array(program.rows[3])[program.finals - 1]]
    if timed.weights_s:
        backward = np.array(times.weights).reshape(request.chunks, -1)
        last = np.array([ran[-1] for ran in timed.weights_s])
        finals = np.array(
            [
                [ran[place] for ran, place in zip(timed.weights_s, row, strict=True)]
                for row in program.queued.tolist()
            ]
        )
    return _Finished(
        starts_s=ends[program.orders[:, 0]] - times.passes[: 2 * request.stages : 2],
        ends_s=last + later_s,
        final_starts_s=finals - backward + later_s,
        final_ends_s=finals + later_s,
        held=timed.held,
    )


def _settled(request: _Request, times: _Times, fill: float) -> tuple[_Program, _Timed, float]:
    """Time a request by as few micro-batches as tell; return by how much all end later [s].

    Passes begin at the latest of sums of times. So where all that later passes wait for ends by one
    time later than some periods before, all that follows does too, and periods that are left out
    take what those took.
    """
    schedule, stages, chunks, micro_batches, _ = request
    periods = _steady(schedule, stages, chunks, micro_batches).periods
    group = _group(schedule, stages)
    few = _FEW_GROUPS if group > 1 else 2 * stages + 4
    while periods >= 2 * few:
        left_out = periods - few
        left_out -= left_out % (1 if group > 1 else stages)  # messages may repeat every p periods
        program = request.program(micro_batches - left_out * group)
        timed = _timed(request, program, times, fill)
        found = _repetition(program, timed)
        if found is not None and left_out % found[0]:
            left_out -= left_out % found[0]
            program = request.program(micro_batches - left_out * group)
            timed = _timed(request, program, times, fill)
            found = _repetition(program, timed)
        if found is not None and left_out % found[0] == 0:
            return program, timed, left_out // found[0] * found[1]
        few *= 4
    program = request.program(micro_batches)
    return program, _timed(request, program, times, fill), 0.0


def _repetition(program: _Program, timed: _Timed) -> tuple[int, float] | None:
    """Return after how many periods all repeats, and how long those take [s]; None if not yet."""
    table, reach = program.steady, program.reach
    periods = table.shape[1]
    at = np.array([timed.ends_s, timed.arrives_s])[:, table]
    latest = at[:, :, periods - reach :]
    for step in range(1, periods - reach + 1):
        moved = latest - at[:, :, periods - reach - step : periods - step]
        growth = float(moved[0, 0, 0, 0])
        if np.abs(moved - growth).max() > _STEADY * growth:
            continue
        if timed.filled:
            ran = np.array(timed.filled)[table]
            more = ran[:, periods - reach :] - ran[:, periods - reach - step : periods - step]
            if (more != step * table.shape[2] // 2).any():
                continue
        return step, growth
    return None


def _finished_gpipe(request: _Request, times: _Times) -> _Finished:
    """Time GPipe with messages beside computation, all micro-batches of a stage at once.

    A row of passes of one length a ends, by micro-batch k, at the latest of (k - j + 1) a after
    pass j may begin.
    """
    count = np.arange(request.micro_batches)

    def row(ready_s: Floats | float, each_s: float) -> Floats:
        ends: Floats = np.maximum.accumulate(ready_s - count * each_s) + (count + 1) * each_s
        return ends

    stages, carried, latencies = range(request.stages), times.carried, times.latencies
    ends: list[list[Floats]] = []
    arrives: Floats | float = 0.0
    for stage in stages:
        forward = row(arrives, times.passes[2 * stage])
        way = 2 * stage + 1
        arrives = row(forward, carried[way]) + latencies[way] if stage < stages[-1] else 0.0
        ends.append([forward])
    for stage in reversed(stages):
        forward = ends[stage][0]
        backward = row(np.maximum(arrives, forward[-1]), times.passes[2 * stage + 1])
        arrives = row(backward, carried[2 * stage]) + latencies[2 * stage]
        ends[stage].append(backward)
    last = np.array([backward[-1] for _, backward in ends])
    final = np.array([last])
    passes = np.array(times.passes[: 2 * request.stages])
    return _Finished(
        starts_s=np.array([forward[0] for forward, _ in ends]) - passes[::2],
        ends_s=last,
        final_starts_s=final - passes[1::2],
        final_ends_s=final,
        held=[request.micro_batches] * request.stages,
    )


def _replayed(request: _Request, times: _Times, fill: float) -> Iterator[PipelinePass]:
    """Time all passes of a request one by one; return them by stage, in its order."""
    program = request.program(request.micro_batches)
    timed = _timed(request, program, times, fill)
    index = np.empty(len(program.rows[0]) + 1, dtype=np.int64)
    whole = range(2 * len(times.weights), 3 * len(times.weights))
    # A W that is part of its B has the number of the B, as which it counts.
    index[program.numbers.ravel()[::-1]] = np.arange(program.numbers.size)[::-1]
    for stage, padded in enumerate(program.orders):
        order = padded[: int(padded.argmax()) + 1]
        steps = np.array(np.unravel_index(index[order], program.numbers.shape)).T.tolist()
        weights = []
        if timed.weights_s:
            queue = (step for step in steps if step[0])
            for (_, chunk, _, micro_batch), end in zip(queue, timed.weights_s[stage], strict=True):
                start = end - times.weights[chunk * request.stages + stage]
                weights.append(PipelinePass(stage, chunk, micro_batch, "W", start, end))
        done = 0
        for (kind, chunk, _, micro_batch), number in zip(steps, order.tolist(), strict=True):
            if weights:
                yield from weights[done : timed.filled[number]]
                done = timed.filled[number]
            end, time = timed.ends_s[number], program.rows[3][number - 1]
            start = end - times.passes[time]
            if time in whole:  # its W, which is a part of it, is shown as if it came last
                weight = times.weights[time - whole.start]
                yield PipelinePass(stage, chunk, micro_batch, "B", start, end - weight)
                yield PipelinePass(stage, chunk, micro_batch, "W", end - weight, end)
                continue
            yield PipelinePass(stage, chunk, micro_batch, _KINDS[kind], start, end)
        yield from weights[done:]
