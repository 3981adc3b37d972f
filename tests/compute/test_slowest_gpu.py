"""The slowest of the GPUs of a run: by hand, by closed form, and where it does not apply."""

from __future__ import annotations

from dataclasses import replace
from math import pi, sqrt

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.compute.profile import Profile
from perfsim.compute.slowest_gpu import GPU_SPREAD, pace_of, slowest_gpu, with_slowest
from perfsim.prediction import predict
from perfsim.resolve import resolve
from perfsim.scenario import make_scenario
from perfsim.schedule.model_parallel import laid_out_pipeline
from support.what_ships import SHIPPED

LLAMA = {"model": "llama3-8b", "node": "dgx-h100", "batch": 1, "method": "fsdp"}


@pytest.mark.parametrize(
    ("gpus", "deviations"),
    [(1, 0.0), (2, 1 / sqrt(pi)), (3, 1.5 / sqrt(pi)), (8, 1.4236), (1000, 3.2414)],
)
def test_the_slowest_is_what_order_statistics_say(gpus: int, deviations: float) -> None:
    """E[max of n normal numbers], exact for two and three, else of published tables."""
    assert slowest_gpu(gpus) - 1.0 == pytest.approx(deviations * GPU_SPREAD, abs=0.0008)


def test_the_slowest_is_what_draws_give() -> None:
    draws = numpy.random.default_rng(1).normal(1.0, GPU_SPREAD, (20_000, 64))
    assert slowest_gpu(64) == pytest.approx(float(draws.max(axis=1).mean()), abs=6e-4)


@given(st.integers(1, 100_000), st.integers(1, 100_000))
def test_more_gpus_have_no_faster_slowest(gpus: int, more: int) -> None:
    assert 1.0 <= slowest_gpu(gpus) <= slowest_gpu(gpus + more) < 1.06


def _profile(host: float, device: float) -> Profile:
    setup = resolve(make_scenario(LLAMA | {"gpus": 1}), SHIPPED)
    return replace(setup.profile, host_share=host, device_share=device)


def test_a_host_that_takes_longer_is_not_slowed() -> None:
    profile = _profile(1.0, 0.5)
    slowed = with_slowest(profile, 1.05)
    shares = slowed.host_share, slowed.device_share
    assert (pace_of(profile, 1.05), *shares) == (1.0, 1.0, pytest.approx(0.525))


def test_a_pass_waits_for_the_later_of_host_and_slowest_gpu() -> None:
    """By hand: the GPU takes 0.98 of the host's time, the slowest 1.05 times that."""
    profile = _profile(1.0, 0.98)
    slowed = with_slowest(profile, 1.05)
    assert slowed.forward_s == pytest.approx(profile.forward_s * 1.029)
    assert slowed.host_share == pytest.approx(1 / 1.029)
    assert slowed.device_share == 1.0
    assert with_slowest(profile, 1.0) == profile


def test_all_gpus_wait_for_the_slowest_in_both_passes() -> None:
    asked = LLAMA | {"overlap": False, "gpus_per_node": 8}
    passes = [
        sum(
            predict(make_scenario(asked | {"gpus": gpus})).breakdown_s[part]
            for part in ("forward", "backward")
        )
        for gpus in (8, 1024)
    ]
    assert passes[1] / passes[0] == pytest.approx(slowest_gpu(1024) / slowest_gpu(8), rel=1e-9)


def test_stages_of_a_divided_model_wait_too() -> None:
    asked = {"model": "llama3-70b", "node": "dgx-h100", "batch": 1, "accumulate": 16, "tp": 8}
    asked |= {"pp": 4, "method": "distributed_optimizer", "software": "megatron", "gpus": 512}
    setup = resolve(make_scenario(asked), SHIPPED)
    assert setup.split is not None
    assert setup.slowest_gpu == slowest_gpu(512)
    slowed = laid_out_pipeline(setup, setup.split).run.total_s
    setup.slowest_gpu = 1.0
    alone = laid_out_pipeline(setup, setup.split).run.total_s
    assert alone < slowed < alone * slowest_gpu(512)


def test_measured_times_have_it_already() -> None:
    asked = {"model": "resnet50", "gpu": "v100", "gpus": 64, "net": "ib100"}
    assert resolve(make_scenario(asked), SHIPPED).slowest_gpu == 1.0
    own = resolve(make_scenario(LLAMA | {"gpus": 64, "single_gpu": "900ms"}), SHIPPED)
    assert own.slowest_gpu == 1.0


def test_a_note_says_what_it_takes() -> None:
    (note,) = [
        one for one in predict(make_scenario(LLAMA | {"gpus": 64})).notes if "slowest" in one
    ]
    assert "2.6% longer" in note and "slowest of 64" in note
    alone = predict(make_scenario(LLAMA | {"gpus": 1}))
    assert not [one for one in alone.notes if "slowest" in one]
