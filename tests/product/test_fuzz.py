"""Damaged files of every kind: one clean sentence or a sound result; a failure can be had again.

``python tests/scripts/fuzz --mutations 100000`` is the full run, ``fuzz/results.txt`` what it
printed.
"""

from __future__ import annotations

import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from perfsim.models.language import Architecture
from perfsim.scenario import OPTION_GROUPS, SCENARIO_FIELDS
from scripts.fuzz import campaign
from scripts.fuzz.damage import damaged
from scripts.fuzz.more_parsers import read_app_request
from scripts.fuzz.parsers import PARSERS, UnsoundError, seeds, sound

NO_FLASK = pytest.mark.skipif(
    find_spec("flask") is None, reason="needs Flask (pip install 'perfsim[app]')"
)
EACH = [
    pytest.param(name, marks=NO_FLASK) if parser is read_app_request else name
    for name, parser in PARSERS.items()
]


@pytest.mark.parametrize("parser", EACH)
def test_what_damage_starts_from_is_sound(parser: str, tmp_path: Path) -> None:
    for seed in seeds(parser):
        path = tmp_path / seed.name
        path.write_bytes(seed.data)
        PARSERS[parser](path)


def test_sound_scenarios_and_flags_have_every_field() -> None:
    """A field that no sound file has is damaged in none."""
    scenarios = [tomllib.loads(seed.data.decode())["scenario"] for seed in seeds("scenario")]
    assert set().union(*scenarios) == set(SCENARIO_FIELDS)
    (flags,) = seeds("flags")
    named = {line.partition("=")[0] for line in flags.data.decode().splitlines()}
    assert named == set(SCENARIO_FIELDS) - set(OPTION_GROUPS) | {"set", "vary"}


def test_stated_models_have_every_number() -> None:
    """A number of an architecture that no line states is damaged in none."""
    (lines,) = seeds("stated")
    stated = [line.partition(":")[2].split(",") for line in lines.data.decode().splitlines()]
    named = {part.partition("=")[0] for parts in stated for part in parts}
    assert named >= set(Architecture._fields)


@pytest.mark.parametrize("parser", EACH)
def test_damaged_files_are_refused_in_a_sentence_or_read_soundly(
    parser: str, tmp_path: Path
) -> None:
    count = campaign.run(parser, range(200), 0, tmp_path)
    assert count.failures == []
    # Neither all refused at the door, nor damage that damages nothing.
    assert count.accepted > 0 and count.refused > 20


def test_a_case_is_the_same_whenever_it_is_asked_for() -> None:
    known = seeds("profile")
    cases = [campaign.case("profile", 3, number, known) for number in range(50)]
    assert cases == [campaign.case("profile", 3, number, known) for number in range(50)]
    assert len({data for _, data in cases}) > 40
    assert campaign.case("profile", 4, 7, known) != cases[7]


def breaks(path: Path) -> None:
    raise KeyError("a slip of ours")


def loops(path: Path) -> None:
    while True:
        pass


def grows(path: Path) -> None:
    bytearray(2 * campaign.MAX_CASE_BYTES)


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (breaks, "KeyError at test_fuzz.py"),
        (loops, "takes more than 0.05 s"),
        (grows, "MemoryError at test_fuzz.py"),
    ],
)
def test_what_fails_is_told_with_how_to_have_it_again(
    broken: object, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(campaign, "MAX_CASE_S", 0.05)
    monkeypatch.setitem(PARSERS, "prices", broken)  # type: ignore[arg-type]
    assert campaign.main(["--only", "prices", "--mutations", "1", "--seed", "5"]) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1].split()[:5] == ["prices", "1", "0", "0", "1"]
    assert told in printed.err
    assert "python tests/scripts/fuzz --only prices --seed 5 --case 0" in printed.err
    assert campaign.main(["--only", "prices", "--seed", "5", "--case", "0"]) == 1


@pytest.mark.parametrize("wrong", [float("nan"), {"a": [1.0, float("inf")]}, ("x\x1b[2J",)])
def test_numbers_not_finite_and_escape_sequences_are_not_sound(wrong: object) -> None:
    with pytest.raises(UnsoundError):
        sound(wrong)


def test_every_kind_of_damage_does_some() -> None:
    from random import Random

    from scripts.fuzz.damage import KINDS

    [seed] = seeds("pipeline")
    for kind in KINDS:
        found = {kind(seed.data, [seed.data], Random(number)) for number in range(20)}
        assert found - {seed.data}, kind.__name__
    assert damaged(b"", [], Random(1)) is not None
