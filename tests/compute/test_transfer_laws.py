"""Carrying a profile: what holds of every model and batch, whatever was measured."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.compute.anchors import load_anchors
from perfsim.compute.device import load_device
from perfsim.compute.profile import read_profile
from perfsim.compute.transfer import transfer, transfer_source
from perfsim.resolve import find_profile
from support.anchors import Table, anchor, milliseconds, profile, transferred
from support.what_ships import SHIPPED

BATCHES = sorted({*range(1, 40), *range(40, 130, 6), 127, 128, 129, *range(130, 513, 24), 512})


@pytest.mark.parametrize("model", sorted({stem.split(".")[0] for stem in SHIPPED.files("models")}))
def test_larger_batch_never_takes_less_time(model: str) -> None:
    known = {gpu: load_anchors(gpu, SHIPPED) for gpu in SHIPPED.files("devices")}
    for gpu in known:
        device = load_device(gpu, SHIPPED)
        for precision in device.rates:
            own = find_profile(model, gpu, None, precision, SHIPPED)
            start = transfer_source(own, device, precision, known)
            at = {batch: start.at(batch).seconds for batch in BATCHES}
            assert at[1] > 0
            falls = [pair for pair in pairwise(BATCHES) if at[pair[1]] < at[pair[0]] * (1 - 1e-12)]
            assert not falls, (gpu, precision, falls)


@given(
    figures=st.dictionaries(st.integers(1, 512), st.floats(1, 1e4), max_size=5),
    batch=st.integers(1, 1023),
)
def test_time_rises_with_the_batch_whatever_was_measured(
    figures: dict[int, float], batch: int
) -> None:
    table: Table = {"v100": [anchor(size, time) for size, time in figures.items()]}
    start = transfer_source(profile(), load_device("v100", SHIPPED), "fp32", table)
    assert start.at(batch).seconds <= start.at(batch + 1).seconds * (1 + 1e-12)
    own = transfer_source(profile(kind="measured"), load_device("v100", SHIPPED), "fp32", table)
    assert math.isclose(own.at(32).seconds, 0.1)


@given(
    figures=st.dictionaries(st.integers(1, 512), st.floats(1, 1e4), max_size=4),
    batch=st.integers(1, 1024),
)
def test_transferring_again_to_the_same_gpu_changes_nothing(
    figures: dict[int, float], batch: int
) -> None:
    table: Table = {"v100": [anchor(size, time) for size, time in figures.items()]}
    first = transferred(table, batch)
    again = transferred({"v100": [anchor(batch, milliseconds(first))]}, batch, own=first.profile)
    assert math.isclose(milliseconds(again), milliseconds(first))
    assert first.profile.iteration_s > 0
    assert all(note.endswith(".") for note in first.notes) and first.notes


@given(batch=st.integers(1, 1024))
def test_profile_alone_at_its_own_place_is_returned_as_it_is(batch: int) -> None:
    own = profile(batch=batch)
    assert transferred({}, batch, own=own).profile == own


@pytest.mark.parametrize("path", sorted(SHIPPED.files("models").values()), ids=lambda p: p.stem)
def test_every_shipped_profile_can_be_transferred_to_every_gpu(path: Path) -> None:
    own = read_profile(path)
    for gpu in ("k80", "h200"):
        result = transfer(own, load_device(gpu, SHIPPED), own.batch, "fp32", SHIPPED)
        assert result.profile.gpu == gpu
        assert 0.01 < result.profile.iteration_s / own.iteration_s < 300
        assert result.notes
