"""Tables of a GPU's kernels: those that ship read, what is damaged is named by its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfsim.compute.device import measured_kernels, read_kernels
from perfsim.data.catalog import shipped
from perfsim.errors import DataError
from support.hand_device_files import HEAD, ROWS, points
from support.what_ships import SHIPPED


def test_every_kernel_table_that_ships_reads() -> None:
    paths = sorted((shipped() / "devices").glob("*.kernels.csv"))
    assert paths
    for path in paths:
        for name, curves in read_kernels(path).items():
            assert name and all(time > 0 for curve in curves for time in curve.times_s)


def test_points_of_any_gpu_may_lie_beside_one(tmp_path: Path) -> None:
    path = tmp_path / "hand.kernels.csv"
    path.write_text(HEAD.replace("hand", "any") + "pack,10,0,5,measured,,p,\n")
    assert set(read_kernels(path)) == {"pack"}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("pack,0,0,5,measured,,p,", "column 'elements': '0' is not allowed: it must be 1 to 1e15"),
        (
            "pack,1.5,0,5,measured,,p,",
            "column 'elements': '1.5' is not a whole number; it must be 1 to 1e15",
        ),
        (
            "pack,1e300,0,5,measured,,p,",
            "column 'elements': '1e300' is not allowed: it must be 1 to 1e15",
        ),
        (
            "pack,10,-1,5,measured,,p,",
            "column 'width': '-1' is not allowed: it must be 0, or 1 to 1e9",
        ),
        (
            "pack,10,0,fast,measured,,p,",
            "column 'time_us': 'fast' is not a number; it must be 1e-15 s",
        ),
        (
            "pack,10,0,1e-320,measured,,p,",
            "'time_us': '1e-320' is not allowed: it must be 1e-15 s to 1e9 s",
        ),
        (
            "pack,10,0,1e300,measured,,p,",
            "'time_us': '1e300' is not allowed: it must be 1e-15 s to 1e9 s",
        ),
        ("pack,10,0,5,guessed,,p,", "column 'kind': 'guessed' is no kind; allowed: measured"),
        (",10,0,5,measured,,p,", "column 'kernel': is empty"),
        ("pack,10,0,5,measured,,,", "column 'source': is empty"),
        ("pack,10,0,5", "line 4: 4 cells, the head has 8"),
    ],
)
def test_damaged_kernel_rows_name_the_place(tmp_path: Path, row: str, said: str) -> None:
    with pytest.raises(DataError) as caught:
        points(tmp_path, row)
    assert said in str(caught.value)
    assert f"{tmp_path / 'hand.kernels.csv'}, line 4" in str(caught.value)


def test_rows_with_and_without_a_width_are_refused_together(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 5, column 'width': 5 beside 0 further up: either no"):
        points(tmp_path, "qr,10,0,5,measured,,p,", "qr,10,5,5,measured,,p,")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("# gpu: k80\n", r"line 2: the header's gpu is 'k80', .* '# gpu: hand' or '# gpu: any'"),
        ("", r"line 1: the header's gpu is missing, the file's name asks for '# gpu: hand'"),
        ("# gpu: hand\n# gpu: k80\n", "line 3: the header's gpu is there twice"),
    ],
)
def test_kernel_file_of_another_gpu_is_refused(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "hand.kernels.csv"
    path.write_text(HEAD.replace("# gpu: hand\n", line))
    with pytest.raises(DataError, match=said):
        read_kernels(path)


def test_kernel_file_without_a_column_names_it(tmp_path: Path) -> None:
    path = tmp_path / "x.kernels.csv"
    path.write_text("# schema: perfsim/kernels/1\n# gpu: x\nkernel,elements,width,kind\n")
    with pytest.raises(DataError, match="column 'time_us': missing column"):
        read_kernels(path)


def test_kernel_file_with_a_column_twice_names_it(tmp_path: Path) -> None:
    path = tmp_path / "hand.kernels.csv"
    path.write_text(HEAD.replace("note", "note,kind"))
    with pytest.raises(DataError, match="line 3, column 'kind': stands twice"):
        read_kernels(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(start=st.integers(0, len(ROWS)), length=st.integers(0, 12), new=st.text(max_size=6))
def test_any_damage_gives_a_kernel_table_or_a_data_error(
    tmp_path: Path, start: int, length: int, new: str
) -> None:
    path = tmp_path / "hand.kernels.csv"
    text = ROWS[:start] + new + ROWS[start + length :]
    path.write_bytes(text.encode(errors="surrogatepass"))
    try:
        assert all(
            0 < t < 1e9 for c in read_kernels(path).values() for one in c for t in one.times_s
        )
    except DataError as error:
        assert str(error).startswith(str(path)) and "\n" not in str(error)


def test_points_of_owners_left_out_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "hand.kernels.csv"
    path.write_text(
        HEAD
        + 'pack,10,0,5,measured,,"A. Person (authors of Some-Lab/code), figure 2",\n'
        + "pack,20,0,9,measured,,other/code@1 log,\n"
        + "sort,10,0,5,measured,,some-lab/code@2 log,\n"
    )
    assert set(read_kernels(path)) == {"pack", "sort"}
    left = read_kernels(path, {"some-lab"})
    assert set(left) == {"pack"} and left["pack"][0].sizes == (20.0,)


def test_whether_a_source_measured_kernels_is_read_off_every_gpus_file() -> None:
    assert measured_kernels(SHIPPED, {"zhuangwang93"})
    assert measured_kernels(SHIPPED, {"nobody", "hkbu-hpml"})
    assert not measured_kernels(SHIPPED, {"nobody"})
    assert not measured_kernels(SHIPPED, set())
