"""Files of a GPU of round numbers: its device, and tables of its kernels."""

from __future__ import annotations

from pathlib import Path

from perfsim.compute.device import KernelCurve, read_kernels

__all__ = ["HEAD", "ROWS", "TOML", "points"]

HEAD = """# schema: perfsim/kernels/1
# gpu: hand
kernel,elements,width,time_us,kind,software,source,note
"""
TOML = """schema = "perfsim/device/1"
name = "hand"
title = "by hand"
memory = "10GB"
[memory_bandwidth]
value = "1 TB/s"
kind = "published"
source = "a data sheet"
[launch]
value = "10 us"
kind = "derived"
source = "by hand"
[rates.fp32]
peak = "20 TFLOP/s"
source = "a data sheet"
achieved = 0.5
achieved_source = "a benchmark"
"""
ROWS = HEAD + "pack,1000,0,50,measured,,one,\nqr,100,2,10,measured,,two,\n"


def points(tmp_path: Path, *rows: str) -> dict[str, tuple[KernelCurve, ...]]:
    """Return the points of a table with these rows."""
    path = tmp_path / "hand.kernels.csv"
    path.write_text(HEAD + "".join(f"{row}\n" for row in rows))
    return read_kernels(path)
