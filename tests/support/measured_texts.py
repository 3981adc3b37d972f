"""Texts of measurements in the forms that are read, and how tests read them.

The texts have the forms that nccl-tests, its wrappers and PARAM print (sources in the readers'
docstrings); the numbers in them are made up, busbw = factor x size / time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfsim.calibrate.formats import Reading, read_log
from perfsim.network.measured import CollectiveCurve

__all__ = [
    "FIRST_HEAD",
    "FOOT",
    "LEAD",
    "NCCL_CSV",
    "NEW_HEAD",
    "OLD_HEAD",
    "OWN",
    "POINTS",
    "RATES",
    "STARTING",
    "check",
    "devices",
    "read",
    "report",
    "row",
    "table",
]

NEW_HEAD = """\
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""  # noqa: E501
OLD_HEAD = """\
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""  # noqa: E501
FIRST_HEAD = """\
#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  busbw      res
"""  # noqa: E501
POINTS = ((1024, 20.0, 21.0), (1048576, 400.0, 410.0), (16777216, 4000.0, 4100.0))
FOOT = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 4.2\n#\n"
STARTING = "# Collective test starting: all_reduce_perf\n"


def devices(nodes: int, gpus: int, form: str = "new") -> str:
    """Return the list of devices that nccl-tests prints before its table."""
    told = (
        "# nThread 1 nGpus 1 minBytes 1024 maxBytes 16777216 step: 4(factor)\n#\n# Using devices\n"
    )
    for rank in range(nodes * gpus):
        group = "Group  0 " if form == "new" else ""
        bus = "[0000:1b:00]" if form == "new" else "[0x1b]"
        told += (
            f"#  Rank {rank:2d} {group}Pid  {4000 + rank} on    node{rank // gpus} device "
            f" {rank % gpus} {bus} NVIDIA Test GPU\n"
        )
    return told + "#\n"


def row(size: int, times: tuple[float, ...], lead: str, factor: float, unit: float = 1.0) -> str:
    """Return a line of the table: a size, and for each time its two bandwidths and no error."""
    told = f"{size:12d}  {size // 4:12d}     float {lead}"
    for time in times:
        rate = size / time / 1e3
        told += f"  {time * unit:7.3f}  {rate:6.2f}  {rate * factor:6.2f}      0"
    return told + "\n"


def table(
    points: tuple[tuple[int, float, float], ...] = POINTS,
    factor: float = 1.75,
    lead: str = "   sum      -1",
) -> str:
    """Return the table of points (bytes, us out of place, us in place) with its head."""
    return NEW_HEAD + "".join(row(size, times, lead, factor) for size, *times in points)  # type: ignore[misc]


def report(**change: Any) -> dict[str, Any]:
    """Return what nccl-tests -J writes: two processes of two GPUs each on two nodes."""
    results = [
        {"size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "    -1"}
        | {
            name: {
                "time": time,
                "alg_bw": size / time / 1e3,
                "bus_bw": size / time / 1e3 * 1.5,
                "nwrong": 0.0,
            }
            for name, time in zip(("out_of_place", "in_place"), times, strict=True)
        }
        for size, *times in POINTS
    ]
    processes = [
        {"rank": 2 * i, "group": 0, "pid": 7, "hostname": f"node{i}", "device": 0}
        | {"device_hex": "0000:1b:00", "device_info": "NVIDIA Test GPU"}
        for i in range(2)
    ]
    return {
        "version": 3,
        "start_time": "2026-01-31 12:00:00",
        "args": ["./build/all_reduce_perf", "-g", "2", "-J", "out.json"],
        "env": ["PATH=/bin", "NCCL_ALGO=NVLSTree", "NCCL_PROTO=LL,Simple"],
        "nccl_version": 22703,
        "config": {"nthreads": 1, "ngpus": 2, "devices": processes},
        "results": results,
        "end_time": "2026-01-31 12:01:00",
    } | change


RATES = [[size / one / 1e3 for one in times] for size, *times in POINTS]
LEAD = "size,count,type,redop,root,"
NCCL_CSV = {
    "as printed": LEAD + "time,algbw,busbw,#wrong,time,algbw,busbw,#wrong\n"
    + "".join(
        f"{size},{size // 4},float,sum,-1,{a},{x:.2f},{x * 1.75:.2f},0,{b},{y:.2f},"
        f"{y * 1.75:.2f},0\n"
        for (size, a, b), (x, y) in zip(POINTS, RATES, strict=True)
    ),
    "pairs": LEAD + "oop-time,oop-algbw,oop-busbw,oop-error,ip-time,ip-algbw,ip-busbw,ip-error\n"
    + "".join(
        f"{size},{size // 4},float,sum,-1,{a},{x:.2f},{x * 1.75:.2f},0,{b},{y:.2f},"
        f"{y * 1.75:.2f},0\n"
        for (size, a, b), (x, y) in zip(POINTS, RATES, strict=True)
    ),
    "test": "Test,Size(Bytes),Count(Elements),Type,OutPlaceTime(us),OutPlaceAlgBW(GB/s),"
    "OutPlaceBusBW(GB/s),InPlaceTime(us),InPlaceAlgBW(GB/s),InPlaceBusBW(GB/s)\n"
    + "".join(
        f"AllReduce,{size},{size // 4},float,{a},{x:.2f},{x * 1.75:.2f},{b},{y:.2f},"
        f"{y * 1.75:.2f}\n"
        for (size, a, b), (x, y) in zip(POINTS, RATES, strict=True)
    ),
    "rccl": "numCycle,collective,nodes,ranks,ranksPerNode,gpusPerRank,size,type,redop,inplace,"
    "time,algbw,busbw,#wrong\n"
    + "".join(
        f"1,AllReduce,2,8,4,1,{size},float,sum,{place},{time},{rate},{rate * 1.75},0\n"
        for (size, *times), rates in zip(POINTS, RATES, strict=True)
        for place, (time, rate) in enumerate(zip(times, rates, strict=True))
    ),
    "nccl 1": "B,N,type,op,oop_time,oop_algbw,oop_busbw,oop_res,ip_time,ip_algbw,ip_busbw,ip_res\n"
    + "".join(
        f"{size},{size // 4},float,sum,{a / 1e3:f},{x:f},{x * 1.75:f},0e+00,{b / 1e3:f},{y:f},"
        f"{y * 1.75:f},0e+00\n"
        for (size, a, b), (x, y) in zip(POINTS, RATES, strict=True)
    ),
}  # fmt: skip
OWN = """\
# source: a cluster of ours
# gpu: Test GPU (8; all alike); intra-node: NVLink; inter-node: 10GbE TCP; NCCL: 2.6.4+cuda10.1; \
algo/proto: Ring (NCCL_TREE_THRESHOLD=0); tool: nccl-tests
# scaling series: ours_10gbe
collective,ranks,nodes,gpus_per_node,size_bytes,time_us,algbw_GBps,busbw_GBps,inplace
alltoall,8,2,4,1024,20,0.0512,0.0448,0
alltoall,8,2,4,1024,21,0.048762,0.0426667,1
alltoall,8,2,4,4096,30,0.136533,0.119467,0
"""


def read(tmp_path: Path, text: str, name: str = "job.log", **given: Any) -> Reading:
    """Return what is read of a file with this text."""
    path = tmp_path / name
    path.write_text(text)
    return read_log(path, **given)


def check(
    curve: CollectiveCurve, collective: str = "all_reduce", place: tuple[int, ...] = (8, 2, 4)
) -> None:
    """Check that a curve is what ``POINTS`` say, both times of a row in the middle."""
    assert curve.collective == collective
    assert (curve.ranks, curve.nodes, curve.gpus_per_node) == place
    assert curve.size_bytes == tuple(float(size) for size, *_ in POINTS)
    middle = [(one + other) / 2e6 for _, one, other in POINTS]
    assert curve.seconds == pytest.approx(middle)
    assert curve.spread == pytest.approx(5 / 405)  # half of 10 us over the middle of the middle row
