"""Answers are the same on every Python, whatever its ``sum`` makes of floats."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.sums import _one_by_one, sum_in_order
from support.paths import ROOT

PRECISE = """
import builtins, math
import perfsim.sums
from perfsim.__main__ import run

def precise(values, /, start=0, plain=sum):
    values = list(values)
    if values and all(type(one) in (int, float) for one in values) and float in map(type, values):
        return start + math.fsum(values)
    return plain(values, start)

builtins.sum = precise
run()
"""
"""The command line where ``sum`` loses nothing of floats, as it loses little since Python 3.12."""


@given(st.lists(st.floats(-1e9, 1e9)))
def test_values_are_added_one_after_the_other(values: list[float]) -> None:
    total = 0.0
    for one in values:
        total += one
    assert sum_in_order(values) == _one_by_one(values) == total


def test_whole_numbers_stay_whole() -> None:
    assert isinstance(_one_by_one([2**60, 1]), int) and _one_by_one([2**60, 1]) == 2**60 + 1
    assert sum_in_order([], 5) == 5


def _said(start: list[str], line: str) -> object:
    done = subprocess.run(
        [sys.executable, *start, *line.split(), "--json"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "line",
    [
        "compare --model resnet50 --gpus 64 --net 10gbe",
        "predict --model resnet20-cifar --gpus 8 --gpu v100 --method spd_kfac",
        "predict --model gpt2 --gpu a100 --gpus 32 --net 100gbe --method fsdp --tp 2 --pp 2",
    ],
)
def test_no_answer_depends_on_how_sum_rounds(line: str) -> None:
    assert _said(["-c", PRECISE], line) == _said(["-m", "perfsim"], line)
