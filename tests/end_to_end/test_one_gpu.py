"""What was measured on one GPU: the stored table is that of today's predictions."""

from __future__ import annotations

import json

import pytest

from scripts.end_to_end import one_gpu
from scripts.end_to_end.real_training import BEGIN, END
from support.one_gpu.settings import ITERATIONS, KERNELS, kernel_shapes


def test_the_stored_table_is_that_of_today() -> None:
    rows = [json.loads(line) for line in one_gpu.MEASURED.read_text().splitlines()]
    stored = one_gpu.STORED.read_text().partition(BEGIN)[2].partition(END)[0]
    assert one_gpu.table(rows) == stored.strip()


def test_what_was_measured_is_what_the_settings_ask() -> None:
    rows = [json.loads(line) for line in one_gpu.MEASURED.read_text().splitlines()]
    named = {row["name"] for row in rows if "name" in row}
    assert named <= {setting.name for setting in ITERATIONS}
    for kernel in KERNELS:
        shapes = [row["shape"] for row in rows if row["stage"] == kernel]
        assert shapes and all(shape in kernel_shapes(kernel) for shape in shapes)


@pytest.mark.parametrize("kernel", KERNELS)
def test_shapes_are_the_same_in_every_run(kernel: str) -> None:
    assert kernel_shapes(kernel) == kernel_shapes(kernel)
