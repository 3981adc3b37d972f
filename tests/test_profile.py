"""The profile reader: what a good file gives, and that every damage is named with its place."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfsim.catalog import Catalog
from perfsim.errors import DataError
from perfsim.profile import Gradient, Profile
from perfsim.profile_file import read_profile

HEADER = """\
# schema: perfsim/profile/1
# model: tiny
# gpu: v100
# precision: fp32
# batch: 32
# iteration_ms: 12
# optimizer_ms: 1
# kind: forward_ms=measured; backward_ms=measured; ready_ms=derived; iteration_ms=measured; \
optimizer_ms=published
# source: made up for this test
"""
ROWS = """\
layer,kind,tensor,shape,elements,forward_ms,backward_ms,ready_ms
conv1,conv,conv1.weight,64x3x7x7,9408,2,4,7
conv1,conv,conv1.bias,64,64,,,7
fc,linear,fc.weight,10x64,640,1,3,2.5
fc,linear,fc.bias,10,10,,,0.5
"""
GOOD = HEADER + ROWS
FIRST_ROW = GOOD.count("\n") - 3
"""The line of conv1.weight."""


@pytest.fixture
def read(tmp_path: Path) -> Callable[[str | bytes], Profile]:
    def write_and_read(content: str | bytes) -> Profile:
        path = tmp_path / "tiny.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_profile(path)

    return write_and_read


Read = Callable[[str | bytes], Profile]


def test_a_good_file_by_hand(read: Read) -> None:
    profile = read(GOOD)
    assert (profile.model, profile.gpu, profile.precision, profile.batch) == (
        "tiny", "v100", "fp32", 32,
    )  # fmt: skip
    assert profile.forward_s == pytest.approx(3e-3)
    assert profile.backward_s == pytest.approx(7e-3)
    assert profile.optimizer_s == pytest.approx(1e-3)
    assert profile.other_s == pytest.approx(12e-3 - 11e-3)
    assert [layer.name for layer in profile.layers] == ["conv1", "fc"]
    assert [gradient.layer for gradient in profile.gradients] == [0, 0, 1, 1]
    assert profile.elements == 9408 + 64 + 640 + 10
    assert profile.size_bytes == 4 * profile.elements
    assert profile.kinds["ready_ms"] == "derived"
    assert profile.kinds["optimizer_ms"] == "published"
    assert profile.sequence is None


def test_ready_order_is_by_time_then_last_registered_first(read: Read) -> None:
    assert [gradient.name for gradient in read(GOOD).in_ready_order()] == [
        "fc.bias", "fc.weight", "conv1.bias", "conv1.weight",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "matrix"),
    [((64, 3, 7, 7), (64, 147)), ((10, 64), (10, 64)), ((64,), (64, 1)), ((1,), (1, 1))],
)
def test_low_rank_methods_see_first_axis_by_the_rest(
    shape: tuple[int, ...], matrix: tuple[int, int]
) -> None:
    assert Gradient("g", shape, 0.0, 0).matrix == matrix


def test_columns_may_stand_in_another_order_and_others_beside_them(read: Read) -> None:
    lines = ROWS.splitlines()
    turned = "\n".join(",".join([*reversed(line.split(",")), "note"]) for line in lines)
    assert read(HEADER + turned).gradients == read(GOOD).gradients


@pytest.mark.parametrize(
    "content",
    [
        GOOD.replace("\n", "\r\n"),
        "\ufeff" + GOOD,
        GOOD + "\n\n",
        GOOD.replace("# gpu: v100", "#gpu:v100"),
    ],
    ids=["crlf", "byte-order mark", "blank lines", "tight header"],
)
def test_harmless_differences_read_alike(read: Read, content: str) -> None:
    assert read(content).gradients == read(GOOD).gradients
    assert read(content).gpu == "v100"


@pytest.mark.parametrize(
    "path", sorted(Catalog().files("models").values()), ids=lambda path: str(path.stem)
)
def test_every_shipped_profile_reads_and_is_named_after_what_it_holds(path: Path) -> None:
    profile = read_profile(path)
    assert path.stem == f"{profile.model}.{profile.gpu}.{profile.precision}.b{profile.batch}"
    order = profile.in_ready_order()
    assert order[0].ready_s < order[-1].ready_s <= profile.backward_s * (1 + 1e-6)
    assert 0 < profile.forward_s < profile.iteration_s


@pytest.mark.parametrize("name", ["tiny.csv", "tiny.a100.csv", "tiny.v100.fp32.b32.csv"])
def test_the_file_is_named_after_its_model(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(GOOD)
    assert read_profile(tmp_path / name).model == "tiny"


@pytest.mark.parametrize("text", ["128", "128.0"])
def test_sequence_is_a_whole_number(read: Read, text: str) -> None:
    assert read(f"# sequence: {text}\n{GOOD}").sequence == 128


@given(st.floats(1e-3, 1e3))
def test_scaling_multiplies_every_time_and_nothing_else(factor: float) -> None:
    from perfsim.profile import Layer

    profile = Profile(
        "m", "g", "fp32", 1, 12e-3, 1e-3, (Layer("a", "conv", 2e-3, 4e-3),),
        (Gradient("a.w", (3, 5), 3e-3, 0),), {}, {},
    )  # fmt: skip
    scaled = profile.scaled(factor)
    for name in ("iteration_s", "optimizer_s", "forward_s", "backward_s", "other_s"):
        assert getattr(scaled, name) == pytest.approx(factor * getattr(profile, name))
    assert scaled.gradients[0].ready_s == pytest.approx(factor * 3e-3)
    assert scaled.elements == profile.elements


# -- damages: (what to replace, by what, words of the message) --------------------------------

DAMAGES = {
    "letter in a time": (
        "9408,2,4,7", "9408,2,4o,7",
        ["'4o' is not a number", f"line {FIRST_ROW}", "'backward_ms'"],
    ),
    "letter in elements": (
        ",9408,", ",94O8,", ["'94O8' is not a whole number", f"line {FIRST_ROW}", "'elements'"]
    ),
    "underscore in a number": (
        "9408,2,4,7", "9408,2,4_0,7", ["'4_0'", f"line {FIRST_ROW}", "'backward_ms'"]
    ),
    "missing column": (",ready_ms", ",ready", ["missing column", "line 10", "'ready_ms'"]),
    "negative time": (
        "640,1,3,2.5", "640,-1,3,2.5",
        ["'-1' is not a number not below zero", f"line {FIRST_ROW + 2}", "'forward_ms'"],
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
    "batch of zero": ("batch: 32", "batch: 0", ["'0' is not a whole number above zero"]),
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
    "time below all times": ("640,1,3,2.5", "640,1e-320,3,2.5", ["'1e-320' is outside 1e-15 s"]),
    "time above all times": ("iteration_ms: 12", "iteration_ms: 1e300", ["'1e300' is outside"]),
    "batch above all": ("batch: 32", "batch: 1e30", ["'1e30' is outside 1 to 1e9", "line 5"]),
    "sequence above all": ("# gpu", "# sequence: 1e30\n# gpu", ["'1e30' is outside", "line 3"]),
    "axis of thousands of digits": ("64x3x7x7", "9" * 5000, ["'9999", "...", "is not a shape"]),
    "elements above all": ("64x3x7x7,9408", "9999999999x9999999999,1e20", ["'1e20' is outside"]),
    "quote never closed": ("conv1,conv,conv1.w", 'conv1,"conv,conv1.w', ["2 cells", "line 11"]),
}  # fmt: skip


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
        (b"", "no 'schema' line"),
        (b"\n\n", "no 'schema' line"),
        (b"\x93NUMPY\x01\x00\xff\xfe", "cannot be read"),
        (bytes(range(256)) * 20, "cannot be read"),
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


times_ms = st.floats(0, 1e4).map(lambda value: round(value, 6))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    layers=st.lists(
        st.tuples(
            times_ms,
            times_ms,
            st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=4), min_size=1, max_size=3),
        ),
        min_size=1,
        max_size=6,
    ),
    part=st.floats(0, 1).map(lambda value: round(value, 6)),
)
def test_what_is_written_is_read(
    read: Read, layers: list[tuple[float, float, list[list[int]]]], part: float
) -> None:
    forward_ms = sum(layer[0] for layer in layers)
    backward_ms = sum(layer[1] for layer in layers)
    lines = [ROWS.splitlines()[0]]
    for place, (forward, backward, shapes) in enumerate(layers):
        for index, shape in enumerate(shapes):
            times = f"{forward!r},{backward!r}" if index == 0 else ","
            lines.append(
                f"layer{place},any,t{place}.{index},{'x'.join(map(str, shape))},"
                f"{math.prod(shape)},{times},{part * backward_ms!r}"
            )
    whole_ms = forward_ms + backward_ms + 2
    header = HEADER.replace("iteration_ms: 12", f"iteration_ms: {whole_ms!r}")
    profile = read(header + "\n".join(lines))
    assert profile.forward_s * 1e3 == pytest.approx(forward_ms, abs=1e-9)
    assert profile.backward_s * 1e3 == pytest.approx(backward_ms, abs=1e-9)
    assert profile.other_s * 1e3 == pytest.approx(1, abs=1e-9)
    assert [list(gradient.shape) for gradient in profile.gradients] == [
        shape for layer in layers for shape in layer[2]
    ]
    assert sum(g.elements for g in profile.in_ready_order()) == profile.elements
