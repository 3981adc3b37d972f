"""Pipelines by hand: orders as published, times of small ones, closed forms, refusals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from perfsim.errors import RequestError
from perfsim.models.split import FOLDED, SCHEDULES, SPLIT_BACKWARD, check_schedule
from perfsim.schedule.pipeline import (
    PipelineRun,
    StageTimes,
    _dualpipev_order,
    pipeline_run,
)

CHUNKS = {"interleaved": 2, **dict.fromkeys(FOLDED, 2)}
FIXED = ("gpipe", "1f1b", "interleaved")


def equal(schedule: str, stages: int, times: StageTimes, chunks: int = 0) -> list[list[StageTimes]]:
    """Return equal stages, whose times are shared by their chunks."""
    count = chunks or CHUNKS.get(schedule, 1)
    return [[StageTimes(*(one / count for one in times))] * stages] * count


def orders(run: PipelineRun) -> list[str]:
    """Return each stage's passes in words: kind, micro-batch, and primes by chunk."""
    return [
        " ".join(
            f"{one.kind}{one.micro_batch}{chr(39) * one.chunk}"
            for one in run.passes()
            if one.stage == stage
        )
        for stage in range(run.stages)
    ]


UNIT = StageTimes(1.0, 2.0, 1.0)
"""Forward, input gradient and weight gradient of 1 s each."""


# Orders, by hand from the papers' figures and Megatron-LM's loops


def test_order_of_gpipe() -> None:
    run = pipeline_run("gpipe", equal("gpipe", 2, UNIT), 3, 0.0)
    assert orders(run) == ["F0 F1 F2 B0 B1 B2"] * 2


def test_order_of_1f1b() -> None:
    run = pipeline_run("1f1b", equal("1f1b", 3, UNIT), 4, 0.0)
    assert orders(run) == [
        "F0 F1 F2 B0 F3 B1 B2 B3",
        "F0 F1 B0 F2 B1 F3 B2 B3",
        "F0 B0 F1 B1 F2 B2 F3 B3",
    ]


def test_order_of_1f1b_with_fewer_micro_batches_than_stages() -> None:
    run = pipeline_run("1f1b", equal("1f1b", 4, UNIT), 2, 0.0)
    assert orders(run) == ["F0 F1 B0 B1"] * 3 + ["F0 B0 F1 B1"]


def test_order_of_interleaved() -> None:
    # Two stages of two chunks: 2(p-i-1) + (v-1)p = 4 and 2 chunk passes fill the pipeline.
    run = pipeline_run("interleaved", equal("interleaved", 2, UNIT), 4, 0.0)
    assert orders(run) == [
        "F0 F1 F0' F1' F2 B0' F3 B1' F2' B0 F3' B1 B2' B3' B2 B3",
        "F0 F1 F0' B0' F1' B1' F2 B0 F3 B1 F2' B2' F3' B3' B2 B3",
    ]


def test_interleaved_with_one_group_runs_all_forwards_of_the_first_stage_first() -> None:
    run = pipeline_run("interleaved", equal("interleaved", 2, UNIT), 2, 0.0)
    assert orders(run)[0] == "F0 F1 F0' F1' B0' B1' B0 B1"


def test_order_of_zb_h1() -> None:
    # Stage i puts off i weight gradients, so that each stage holds p micro-batches.
    run = pipeline_run("zb-h1", equal("zb-h1", 3, UNIT), 5, 0.0)
    assert orders(run) == [
        "F0 F1 F2 B0 W0 F3 B1 W1 F4 B2 W2 B3 W3 B4 W4",
        "F0 F1 B0 F2 B1 W0 F3 B2 W1 F4 B3 W2 B4 W3 W4",
        "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 F4 B4 W2 W3 W4",
    ]


def test_order_of_zb_h2() -> None:
    # 2(p-i)-1 = 3 and 1 forwards before the first backward; each stage holds 3. B2 is there as soon
    # as B1 is over, B3 two seconds after B2.
    run = pipeline_run("zb-h2", equal("zb-h2", 2, UNIT), 4, 0.0)
    assert orders(run) == [
        "F0 F1 F2 B0 W0 F3 B1 B2 W1 W2 B3 W3",
        "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3",
    ]


def test_order_of_zbv() -> None:
    # Qi et al. 2024a, section 6: the second chunk begins on the last stage. Filled by 2(p-i)-1
    # forwards, i pairs of both chunks' forwards and p-i of F' and B'; then F B F' B' in turn.
    run = pipeline_run("zbv", equal("zbv", 2, UNIT), 4, 0.0)
    assert orders(run) == [
        "F0 F1 F2 F0' B0' W0' F1' B1' W1' F3 B0 W0 F2' B2' W2' B1 W1 F3' B3' B2 W3' B3 W2 W3",
        "F0 F0' F1 F1' B0' W0' F2 B0 W0 F2' B1' W1' F3 B1 W1 F3' B2' B2 B3' B3 W2' W2 W3' W3",
    ]


def test_order_of_dualpipev() -> None:
    # dualpipe/dualpipev.py, steps 1 to 8. A W right behind its B is a part of it, but for W0' of
    # the first stage, by which a forward of the other chunk comes in time.
    run = pipeline_run("dualpipev", equal("dualpipev", 2, UNIT), 4, 0.0)
    assert orders(run) == [
        "F0 F1 F2 F0' B0' W0' F1' F3 B1' W1' F2' B0 W0 B2' W2' F3' B1 W1 B3' W3' B2 W2 B3 W3",
        "F0 F0' F1 F1' F2 B0' W0' F2' B0 W0 F3 B1' W1' F3' B1 W1 B2' W2' B2 W2 B3' B3 W3' W3",
    ]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_one_stage_runs_each_micro_batch_through_and_back(schedule: str) -> None:
    chunks = equal(schedule, 1, UNIT)
    run = pipeline_run(schedule, chunks, 3, 5.0 if schedule != "interleaved" else 0.5)
    assert run.total_s == run.busy_s[0] == 9.0
    assert run.idle_s.tolist() == [0.0] and run.in_flight.tolist() == [1.0]
    assert "F1 " not in orders(run)[0].partition("B0 ")[0]


# Times, by hand


def test_1f1b_waits_for_messages_although_they_overlap() -> None:
    # Stage 0: F0 0-1, F1 1-2; stage 1: F0 1.1-2.1, B0 2.1-4.1, F1 4.1-5.1, B1 5.1-7.1;
    # stage 0: B0 4.2-6.2, B1 7.2-9.2.
    run = pipeline_run("1f1b", equal("1f1b", 2, UNIT), 2, 0.1)
    assert run.ends_s == pytest.approx([9.2, 7.1])
    assert run.starts_s == pytest.approx([0.0, 1.1])
    assert run.idle_s == pytest.approx([3.2, 1.1])
    assert run.chunk_backward_starts_s.max(axis=0) == pytest.approx([7.2, 5.1])


def test_uneven_stages() -> None:
    # Stage 0 (1, 1), stage 1 (3, 2): F0 1-4, B0 4-6, F1 6-9, B1 9-11; stage 0: B0 6-7, B1 11-12.
    run = pipeline_run("1f1b", [[StageTimes(1.0, 1.0), StageTimes(3.0, 2.0)]], 2, 0.0)
    assert run.ends_s.tolist() == [12.0, 11.0]
    assert run.idle_s.tolist() == [8.0, 1.0]


def test_a_link_carries_one_message_at_a_time() -> None:
    # Forwards of 1 s, messages of 4 s: they arrive at 5, 9 and 13 s. The backward ones (B of 1 s
    # ends at 15, 16 and 17 s; F of 1 s at 14 s) at 19, 23 and 27 s.
    run = pipeline_run("gpipe", [[StageTimes(1.0, 1.0)] * 2], 3, 4.0)
    starts = {(one.stage, one.kind, one.micro_batch): one.start_s for one in run.passes()}
    assert [starts[1, "F", number] for number in range(3)] == [5.0, 9.0, 13.0]
    assert [starts[0, "B", number] for number in range(3)] == [19.0, 23.0, 27.0]
    assert run.total_s == 28.0


def test_the_next_message_follows_while_the_latency_of_one_passes() -> None:
    # Of 4 s a message has its link for 1: those of forwards that end at 1, 2 and 3 s arrive at 5, 6
    # and 7 s. Backward passes of 1 s that end at 9, 10 and 11 s arrive at 13, 14 and 15 s.
    for schedule in ("gpipe", "1f1b"):
        run = pipeline_run(schedule, [[StageTimes(1.0, 1.0)] * 2], 3, 4.0, latency_s=3.0)
        starts = {(one.stage, one.kind, one.micro_batch): one.start_s for one in run.passes()}
        if schedule == "gpipe":
            assert [starts[1, "F", number] for number in range(3)] == [5.0, 6.0, 7.0]
            assert [starts[0, "B", number] for number in range(3)] == [13.0, 14.0, 15.0]
            assert run.total_s == 16.0
    # Stage 0 of 1F1B: F0 and F1 end at 1 and 2 s; stage 1: F0 5-6, B0 6-7, F1 7-8, B1 8-9. B0
    # arrives at 11 s, so that F2 runs from 12 and arrives at 17; B1 arrives at 13.
    assert [starts[1, *one] for one in (("F", 1), ("B", 1), ("F", 2))] == [7.0, 8.0, 17.0]
    assert [starts[0, *one] for one in (("B", 0), ("F", 2), ("B", 1))] == [11.0, 12.0, 13.0]
    # A stage that waits for a message until it has come takes all of it.
    blocked = [
        pipeline_run("1f1b", [[StageTimes(1.0, 1.0)] * 2], 3, 4.0, latency_s=latency, blocking=True)
        for latency in (0.0, 3.0)
    ]
    assert blocked[0].total_s == blocked[1].total_s


def test_both_directions_of_a_link_are_apart() -> None:
    # Stage 0: F0 0-1, F1 1-2; messages at 3 and 5 s. Stage 1: F0 3-4, B0 4-5 (its message 5-7 s
    # meets none), F1 5-6, B1 6-7. Stage 0: B0 7-8, B1 9-10.
    run = pipeline_run("1f1b", [[StageTimes(1.0, 1.0)] * 2], 2, 2.0)
    assert run.ends_s.tolist() == [10.0, 7.0]


def test_blocking_messages_occupy_both_stages() -> None:
    # F0 0-1, to stage 1 until 2; stage 0 F1 2-3, stage 1 F0 2-3, B0 3-5. Exchange of F1 and B0 from
    # 5 to 6: stage 0 B0 6-8, stage 1 F1 6-7, B1 7-9, sent until 10; stage 0 B1 10-12.
    run = pipeline_run("1f1b", [[StageTimes(1.0, 2.0)] * 2], 2, 1.0, blocking=True)
    assert run.ends_s.tolist() == [12.0, 9.0]
    assert run.idle_s.tolist() == [6.0, 3.0]


def test_blocking_1f1b_pays_two_exchanges_a_micro_batch() -> None:
    # A stage in the middle exchanges with one neighbour after F, with the other after B.
    chunks = equal("1f1b", 4, UNIT)
    more = pipeline_run("1f1b", chunks, 33, 0.1, blocking=True).total_s
    assert more - pipeline_run("1f1b", chunks, 32, 0.1, blocking=True).total_s == pytest.approx(3.2)


def test_messages_by_boundary() -> None:
    # Down 1 + 0.5 + 1 + 0.25 + 1, back the same way with passes of 2 s.
    run = pipeline_run("1f1b", [[StageTimes(1.0, 2.0)] * 3], 1, [0.5, 0.25])
    assert run.total_s == 3 + 6 + 2 * 0.75


def test_the_wrap_around_of_interleaved() -> None:
    # Chunk 1 of stage 0 waits for chunk 0 of stage 1 by the second link: once each way.
    chunks = [[StageTimes(1.0, 2.0)] * 2] * 2
    free = pipeline_run("interleaved", chunks, 2, [0.0, 0.0])
    run = pipeline_run("interleaved", chunks, 2, [0.0, 0.5])
    assert orders(free) == orders(run)
    starts = {
        (one.stage, one.chunk, one.kind, one.micro_batch): one.start_s for one in run.passes()
    }
    assert starts[0, 1, "F", 0] == 2.5  # F 0-1, 1-2, the message 2-2.5
    assert run.total_s > free.total_s


def test_the_turn_of_zbv_needs_no_message() -> None:
    # One micro-batch at a time goes down two stages and back up: two messages each way.
    chunks = [[StageTimes(1.0, 2.0, 0.0)] * 2] * 2
    run = pipeline_run("zbv", chunks, 2, 0.25)
    starts = {
        (one.stage, one.chunk, one.kind, one.micro_batch): one.start_s for one in run.passes()
    }
    assert starts[1, 0, "F", 0] == 1.25
    assert starts[1, 1, "F", 0] == 2.25
    # Stage 0 runs its three first forwards before; F0' arrives at 3.5 s.
    assert starts[0, 1, "F", 0] == 3.5


def test_passes_of_dualpipev_that_run_together_wait_and_send_together() -> None:
    # Passes and messages of 1 s. Stage 1 runs F2' and B0 together from 10 to 13 s. Then both are
    # sent to stage 0 one after the other, where they begin together at 15 s. F2 and B0' run apart
    # on the last stage: B0' waits for a stage less.
    run = pipeline_run("dualpipev", [[UNIT] * 2] * 2, 4, 1.0)
    starts = {
        (one.stage, f"{one.kind}{one.micro_batch}" + "'" * one.chunk): one.start_s
        for one in run.passes()
    }
    assert [starts[1, name] for name in ("F2", "B0'", "F2'", "B0", "W0")] == [6, 8, 10, 11, 12]
    assert [starts[0, name] for name in ("F2'", "B0", "W0")] == [15, 16, 17]


@pytest.mark.parametrize("stages", [2, 3, 4, 8])
def test_bubble_of_dualpipev(stages: int) -> None:
    # deepseek-ai/DualPipe, README.md: (PP/2 - 1)(F&B + B - 3W) of PP = 2p chunks, where a forward
    # takes as long as each half of a backward. ZBV's bubble of such passes is none.
    for micro_batches in (2 * stages, 5 * stages + 1):
        run = pipeline_run("dualpipev", [[UNIT] * stages] * 2, micro_batches, 0.0)
        assert run.total_s - run.busy_s[0] == pytest.approx((stages - 1) * (3.0 + 2.0 - 3.0))
        assert run.period_s == pytest.approx(run.total_s)
        assert run.in_flight.tolist() == [stages + 0.5] * stages  # PP + 1 chunks


# Closed forms


@pytest.mark.parametrize("stages", [2, 3, 5, 8])
@pytest.mark.parametrize("groups", [2, 3, 7])
@pytest.mark.parametrize("schedule", FIXED)
def test_bubble_of_equal_stages(schedule: str, stages: int, groups: int) -> None:
    micro_batches, chunks = groups * stages, CHUNKS.get(schedule, 1)
    run = pipeline_run(schedule, equal(schedule, stages, StageTimes(0.75, 1.5)), micro_batches, 0.0)
    assert run.idle_s[0] == pytest.approx((stages - 1) * 2.25 / chunks)
    assert run.total_s == pytest.approx(run.busy_s[0] + run.idle_s[0])
    share = run.idle_s[0] / run.total_s
    assert share == pytest.approx((stages - 1) / (chunks * micro_batches + stages - 1))


def test_bubble_share_of_the_survey() -> None:
    # p 8, m 32: 7/39 = 17.9 % of the step; interleaved v 4 5.5 % over the work.
    run = pipeline_run("1f1b", equal("1f1b", 8, UNIT), 32, 0.0)
    assert run.idle_s[0] / run.total_s == pytest.approx(7 / 39)
    run = pipeline_run("interleaved", equal("interleaved", 8, UNIT, 4), 32, 0.0)
    assert run.idle_s[0] / run.busy_s[0] == pytest.approx(7 / (4 * 32))


@pytest.mark.parametrize("stages", [2, 3, 4, 8])
@pytest.mark.parametrize(
    ("forward", "backward", "weights"),
    [(1.0, 1.0, 1.0), (1.0, 1.2, 0.8), (1.0, 1.3, 0.6), (1.0, 1.5, 1.0), (1.0, 1.0, 0.5)],
)
def test_bubbles_of_zero_bubble_schedules(
    stages: int, forward: float, backward: float, weights: float
) -> None:
    # Qi et al. 2024a, section 2: (p-1)(tF + tB - tW) and (p-1)(tF + tB - 2 tW); a stage of ZB-H2
    # begins later than the one before, and is done as much later.
    times = StageTimes(forward, backward + weights, weights)
    for micro_batches in (2 * stages, 5 * stages + 1):
        h1 = pipeline_run("zb-h1", equal("zb-h1", stages, times), micro_batches, 0.0)
        h2 = pipeline_run("zb-h2", equal("zb-h2", stages, times), micro_batches, 0.0)
        bubble = (stages - 1) * (forward + backward - weights)
        assert h1.total_s - h1.busy_s[0] == pytest.approx(bubble)
        assert h1.period_s - h1.busy_s[0] == pytest.approx(bubble)
        assert h2.period_s - h2.busy_s[0] == pytest.approx(
            max(bubble - (stages - 1) * weights, 0.0), abs=1e-9
        )


def test_a_weight_gradient_longer_than_the_waits_begins_in_one() -> None:
    # W of 1.1 s fits no wait of tF 1 or tB 0.9 s. Put off until all Ws are forced, it costs
    # (p-1)(tF + tB) = 13.3 s; begun where a wait is half as long, the (p-1) tF of the last stage.
    run = pipeline_run("zb-h1", equal("zb-h1", 8, StageTimes(1.0, 2.0, 1.1)), 24, 0.0)
    assert run.total_s - run.busy_s[0] == pytest.approx(7.0)


def test_of_runs_that_end_together_the_one_whose_stages_are_done_soonest() -> None:
    # ZB-H2 ends by what the last stage waits for at first, (p-1) tF, by either rule; where W begins
    # in a wait that is half as long, no stage waits after its first pass.
    run = pipeline_run("zb-h2", equal("zb-h2", 8, StageTimes(1.0, 2.0, 1.1)), 24, 0.0)
    assert run.total_s - run.busy_s[0] == pytest.approx(7.0)
    assert run.period_s == pytest.approx(run.busy_s[0])


@pytest.mark.parametrize("stages", [2, 3, 4, 8])
@pytest.mark.parametrize("schedule", ["zb-h2", "zbv"])
def test_no_bubble_where_passes_are_equal(schedule: str, stages: int) -> None:
    chunks = equal(schedule, stages, UNIT)
    run = pipeline_run(schedule, chunks, 2 * stages + 1, 0.0)
    assert run.period_s == pytest.approx(run.busy_s[0])
    assert run.idle_s == pytest.approx([stage / CHUNKS.get(schedule, 1) for stage in range(stages)])


@pytest.mark.parametrize("stages", [2, 4, 7])
def test_micro_batches_held(stages: int) -> None:
    count, later = 4 * stages, np.arange(stages)

    def held(schedule: str, chunks: int = 0) -> np.ndarray:
        return pipeline_run(schedule, equal(schedule, stages, UNIT, chunks), count, 0.0).in_flight

    assert held("gpipe").tolist() == [count] * stages
    assert held("1f1b") == pytest.approx(stages - later)
    for chunks in (2, 4):
        most = stages * (1 + (stages - 1) / (stages * chunks))
        assert held("interleaved", chunks)[0] == pytest.approx(most)
        assert held("interleaved", chunks) == pytest.approx(most - 2 * later / chunks)
    assert held("zb-h1").tolist() == [stages] * stages
    assert held("zb-h2").tolist() == [2 * stages - 1] * stages
    assert held("zbv").tolist() == [stages] * stages


def test_final_backward_passes_by_chunk() -> None:
    # The last pass of stage 0 is the backward of chunk 0; that of chunk 1 is over before.
    run = pipeline_run("interleaved", equal("interleaved", 2, UNIT), 4, 0.0)
    last = {(one.chunk, one.stage): one for one in run.passes() if one.kind == "B"}
    for (chunk, stage), one in last.items():
        assert one.micro_batch == 3
        assert run.chunk_backward_starts_s[chunk, stage] == one.start_s
        assert run.chunk_backward_ends_s[chunk, stage] == one.end_s
    assert (run.chunk_backward_ends_s[0] == run.ends_s).all()
    assert (run.chunk_backward_starts_s.max(axis=0) == run.ends_s - 1.0).all()


# The part that repeats is added up


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("send", [0.0, 0.03, 0.7])
def test_many_micro_batches_end_as_when_timed_one_by_one(
    schedule: str, blocking: bool, send: float
) -> None:
    if blocking and schedule in SPLIT_BACKWARD:
        return
    stages = 4
    chunks = [
        [StageTimes(1.0, 2.1, 0.9), *[StageTimes(1.0, 2.0, 0.9)] * 2, StageTimes(1.2, 2.4, 1.0)]
    ] * CHUNKS.get(schedule, 1)
    for micro_batches in (31 * stages, 33 * stages):
        run = pipeline_run(schedule, chunks, micro_batches, send, blocking=blocking)
        ends = {one.stage: one.end_s for one in run.passes()}
        assert run.ends_s == pytest.approx([ends[stage] for stage in range(stages)], rel=1e-12)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("percent", [0.01, 0.5, 10.0])
def test_stages_that_differ_a_little_are_not_taken_for_settled(
    schedule: str, percent: float
) -> None:
    more = [1 + percent / 100 * share for share in (0.2, 0.9, 0.0, 0.6)]
    chunks = [[StageTimes(1.0 * one, 2.0 * one, 0.9 * one) for one in more]]
    chunks += [chunks[0][::-1]] * (CHUNKS.get(schedule, 1) - 1)
    for micro_batches in (64, 200, 400):
        run = pipeline_run(schedule, chunks, micro_batches, 0.01)
        ends = {one.stage: one.end_s for one in run.passes()}
        assert run.ends_s == pytest.approx([ends[stage] for stage in range(4)], rel=1e-10)


@pytest.mark.parametrize(
    ("stages", "micro_batches", "send"),
    [
        # The last period ends as much later as the next, but not all that passes wait for.
        ([StageTimes(1.75, 4.25, 1.75), StageTimes(1.0, 4.0, 1.25)], 36, 5.75),
        # All periods end as much later as the next, but a stage has fewer Ws left after each.
        (
            [
                StageTimes(2.0, 4.0, 2.0),
                StageTimes(1.0, 3.0, 1.0),
                StageTimes(1.0, 2.0, 1.0),
                StageTimes(3.0, 5.0, 2.0),
            ],
            54,
            6.0,
        ),
    ],
)
def test_periods_that_seem_to_repeat(
    stages: list[StageTimes], micro_batches: int, send: float
) -> None:
    run = pipeline_run("zb-h2", [stages], micro_batches, send)
    ends = {one.stage: one.end_s for one in run.passes()}
    assert run.ends_s.tolist() == pytest.approx(list(ends.values()))


def test_4096_micro_batches_take_what_their_slowest_stage_takes() -> None:
    chunks = [[StageTimes(1.0, 2.0)] * 15 + [StageTimes(1.3, 2.4)]]
    run = pipeline_run("1f1b", chunks, 4096, 0.0)
    assert run.total_s == pytest.approx(15 * 1.0 + 4096 * 3.7 + 15 * 2.0)


# Refusals


@pytest.mark.parametrize(
    ("asked", "sentence", "nearest"),
    [
        (("1f2b", 4, 1, 8), "schedule: no '1f2b'; did you mean '1f1b'?", "1f1b"),
        (
            ("interleaved", 4, 2, 18),
            "accumulate: interleaved runs micro-batches in groups of pp, and 4 does not divide 18; "
            "the nearest that work are 16 and 20.",
            "16",
        ),
        (("interleaved", 4, 2, 3), "the nearest that works is 4.", "4"),
        (
            ("interleaved", 4, 1, 8),
            "virtual_stages: interleaved needs 2 chunks or more of each stage, not 1; the nearest "
            "that works is 2.",
            "2",
        ),
        (("zbv", 4, 3, 8), "virtual_stages: zbv needs 2 of each stage, not 3", "2"),
        (
            ("dualpipev", 4, 2, 7),
            "accumulate: dualpipev needs twice as many micro-batches as pp has stages, not 7; the "
            "nearest that works is 8.",
            "8",
        ),
        (("1f1b", 4, 2, 8), "virtual_stages: 1f1b needs 1 of each stage, not 2", "1"),
        (
            ("zb-h1", 8, 1, 4),
            "accumulate: zb-h1 needs as many micro-batches as pp has stages, not 4; the nearest "
            "that works is 8.",
            "8",
        ),
        (("1f1b", 0, 1, 4), "pp: 0 is below 1.", "1"),
        (("1f1b", 2, 1, 0), "accumulate: 0 is below 1.", "1"),
    ],
)
def test_refused_in_a_sentence(
    asked: tuple[str, int, int, int], sentence: str, nearest: str
) -> None:
    with pytest.raises(RequestError) as caught:
        check_schedule(*asked)
    assert sentence in str(caught.value)
    assert caught.value.nearest == nearest


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_one_stage_needs_nothing(schedule: str) -> None:
    check_schedule(schedule, 1, 1, 1)


def test_a_run_is_checked() -> None:
    with pytest.raises(RequestError, match="4 does not divide 6"):
        pipeline_run("interleaved", equal("interleaved", 4, UNIT), 6, 0.0)


@pytest.mark.parametrize(
    ("chunks", "send", "words"),
    [
        ([], 0.0, "one or more"),
        ([[]], 0.0, "one or more"),
        ([[StageTimes(1.0, -2.0)] * 2], 0.0, "0 or more"),
        ([[StageTimes(1.0, float("nan"))] * 2], 0.0, "finite"),
        ([[StageTimes(1.0, 1.0)] * 2], -0.1, "0 or more"),
        ([[StageTimes(1.0, 1.0)] * 3], [0.1], "2 links between stages, but 1 times"),
    ],
)
def test_times_that_make_no_sense(
    chunks: Sequence[Sequence[StageTimes]], send: float, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        pipeline_run("1f1b", chunks, 2, send)


def test_weights_are_within_the_backward_pass() -> None:
    with pytest.raises(ValueError, match="within backward_s"):
        pipeline_run("zb-h1", [[StageTimes(1.0, 1.0, 1.5)] * 2], 2, 0.0)


def test_zero_bubble_schedules_do_not_block() -> None:
    with pytest.raises(ValueError, match="sends beside computation"):
        pipeline_run("zb-h1", equal("zb-h1", 2, UNIT), 4, 0.0, blocking=True)


def test_free_work_takes_no_time() -> None:
    for schedule in SCHEDULES:
        run = pipeline_run(schedule, equal(schedule, 4, StageTimes(0.0, 0.0)), 128, 0.0)
        assert run.total_s == 0.0


@pytest.mark.torch
@pytest.mark.parametrize("stages", [2, 3, 4, 5])
def test_dualpipev_runs_the_passes_that_pytorch_runs(stages: int) -> None:
    """Its order, which passes run together, and which Ws are put off, by PyTorch's own schedule."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    letters = {"FORWARD": "F", "FULL_BACKWARD": "BW", "BACKWARD_INPUT": "B", "BACKWARD_WEIGHT": "W"}
    for micro_batches in (2 * stages, 3 * stages + 2):
        asked = object.__new__(schedules.ScheduleDualPipeV)  # without its process group
        asked.pp_group_size, asked._n_microbatches = stages, micro_batches
        for stage in range(stages):
            theirs = [
                [
                    (letters[one.computation_type.name], int(one.stage_index >= stages))
                    for one in action.sub_actions or (action,)
                ]
                for action in asked._calculate_single_rank_operations(stage)
            ]
            ours = [
                [(step.kind + "W" * step.whole, step.chunk) for step in steps]
                for steps in _dualpipev_order(stage, stages, micro_batches)
            ]
            assert ours == theirs
