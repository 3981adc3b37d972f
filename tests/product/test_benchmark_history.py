"""The history of benchmarks names what got worse, and nothing that a busy machine or noise did."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from scripts.benchmarks.history import Entry, append, is_worse, read, report

ONE = Entry(
    date="2026-11-27 12:00",
    commit="abc",
    machine="a processor (2 CPUs)",
    python="3.11.7",
    versions={"numpy": "2.4.6"},
    load=0.5,
    what="warm: predict()",
    value=1.0,
    unit="ms",
)
EARLIER = [replace(ONE, value=value) for value in (1.0, 1.02, 0.98, 1.01, 0.99)]


@pytest.mark.parametrize(
    ("changes", "worse"),
    [
        ({"value": 1.2}, True),
        ({"value": 1.08}, False),  # noise
        ({"value": 0.5}, False),  # better
        ({"value": 2.0, "load": 3.0}, False),  # beside other work
        ({"value": 2.0, "machine": "another"}, False),
        ({"value": 2.0, "python": "3.12.1"}, False),
        ({"value": 0.8, "least": True}, True),
        ({"value": 1.5, "least": True}, False),
    ],
)
def test_what_is_worse_beyond_noise(changes: dict[str, object], worse: bool) -> None:
    earlier = [replace(one, least=bool(changes.get("least"))) for one in EARLIER]
    assert is_worse(replace(ONE, **changes), earlier) is worse


def test_a_figure_that_scatters_must_change_by_more() -> None:
    noisy = [replace(ONE, value=value) for value in (1.0, 1.3, 0.8, 1.2, 0.9)]
    assert not is_worse(replace(ONE, value=1.4), noisy)
    assert is_worse(replace(ONE, value=2.0), noisy)


def test_a_busy_machine_is_no_reference() -> None:
    busy = [replace(one, value=0.1, load=8.0) for one in EARLIER]
    assert not is_worse(ONE, busy)
    assert not is_worse(ONE, [*busy, *EARLIER])


def test_a_history_is_kept_and_told(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    assert read(path) == []
    append(path, EARLIER)
    slower = replace(ONE, value=1.5, commit="def")
    append(path, [slower, replace(ONE, what="cold: start")])
    assert read(path) == [*EARLIER, slower, replace(ONE, what="cold: start")]
    told = report(read(path))
    assert told[0].split("  ")[0] == "warm: predict()" and told[0].endswith("ms  WORSE")
    assert "1.02 0.98 1.01 0.99 1.5 " in told[0] and "WORSE" not in told[1]
    assert told[-1] == "worse beyond noise: warm: predict() (since def)"


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    append(path, EARLIER[:1])
    with path.open("a") as file:
        file.write('{"what": 1}\n')
    with pytest.raises(ValueError, match=r"history\.jsonl, line 2: no figure"):
        read(path)
