"""Answers are the same on every Python, whatever its ``sum`` makes of floats."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.sums import _one_by_one, sum_in_order
from support.commands import answer
from support.paths import ROOT

PRECISE = """
import builtins, math, sys
import perfsim.sums
from perfsim.cli.main import code

def precise(values, /, start=0, plain=sum):
    values = list(values)
    if values and all(type(one) in (int, float) for one in values) and float in map(type, values):
        return start + math.fsum(values)
    return plain(values, start)

builtins.sum = precise
for line in sys.argv[1:]:
    assert code([*line.split(), "--json"]) == 0
    print(end="\\0")
"""
"""Command lines where ``sum`` loses nothing of floats, as it loses little since Python 3.12."""

LINES = (
    "compare --model resnet50 --gpus 64 --net 10gbe",
    "predict --model resnet20-cifar --gpus 8 --gpu v100 --method spd_kfac",
    "predict --model gpt2 --gpu a100 --gpus 32 --net 100gbe --method fsdp --tp 2 --pp 2",
)


@given(st.lists(st.floats(-1e9, 1e9)))
def test_values_are_added_one_after_the_other(values: list[float]) -> None:
    total = 0.0
    for one in values:
        total += one
    assert sum_in_order(values) == _one_by_one(values) == total


def test_whole_numbers_stay_whole() -> None:
    assert isinstance(_one_by_one([2**60, 1]), int) and _one_by_one([2**60, 1]) == 2**60 + 1
    assert sum_in_order([], 5) == 5


@pytest.fixture(scope="module")
def precise() -> dict[str, object]:
    """Return what a process with another ``sum`` answers to each line."""
    asked = [sys.executable, "-c", PRECISE, *LINES]
    done = subprocess.run(asked, capture_output=True, text=True, check=True, cwd=ROOT)
    return dict(zip(LINES, map(json.loads, done.stdout.split("\0")[:-1]), strict=True))


@pytest.mark.parametrize("line", LINES)
def test_no_answer_depends_on_how_sum_rounds(
    line: str, precise: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert precise[line] == answer(line, capsys)
