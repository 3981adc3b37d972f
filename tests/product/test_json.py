"""perfsim/JSON.md describes every key of every answer, and nothing else."""

from __future__ import annotations

import re

import pytest

from scripts import json_keys

ROWS = re.findall(r"^\| `(.+?)` \| (.*?) ?\| (.+) \|$", json_keys.DOCUMENT.read_text("utf-8"), re.M)
UNITS = {"_s": "s", "_bytes": "B", "_bytes_per_s": "B/s", "_ratio": "1", "_share": "1", "_w": "W"}


def test_every_key_is_described_and_is_there() -> None:
    assert json_keys.differences() == []


def test_a_new_key_and_one_that_is_gone_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"prediction": {"new_s"}, "scenario": set()}
    monkeypatch.setattr(json_keys, "collected", lambda: keys)
    monkeypatch.setattr(json_keys, "described", lambda: {"prediction": {"old_s"}})
    told = ["not described: prediction: new_s", "not there: prediction: old_s"]
    assert json_keys.differences() == told


def test_units_are_those_that_keys_end_with() -> None:
    assert len(ROWS) > 400
    for key, unit, _ in ROWS:
        last = max((end for end in UNITS if key.endswith(end)), key=len, default="")
        if last and not key.endswith(("samples_per_s", "tokens_per_s", "flop_per_s")):
            assert unit == UNITS[last], key
