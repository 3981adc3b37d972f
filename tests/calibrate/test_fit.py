"""Fits: known parameters come back, outliers lose, and what the data cannot tell is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.calibrate.fit import (
    Parameter,
    Unidentified,
    fit,
    fit_hinge,
    fit_line,
    hinge,
)
from perfsim.calibrate.network_report import fit_report

SIZES = 2.0 ** np.arange(3, 28)

alphas = st.floats(1e-6, 1e-2)
betas = st.floats(1e-12, 1e-8)


def line(x: Any, alpha: float, beta: float) -> Any:
    return alpha + beta * np.asarray(x)


def start(alpha: float = 1e-4, beta: float = 1e-10) -> list[Parameter]:
    return [
        Parameter("alpha", alpha, "s", low=0.0),
        Parameter("beta", beta, "s/B", low=0.0),
    ]


def noise(seed: int, count: int, width: float) -> Any:
    return np.exp(np.random.default_rng(seed).normal(0.0, width, count))


@given(alphas, betas)
def test_exact_data_give_their_parameters_back(alpha: float, beta: float) -> None:
    sizes = np.geomspace(alpha / beta / 1e3, alpha / beta * 1e3, 25)
    found = fit(line, sizes, line(sizes, alpha, beta), start())
    assert found.values["alpha"] == pytest.approx(alpha, rel=1e-6)
    assert found.values["beta"] == pytest.approx(beta, rel=1e-6)
    assert found.worst < 1e-6


@pytest.mark.parametrize("loss", ["linear", "soft_l1", "cauchy"])
def test_standard_errors_cover_the_truth_as_often_as_they_say(loss: str) -> None:
    inside = 0
    for seed in range(40):
        times = line(SIZES, 3e-5, 2e-10) * noise(seed, SIZES.size, 0.05)
        found = fit(line, SIZES, times, start(), loss=loss)
        for name, truth in (("alpha", 3e-5), ("beta", 2e-10)):
            error = found.stderr(name)
            assert error is not None
            inside += abs(found.values[name] - truth) <= 2 * error
    # 95 % of 80 lie within two standard errors; 68 is four standard deviations less.
    assert inside >= 68


def test_outliers_do_not_move_the_fit_beyond_its_errors() -> None:
    times = line(SIZES, 3e-5, 2e-10) * noise(1, SIZES.size, 0.02)
    times[[4, 12, 20]] *= 5.0
    found = fit(line, SIZES, times, start())
    plain = fit(line, SIZES, times, start(), loss="linear")
    for name, truth in (("alpha", 3e-5), ("beta", 2e-10)):
        error = found.stderr(name)
        assert error is not None
        assert abs(found.values[name] - truth) < 4 * error
        assert abs(found.values[name] / truth - 1) < 0.05
        assert abs(found.values[name] - truth) < abs(plain.values[name] - truth)


def test_linear_least_squares_is_that_of_the_normal_equations() -> None:
    # By closed form: y = a + b x, covariance s^2 (X^T X)^-1.
    x = np.array([1.0, 2.0, 3.0, 5.0, 8.0])
    y = np.array([1.9, 4.2, 5.8, 10.3, 15.7])
    rows = np.column_stack((np.ones_like(x), x))
    best, (square,), *_ = np.linalg.lstsq(rows, y, rcond=None)
    covariance = square / 3 * np.linalg.inv(rows.T @ rows)
    both = [Parameter("alpha", 1.0), Parameter("beta", 1.0)]
    found = fit(line, x, y, both, relative=False, loss="linear")
    assert list(found.values.values()) == pytest.approx(best.tolist())
    errors = [found.stderr(name) for name in ("alpha", "beta")]
    assert errors == pytest.approx(np.sqrt(np.diag(covariance)).tolist(), rel=1e-4)
    wanted = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
    assert found.correlation["alpha", "beta"] == pytest.approx(wanted, rel=1e-4)


def test_large_messages_alone_do_not_tell_alpha() -> None:
    sizes = SIZES[SIZES >= 2**22]
    needs = {"alpha": "Measure messages below 64 KiB."}
    refused = 0
    for seed in range(40):
        times = line(sizes, 2e-6, 1e-9) * noise(seed, sizes.size, 0.02)
        try:
            fit(line, sizes, times, start(), needs=needs)
        except Unidentified as error:
            refused += 1
            assert error.names == ("alpha",)
            assert "do not determine alpha" in str(error) and needs["alpha"] in str(error)
    # An alpha of nothing exceeds its standard error by chance in 16 % of the draws: 7 of 40.
    assert refused >= 26
    both = fit(line, sizes, times, start(), refuse=False)
    assert both.values["beta"] == pytest.approx(1e-9, rel=0.05)


def test_a_parameter_without_effect_and_a_pair_that_acts_as_one_are_named() -> None:
    def idle(x: Any, alpha: float, beta: float, gamma: float) -> Any:
        return line(x, alpha, beta) + 0 * gamma

    def twins(x: Any, alpha: float, beta: float, gamma: float) -> Any:
        return line(x, alpha, beta + gamma)

    times = line(SIZES, 3e-5, 2e-10)
    with pytest.raises(Unidentified) as error:
        fit(idle, SIZES, times, [*start(), Parameter("gamma", 1e-10, low=0.0)])
    assert error.value.names == ("gamma",)
    with pytest.raises(Unidentified) as error:
        fit(twins, SIZES, times, [*start(), Parameter("gamma", 1e-10, low=0.0)])
    assert set(error.value.names) == {"beta", "gamma"}


def test_limits_hold_and_a_held_parameter_stays() -> None:
    times = line(SIZES, 3e-5, 2e-10)
    capped = [Parameter("alpha", 1e-5, "s", low=0.0, high=2e-5), *start()[1:]]
    assert fit(line, SIZES, times, capped).values["alpha"] == pytest.approx(2e-5)
    held = [Parameter("alpha", 5e-5, "s", fixed=True), *start()[1:]]
    found = fit(line, SIZES, times, held)
    assert found.values["alpha"] == 5e-5 and found.stderr("alpha") is None


@given(alphas, betas, st.floats(1e-3, 1e3))
def test_a_clock_in_other_units_changes_the_parameters_alike(
    alpha: float, beta: float, factor: float
) -> None:
    sizes = np.geomspace(alpha / beta / 1e3, alpha / beta * 1e3, 20)
    times = line(sizes, alpha, beta) * noise(5, 20, 0.05)
    one, other = fit_line(sizes, times), fit_line(sizes, times * factor)
    for name in ("c", "b"):
        assert other.values[name] == pytest.approx(one.values[name] * factor, rel=1e-4)
    assert other.median == pytest.approx(one.median, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize(
    ("times", "loss", "sentence"),
    [
        ([1.0], "linear", "1 points for 2 free"),
        ([1.0, -1.0], "linear", "finite, and positive"),
        ([1.0, np.nan], "linear", "finite, and positive"),
        ([1.0, 2.0], "l2", "allowed: soft_l1"),
    ],
)
def test_bad_calls_say_what_is_wrong(times: list[float], loss: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        fit(line, SIZES[: len(times)], times, start(), loss=loss)


def test_the_report_has_its_sections_units_and_errors() -> None:
    times = line(SIZES, 3e-5, 2e-10) * noise(7, SIZES.size, 0.03)
    found = fit(line, SIZES, times, start(), title="alpha + beta m")
    lines = fit_report(found).splitlines()
    heads = [text for text in lines if text[0] != " "]
    assert heads == ["Fit", "Parameters", "Correlations of at least 0.1"]
    text = fit_report(found)
    assert "8 B to 134.2 MB" in text and f"+/- {found.stderr('alpha'):.2g}" in text
    assert "s/B" in text and "C(alpha, beta) = " in text
    assert f"{found.median:.2%}" in text


def test_a_line_needs_no_hinge() -> None:
    times = line(SIZES, 3e-5, 2e-10) * noise(11, SIZES.size, 0.03)
    found = fit_hinge(SIZES, times)
    assert found.values["a"] == 0.0
    assert found.values == fit_line(SIZES, times).values


def test_a_floor_and_a_steeper_line_are_found() -> None:
    truth = {"a": 5e-5, "c": -2e-4, "b": 1e-9}
    times = hinge(SIZES, **truth) * noise(13, SIZES.size, 0.02)
    found = fit_hinge(SIZES, times)
    for name, value in truth.items():
        error = found.stderr(name)
        assert error is not None
        assert abs(found.values[name] - value) < 4 * error
    assert found.aicc < fit_line(SIZES, times).aicc


def test_large_messages_do_not_make_a_hinge() -> None:
    sizes = SIZES[SIZES >= 2**20]
    for seed in range(10):
        times = line(sizes, 1e-7, 1e-9) * noise(seed, sizes.size, 0.02)
        try:
            found = fit_hinge(sizes, times)
        except Unidentified as error:
            assert error.names == ("c",) and "Measure smaller messages" in str(error)
        else:
            assert found.values["a"] == 0.0
