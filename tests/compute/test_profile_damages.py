"""The profile reader: every damage is named with its place."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfsim.compute.profile import read_profile
from perfsim.errors import DataError
from support.tiny_profile import FIRST_ROW, GOOD, HEADER, ROWS, Read, read

__all__ = ["read"]

DAMAGES = {
    "letter in a time": (
        "9408,2,4,7", "9408,2,4o,7",
        ["'4o' is not a number", f"line {FIRST_ROW}", "'backward_ms'"],
    ),
    "letter in elements": (
        ",9408,", ",94O8,", ["'94O8' is not a number", f"line {FIRST_ROW}", "'elements'"]
    ),
    "underscore in a number": (
        "9408,2,4,7", "9408,2,4_0,7", ["'4_0'", f"line {FIRST_ROW}", "'backward_ms'"]
    ),
    "missing column": (",ready_ms", ",ready", ["missing column", "line 10", "'ready_ms'"]),
    "negative time": (
        "640,1,3,2.5", "640,-1,3,2.5",
        ["'-1' is not allowed", "0, or 1e-15 s to 1e9 s", f"line {FIRST_ROW + 2}", "'forward_ms'"],
    ),
    "time that is no number": ("640,1,3,2.5", "640,nan,3,2.5", ["'nan'", "'forward_ms'"]),
    "infinite time": ("640,1,3,2.5", "640,1,1e999,2.5", ["'1e999'", "'backward_ms'"]),
    "missing time": ("640,1,3,2.5", "640,,3,2.5", ["'' is not a number", "'forward_ms'"]),
    "missing ready time": (
        "10,10,,,0.5", "10,10,,,", ["'' is not", f"line {FIRST_ROW + 3}", "'ready_ms'"]
    ),
    "duplicate tensor": (
        "conv1.bias", "conv1.weight",
        [f"'conv1.weight' stands on line {FIRST_ROW} already", f"line {FIRST_ROW + 1}", "'tensor'"],
    ),
    "times twice": (
        "64,64,,,7", "64,64,,4,7", ["has its times", f"line {FIRST_ROW + 1}", "'backward_ms'"]
    ),
    "nameless tensor": ("fc.weight", "", ["is empty", f"line {FIRST_ROW + 2}", "'tensor'"]),
    "nameless layer": ("fc,linear,fc.weight", ",linear,fc.weight", ["is empty", "'layer'"]),
    "bad shape": ("64x3x7x7", "64x3xx7", ["'64x3xx7' is not a shape", "'shape'"]),
    "shape with zero": ("64x3x7x7", "64x0x7x7", ["is not a shape", f"line {FIRST_ROW}"]),
    "no shape": ("64x3x7x7", "", ["'' is not a shape", f"line {FIRST_ROW}"]),
    "elements not matching": (
        ",9408,", ",9409,", ["9409 is not the product of shape 64x3x7x7", f"line {FIRST_ROW}",
                             "'elements'"],
    ),
    "fraction of an element": (",9408,", ",9408.5,", ["'9408.5' is not a whole number"]),
    "cell too many": ("64,64,,,7", "64,64,,,7,7", ["9 cells, the head has 8", "line 12"]),
    "cell too few": ("64,64,,,7", "64,64,,7", ["7 cells, the head has 8", "line 12"]),
    "ready after backward": (
        "9408,2,4,7", "9408,2,4,7.5",
        ["'conv1.weight' is ready at 7.5 ms", "at 7 ms", f"line {FIRST_ROW}", "'ready_ms'"],
    ),
    "wrong schema": (
        "perfsim/profile/1", "perfsim/network/1", ["schema is 'perfsim/network/1'", "line 1"]
    ),
    "newer schema": (
        "perfsim/profile/1", "perfsim/profile/2",
        ["schema is 'perfsim/profile/2'", "a newer perfsim", "line 1"],
    ),
    "missing header key": ("# gpu: v100\n", "", ["no 'gpu' line"]),
    "empty header key": ("# gpu: v100", "# gpu:", ["no 'gpu' line"]),
    "duplicate header key": (
        "# gpu: v100\n", "# gpu: v100\n# gpu: a100\n",
        ["'gpu' stands on line 3 already", "line 4"],
    ),
    "header without colon": ("# gpu: v100", "# gpu v100", ["'# gpu v100' is not", "line 3"]),
    "unknown precision": ("fp32", "fp33", ["'fp33'; allowed: fp32, tf32", "line 4"]),
    "letter in the batch": ("batch: 32", "batch: 3z", ["'3z'", "line 5", "'batch'"]),
    "batch of zero": ("batch: 32", "batch: 0", ["'0' is not allowed: it must be 1 to 1e9"]),
    "half a batch": ("batch: 32", "batch: 32.5", ["'32.5' is not a whole number"]),
    "negative optimizer": ("optimizer_ms: 1", "optimizer_ms: -1", ["'-1'", "line 7"]),
    "parts exceed the whole": (
        "iteration_ms: 12", "iteration_ms: 10", ["sum to 11 ms", "iteration_ms 10", "line 6"]
    ),
    "unknown kind": ("ready_ms=derived", "ready_ms=guessed", ["'ready_ms=guessed'", "line 8"]),
    "kind of no column": ("ready_ms=derived", "redy_ms=derived", ["'redy_ms=derived'", "line 8"]),
    "kind missing": (" ready_ms=derived;", "", ["lacks ready_ms", "line 8"]),
    "sequence no number": ("# gpu", "# sequence: long\n# gpu", ["'long'", "line 3", "'sequence'"]),
    "model of another name": (
        "model: tiny", "model: zz",
        ["model is 'zz', the file's name up to its first dot says 'tiny'", "line 2"],
    ),
    "time below all times": ("640,1,3,2.5", "640,1e-320,3,2.5", ["'1e-320' is not allowed"]),
    "time above all times": ("iteration_ms: 12", "iteration_ms: 1e300", ["'1e300' is not allowed"]),
    "batch above all": ("batch: 32", "batch: 1e30", ["'1e30' is not allowed", "line 5"]),
    "sequence above all": ("# gpu", "# sequence: 1e30\n# gpu", ["'1e30' is not allowed", "line 3"]),
    "axis of thousands of digits": ("64x3x7x7", "9" * 5000, ["'9999", "...", "is not a shape"]),
    "elements above all": ("64x3x7x7,9408", "9999999999x9999999999,1e20", ["'1e20' is not"]),
    "quote never closed": ("conv1,conv,conv1.w", 'conv1,"conv,conv1.w', ["2 cells", "line 11"]),
}  # fmt: skip
"""What to replace, by what, and words of the message."""


def test_parts_may_exceed_the_whole_by_what_each_was_rounded(read: Read) -> None:
    """Six numbers with six digits each: 3e-6 ms, which is much of a step of microseconds."""
    small = GOOD.replace("9408,2,4,7", "9408,0.002,0.004,0.007").replace(",64,,,7", ",64,,,0.007")
    small = small.replace("640,1,3,2.5", "640,0.001,0.003,0.002").replace(",,,0.5", ",,,0.001")
    small = small.replace("optimizer_ms: 1", "optimizer_ms: 0.001")
    assert read(small.replace("iteration_ms: 12", "iteration_ms: 0.010997")).other_s == 0.0
    with pytest.raises(DataError, match="sum to 0.011 ms, more than iteration_ms 0.010996"):
        read(small.replace("iteration_ms: 12", "iteration_ms: 0.010996"))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damage_is_named_with_its_place(read: Read, tmp_path: Path, damage: str) -> None:
    old, new, words = DAMAGES[damage]
    assert GOOD.count(old) >= 1, "the damage does not touch the file"
    with pytest.raises(DataError) as caught:
        read(GOOD.replace(old, new, 1))
    message = str(caught.value)
    assert message.startswith(str(tmp_path / "tiny.csv")) and "\n" not in message
    assert [word for word in words if word not in message] == []
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is no profile: it has no line '# schema: perfsim/profile/1'"),
        (b"\n\n", "is no profile: it has no line '# schema: perfsim/profile/1'"),
        (b"\x93NUMPY\x01\x00\xff\xfe", "is not text in UTF-8: byte 1 of 10 is wrong$"),
        (bytes(range(256)) * 20, "is not text in UTF-8: byte 129 of 5,120 is wrong$"),
        (HEADER.encode(), "missing column"),
        ((HEADER + ROWS.splitlines()[0]).encode(), "holds no gradient"),
        ((GOOD + '"' + "x" * 200_000).encode(), "is not CSV"),
    ],
    ids=["empty", "blank", "binary", "every byte", "header only", "no rows", "huge cell"],
)
def test_a_file_that_is_no_profile_is_refused(read: Read, content: bytes, words: str) -> None:
    with pytest.raises(DataError, match=words):
        read(content)


@pytest.mark.parametrize("name", ["missing.csv", "."])
def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_profile(tmp_path / name)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(start=st.integers(0, len(GOOD)), length=st.integers(0, 12), new=st.text(max_size=6))
def test_any_damage_gives_a_profile_or_a_data_error(
    read: Read, start: int, length: int, new: str
) -> None:
    try:
        content = (GOOD[:start] + new + GOOD[start + length :]).encode()
    except UnicodeEncodeError:
        return
    try:
        profile = read(content)
    except DataError as error:
        assert "tiny.csv" in str(error)
        return
    assert profile.forward_s + profile.backward_s <= profile.iteration_s * (1 + 1e-6)
    assert all(math.prod(gradient.shape) > 0 for gradient in profile.gradients)
