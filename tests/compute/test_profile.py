"""The profile reader: what a good file gives, and that all that is written is read."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfsim.compute.profile import Gradient, Profile, read_profile
from perfsim.data.catalog import Catalog
from support.tiny_profile import GOOD, HEADER, ROWS, Read, read

__all__ = ["read"]


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


def test_another_width_is_another_size_whatever_was_asked_before() -> None:
    wide = Gradient("g", (3, 4), 0.0, 0)
    assert (wide.size_bytes, wide.elements) == (48.0, 12)
    assert wide.sent_in(2.0).size_bytes == 24.0
    assert wide.at(1.0, layer=2).size_bytes == 48.0


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
    stem = f"{profile.model}.{profile.gpu}.{profile.precision}.b{profile.batch}"
    assert path.stem in (stem, f"{stem}.s{profile.sequence}")
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
    from perfsim.compute.profile import Layer

    profile = Profile(
        "m", "g", "fp32", 1, 12e-3, 1e-3, (Layer("a", "conv", 2e-3, 4e-3),),
        (Gradient("a.w", (3, 5), 3e-3, 0),), {}, {},
    )  # fmt: skip
    scaled = profile.scaled(factor)
    for name in ("iteration_s", "optimizer_s", "forward_s", "backward_s", "other_s"):
        assert getattr(scaled, name) == pytest.approx(factor * getattr(profile, name))
    assert scaled.gradients[0].ready_s == pytest.approx(factor * 3e-3)
    assert scaled.elements == profile.elements


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
