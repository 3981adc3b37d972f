"""No pattern that is laid on a file's text takes longer than the text is long.

A regular expression that can read the same letters in two ways takes the square of their number,
or worse: a line of a megabyte then hangs the program. Found by the fuzz of log files.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import perfsim
from perfsim.calibrate.formats import read_log
from perfsim.errors import DataError

MOST_LOG_S = 5.0
"""The slowest takes 0.3 s; one that takes the square of its length, a minute."""
PACKAGE = Path(perfsim.__file__).parent

UNITS = (
    *(" ", "\t", "\n", ".", "-", "+", "e", "a", "A", "é", "0", "1", "[", "(", "{", "}", "<", "</"),
    *('"', "\\", "%", "&", "#", "=", "/", "a.", "a-", "a_", "a:", "a/", "a=", "a ", " a", " ("),
    *("# ", "1.", "1:", "1,", "1e", "1 ", "a,", "[1]", "[1] ", "<a>", "N/A ", "NCCL "),
    *("Rank 0 ", "[1,1]<a>", "_perf", "a:1:1 "),
)
"""What texts are made of that patterns are hard put to read: one of these over and over."""
LETTERS = 10_000
MOST_S = 0.015
"""A pattern that takes the square of that many letters takes over 30 ms; the others, 2.5 ms."""


def patterns() -> dict[str, re.Pattern[str]]:
    """Return the patterns that modules of perfsim hold, by module and name."""
    found = {}
    for one in pkgutil.walk_packages(perfsim.__path__, "perfsim."):
        if one.name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(one.name)
        except ImportError:  # what needs PyTorch measures, and reads no file
            continue
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                found[f"{one.name}.{name}"] = value
    return found


def seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def sought() -> set[str]:
    """Return the names of patterns that are looked for anywhere in a text."""
    code = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    return set(re.findall(r"\b([A-Z_]+)\.(?:search|sub|split|findall|finditer)\(", code))


def slow(pattern: re.Pattern[str], *, anywhere: bool = True) -> str:
    """Return a unit whose repetition a pattern reads slowly, or ""; ``anywhere``, or as a whole."""
    for unit in UNITS:
        for tail in ("", "!", " ! !"):
            text = unit * (LETTERS // len(unit)) + tail
            read = pattern.finditer if anywhere else (lambda text: (pattern.fullmatch(text),))
            tries = (seconds(lambda text=text, read=read: list(read(text))) for _ in range(3))
            if all(took_s > MOST_S for took_s in tries):  # a busy machine may be slow once
                return unit
    return ""


def test_patterns_take_as_long_as_their_text_is() -> None:
    held, anywhere = patterns(), sought()
    assert len(held) > 40
    assert len(anywhere) > 10
    found = {}
    for name, pattern in held.items():
        found[name] = slow(pattern, anywhere=False)
        if name.rpartition(".")[2] in anywhere:
            found[name] += slow(pattern)
    assert not {name: unit for name, unit in found.items() if unit}


@pytest.mark.parametrize("pattern", [r"\s+x", r"(?:a|b)*;", r"[^#]*#"])
def test_a_pattern_that_reads_letters_in_two_ways_is_found(pattern: str) -> None:
    assert slow(re.compile(pattern))


@pytest.mark.parametrize("unit", UNITS)
def test_a_log_with_one_very_long_line_is_read_at_once(unit: str, tmp_path: Path) -> None:
    log = tmp_path / "all_reduce.log"
    head = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
    log.write_text(head + unit * (100_000 // len(unit)) + "\n", encoding="utf-8")

    def read() -> None:
        with pytest.raises(DataError):
            read_log(log, collective="all_reduce", ranks=2)

    assert seconds(read) < MOST_LOG_S
