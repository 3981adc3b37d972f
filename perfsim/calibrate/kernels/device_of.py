"""A device file from what was measured: memory bandwidth, launch, matrix rates."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from perfsim.calibrate.kernels.journal import Journal, Point
from perfsim.calibrate.kernels.products import RATES
from perfsim.calibrate.kernels.streaming import PASSES
from perfsim.device_file import SCHEMA
from perfsim.kernel import FLOAT
from perfsim.limits import SPREAD
from perfsim.table import scatter

__all__ = ["NEEDED", "Figures", "device_text", "figures"]

OWN = {"kind": "measured"}
LARGE = 4
"""Streams count from a quarter of the largest size on: past caches, if that size is."""

NEEDED = ("memory_bandwidth", "launch", "fp32")
"""Without these a device file says nothing."""

Figures = dict[str, tuple[float, float | None, str]]
"""Name -> value [B/s, s, FLOP/s], its spread, and where it was read off."""


def figures(journal: Journal) -> Figures:
    """Return what a device file states, as far as it was measured.

    ``memory_bandwidth``: bytes over time of large adds, copies and scalings, their median, with
    their scatter. ``launch``: of a chain of launches. A precision: 2 n^3 over the time of the
    square product that reaches most.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     journal = Journal(Path(folder) / "a.jsonl", {})
    ...     journal.add(Point("stream_copy", 10**6, 0, (8e-6,)))
    ...     figures(journal)["memory_bandwidth"][:2]
    (1000000000000.0, None)
    """
    found: Figures = {}
    streams = [point for point in journal.points if point.kernel in PASSES]
    if streams:
        most = max(point.elements for point in streams)
        large = [point for point in streams if point.elements * LARGE >= most]
        rates = [PASSES[one.kernel] * FLOAT * one.elements / one.median_s for one in large]
        least = min(point.elements for point in large)
        what = f"add, copy and scale of {least:,} to {most:,} fp32 values"
        found["memory_bandwidth"] = median(rates), scatter(rates), what
    launches = [point for point in journal.points if point.kernel == "launch_queued"]
    if launches:
        found["launch"] = launches[0].median_s, None, "a chain of kernels on 1024 values"
    for precision, bench in RATES.items():
        squares = [point for point in journal.points if point.kernel == bench.name]
        if squares:
            best = max(squares, key=_flops)
            side = round(best.elements**0.5)
            found[precision] = _flops(best), None, f"product of {side} x {side} matrices"
    return found


def device_text(
    name: str,
    title: str,
    memory_bytes: float,
    measured: Figures,
    source: str,
    known: Mapping[str, Any] | None = None,
) -> str | None:
    """Return a device file's text; None where bandwidth, launch or the fp32 rate is missing.

    A matrix rate stands in the file's ``peak`` as kind measured: what products reached, since no
    data sheet is asked.

    Parameters
    ----------
    name, title : the device's
    memory_bytes : of the device
    measured : see `figures`
    source : of the measurement
    known : a device file as read; its aliases, power, references and rates of a data sheet stay
    """
    import tomli_w

    if not measured.keys() >= set(NEEDED):
        return None
    table: dict[str, Any] = {
        "schema": SCHEMA,
        "name": name,
        "title": title,
        "aliases": [],
        "memory": f"{memory_bytes / 1e9:.4g} GB",
        "references": [],
        **(known or {}),
    }
    bandwidth, spread, _ = measured["memory_bandwidth"]
    table["memory_bandwidth"] = {"value": f"{bandwidth / 1e9:.4g} GB/s"}
    table["launch"] = {"value": f"{measured['launch'][0] * 1e6:.3g} us"}
    if spread is not None:
        table["memory_bandwidth"]["spread"] = round(min(spread, SPREAD.most), 3)
    for key in ("memory_bandwidth", "launch"):
        table[key] |= {"kind": "measured", "source": f"{measured[key][2]}, {source}"}
    rates = dict((known or {}).get("rates", {}))
    for precision in RATES:
        if precision in measured and rates.get(precision, OWN).get("kind") == "measured":
            flops, _, what = measured[precision]
            rates[precision] = {
                "peak": f"{flops / 1e9:.4g} GFLOP/s",
                "kind": "measured",
                "source": f"reached, not a data sheet's: {what}, {source}",
            }
    table["rates"] = rates
    return tomli_w.dumps(table)


def _flops(point: Point) -> float:
    return float(2 * point.elements**1.5 / point.median_s)
