"""The timeline of a pipeline as text, by hand."""

from __future__ import annotations

import pytest

from perfsim.models.split import SCHEDULES
from perfsim.report.pipeline_drawing import draw_pipeline
from perfsim.schedule.pipeline import StageTimes, pipeline_run

UNIT = [StageTimes(1.0, 2.0, 1.0)]


def test_1f1b_by_hand() -> None:
    # 18 s in 36 columns behind "stage 0 ": each second is two columns.
    run = pipeline_run("1f1b", [UNIT * 3], 4, 0.0)
    assert draw_pipeline(run, 44) == [
        "stage 0 001122........aaaa33bbbb..cccc..dddd",
        "stage 1 ..0011....aaaa22bbbb33cccc..dddd....",
        "stage 2 ....00aaaa11bbbb22cccc33dddd........",
        "0-9 forward, a-j backward (last digit), .",
        "idle; 500 ms a column",
    ]


def test_weight_gradients_by_hand() -> None:
    # Of zb-h1 each stage waits (p-1)(tF + tB - tW) = 1 s; 13 s in all.
    run = pipeline_run("zb-h1", [UNIT * 2], 4, 0.0)
    assert draw_pipeline(run, 8 + 13)[:2] == [
        "stage 0 01.aw2bw3cwdw",
        "stage 1 .0a1bw2cw3dww",
    ]
    assert ", w weights, . idle;" in " ".join(draw_pipeline(run, 8 + 13)[2:])


def test_a_column_shows_what_has_most_of_its_time() -> None:
    # 6 s in 10 columns of 0.6 s: F to 1 s, B to 3 s, F to 4 s, B to 6 s.
    run = pipeline_run("1f1b", [UNIT], 2, 0.0)
    assert draw_pipeline(run, 18)[0] == "stage 0 00aaa11bbb"


def test_only_the_last_digit_of_a_micro_batch_shows() -> None:
    run = pipeline_run("gpipe", [UNIT * 2], 12, 0.0)
    assert draw_pipeline(run, 8 + 39)[:2] == [
        "stage 0 012345678901...aabbccddeeffgghhiijjaabb",
        "stage 1 .012345678901aabbccddeeffgghhiijjaabb..",
    ]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("width", [20, 33, 80, 200])
def test_no_line_is_wider_than_asked(schedule: str, width: int) -> None:
    chunks = [UNIT * 12] * {"interleaved": 2, "zbv": 2, "dualpipev": 2}.get(schedule, 1)
    lines = draw_pipeline(pipeline_run(schedule, chunks, 24, 0.1), width)
    assert max(map(len, lines)) <= width
    assert [line.split()[1] for line in lines[:12]] == [str(stage) for stage in range(12)]
    assert len({len(line) for line in lines[:12]}) == 1
    assert "column" in " ".join(lines[12:])


def test_what_takes_no_time_draws_nothing() -> None:
    run = pipeline_run("1f1b", [[StageTimes(0.0, 0.0)] * 2], 2, 0.0)
    assert draw_pipeline(run, 20)[:2] == ["stage 0 ............", "stage 1 ............"]
