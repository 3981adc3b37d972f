"""How far iterations of one GPU are off where they were left out, which the intervals use."""

from __future__ import annotations

from math import hypot, log, log1p
from pathlib import Path

import pytest

from compute_record import Row
from one_gpu_errors import (
    ONE_GPU_ERRORS_COLUMNS,
    ONE_GPU_ERRORS_SCHEMA,
    OneGpuError,
    batch_errors,
    errors_table,
    read_sizes,
    sizes_of,
)
from perfsim.data.catalog import Catalog, shipped
from perfsim.data.tables import read_table
from perfsim.interval import NO_METHOD, uncertainties
from perfsim.prediction import predict
from perfsim.scenario import Scenario

RECORD = shipped() / "measurements" / "one_gpu_errors.csv"


def errors(question: str, logs: list[float], *, reach: float = 0.0) -> list[OneGpuError]:
    """Return errors of as many sources."""
    return [OneGpuError(question, f"s{n}", reach, one) for n, one in enumerate(logs)]


# By hand


def test_a_size_holds_its_side_and_what_reaches_further_is_in_quadrature() -> None:
    reach = 1.5
    between = errors("between", [0.02, 0.04, -0.06, 0.0])
    beyond = errors("beyond", [hypot(0.04, 0.3 * log1p(reach)), -0.05], reach=reach)
    carried = errors("carried", [0.5, -0.2])
    sizes = sizes_of([*between, *beyond, *carried])
    assert sizes["between"] == (0.04, 0.06)
    # Where the error is faster than 5 %, less than between known batches, nothing is left.
    assert sizes["beyond"] == pytest.approx((0.3, 0.0))
    assert sizes["carried"] == pytest.approx((0.5, 0.2))


def test_a_source_with_many_rows_does_not_decide_alone() -> None:
    many = [OneGpuError("between", "a", 0.0, 0.01) for _ in range(100)]
    few = [OneGpuError("between", "b", 0.0, 0.5)]
    others = [*errors("beyond", [0.0], reach=1.0), *errors("carried", [0.0])]
    # One row of 101 is within 5 % of equal rows, but of weights 10 and 1 it is not.
    assert sizes_of([*many, *few, *others])["between"][0] == 0.5


def test_a_series_on_a_line_is_off_by_nothing_between_its_batches() -> None:
    series = Row("someone", "v100", "fp32", "resnet50", None, 0, "torch1.12", 0.0)
    measured = {series: {32: 0.10, 64: 0.18, 128: 0.34}}
    found = list(batch_errors(measured, Catalog()))
    [between] = [one for one in found if one.question == "between"]
    assert between.log == pytest.approx(0.0, abs=1e-12)
    # Each of three batches from each other one alone, and both ends from the two others.
    beyond = [one for one in found if one.question == "beyond"]
    assert len(beyond) == 8
    reaches = {round(one.reach, 9) for one in beyond}
    assert reaches == {round(log(2), 9), round(log(4), 9)}
    # As long for a sample as at the least batch would be too slow by no more than what it saves.
    assert all(abs(one.log) < 0.25 for one in beyond)


def test_the_table_holds_what_the_sizes_are(tmp_path: Path) -> None:
    every = [
        *errors("between", [0.02, -0.06]),
        *errors("beyond", [0.3, -0.2], reach=1.0),
        *errors("carried", [0.5, -0.2]),
    ]
    path = tmp_path / "one_gpu_errors.csv"
    path.write_text(errors_table(every, "2026-12-01"), encoding="utf-8")
    wanted = {name: pytest.approx(both, abs=1e-4) for name, both in sizes_of(every).items()}
    assert read_sizes(path) == wanted


# As stored


def test_intervals_have_the_sizes_of_the_record() -> None:
    slower, faster = ({n: both[side] for n, both in read_sizes(RECORD).items()} for side in (0, 1))
    known = uncertainties(Catalog())[NO_METHOD]
    assert known.faster is not None
    for own, sizes in ((slower, known.sizes), (faster, known.faster)):
        assert sizes["batch"] == pytest.approx(own["beyond"], abs=1e-4)
        same = hypot(sizes["compute_measured"], own["between"])
        assert sizes["compute_same_gpu"] == pytest.approx(same, abs=2e-4)
        least = max(own["carried"], sizes["compute_transformer"])
        assert sizes["compute_one_gpu"] == pytest.approx(least, abs=1e-4)


def test_sizes_hold_the_times_of_sources_left_out() -> None:
    rows = [cells for _, cells in read_table(RECORD, ONE_GPU_ERRORS_SCHEMA, ONE_GPU_ERRORS_COLUMNS)]
    held = sum(int(row["count"]) * float(row["coverage"]) for row in rows)
    assert 0.85 <= held / sum(int(row["count"]) for row in rows) <= 0.97


# What a prediction says


def half_widths(batch: int, gpu: str = "v100", gpus: int = 1) -> tuple[float, float]:
    """Return how far the interval of ResNet-50 reaches on both sides, in natural logarithm."""
    asked = Scenario(model="resnet50", gpu=gpu, gpus=gpus, batch=batch, net="10gbe")
    found = predict(asked)
    low_s, high_s = found.iteration_s_interval
    return log(found.iteration_s / low_s), log(high_s / found.iteration_s)


def test_a_batch_between_measured_ones_is_known_better_than_one_beyond_them() -> None:
    measured, between, beyond = (half_widths(batch) for batch in (32, 48, 512))
    for side in range(2):
        assert measured[side] < between[side] < beyond[side]
    assert between[1] < 0.2


def test_one_gpu_that_nobody_timed_is_known_better_than_several() -> None:
    alone, several = (half_widths(64, "rtx4000-ada", gpus) for gpus in (1, 8))
    assert alone[1] < 0.5 < several[1]
