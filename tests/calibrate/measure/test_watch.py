"""Ranks that die or fall silent: who is named, and what is said to be kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsim.calibrate.measure.journals import NetworkJournal
from perfsim.calibrate.measure.launch import Launch
from perfsim.calibrate.measure.watch import SILENT_S, guard_sweep, silent_ranks
from perfsim.errors import PerfsimError
from support.fake_wire import wires
from support.sweep_points import SETTING, point


def test_a_rank_is_silent_only_when_its_beats_stand_still_long_enough() -> None:
    still = SILENT_S + 1
    assert silent_ranks([7, 7], [7, 7], [0.0, still - 1], still) == [0]
    assert silent_ranks([8, 7], [7, 7], [0.0, 0.0], still) == [1]
    assert silent_ranks([7, 7], [7, 7], [0.0, 0.0], SILENT_S) == []


@pytest.mark.parametrize("rank", [0, 1])
def test_a_library_that_breaks_off_says_which_end_and_what_was_kept(
    tmp_path: Path, rank: int
) -> None:
    wire = wires(2)[rank]
    journal = None if rank else NetworkJournal(tmp_path / "x.part", SETTING)
    if journal:
        journal.add_point(point(1024))
    launch = Launch("torchrun", rank, 2, 0, "h", 1)
    kept = (
        " rank 0 says what was kept."
        if rank
        else (
            f" 1 points are kept in {tmp_path / 'x.part'}, and the same command goes on from there."
        )
    )
    with pytest.raises(PerfsimError) as broken, guard_sweep(launch, wire, ["h0", "h1"], journal):
        raise RuntimeError("[x.cc:9] Connection closed by peer [198.18.0.3]:37600\nstack")
    assert str(broken.value) == (
        "calibrate network: the connection to 198.18.0.3 broke, a rank there died or its network"
        f" failed;{kept}"
    )
