"""Laws of pipelines: what holds for stages and messages of any times, and for any counts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim.models.split import FOLDED, SCHEDULES, SPLIT_BACKWARD
from perfsim.schedule.pipeline import (
    PipelinePass,
    PipelineRun,
    StageTimes,
    pipeline_run,
)

FIXED = ("gpipe", "1f1b", "interleaved")
ZERO_BUBBLE = ("zb-h1", "zb-h2", "zbv")
CLOSE = 1e-9


class Asked(NamedTuple):
    """The arguments of a run."""

    schedule: str
    chunks: list[list[StageTimes]]
    micro_batches: int
    sends: list[float]
    blocking: bool = False

    @property
    def stages(self) -> int:
        """Return how many stages run."""
        return len(self.chunks[0])

    def run(self) -> PipelineRun:
        """Return the run that is asked for."""
        return pipeline_run(
            self.schedule, self.chunks, self.micro_batches, self.sends, blocking=self.blocking
        )


def least_count(schedule: str, stages: int) -> int:
    """Return the fewest micro-batches that a schedule runs."""
    if schedule == "dualpipev":
        return 2 * stages
    return stages if schedule in ZERO_BUBBLE else 1


@st.composite
def requests(
    draw: st.DrawFn, schedules: tuple[str, ...] = tuple(SCHEDULES), most: int = 9
) -> Asked:
    """Draw a run: a few stages, each with its own times, links with theirs."""
    schedule = draw(st.sampled_from(schedules))
    stages = draw(st.integers(1, 5))
    least, most_chunks = (2, 2) if schedule in FOLDED else (1, 1)
    if schedule == "interleaved":
        least, most_chunks = 2, 3
    chunks = draw(st.integers(least, most_chunks))
    if schedule == "interleaved":
        micro_batches = stages * draw(st.integers(1, max(most // stages, 1)))
    else:
        least = least_count(schedule, stages)
        micro_batches = draw(st.integers(least, max(most, least)))
    seconds = st.floats(0.01, 2.0)
    times = st.builds(
        lambda forward, backward, share: StageTimes(forward, backward, backward * share),
        seconds,
        seconds,
        st.floats(0.0, 1.0),
    )
    made = [[draw(times) for _ in range(stages)] for _ in range(chunks)]
    links = 0 if stages == 1 else stages - (schedule != "interleaved")
    sends = [draw(st.sampled_from([0.0, 0.1, 3.0])) for _ in range(links)]
    return Asked(schedule, made, micro_batches, sends, schedule in FIXED and draw(st.booleans()))


def chain(asked: Asked) -> list[tuple[int, int]]:
    """Return stage and chunk of the parts of the model, from the first to the last."""
    stages = range(asked.stages)
    if asked.schedule in FOLDED:
        return [(stage, 0) for stage in stages] + [(stage, 1) for stage in reversed(stages)]
    return [(stage, chunk) for chunk in range(len(asked.chunks)) for stage in stages]


def send_s(asked: Asked, one: int, other: int) -> float:
    """Return the time of a message between two stages that follow each other in the model."""
    if one == other:
        return 0.0
    if asked.schedule == "interleaved" and other != one + 1:
        return asked.sends[-1]
    return asked.sends[min(one, other)]


def by_name(run: PipelineRun) -> dict[tuple[str, int, int, int], PipelinePass]:
    return {(one.kind, one.stage, one.chunk, one.micro_batch): one for one in run.passes()}


def by_stage(run: PipelineRun) -> list[list[PipelinePass]]:
    passes = run.passes()
    return [[one for one in passes if one.stage == stage] for stage in range(run.stages)]


@given(asked=requests())
def test_a_pass_begins_after_what_it_needs(asked: Asked) -> None:
    run = asked.run()
    named = by_name(run)
    parts = chain(asked)
    for number in range(asked.micro_batches):
        for (stage, chunk), (below, chunk_below) in pairwise(parts):
            send = send_s(asked, stage, below) - CLOSE
            forward = named["F", stage, chunk, number]
            assert named["F", below, chunk_below, number].start_s >= forward.end_s + send
            backward = named["B", below, chunk_below, number]
            assert named["B", stage, chunk, number].start_s >= backward.end_s + send
        last = (*parts[-1], number)
        assert named["B", *last].start_s >= named["F", *last].end_s - CLOSE
        for stage, chunk in parts:
            if split(asked):
                backward = named["B", stage, chunk, number]
                assert named["W", stage, chunk, number].start_s >= backward.end_s - CLOSE


def split(asked: Asked) -> bool:
    """Tell whether each W is a pass of its own; on one stage DualPipeV has none."""
    return asked.schedule in ZERO_BUBBLE or (asked.schedule in SPLIT_BACKWARD and asked.stages > 1)


def next_part(asked: Asked, one: PipelinePass) -> tuple[int, int] | None:
    """Return stage and chunk that wait for a pass, or None."""
    parts = chain(asked)
    at = parts.index((one.stage, one.chunk)) + (1 if one.kind == "F" else -1)
    return parts[at] if 0 <= at < len(parts) and one.kind != "W" else None


@given(asked=requests((*FIXED, *ZERO_BUBBLE)))
def test_a_pass_begins_when_its_stage_is_free_and_its_message_there(asked: Asked) -> None:
    # A link carries one message at a time in each direction, in the order in which they are ready.
    asked = asked._replace(blocking=False)
    run = asked.run()
    there: dict[tuple[str, int, int, int], float] = {}
    busy: dict[tuple[int, int, bool], float] = {}
    for one in sorted(run.passes(), key=lambda one: one.end_s):
        if (part := next_part(asked, one)) is not None and part[0] != one.stage:
            # Two stages of the interleaved schedule have two links: by the pair and by wrap-around.
            forward = one.kind == "F"
            upper = (one.stage, one.chunk) if forward else part
            wraps = asked.schedule == "interleaved" and upper[0] == asked.stages - 1
            way = (one.stage, part[0], wraps)
            send = send_s(asked, upper[0], part[0] if forward else one.stage)
            busy[way] = max(one.end_s, busy.get(way, 0.0)) + send
            there[one.kind, *part, one.micro_batch] = busy[way]
    for passes in by_stage(run):
        free = 0.0
        for one in passes:
            arrives = there.get((one.kind, one.stage, one.chunk, one.micro_batch), 0.0)
            assert one.start_s == pytest.approx(max(free, arrives), abs=CLOSE)
            free = one.end_s


@given(asked=requests())
def test_a_stage_runs_each_pass_once_and_one_at_a_time(asked: Asked) -> None:
    run = asked.run()
    kinds = "FBW" if split(asked) else "FB"
    assert len(by_name(run)) == len(run.passes())
    for stage, passes in enumerate(by_stage(run)):
        assert len(passes) == len(kinds) * len(asked.chunks) * asked.micro_batches
        assert passes[0].start_s >= 0.0
        for before, after in pairwise(passes):
            assert after.start_s >= before.end_s - CLOSE
        busy = sum(one.forward_s + one.backward_s for one in (part[stage] for part in asked.chunks))
        assert sum(one.end_s - one.start_s for one in passes) == pytest.approx(
            busy * asked.micro_batches
        )


def begins_at(run: PipelineRun, final: PipelinePass) -> float:
    """Return when the gradients of a chunk begin to be final: W begins, or the B that it is of."""
    start = float(run.chunk_backward_starts_s[final.chunk, final.stage])
    whole = by_name(run)["B", final.stage, final.chunk, final.micro_batch]
    if run.schedule == "dualpipev" and start == pytest.approx(whole.start_s):
        return final.start_s if whole.end_s == pytest.approx(final.start_s) else start
    return start


@given(asked=requests())
def test_the_summary_is_that_of_the_passes(asked: Asked) -> None:
    run = asked.run()
    assert run.total_s == pytest.approx(max(one.end_s for one in run.passes()))
    last_kind = "W" if split(asked) else "B"
    for stage, passes in enumerate(by_stage(run)):
        busy = sum(one.end_s - one.start_s for one in passes)
        assert run.starts_s[stage] == pytest.approx(passes[0].start_s, abs=CLOSE)
        assert run.ends_s[stage] == pytest.approx(passes[-1].end_s)
        assert run.busy_s[stage] == pytest.approx(busy)
        assert run.idle_s[stage] == pytest.approx(passes[-1].end_s - busy, abs=CLOSE)
        for chunk in range(len(asked.chunks)):
            final = [one for one in passes if (one.kind, one.chunk) == (last_kind, chunk)][-1]
            assert final.micro_batch == asked.micro_batches - 1
            assert begins_at(run, final) == pytest.approx(final.start_s)
            assert run.chunk_backward_ends_s[chunk, stage] == pytest.approx(final.end_s)
        held = np.cumsum([{"F": 1, last_kind: -1}.get(one.kind, 0) for one in passes])
        assert run.in_flight[stage] * len(asked.chunks) == held.max()
        assert held[-1] == 0


@given(asked=requests())
def test_no_shorter_than_a_stage_or_a_micro_batch(asked: Asked) -> None:
    run = asked.run()
    assert run.total_s >= run.busy_s.max() - CLOSE
    assert run.period_s >= run.busy_s.max() - CLOSE
    parts = chain(asked)
    through = sum(
        asked.chunks[chunk][stage].forward_s + asked.chunks[chunk][stage].backward_s
        for stage, chunk in parts
    )
    if asked.schedule in SPLIT_BACKWARD:  # W of the first part alone comes after all B
        through -= sum(asked.chunks[chunk][stage].weights_s for stage, chunk in parts[1:])
    through += 2 * sum(send_s(asked, one, other) for (one, _), (other, _) in pairwise(parts))
    assert run.total_s >= through - CLOSE


@given(asked=requests(FIXED), data=st.data())
def test_a_slower_stage_or_message_never_shortens(asked: Asked, data: st.DataObject) -> None:
    chunk = data.draw(st.integers(0, len(asked.chunks) - 1))
    stage = data.draw(st.integers(0, asked.stages - 1))
    chunks = [list(part) for part in asked.chunks]
    forward, backward, _ = chunks[chunk][stage]
    slower = data.draw(st.sampled_from([(0.3, 0.0), (0.0, 0.3)]))
    chunks[chunk][stage] = StageTimes(forward + slower[0], backward + slower[1])
    before = asked.run()
    assert (asked._replace(chunks=chunks).run().ends_s >= before.ends_s - CLOSE).all()
    sends = [*asked.sends]
    if sends:
        sends[data.draw(st.integers(0, len(sends) - 1))] += 0.2
        assert (asked._replace(sends=sends).run().ends_s >= before.ends_s - CLOSE).all()


@given(asked=requests(FIXED))
def test_messages_that_block_never_shorten(asked: Asked) -> None:
    blocked = asked._replace(blocking=True).run()
    assert (blocked.ends_s >= asked._replace(blocking=False).run().ends_s - CLOSE).all()
    free = asked._replace(sends=[0.0] * len(asked.sends), blocking=False).run()
    assert free.total_s <= blocked.total_s + CLOSE


@given(asked=requests(ZERO_BUBBLE))
def test_no_weight_gradient_is_at_hand_where_a_stage_waits_longer(asked: Asked) -> None:
    for stage, passes in enumerate(by_stage(asked.run())):
        longest = max(part[stage].weights_s for part in asked.chunks)
        pending = 0
        for before, after in pairwise(passes):
            pending += {"B": 1, "W": -1}.get(before.kind, 0)
            if after.start_s - before.end_s > longest + CLOSE:
                assert pending == 0


@given(asked=requests(ZERO_BUBBLE))
def test_zero_bubble_schedules_hold_no_more_than_they_may(asked: Asked) -> None:
    stages = asked.stages
    limit = 2 * stages - 1 if asked.schedule == "zb-h2" else stages
    assert (asked.run().in_flight <= limit).all()


@given(
    stages=st.integers(2, 6),
    more=st.integers(0, 9),
    forward=st.floats(0.5, 1.0),
    backward=st.floats(0.5, 2.0),
    share=st.floats(0.1, 1.0),
)
def test_zero_bubble_closed_forms(
    stages: int, more: int, forward: float, backward: float, share: float
) -> None:
    # Of equal stages whose W fits into a wait for a forward or a backward.
    weights = share * min(forward, backward)
    made = [[StageTimes(forward, backward + weights, weights)] * stages]
    micro_batches = 2 * stages + more
    work = micro_batches * (forward + backward + weights)
    h1 = pipeline_run("zb-h1", made, micro_batches, 0.0)
    h2 = pipeline_run("zb-h2", made, micro_batches, 0.0)
    bubble = forward + backward - weights
    assert h1.total_s - work == pytest.approx((stages - 1) * bubble)
    assert h2.period_s - work == pytest.approx((stages - 1) * max(bubble - weights, 0.0), abs=CLOSE)
    plain = pipeline_run("1f1b", made, micro_batches, 0.0)
    assert h2.total_s - CLOSE <= h1.total_s <= plain.total_s + CLOSE


# What repeats is added up, and is what it is when all is timed


@settings(max_examples=40)
@given(asked=requests(), times=st.integers(8, 40), more=st.integers(0, 4))
def test_what_repeats_is_added_up_exactly(asked: Asked, times: int, more: int) -> None:
    count = asked.stages * times + (0 if asked.schedule == "interleaved" else more)
    asked = asked._replace(micro_batches=count)
    run = asked.run()
    passes = by_stage(run)
    assert run.ends_s == pytest.approx([one[-1].end_s for one in passes], rel=CLOSE)
    assert run.starts_s == pytest.approx([one[0].start_s for one in passes], rel=CLOSE)
    last_kind = "W" if split(asked) else "B"
    final = {
        (one.chunk, one.stage): one for stage in passes for one in stage if one.kind == last_kind
    }
    for one in final.values():
        assert begins_at(run, one) == pytest.approx(one.start_s, rel=CLOSE)


# Messages that block, against Megatron-LM's loops told in Python


def told_1f1b(stage: int, stages: int, micro_batches: int) -> Iterator[tuple[str, ...]]:
    """Tell what a stage calls in forward_backward_pipelining_without_interleaving."""
    filling = min(stages - stage - 1, micro_batches)
    remaining = micro_batches - filling
    for number in range(filling):
        yield ("receive", f"F{number}")
        yield ("compute", f"F{number}")
        yield ("send", f"F{number}")
    if remaining:
        yield ("receive", f"F{filling}")
    for number in range(remaining):
        yield ("compute", f"F{filling + number}")
        yield ("send", f"F{filling + number}", "receive", f"B{number}")
        yield ("compute", f"B{number}")
        if number == remaining - 1:
            yield ("send", f"B{number}")
        else:
            yield ("send", f"B{number}", "receive", f"F{filling + number + 1}")
    for number in range(remaining, micro_batches):
        yield ("receive", f"B{number}")
        yield ("compute", f"B{number}")
        yield ("send", f"B{number}")


def told_interleaved(
    stage: int, stages: int, chunks: int, micro_batches: int
) -> Iterator[tuple[str, ...]]:
    """Tell what a stage calls in forward_backward_pipelining_with_interleaving, no overlap."""

    def name(kind: str, turn: int) -> str:
        groups, within = divmod(turn, stages * chunks)
        chunk = within // stages
        chunk = chunks - 1 - chunk if kind == "B" else chunk
        return f"{kind}{groups * stages + within % stages}" + "'" * chunk

    total = micro_batches * chunks
    filling = min(2 * (stages - stage - 1) + (chunks - 1) * stages, total)
    remaining = total - filling
    yield ("receive", name("F", 0))
    for turn in range(filling):
        yield ("compute", name("F", turn))
        calls = ["send", name("F", turn)]
        if turn < total - 1:
            calls += ["receive", name("F", turn + 1)]
        if turn == filling - 1 and remaining:
            calls += ["receive", name("B", 0)]
        yield tuple(calls)
    for turn in range(remaining):
        yield ("compute", name("F", filling + turn))
        yield ("compute", name("B", turn))
        calls = ["send", name("F", filling + turn), "send", name("B", turn)]
        if turn < remaining - 1:
            calls += ["receive", name("F", filling + turn + 1)]
        if turn < total - 1:
            calls += ["receive", name("B", turn + 1)]
        yield tuple(calls)
    if not remaining:
        yield ("receive", name("B", 0))
    for turn in range(remaining, total):
        yield ("compute", name("B", turn))
        calls = ["send", name("B", turn)]
        if turn < total - 1:
            calls += ["receive", name("B", turn + 1)]
        yield tuple(calls)


def ends_of_told(asked: Asked) -> dict[tuple[int, str], float]:
    """Return when each pass ends by stage and name, where what the stages call meets."""
    stages, parts = asked.stages, chain(asked)
    told = []
    for stage in range(stages):
        if asked.schedule == "interleaved":
            calls = told_interleaved(stage, stages, len(asked.chunks), asked.micro_batches)
        else:
            calls = told_1f1b(stage, stages, asked.micro_batches)
        told.append(list(calls))

    def message(stage: int, way: str, name: str) -> tuple[int, int, str] | None:
        """Return sender, receiver and the receiver's pass."""
        at = parts.index((stage, name.count("'")))
        down = name[0] == "F"
        step = 1 if (way == "send") == down else -1
        if not 0 <= at + step < len(parts):
            return None
        other, chunk = parts[at + step]
        pure = name.rstrip("'")
        if way == "send":
            return stage, other, pure + "'" * chunk
        return other, stage, name

    clock = [0.0] * stages
    ends: dict[tuple[int, str], float] = {}
    place = [0] * stages
    waits: dict[tuple[int, int, str], dict[int, float]] = {}
    moved = True
    while moved:
        moved = False
        for stage, calls in enumerate(told):
            while place[stage] < len(calls):
                call = calls[place[stage]]
                if call[0] == "compute":
                    times = asked.chunks[call[1].count("'")][stage]
                    clock[stage] += times.forward_s if call[1][0] == "F" else times.backward_s
                    ends[stage, call[1]] = clock[stage]
                else:
                    pairs = zip(call[::2], call[1::2], strict=True)
                    found = [message(stage, *pair) for pair in pairs]
                    met = [one for one in found if one is not None]
                    for one in met:
                        waits.setdefault(one, {})[stage] = clock[stage]
                    if any(len(waits[one]) < 2 for one in met):
                        break
                    clock[stage] = max(
                        (max(waits[one].values()) + send_s(asked, *sides(one)) for one in met),
                        default=clock[stage],
                    )
                place[stage] += 1
                moved = True
    assert all(at == len(calls) for at, calls in zip(place, told, strict=True))
    return ends


def sides(message: tuple[int, int, str]) -> tuple[int, int]:
    """Return the stages of a message in the order of the model."""
    sender, receiver, name = message
    return (sender, receiver) if name[0] == "F" else (receiver, sender)


@given(asked=requests(("1f1b", "interleaved"), most=16))
def test_blocking_messages_as_megatron_calls_them(asked: Asked) -> None:
    if asked.stages > 1:
        ends = {
            (one.stage, f"{one.kind}{one.micro_batch}" + "'" * one.chunk): one.end_s
            for one in asked._replace(blocking=True).run().passes()
        }
        assert ends == pytest.approx(ends_of_told(asked))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("stages", range(2, 8))
def test_every_count_of_micro_batches_comes_to_its_end(schedule: str, stages: int) -> None:
    count = {"interleaved": 3, **dict.fromkeys(FOLDED, 2)}.get(schedule, 1)
    chunks = [[StageTimes(1.0, 2.0, 1.0)] * stages] * count
    step = stages if schedule == "interleaved" else 1
    least = max(least_count(schedule, stages), step)
    for micro_batches in range(least, 3 * stages + 1, step):
        for blocking in (False, True)[: 1 + (schedule in FIXED)]:
            run = pipeline_run(schedule, chunks, micro_batches, 0.1, blocking=blocking)
            ends = [passes[-1].end_s for passes in by_stage(run)]
            assert run.ends_s == pytest.approx(ends)
            assert all(one.start_s >= 0 and one.end_s > 0 for one in run.passes())
