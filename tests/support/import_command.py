"""``perfsim calibrate import`` on small tables, as tests run it."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsim.cli.main import code

__all__ = ["CSV", "imported", "nets", "nothing_written", "own", "rows", "run", "times"]

CSV = "collective,ranks,nodes,gpus_per_node,size_bytes,time_us"


def times(steps: int, wire: float, alpha_us: float) -> dict[int, float]:
    """Return a ring's times [us]: steps of alpha, and bytes over 2 GB/s on the wire."""
    sizes = [8 * 4**power for power in range(13)]
    return {size: steps * alpha_us + wire * size / 2e3 for size in sizes}


def rows(collective: str, points: dict[int, float], nodes: int = 4, gpus: int = 1) -> list[str]:
    """Return lines of a table, of times [us] by bytes."""
    shape = f"{collective},{nodes * gpus},{nodes},{gpus}"
    return [f"{shape},{size},{time}" for size, time in points.items()]


def own(path: Path, *more: str, head: str = "# gpu: A100\n# library: nccl\n# version: 2.18.3\n"):
    """Write a table of an all_reduce on 4 nodes of one GPU."""
    lines = rows("all_reduce", times(6, 1.5, 20.0))
    path.write_text(head + "\n".join([CSV, *lines, *more]) + "\n")
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """Return what a command leaves: its exit code, what it printed, and what it complained of."""
    capsys.readouterr()
    left = code([str(one) for one in arguments])
    out, err = capsys.readouterr()
    return left, out, err


@pytest.fixture
def nets(tmp_path: Path) -> Path:
    """Return the folder, not there yet, that networks are written into."""
    return tmp_path / "mine" / "networks"


def imported(capsys: pytest.CaptureFixture[str], file: Path, nets: Path, *more: str | Path):
    """Import a file as the network ``ours``."""
    arguments = ("calibrate", "import", file, "--name", "ours", "--out", nets, *more)
    return run(capsys, *arguments, "--force")


def nothing_written(folder: Path) -> bool:
    """Tell whether a folder is not there, or empty."""
    return not folder.exists() or not list(folder.iterdir())
