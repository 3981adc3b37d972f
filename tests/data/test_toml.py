"""TOML models: the line of every key, units, unknown and missing keys."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import Field

from perfsim.data.catalog import shipped
from perfsim.data.toml import (
    BytesPerSecond,
    HopSeconds,
    Tables,
    Text,
    TomlModel,
    WholeNumber,
    YesOrNo,
    key_lines,
    parse_toml,
    read_toml,
)
from perfsim.errors import DataError

FILES = sorted((*shipped().rglob("*.toml"), *shipped("scenarios").glob("*.toml")))


def places(value: object, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Go through the place of every key and list entry of a file's values."""
    inside: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        inside = list(value.items())
    elif isinstance(value, list):
        inside = list(enumerate(value))
    for key, below in inside:
        yield (*at, key)
        yield from places(below, (*at, key))


def test_every_key_of_every_shipped_file_has_its_line() -> None:
    assert len(FILES) > 100
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        lines = key_lines(text)
        for place in places(tomllib.loads(text)):
            line = text.splitlines()[lines[place] - 1]
            if isinstance(place[-1], str):
                assert place[-1] in line, (path, place)


@pytest.mark.parametrize(
    ("text", "place", "line"),
    [
        ("a.b = 1\na.c = 2\n", ("a", "c"), 2),
        ('"a b" = 1\n', ("a b",), 1),
        ('a = """\n[b]\nc = 1\n"""\n[b]\nc = 2\n', ("b", "c"), 6),
        ("a = '''\n'x' \"\n'''\nb = [ # ]\n 1,\n 1979-05-27 07:32:00, # [\n 2.5 ]\n", ("b", 2), 7),
        ("[[a]]\n[[a.b]]\nc = 1\n[[a]]\n[[a.b]]\n[[a.b]]\nc = 2\n", ("a", 1, "b", 1, "c"), 7),
        ("a = [{b = {c = 1}},\n{b = {c = 2}}]\n", ("a", 1, "b", "c"), 2),
        ('a = "\\"[" # "\nb = 1\n', ("b",), 2),
    ],
)
def test_lines_by_hand(text: str, place: tuple[str | int, ...], line: int) -> None:
    tomllib.loads(text)
    assert key_lines(text)[place] == line


class Port(TomlModel):
    """A port of a switch."""

    rate: BytesPerSecond
    latency: HopSeconds = 0.0


class Switch(TomlModel):
    """A file of a test."""

    SCHEMA = "perfsim/switch/1"
    name: Text = Field(description="what it is called")
    slots: WholeNumber = 1
    managed: YesOrNo = False
    port: Tables[Port]


GOOD = """\
schema = "perfsim/switch/1"
name = "edge"

[[port]]
rate = "10Gbit/s"

[[port]]
rate = "1GB/s"
latency = "5us"
"""


def test_a_file_is_read_with_its_units(tmp_path: Path) -> None:
    path = tmp_path / "switch.toml"
    path.write_text(GOOD)
    switch = read_toml(path, Switch)
    assert (switch.name, switch.slots) == ("edge", 1)
    assert [(port.rate, port.latency) for port in switch.port] == [(1.25e9, 0.0), (1e9, 5e-6)]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("switch/1", "switch/2", ", line 1: schema: found 'perfsim/switch/2', this perfsim reads"),
        ('"perfsim/switch/1"', "0x" + "f" * 9999, ", line 1: schema: found a number of thousan"),
        ('name = "edge"\n', "", ": name: is missing: what it is called"),
        ('"edge"', "3", ", line 2: name: found 3, allowed is a text"),
        ('"edge"', '"edge"\nslots = true', ", line 3: slots: found true, allowed is a whole num"),
        ('"edge"', '"edge"\nmanaged = 1', ", line 3: managed: found 1, allowed are true and fal"),
        ("latency", "latancy", ", line 9: port[2].latancy: unknown key; did you mean 'latency'?"),
        (
            '"1GB/s"',
            '"1GB"',
            ", line 8: port[2].rate: '1GB' is not a rate ('GB' is a unit of sizes",
        ),
        ('"5us"', '"1h"', ", line 9: port[2].latency: found '1h', allowed is 0 s to 10 s"),
        ('"5us"', "nan", ", line 9: port[2].latency: 'nan' is not a time; give a number and a"),
        (GOOD[GOOD.index("\n[[") :], "port = 3", ", line 3: port: found 3, allowed are one or m"),
        (GOOD[GOOD.index("\n[[") :], "port = [1]", ", line 3: port[1]: found 1, allowed is a ta"),
        (GOOD[GOOD.index("\n[[") :], "port = []", ", line 3: port: found [], allowed are one or"),
    ],
)
def test_a_refusal_names_line_key_and_what_is_allowed(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    path = tmp_path / "switch.toml"
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(DataError) as error:
        read_toml(path, Switch)
    assert str(error.value).startswith(f"{path}{message}")


def test_a_long_key_is_cut_in_what_the_parser_says(tmp_path: Path) -> None:
    path = tmp_path / "twice.toml"
    path.write_text(f"[{'n' * 3000}]\n[{'n' * 3000}]\n")
    with pytest.raises(DataError) as caught:
        parse_toml(path)
    said = str(caught.value).removeprefix(f"{path}: ")
    assert said.startswith("is not TOML: Cannot declare ('nnn") and len(said) < 150
    assert "... (at line 2, " in said
