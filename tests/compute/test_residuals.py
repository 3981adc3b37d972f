"""Kriging of residuals: closed forms of one, and what must hold of many."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.compute.residuals import (
    FITTED_DEVIATIONS,
    Deviations,
    IterationSetting,
    Residual,
    covariance,
    estimate,
)

HERE = IterationSetting(
    "resnet50", "image", None, "v100", "v100", "Volta", "fp32", 32, "torch1.8", "A pytorch"
)
FAR = IterationSetting(
    "gpt2", "text", 1024, "h100", "h100", "Hopper", "amp-bf16", 4, "torch2", "B jax"
)

places = st.builds(
    IterationSetting,
    model=st.sampled_from(["resnet50", "vgg16"]),
    family=st.sampled_from(["image", "text"]),
    tokens=st.sampled_from([None, 128]),
    gpu=st.sampled_from(["v100", "a100"]),
    chip=st.sampled_from(["v100", "a100"]),
    architecture=st.sampled_from(["Volta", "Ampere"]),
    precision=st.sampled_from(["fp32", "amp-fp16"]),
    batch=st.sampled_from([1, 32, 512]),
    era=st.sampled_from(["torch1.8", "torch2"]),
    source=st.sampled_from(["", "A", "B"]),
)
residuals = st.builds(
    Residual, places, st.floats(-1, 1, allow_subnormal=False), st.sampled_from([0.01, 0.03, 0.1])
)


def test_a_residual_known_at_the_place_without_noise_is_returned() -> None:
    """What is left is how far whoever measures it is from another: source and source on a GPU."""
    goal = HERE._replace(source="")
    value, deviation = estimate(goal, [Residual(goal, 0.3, 0.0)])
    assert value == pytest.approx(0.3)
    assert deviation == pytest.approx(
        math.hypot(FITTED_DEVIATIONS.source, FITTED_DEVIATIONS.source_gpu)
    )


def test_a_place_that_shares_nothing_tells_nothing() -> None:
    assert covariance(HERE, FAR, FITTED_DEVIATIONS) == 0
    known = estimate(HERE, [Residual(FAR, 0.7, 0.01)])
    assert known == pytest.approx(estimate(HERE, []))
    assert known[0] == 0.0


def test_one_noisy_residual_by_closed_form() -> None:
    """Variance 4 shared, 9 of its own beside 3 of noise: 4 / 16 of it, 13 - 4 x 4 / 16 remains."""
    by = Deviations(*[0.0] * len(Deviations._fields))._replace(model=2.0, gpu_family=3.0, batch=1.0)
    goal = HERE._replace(gpu="v100-pcie", source="")
    value, deviation = estimate(goal, [Residual(HERE, 1.0, math.sqrt(3.0))], by)
    assert value == pytest.approx(4 / 16)
    assert deviation == pytest.approx(math.sqrt(13 - 4 * 4 / 16))


def test_batches_far_apart_share_less_of_a_cell() -> None:
    """At a distance of 1 in the logarithm, 1/e of what the cell has of its own."""
    by = FITTED_DEVIATIONS._replace(batch=math.log(2))
    near, far = (covariance(HERE, HERE._replace(batch=batch), by) for batch in (32, 64))
    assert near - far == pytest.approx(FITTED_DEVIATIONS.cell**2 * (1 - math.exp(-1)))


@given(goal=places, one=residuals)
def test_the_estimate_by_one_lies_between_nothing_and_it(
    goal: IterationSetting, one: Residual
) -> None:
    value, _ = estimate(goal, [one])
    low, high = sorted((0.0, one.value))
    assert low - 1e-12 <= value <= high + 1e-12


@given(goal=places, known=st.lists(residuals, max_size=6))
def test_it_is_the_best_linear_estimate_and_more_is_known_by_more(
    goal: IterationSetting, known: list[Residual]
) -> None:
    """The same by solving the normal equations, and each further residual narrows it."""
    value, deviation = estimate(goal, known)
    if known:
        among = np.array(
            [[covariance(a.setting, b.setting, FITTED_DEVIATIONS) for b in known] for a in known]
        )
        among += np.diag([one.deviation**2 for one in known])
        to_goal = np.array([covariance(goal, one.setting, FITTED_DEVIATIONS) for one in known])
        weights = np.linalg.solve(among, to_goal)
        assert value == pytest.approx(weights @ [one.value for one in known], abs=1e-6)
    widths = [estimate(goal, known[:count])[1] for count in range(len(known) + 1)]
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(widths))
    assert 0 <= deviation <= widths[0] + 1e-9


@given(goal=places, known=st.lists(residuals, min_size=2, max_size=5), data=st.data())
def test_the_order_of_what_is_known_does_not_matter(
    goal: IterationSetting, known: list[Residual], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(known))
    assert estimate(goal, shuffled) == pytest.approx(estimate(goal, known), abs=1e-9)


@given(one=places, other=places)
def test_covariance_is_symmetric_and_largest_with_oneself(
    one: IterationSetting, other: IterationSetting
) -> None:
    shared = covariance(one, other, FITTED_DEVIATIONS)
    assert shared == covariance(other, one, FITTED_DEVIATIONS)
    assert 0 <= shared <= covariance(one, one, FITTED_DEVIATIONS) + 1e-12
