"""A CSV of a PyTorch-style benchmark: a size in bytes and a time whose name says its unit.

Forms seen in public benchmarks of torch.distributed and NCCL: ``size_bytes,latency_us,
busbw_gbps``; ``collective,world_size,rank,message_bytes,latency_us,effective_gbps``; ``op,
msg_bytes,lat_ms,algBW_GBps,busBW_GBps``; ``kind,size_bytes,world,sec_per_iter,algbw_GBps,
busbw_GBps,extra``; ``benchmark,num_gcds,run,size_bytes,latency_us``. Of several columns of times
the median goes before the mean. Sizes in MB are refused: some mean 1e6 bytes, others 2**20.
For all_gather, reduce_scatter and all_to_all the size must be that of all ranks' blocks.
"""

from __future__ import annotations

from pathlib import Path

from perfsim.calibrate.formats import nccl_csv, own_csv
from perfsim.calibrate.formats.csv_tables import BETTER, Time, head_of, plain, read_columns, time_of
from perfsim.calibrate.formats.rows import GivenFacts
from perfsim.network.measured import CollectiveCurve

__all__ = ["matches", "read"]


def matches(text: str, path: Path) -> bool:
    """Say whether a head has a size in bytes and a time with a unit, and is of no other form."""
    if own_csv.matches(text, path) or nccl_csv.matches(text, path):
        return False
    return bool(_times(head_of(text)[1]))


def read(
    text: str, path: Path, *, given: GivenFacts, skip_bad: bool = False
) -> tuple[list[CollectiveCurve], list[str]]:
    """Read the table: rows of one size are repeats, or ranks where a column says so."""
    times = _times(head_of(text)[1])
    return read_columns(text, path, times, path.name, given, skip_bad)


def _times(head: list[str]) -> list[Time]:
    """Return the one column of times, with a bus bandwidth whose unit is surely GB/s."""
    found: list[tuple[int, Time]] = []
    sure = [place for place, name in enumerate(head) if "GBps" in name or "GB/s" in name]
    busbw = next((place for place in sure if "busbw" in plain(head[place])), None)
    for place, title in enumerate(head):
        name = plain(title)
        unit = time_of(name)
        if unit is not None:
            order = next((i for i, word in enumerate(BETTER) if word in name), len(BETTER))
            found.append((order, Time(place, unit, "time", busbw)))
    return [min(found, key=lambda one: (one[0], one[1].place))[1]] if found else []
