"""profiles/build/large_products.py: rates of GPUs from square products that people measured."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from large_products import (
    DEVICES,
    Products,
    differences,
    product_rates,
    read_products,
    shares_of_best,
)
from perfsim.compute.device import read_device

RATES = product_rates(read_products())


def test_a_source_that_prints_its_best_alone_counts_by_what_others_of_the_family_reach() -> None:
    measured = [
        Products("one", "chip", "fp32", 9.0, 10.0),
        Products("one", "chip", "fp32", 16.0, 20.0),
        Products("other", "chip", "fp32", None, 40.0),
        Products("other", "chip", "fp32", 30.0, None),
        Products("other", "chip", "tf32", 7.0, None),
    ]
    assert shares_of_best(measured)["chip", "fp32"] == pytest.approx(0.85)
    assert product_rates(measured) == pytest.approx(
        {("one", "fp32"): 12.5, ("other", "fp32"): 32.0, ("other", "tf32"): 7.0}
    )


def test_the_table_is_read_as_it_stands() -> None:
    """RTX 4090, issue 78: 160.17 TFLOP/s in bf16 for 8,192 rows, 158.54 for 10,240."""
    assert Products("rtx4090", "AD102", "amp-bf16", 159.355, 164.81) in read_products()


def test_device_files_state_what_the_table_makes() -> None:
    assert differences(RATES) == []


def test_a_device_file_that_states_another_rate_is_found(tmp_path: Path) -> None:
    shutil.copy(DEVICES / "rtx4090.toml", tmp_path)
    path = tmp_path / "rtx4090.toml"
    path.write_text(
        path.read_text("utf-8").replace("achieved = 0.973", "achieved = 0.690"), "utf-8"
    )
    assert [(gpu, precision) for gpu, precision, *_ in differences(RATES, tmp_path)] == [
        ("rtx4090", "amp-bf16")
    ]


def test_products_mean_what_the_rates_of_many_shapes_mean() -> None:
    """On the H100, whose rate is the median of 988 products of 1 TFLOP and more."""
    many = read_device(DEVICES / "h100.toml").rates["amp-bf16"].value / 1e12
    assert RATES["h100", "amp-bf16"] == pytest.approx(many, rel=0.02)
