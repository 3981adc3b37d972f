"""Moving a profile: what holds of every model and batch, whatever was measured."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.compute.device import load_device
from perfsim.compute.profile import read_profile
from perfsim.compute.transfer import transfer
from support.anchors import Table, anchor, milliseconds, profile, transferred
from support.what_ships import SHIPPED

ROUNDING = 1 + 1e-12
DEFINED = read_profile(SHIPPED.path("models", "resnet18.v100.fp32.b32", "model", "models"))


@pytest.mark.parametrize(
    "own", [profile(), profile(kind="measured"), DEFINED], ids=lambda p: p.model
)
@given(
    figures=st.dictionaries(st.integers(1, 512), st.floats(1, 1e4), max_size=5),
    batch=st.integers(1, 1023),
    gpu=st.sampled_from(["v100", "p100"]),
)
def test_time_rises_with_the_batch_and_falls_for_a_sample_whatever_was_measured(
    own: object, figures: dict[int, float], batch: int, gpu: str
) -> None:
    assert isinstance(own, type(DEFINED))
    table: Table = {gpu: [anchor(size, time, own.model) for size, time in figures.items()]}
    here, more = (
        milliseconds(transferred(table, size, gpu, own=own)) for size in (batch, batch + 1)
    )
    assert 0 < here <= more * ROUNDING
    assert more / (batch + 1) <= here / batch * ROUNDING


@given(figures=st.dictionaries(st.integers(1, 512), st.floats(1, 1e4), max_size=5))
def test_what_the_profile_measured_stays_whatever_others_measured(
    figures: dict[int, float],
) -> None:
    table: Table = {"v100": [anchor(size, time) for size, time in figures.items()]}
    assert math.isclose(milliseconds(transferred(table, 32, own=profile(kind="measured"))), 100)


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
def test_profile_alone_at_its_own_place_keeps_its_layers(batch: int) -> None:
    own = profile(batch=batch)
    found = transferred({}, batch, own=own).profile
    assert (found.layers, found.gradients, found.iteration_s) == (
        own.layers,
        own.gradients,
        own.iteration_s,
    )


@pytest.mark.parametrize("path", sorted(SHIPPED.files("models").values()), ids=lambda p: p.stem)
def test_every_shipped_profile_can_be_transferred_to_every_gpu(path: Path) -> None:
    own = read_profile(path)
    for gpu in ("k80", "h200"):
        result = transfer(own, load_device(gpu, SHIPPED), own.batch, "fp32", SHIPPED)
        assert result.profile.gpu == gpu
        assert 0.01 < result.profile.iteration_s / own.iteration_s < 300
        assert result.notes
        last_s = max(gradient.ready_s for gradient in result.profile.gradients)
        assert last_s <= result.profile.backward_s * (1 + 1e-6)
        layers = [*result.profile.layers]
        assert all(layer.forward_s >= 0 and layer.backward_s >= 0 for layer in layers)
