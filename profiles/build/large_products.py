"""Print the rates that large products of measured GPUs make, and check the device files by them.

    python profiles/build/large_products.py [--check]

``large_products.csv`` beside this file holds what people measured. A source says a rate by the mean
of its products of 8,192 and of 10,240 rows, or by the one of them that it prints. One that prints
only its best product says that, times the share of the best that the two reach on boards of the
same family whose source prints both (their median). The rate of a GPU is the median of its sources.
A device file states it as ``achieved`` of its peak; where it is below what boards of the same
architecture reach in short kernels, it states theirs, and ``sustained``, what the products reach of
that: power holds such a board down. ``--check`` fails where a file states another rate.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from perfsim.compute.device import Device, read_device
from perfsim.data.tables import read_table

TABLE = Path(__file__).with_name("large_products.csv")
DEVICES = Path(__file__).parents[1] / "devices"
COLUMNS = (
    *("gpu", "family", "precision", "n8192", "n10240", "best"),
    *("source", "who", "software"),
)

MEASURED_OTHERWISE = {
    ("h100", "fp32"): "NeuSight",
    ("h100", "tf32"): "the share of bf16",
    ("h100", "amp-fp16"): "the share of bf16",
    ("h100", "amp-bf16"): "aiconfigurator",
    ("v100", "fp32"): "NeuSight",
    ("v100", "amp-fp16"): "DeepBench",
    ("mi210", "fp32"): "NeuSight",
    ("titan-rtx", "fp32"): "the share of the RTX 2080 Ti",
    ("titan-rtx", "amp-fp16"): "the share of the T4",
}
"""Rates whose files keep what many shapes of products reached, and from whom; rows here confirm.

The one TITAN RTX here slows down from 4,096 to 10,240 rows, to less than the smaller RTX 2080 Ti.
"""


class Products(NamedTuple):
    """What a source measured on a GPU at a precision [TFLOP/s]; None where it prints nothing."""

    gpu: str
    family: str
    precision: str
    large: float | None
    best: float | None


def read_products(path: Path = TABLE) -> list[Products]:
    """Read the table of measured products."""
    found = []
    for _, row in read_table(path, "perfsim/large-products/1", COLUMNS):
        sizes = [float(row[size]) for size in ("n8192", "n10240") if row[size]]
        best = float(row["best"]) if row["best"] else None
        large = fmean(sizes) if sizes else None
        found.append(Products(row["gpu"], row["family"], row["precision"], large, best))
    return found


def shares_of_best(products: Iterable[Products]) -> dict[tuple[str, str], float]:
    """Return what large products reach of the best one, by family and precision."""
    shares: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in products:
        if one.large and one.best:
            shares[one.family, one.precision].append(one.large / one.best)
    return {key: median(found) for key, found in shares.items()}


def product_rates(products: Iterable[Products]) -> dict[tuple[str, str], float]:
    """Return the rate of large products by GPU and precision, the median of sources [TFLOP/s]."""
    products = list(products)
    shares = shares_of_best(products)
    rates: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in products:
        if one.large is not None:
            rates[one.gpu, one.precision].append(one.large)
        elif one.best is not None:
            share = shares[one.family, one.precision]
            rates[one.gpu, one.precision].append(one.best * share)
    return {key: median(found) for key, found in rates.items()}


def _stated(device: Device, precision: str) -> float:
    """Return the rate of large products that a device file states [TFLOP/s]."""
    return device.rates[precision].value * device.sustained.get(precision, 1.0) / 1e12


def differences(
    rates: Mapping[tuple[str, str], float], devices: Path = DEVICES
) -> list[tuple[str, str, float, float]]:
    """Return (GPU, precision, rate here, rate of its file) where a device file states another."""
    found = []
    for (gpu, precision), rate in rates.items():
        path = devices / f"{gpu}.toml"
        if not path.exists() or (gpu, precision) in MEASURED_OTHERWISE:
            continue
        stated = _stated(read_device(path), precision)
        if abs(stated / rate - 1) > 2e-3:  # files state three digits
            found.append((gpu, precision, rate, stated))
    return found


def main() -> int:
    """Print the rates, or check the device files."""
    parser = argparse.ArgumentParser(description="Rates of GPUs from measured large products.")
    parser.add_argument("--check", action="store_true", help="fail where a device file differs")
    asked = parser.parse_args()
    products = read_products()
    rates = product_rates(products)
    if asked.check:
        for gpu, precision, rate, stated in (wrong := differences(rates)):
            print(f"{gpu} {precision}: {stated:.4g} TFLOP/s, by the table {rate:.4g}")
        return 1 if wrong else 0
    for (gpu, precision), rate in sorted(rates.items()):
        path = DEVICES / f"{gpu}.toml"
        device = read_device(path) if path.exists() else None
        if device is None:
            print(f"{gpu:15} {precision:9} {rate:7.1f} TFLOP/s")
            continue
        peak, stated = device.peaks[precision] / 1e12, _stated(device, precision)
        sources = sum(one[:3:2] == (gpu, precision) for one in products)
        print(
            f"{gpu:15} {precision:9} {rate:7.1f} TFLOP/s, {rate / peak:.3f} of the peak,"
            f" {sources} sources; file {stated:.1f}, {stated / peak:.3f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
