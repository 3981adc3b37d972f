"""``perfsim calibrate kernels``: its files of points and of a device, and its table, by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.calibrate.measure.journals import KernelPoint
from perfsim.calibrate.measure.kernel_files import (
    device_figures,
    device_text,
    kernel_lines,
    other_rows,
    points_text,
)
from perfsim.compute.device import load_device, read_device, read_kernels
from perfsim.compute.kernel import elementwise
from perfsim.data.catalog import Catalog
from support.hand_benches import bench, journal

ABOUT = {"gpu": "card", "software": "some version", "source": "here", "licence": "own", "date": "-"}


@given(
    st.lists(
        st.tuples(st.integers(1, 10**9), st.floats(1e-7, 10)), min_size=1, unique_by=lambda x: x[0]
    )
)
def test_points_read_back_as_the_device_reads_them(
    tmp_path_factory: pytest.TempPathFactory, found: list[tuple[int, float]]
) -> None:
    folder = tmp_path_factory.mktemp("points")
    of = journal(folder)
    for elements, seconds in found:
        of.add_point(KernelPoint("scale", elements, 0, (seconds,) * 5))
    path = folder / "card.kernels.csv"
    path.write_text(points_text([bench("scale", lambda size: 1.0)], of, ABOUT))
    (curve,) = read_kernels(path)["scale"]
    assert curve.sizes == tuple(sorted(elements for elements, _ in found))
    assert set(curve.kinds) == {"measured"}
    highest = 0.0  # a larger size never costs less, as perfsim reads points
    for (_, seconds), read_s in zip(sorted(found), curve.times_s, strict=True):
        highest = max(highest, seconds)
        assert math.isclose(read_s, highest, rel_tol=1e-3)


def test_rows_of_kernels_not_measured_stay(tmp_path: Path) -> None:
    shipped = Catalog().beside("devices", "a100", ".kernels.csv")
    of = journal(tmp_path)
    of.add_point(KernelPoint("eigh", 4096, 0, (1e-3,) * 5))
    path = tmp_path / "a100.kernels.csv"
    text = points_text([bench("eigh", lambda size: 1.0)], of, {**ABOUT, "gpu": "a100"})
    path.write_text(text + other_rows(shipped, {"eigh"}))
    assert shipped is not None
    before, after = read_kernels(shipped), read_kernels(path)
    assert after["dietgpu_encode"] == before["dietgpu_encode"]
    assert math.isclose(after["eigh"][0].times_s[0], 1e-3)
    assert after["eigh"][0].kinds == ("measured",)


def test_a_device_file_says_what_was_measured(tmp_path: Path) -> None:
    of = journal(tmp_path)
    of.add_point(KernelPoint("stream_add", 10**8, 0, (1.2e-3,) * 5))  # 12 bytes a value: 1 TB/s
    of.add_point(KernelPoint("stream_copy", 10**8, 0, (1.6e-3,) * 5))  # 8 bytes a value: 500 GB/s
    of.add_point(KernelPoint("stream_scale", 10**6, 0, (1e-7,) * 5))  # in a cache
    of.add_point(KernelPoint("stream_scale", 10**8, 0, (1e-3,) * 5))  # 800 GB/s
    of.add_point(KernelPoint("launch_queued", 1024, 0, (4e-6,) * 5))
    of.add_point(KernelPoint("matrix_fp32", 10**6, 0, (1e-3,) * 5))  # 2e9 operations
    of.add_point(KernelPoint("matrix_fp32", 4 * 10**6, 0, (4e-3,) * 5))  # 16e9
    path = tmp_path / "card.toml"
    text = device_text("card", "A card", 16e9, device_figures(of), "here")
    assert text is not None
    path.write_text(text)
    device = read_device(path)
    assert device.memory_bandwidth.value == 800e9
    assert device.launch_s.value == 4e-6
    assert device.matrix_rate("fp32").value == 4e12
    origins = (device.memory_bandwidth, device.launch_s, device.matrix_rate("fp32"))
    assert {quantity.kind for quantity in origins} == {"measured"}
    assert device.memory_bytes == 16e9


def test_a_device_file_of_a_busy_machine_reads_back(tmp_path: Path) -> None:
    of = journal(tmp_path)
    for kernel, time_s in (("stream_add", 1e-3), ("stream_copy", 1e-2), ("stream_scale", 1.0)):
        of.add_point(KernelPoint(kernel, 10**8, 0, (time_s,) * 5))
    of.add_point(KernelPoint("launch_queued", 1024, 0, (4e-6,) * 5))
    of.add_point(KernelPoint("matrix_fp32", 10**6, 0, (1e-3,) * 5))
    (tmp_path / "card.toml").write_text(
        device_text("card", "A card", 16e9, device_figures(of), "here") or ""
    )
    assert read_device(tmp_path / "card.toml").memory_bandwidth.spread == 3.0  # 300 %, the most


def test_no_device_file_without_bandwidth_launch_and_rate(tmp_path: Path) -> None:
    of = journal(tmp_path)
    of.add_point(KernelPoint("stream_add", 10**8, 0, (1.2e-3,) * 5))
    assert device_text("card", "A card", 16e9, device_figures(of), "here") is None


def test_the_table_counts_by_bytes_and_launches_with_points_put_aside(tmp_path: Path) -> None:
    of = journal(tmp_path)
    of.add_point(KernelPoint("scale", 1024, 0, (1e-3,) * 5))
    v100 = load_device("v100", Catalog())
    counted = bench("scale", lambda size: 1.0, counted=lambda size: [elementwise(1024, 2)])
    (line,) = kernel_lines([counted], of, v100)
    whole_s = 8 * 1024 / v100.memory_bandwidth.value + v100.launch_s.value
    assert line.counted_s is not None and math.isclose(line.counted_s, whole_s)
    assert line.over is not None and math.isclose(line.over, 1e-3 / whole_s)
