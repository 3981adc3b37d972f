"""What measured iterations say beyond the kernels: kriging of their residuals.

A residual is ln(measured / by kernels). Residuals of one model, one GPU or one kind of software are
alike, and so those known tell something of one that nobody measured: its best linear estimate, and
how far off that may be (simple kriging; Cressie 1993, Statistics for Spatial Data, section 3.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt
from typing import NamedTuple

from perfsim.sums import sum_in_order

__all__ = ["Deviations", "IterationSetting", "Residual", "covariance", "estimate"]


class IterationSetting(NamedTuple):
    """What an iteration ran: model, GPU, precision, batch and software.

    ``family`` is that of the model (text, image, cifar, lstm), ``chip`` what boards of one chip
    share, ``source`` who measured with which framework ("" for a prediction).
    """

    model: str
    family: str
    tokens: int | None
    gpu: str
    chip: str
    architecture: str
    precision: str
    batch: int
    era: str
    source: str = ""


class Residual(NamedTuple):
    """A measured iteration's ln(measured / by kernels), and its own standard deviation.

    ``host_binds`` says whether it waits for its host's launches.
    """

    setting: IterationSetting
    value: float
    deviation: float
    host_binds: bool = False


class Deviations(NamedTuple):
    """How much residuals that share something differ from others: standard deviations of ln.

    Fitted by ``profiles/build/compute_record.py --deviations``, each (GPU, precision, model) left
    out in turn; the optimum is flat, and they are kept while another is no better.
    ``batch`` is the distance in ln(batch) at which two residuals of a cell tell 1/e of each other.
    """

    model: float = 0.064
    model_precision: float = 0.044
    architecture: float = 0.048
    gpu_family: float = 0.023
    cell: float = 0.107
    batch: float = 1.0
    era: float = 0.081
    era_family: float = 0.029
    source: float = 0.022
    source_gpu: float = 0.03


FITTED_DEVIATIONS = Deviations()


def covariance(
    one: IterationSetting, other: IterationSetting, by: Deviations = FITTED_DEVIATIONS
) -> float:
    """Return how much the residuals of two settings have in common."""
    shared = 0.0
    if one.model == other.model:
        shared += by.model**2
        if one.precision == other.precision:
            shared += by.model_precision**2
            if one.chip == other.chip and one.tokens == other.tokens:
                shared += by.cell**2 * exp(-abs(log(one.batch / other.batch)) / by.batch)
    if one.architecture == other.architecture:
        shared += by.architecture**2
    if one.family == other.family and one.precision == other.precision:
        if one.gpu == other.gpu:
            shared += by.gpu_family**2
        if one.era == other.era:
            shared += by.era_family**2
    if one.era == other.era:
        shared += by.era**2
    if one.source and one.source == other.source and one.family == other.family:
        shared += by.source**2
        if one.gpu == other.gpu:
            shared += by.source_gpu**2
    return shared


def estimate(
    goal: IterationSetting, known: Sequence[Residual], by: Deviations = FITTED_DEVIATIONS
) -> tuple[float, float]:
    """Return the residual to expect of a setting, and its standard deviation.

    Examples
    --------
    >>> names = "v100", "v100", "Volta", "fp32"
    >>> here = IterationSetting("resnet50", "image", None, *names, 32, "torch1.8")
    >>> there = here._replace(gpu="a100", chip="a100", architecture="Ampere", source="A")
    >>> value, deviation = estimate(here, [Residual(there, 0.2, 0.04)])
    >>> 0 < value < 0.2, deviation > 0.1
    (True, True)
    >>> estimate(here, [])[0]
    0.0
    """
    alone = covariance(goal, goal, by) + by.source**2 + by.source_gpu**2
    if not known:
        return 0.0, sqrt(alone)
    lower = _cholesky(known, by)
    to_goal = _solved(lower, [covariance(goal, one.setting, by) for one in known])
    values = _solved(lower, [one.value for one in known])
    value = sum_in_order(a * b for a, b in zip(to_goal, values, strict=True))
    return value, sqrt(max(alone - sum_in_order(a * a for a in to_goal), 0.0))


def _cholesky(known: Sequence[Residual], by: Deviations) -> list[list[float]]:
    """Return the lower Cholesky factor of the covariance of known residuals."""
    rows: list[list[float]] = []
    for i, one in enumerate(known):
        row: list[float] = []
        for j in range(i):
            rest = covariance(one.setting, known[j].setting, by)
            other = rows[j]
            rest -= sum_in_order(a * b for a, b in zip(row, other, strict=False))
            row.append(rest / other[j])
        own = covariance(one.setting, one.setting, by) + one.deviation**2
        row.append(sqrt(max(own - sum_in_order(a * a for a in row), 1e-12)))
        rows.append(row)
    return rows


def _solved(lower: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Return x of lower x = right, by forward substitution."""
    solution: list[float] = []
    for row, value in zip(lower, right, strict=True):
        rest = value - sum_in_order(a * b for a, b in zip(row, solution, strict=False))
        solution.append(rest / row[len(solution)])
    return solution
