"""Laws of computation on a sample of the grid that ``tests/scripts/compute_laws.py`` asks whole.

Samples a second do not fall with the batch, a narrower precision or a newer board is not slower,
but where a measured row says so.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from perfsim.compute.anchors import GpuPrecision
from scripts import compute_laws
from scripts.compute_laws import BATCHES, report, shipped_models, violations
from support.what_ships import SHIPPED

GPUS = sorted(SHIPPED.files("devices"))


@pytest.mark.parametrize("model", ["resnet50", "bert-large", "lstm-ptb"])
def test_no_law_is_broken_on_any_gpu_without_a_measured_row(model: str) -> None:
    found = list(violations(SHIPPED, [model], GPUS, batches=(1, 256)))
    print(report(found))
    assert not [one for one in found if not one.backed]


@pytest.mark.parametrize("model", shipped_models(SHIPPED))
@pytest.mark.parametrize("software", [None, "torch1.8", "mlperf"])
def test_no_law_is_broken_by_any_model_without_a_measured_row(
    model: str, software: str | None
) -> None:
    found = list(violations(SHIPPED, [model], ["a100", "v100"], (1, 128), software))
    print(report(found))
    assert not [one for one in found if not one.backed]


@pytest.mark.parametrize("model", ["bert-large", "gpt2", "resnet50"])
def test_autocast_breaks_no_law_of_batches_and_generations(model: str) -> None:
    found = list(violations(SHIPPED, [model], ["a100", "h100"], autocast=True))
    print(report(found))
    assert not [one for one in found if not one.backed]


# The check itself


def broken(monkeypatch: pytest.MonkeyPatch, seconds: Any) -> list[compute_laws.Violation]:
    """Return what the check finds where iterations take ``seconds(gpu, precision, batch)``."""

    def moved(
        profile: Any, device: Any, batch: int, precision: str, *_: Any, **__: Any
    ) -> SimpleNamespace:
        return SimpleNamespace(
            quantity=SimpleNamespace(value=seconds(device.name, precision, batch))
        )

    monkeypatch.setattr(compute_laws, "transfer", moved)
    return list(violations(SHIPPED, ["vgg16"], ["h100"], BATCHES))


def test_a_lawful_machine_breaks_no_law(monkeypatch: pytest.MonkeyPatch) -> None:
    assert broken(monkeypatch, lambda gpu, precision, batch: 1.0 + batch) == []


@pytest.mark.parametrize(
    ("seconds", "law", "count"),
    [
        # Nine steps between ten batches, on each GPU and precision.
        (lambda gpu, precision, batch: 1 / batch, "time falls with the batch", 9),
        (lambda gpu, precision, batch: batch**2, "rate falls", 9),
        # Batches 64 to 512 of amp and 1 to 512 of tf32.
        (
            lambda gpu, precision, batch: batch * (2 if precision == "amp-fp16" else 1),
            "precision",
            4,
        ),
        (lambda gpu, precision, batch: batch * (2 if precision == "tf32" else 1), "precision", 10),
        (lambda gpu, precision, batch: batch * (2 if gpu == "h100" else 1), "generation", 10),
    ],
)
def test_each_law_that_is_broken_is_found(
    monkeypatch: pytest.MonkeyPatch, seconds: Any, law: str, count: int
) -> None:
    found = broken(monkeypatch, seconds)
    assert {one.law for one in found} == {law}
    slower = {one.slower for one in found}
    for place in slower:
        others = {one.faster for one in found if one.slower == place}
        here = [one for one in found if one.slower == place]
        assert len(here) == count * len(others)
    assert GpuPrecision("h100", "fp32") in slower or law == "precision"
