"""Fit the numbers of the law that prices collectives from data sheets, and judge them.

    python profiles/build/node_constants.py --data ../shared/data/nccl \
        --data ../shared/data/nccl_modern --date DATE

Each number starts where a source puts it and is moved as far as the measured curves ask, under a
prior as wide as the source is unsure. It is a maximum a posteriori fit in logarithms, by
Gauss-Newton, with a loss that grows like the absolute error beyond 0.4. Sizes of a curve in one
band are one observation: their errors go together. Clusters of one family share one more root.

It writes to ``profiles/nodes``: ``constants.csv``, the numbers fitted on all clusters, each with
its start, its prior and its sensitivity; ``left_out.csv``, the numbers with each family of clusters
left out; and ``errors.csv``, the errors on clusters left out by class of network and band of sizes.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from math import exp, log
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from build_networks import (
    NETWORKS,
    cluster_curves,
    condense,
    data_files,
    read_clusters,
    read_sources,
)
from perfsim.data.files import write_text
from perfsim.data.tables import to_csv
from perfsim.network.measured import CollectiveCurve
from perfsim.network.node_law import (
    ALL,
    CONSTANTS_SCHEMA,
    ERRORS_SCHEMA,
    LEFT_OUT_SCHEMA,
    NodeLaw,
    band_of,
    class_of,
)
from perfsim.validate.node_clusters import MeasuredNodes, measured_nodes

__all__ = ["Constant", "main"]

NODES = NETWORKS.parent / "nodes"

_PRIOR = 0.4
"""What the stated uncertainties are multiplied by: chosen among 0.25, 0.4, 0.6 and 1 as the one
with the least median error on clusters left out (25.7, 26.0, 26.9, 27.5 % with a first form of the
law, 17.8, 16.9, 17.0, 18.2 % with this one): numbers of one machine move less, those of many as
much."""
_LOSS = 0.4
"""Error in ln beyond which the loss grows like the absolute error: what residuals of a curve and
band spread around the law (0.40, TRIALS of 2026 section 2.1)."""
_UNSTATED = 0.3
"""Weight of a cluster whose facts are assumed."""
_ITERATIONS = 8
_NOMINAL = 93
"""Percentile that serves as the half-width of a 90 % interval: the least of 92 to 95 with which the
other families' errors hold at least 90 % of all times and 87 % of each class."""
_FEW_FAMILIES = 6
"""Families below which a class's own percentile is not trusted. No source: chosen; it parts
Slingshot, PCIe and TCP (2 to 7) from NVLink and RDMA (11 to 15)."""
_STEP = 0.02
"""Step of the numeric derivatives, in ln."""
_SENSITIVITY = 1.5
"""Factor by which a number is made wrong to see what it matters."""

_TUNING = "NVIDIA/nccl src/graph/tuning.cc (hwLat, baseLat)"
_TRIAL = "a first fit on other forms of these curves (TRIALS.md section 2.1.2)"
_SHEET = "share of the data sheet that large messages reach"
_RAMP = "time at 1 to 8 MiB above what low-latency protocols and the final rate give"


class Constant(NamedTuple):
    """A number of the law before it is fitted.

    Parameters
    ----------
    start, sd : where a source puts it, and how unsure that is (standard deviation of ln)
    """

    name: str
    unit: str
    start: float
    sd: float
    means: str
    source: str


def _group(
    name: str, unit: str, sd: float, means: str, source: str, **starts: float
) -> list[Constant]:
    return [
        Constant(f"{name}.{word}", unit, start, sd, f"{means} ({word})", source)
        for word, start in starts.items()
    ]


CONSTANTS: tuple[Constant, ...] = (
    *_group(
        *("start", "us", 0.4, "start of a call, by generation of the GPU", _TRIAL),
        old=7.9,
        ampere=9.1,
        hopper=5.1,
        blackwell=7.8,
        cdna=13.5,
    ),
    *_group(
        *("step", "us", 0.4, "a step inside a node under LL", _TUNING),
        nvlink2=2.2,
        nvlink=1.1,
        pcie=1.1,
        host=1.8,
    ),
    *_group(
        *("hop", "us", 0.3, "a hop of a tree between nodes under LL", _TRIAL),
        infiniband=6.1,
        roce=8.2,
        slingshot=7.5,
        efa1=27.0,
        efa=21.0,
        tcp=22.0,
        tcpx=38.0,
    ),
    Constant("hop_no_gpudirect", "", 1.5, 0.3, "a hop without GPUDirect over one with", _TRIAL),
    Constant(
        *("hop_virtual", "", 2.3, 0.6),
        "a hop of TCP through a cloud's virtual NICs over one through a NIC",
        f"{_TRIAL}: 50 us on a pair of AWS T4, 22 elsewhere",
    ),
    *_group(
        *("hop_growth", "", 1.0, "by how much a hop that carries over 4 KiB grows"),
        f"{_TRIAL}, which counted the whole message where a ring's hop carries a block",
        rdma=0.34,
        slingshot=1.36,
        tcp=1.12,
    ),
    *_group(
        *("inside_share", "", 0.15, "ring inside a node over the data sheet", _SHEET),
        nvlink2=0.83,
        nvlink3=0.72,
        nvlink4=0.77,
        nvlink5=0.71,
        xgmi=0.74,
    ),
    *_group(
        *("inside_share", "", 0.5, "ring inside a node over the data sheet"),
        f"{_SHEET}; servers differ more than NVLink does",
        pcie=0.5,
        host=0.5,
    ),
    *_group(
        *("nvls_share", "", 0.15, "bus bandwidth of NVLS over the data sheet", _SHEET),
        hopper=1.04,
        blackwell=0.91,
    ),
    *_group(
        *("nic_share", "", 0.15, "node's network over its NICs' data sheet", _SHEET),
        rdma=0.9,
        slingshot=0.82,
        tcpx=0.62,
        no_gpudirect=0.41,
    ),
    Constant("tcp_most", "GB/s", 5.8, 1.2, "what a node's TCP sockets reach at most", _TRIAL),
    Constant(
        *("tcp_senders", "", 0.5, 0.3),
        "power of a node's senders by which TCP's limit grows in an all-to-all",
        "NVIDIA/nccl src/transport/net_socket.cc: a proxy thread and its sockets a rank, so between"
        " a limit of the host (0) and of each process (1)",
    ),
    Constant(
        *("congestion", "", 0.02, 0.7),
        "power of nodes over 2 by which the rate between nodes falls",
        "Together's B200 from 2 to 46 nodes (-3.6 % a doubling), Alps (0 to -4 %), MI325X (0)",
    ),
    Constant("tree_inside", "", 0.474, 0.2, "chain of a tree inside a node over the ring", _TRIAL),
    Constant("tree_net", "", 0.53, 0.2, "tree between more than two nodes over the ring", _TRIAL),
    Constant("ring_hop", "", 0.62, 0.3, "hop of an all-reduce's ring over a tree's", _TRIAL),
    Constant("gather_hop", "", 1.42, 0.6, "hop of a gathering ring over a tree's", _TRIAL),
    Constant(
        *("simple_step", "", 4.6, 0.4),
        "a step inside under Simple over LL",
        f"{_TRIAL}; tuning.cc has 4.0 over 0.6 us (NVLink, tree) and 5.7 over 1.0 (PCIe, ring)",
    ),
    Constant("simple_hop", "", 1.5, 0.4, "a hop between nodes under Simple over LL", _TUNING),
    *_group(
        *("simple", "us", 1.2, "start of Simple inside a node, by generation", _RAMP),
        old=40.0,
        ampere=35.0,
        new=8.0,
    ),
    *_group(
        *("net_simple", "us", 1.2, "start of Simple between nodes, by transport", _RAMP),
        rdma=10.0,
        other=60.0,
    ),
    Constant("low_latency.nvlink", "", 0.2, 1.2, "rate of LL and LL128 over Simple", _TRIAL),
    Constant("low_latency.pcie", "", 0.45, 0.2, "rate of LL over Simple", _TRIAL),
    Constant("low_latency.net", "", 0.29, 0.3, "rate of LL between nodes over Simple", _TRIAL),
    Constant("nvls_start", "us", 45.0, 0.8, "start of NVLS; NVLSTree has it twice", _RAMP),
    Constant("nvls_tree_net", "", 0.82, 0.1, "NVLSTree beyond two nodes over the ring", _TRIAL),
    Constant(
        "sharp_share.all_reduce",
        "",
        1.31,
        0.2,
        "bus bandwidth with SHARP over the NICs' data sheet",
        "Together's B200 with SHARP",
    ),
    Constant(
        "sharp_share.all_gather", "", 0.95, 0.2, "the same of all_gather", "Together's B200, SHARP"
    ),
    *_group(
        *("peer", "us", 0.4, "a peer of an all-to-all", _TRIAL),
        inside=0.97,
        infiniband=4.2,
        slingshot=12.0,
        tcp=15.0,
    ),
    *_group(
        *("pairs_share", "", 0.3, "rate of an all-to-all between nodes over the ring's", _TRIAL),
        slingshot=0.48,
        tcp=0.78,
    ),
    Constant("pairs_simple", "", 2.0, 1.2, "start of Simple between two over a ring's", _RAMP),
    Constant(
        "one_process",
        "us",
        4.6,
        0.3,
        "launch of each GPU where one process drives all of a node",
        "nccl-tests -g N on one node",
    ),
)

_NAMES = [one.name for one in CONSTANTS]


class _Point(NamedTuple):
    cluster: str
    nodes: MeasuredNodes
    curve: CollectiveCurve
    size_bytes: float
    seconds: float


def _points(folders: Sequence[Path]) -> list[_Point]:
    """Return every measured time of clusters whose node type is known."""
    sources, known = read_sources(NETWORKS / "sources.csv"), measured_nodes()
    data = data_files(folders)
    found = []
    for name, cluster in read_clusters(NETWORKS / "clusters.csv").items():
        if name not in known or cluster.library not in ("nccl", "rccl"):
            continue
        curves = cluster_curves(data, cluster, sources[cluster.source_id])
        found += [
            _Point(name, known[name], curve, size, seconds)
            for curve in condense(curves)
            for size, seconds in zip(curve.size_bytes, curve.seconds, strict=True)
            if size >= 4 and curve.ranks > 1
        ]
    return found


def _predicted(logs: Any, points: Sequence[_Point]) -> Any:
    """Return ln of the law's time of each point."""
    law = NodeLaw(dict(zip(_NAMES, np.exp(logs), strict=True)))
    return np.array(
        [log(point.nodes.seconds(law, point.curve, point.size_bytes)) for point in points]
    )


def _weights(points: Sequence[_Point]) -> Any:
    """Return the weight of each error: one observation a curve and band, less in large families."""
    key = [(point.cluster, point.curve.name, band_of(point.size_bytes)) for point in points]
    sizes = Counter(key)
    members: dict[str, set[str]] = {}
    for point in points:
        members.setdefault(point.nodes.family, set()).add(point.cluster)
    return np.array(
        [
            (1.0 if point.nodes.stated else _UNSTATED)
            / (sizes[one] * len(members[point.nodes.family]) ** 0.5) ** 0.5
            for point, one in zip(points, key, strict=True)
        ]
    )


class _Read(dict[str, float]):
    """Numbers of a law that remember which of them were read."""

    def __init__(self, numbers: Mapping[str, float]) -> None:
        super().__init__(numbers)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> float:
        self.names.add(name)
        return super().__getitem__(name)


def _readers(logs: Any, points: Sequence[_Point]) -> list[list[int]]:
    """Return the points whose time reads each number: those of other points stay as they are."""
    found: dict[str, list[int]] = {name: [] for name in _NAMES}
    for index, point in enumerate(points):
        numbers = _Read(dict(zip(_NAMES, np.exp(logs), strict=True)))
        point.nodes.seconds(NodeLaw(numbers), point.curve, point.size_bytes)
        for name in numbers.names:
            found[name].append(index)
    return list(found.values())


def _jacobian(logs: Any, points: Sequence[_Point], here: Any) -> Any:
    jacobian = np.zeros((len(points), len(logs)))
    for column, readers in enumerate(_readers(logs, points)):
        moved = logs.copy()
        moved[column] += _STEP
        changed = _predicted(moved, [points[index] for index in readers])
        jacobian[readers, column] = (changed - here[readers]) / _STEP
    return jacobian


_START = np.array([log(one.start) for one in CONSTANTS])
_SD = _PRIOR * np.array([one.sd for one in CONSTANTS])


def _move(logs: Any, jacobian: Any, errors: Any, weights: Any) -> Any:
    """Return the step to the maximum a posteriori of the law made linear."""
    step = np.zeros(len(logs))
    for _ in range(6):
        robust = 1.0 / np.sqrt(1.0 + ((errors - jacobian @ step) / _LOSS) ** 2)
        weight = weights**2 * robust / _LOSS**2
        normal = jacobian.T @ (jacobian * weight[:, None]) + np.diag(1.0 / _SD**2)
        step = np.linalg.solve(normal, jacobian.T @ (weight * errors) + (_START - logs) / _SD**2)
    return step


def _fit(points: Sequence[_Point], measured: Any, weights: Any) -> Any:
    logs = _START.copy()
    for round_ in range(_ITERATIONS):
        here = _predicted(logs, points)
        step = _move(logs, _jacobian(logs, points, here), measured - here, weights)
        logs = logs + np.clip(step, -0.4, 0.4) * (1.0 if round_ < 3 else 0.6)
    return logs


def _left_out(logs: Any, points: Sequence[_Point], measured: Any, weights: Any) -> dict[str, Any]:
    """Return the numbers with each family of clusters left out, one step from those of all."""
    here = _predicted(logs, points)
    jacobian = _jacobian(logs, points, here)
    families = np.array([point.nodes.family for point in points])
    return {
        name: logs
        + np.clip(_move(logs, jacobian, measured - here, weights * (families != name)), -0.6, 0.6)
        for name in sorted(set(families))
    }


def _sensitivity(logs: Any, points: Sequence[_Point], measured: Any, stated: Any) -> list[float]:
    """Return how much the mean |ln error| grows where one number is 1.5 times as large."""
    base = np.abs(_predicted(logs, points) - measured)[stated].mean()
    found = []
    for index in range(len(logs)):
        moved = logs.copy()
        moved[index] += log(_SENSITIVITY)
        found.append(float(np.abs(_predicted(moved, points) - measured)[stated].mean() - base))
    return found


class _Error(NamedTuple):
    """The error of one time on a cluster left out, ln of predicted over measured."""

    family: str
    kind: str
    band: str
    error: float


def _scored(points: Sequence[_Point], errors: Any) -> list[_Error]:
    """Return the errors on clusters whose facts are stated."""
    return [
        _Error(
            point.nodes.family,
            class_of(point.nodes.of(point.curve), point.curve.nodes),
            band_of(point.size_bytes),
            float(error),
        )
        for point, error in zip(points, errors, strict=True)
        if point.nodes.stated
    ]


def _half_widths(errors: Sequence[_Error]) -> dict[tuple[str, str], float]:
    """Return the half-width of a 90 % interval by class and band [ln].

    Few families cannot tell how far the next one is off: theirs is at least that of all classes.
    """
    groups: dict[tuple[str, str], list[_Error]] = {}
    for one in errors:
        for key in ((ALL, ALL), (one.kind, ALL), (ALL, one.band), (one.kind, one.band)):
            groups.setdefault(key, []).append(one)
    widths = {
        key: float(np.percentile([abs(one.error) for one in found], _NOMINAL))
        for key, found in groups.items()
    }
    return {
        (kind, band): max(width, widths[ALL, band])
        if len({one.family for one in groups[kind, band]}) < _FEW_FAMILIES
        else width
        for (kind, band), width in widths.items()
    }


def _error_rows(errors: Sequence[_Error]) -> list[dict[str, Any]]:
    """Return the errors on clusters whose facts are stated, by class and band, and of all."""
    rows = []
    for (kind, band), width in sorted(_half_widths(errors).items()):
        found = [one.error for one in errors if kind in (ALL, one.kind) and band in (ALL, one.band)]
        wrong = np.abs(np.exp(found) - 1.0)
        rows.append(
            {
                "class": kind,
                "band": band,
                "count": len(found),
                "median": round(float(np.median(wrong)), 4),
                "p90": round(float(np.percentile(wrong, 90)), 4),
                "half_width_ln": round(width, 4),
            }
        )
    return rows


def _coverage(errors: Sequence[_Error]) -> str:
    """Say how many times the half-widths of the other families' errors hold."""
    inside: dict[str, list[bool]] = {}
    alike = []
    for family in sorted({one.family for one in errors}):
        widths = _half_widths([one for one in errors if one.family != family])
        own = [one for one in errors if one.family == family]
        held = [
            abs(one.error) <= widths.get((one.kind, one.band), widths[ALL, one.band]) for one in own
        ]
        alike.append(np.mean(held))
        for one, holds in zip(own, held, strict=True):
            for kind in (ALL, one.kind):
                inside.setdefault(kind, []).append(holds)
    by_class = ", ".join(
        f"{kind} {np.mean(found):.1%}" for kind, found in sorted(inside.items()) if kind != ALL
    )
    return (
        f"coverage: by the other families' errors {np.mean(inside[ALL]):.1%} of times,"
        f" {np.mean(alike):.1%} of families alike ({by_class})"
    )


def _head(schema: str, title: str, date: str, *more: str) -> str:
    return "".join(
        f"# {line}\n" for line in (f"schema: {schema}", f"title: {title}", f"date: {date}", *more)
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit the law's numbers on measured collectives, and write them with their errors."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument(
        "--data", type=Path, action="append", required=True, help="folder of curves"
    )
    parser.add_argument("--out", type=Path, default=NODES, help="folder to write to")
    parser.add_argument("--date", required=True, help="date of the record, such as 2026-11-23")
    given = parser.parse_args(arguments)
    points = _points(given.data)
    measured = np.log([point.seconds for point in points])
    weights = _weights(points)
    stated = np.array([point.nodes.stated for point in points])
    logs = _fit(points, measured, weights)
    each = _left_out(logs, points, measured, weights)
    out = np.empty(len(points))
    for name, there in each.items():
        chosen = [index for index, point in enumerate(points) if point.nodes.family == name]
        out[chosen] = _predicted(there, [points[index] for index in chosen]) - measured[chosen]
    clusters = len({point.cluster for point in points})
    said = f"source: {len(points)} times of {clusters} clusters (profiles/build/node_constants.py)"
    rows = [
        {
            "name": one.name,
            "unit": one.unit,
            "value": f"{exp(value):.4g}",
            "start": f"{one.start:.4g}",
            "prior_sd": f"{one.sd * _PRIOR:.3g}",
            "sensitivity": f"{matters:.4f}",
            "means": one.means,
            "source": f"start: {one.source}; value: fitted",
        }
        for one, value, matters in zip(
            CONSTANTS, logs, _sensitivity(logs, points, measured, stated), strict=True
        )
    ]
    title = "Numbers of the law of collectives on node types"
    notes = (
        "notes: kind of value: fitted. prior_sd: standard deviation of ln around start."
        " sensitivity: by how much the mean |ln error| grows if the value is 1.5 times as large"
    )
    write_text(
        given.out / "constants.csv",
        _head(CONSTANTS_SCHEMA, title, given.date, said, notes) + to_csv(rows),
    )
    write_text(
        given.out / "left_out.csv",
        _head(LEFT_OUT_SCHEMA, f"{title}, each family of clusters left out", given.date, said)
        + to_csv(
            [
                {
                    "family": name,
                    **{one: f"{exp(value):.4g}" for one, value in zip(_NAMES, there, strict=True)},
                }
                for name, there in each.items()
            ]
        ),
    )
    errors = _scored(points, out)
    coverage = _coverage(errors)
    kind = (
        "kind: measured (|predicted / measured - 1| on clusters left out, facts stated;"
        f" half_width_ln: {_NOMINAL}th percentile of |ln of predicted / measured|, at least that of"
        f" all classes where under {_FEW_FAMILIES} families tell)"
    )
    write_text(
        given.out / "errors.csv",
        _head(
            ERRORS_SCHEMA,
            "Errors of the law on clusters left out",
            given.date,
            kind,
            coverage,
            said,
        )
        + to_csv(_error_rows(errors)),
    )
    print(coverage)
    for what, chosen in (("all", stated), ("facts assumed", ~stated)):
        wrong = np.abs(np.exp(out[chosen]) - 1.0)
        p90 = np.percentile(wrong, 90)
        print(f"{what}: {chosen.sum()} times, median {np.median(wrong):.1%}, p90 {p90:.1%}")


if __name__ == "__main__":
    main()
