"""The device's name in perfsim's words."""

from __future__ import annotations

import pytest

from perfsim.calibrate.measure.device import device_name
from perfsim.data.catalog import Catalog


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),  # no such file: another board than the SXM one
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla V100-PCIE-32GB", "v100-pcie"),
        ("NVIDIA GeForce RTX 2080 Ti", "rtx2080ti"),
        ("NVIDIA GeForce RTX 3090 Ti", "rtx-3090-ti"),
        ("cpu", "cpu"),
    ],
)
def test_a_driver_s_word_becomes_a_name(word: str, name: str) -> None:
    assert device_name(word, Catalog().files("devices")) == name
