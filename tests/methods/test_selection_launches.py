"""Launches of the sparsifiers' kernels, counted by hand along the code that each is read from."""

from __future__ import annotations

import pytest

from perfsim.compute.kernel import Kernel
from perfsim.fusion.buckets import Bucket
from perfsim.methods import load_method, method_class, method_names
from perfsim.methods.base import Compute, MethodContext
from perfsim.methods.building.sparsify import Selection, above
from support.builders import gradient

SELECTING = [
    name
    for name in method_names()
    if any(field.annotation == Selection for field in method_class(name).model_fields.values())
]
"""Methods whose exact top-k can be chosen."""


def launches(
    name: str, kind: str, world: MethodContext, iteration: int = 0, **options: object
) -> int:
    """Return the launches of one kind on 10,000 values."""
    return sum(one.launches for one in found(name, kind, world, iteration, **options))


def found(
    name: str, kind: str, world: MethodContext, iteration: int = 0, **options: object
) -> list[Kernel]:
    stages = load_method(name, options).stages(Bucket.of([gradient(10_000)]), world, iteration)
    return [
        kernel
        for stage in stages
        if isinstance(stage, Compute) and stage.kind == kind
        for kernel in stage.kernels
    ]


@pytest.mark.parametrize("times", [1, 2, 10])
def test_a_search_compares_counts_and_selects(times: int) -> None:
    # The comparison; a sum of two kernels; a selection of two kernels.
    assert above(1000, times).launches == times * (1 + 2 + 2)


def test_gaussiank_and_redsync_pay_a_search_for_each_threshold() -> None:
    world = MethodContext(4)
    none, two = (launches("gaussiank", "compress", world, corrections=n) for n in (0, 2))
    # Add, deviation, mean, magnitudes, copy; the search; gather and clear.
    assert (none, two - none) == (5 + 5 + 2, 2 * 5)
    one, six = (launches("redsync", "compress", world, counts=n) for n in (1, 6))
    assert (one, six - one) == (5 + 5 + 2, 5 * 5)


def test_sidco_pays_a_search_a_gather_and_a_fit_for_each_stage() -> None:
    def each(distribution: str) -> int:
        one, three = (
            launches("sidco", "compress", MethodContext(4), fits=n, distribution=distribution)
            for n in (1, 3)
        )
        assert (three - one) % 2 == 0
        return (three - one) // 2

    # The search, the gather, minimum and mean; or minimum, subtraction, variance with mean.
    assert each("exponential") == 5 + 1 + 2
    assert each("pareto") == each("gamma") == 5 + 1 + 3


def test_mstopk_tests_each_sample_on_the_host() -> None:
    world = MethodContext(4)
    few, many = (launches("mstopk", "compress", world, samples=n) for n in (1, 21))
    # Subtract, multiply, add; compare; count; two tests.
    assert many - few == 20 * (3 + 1 + 1 + 2)
    # Residual 2; magnitudes, mean, maximum; a sample; a search; compare twice, join and find 4;
    # join the places; gather and clear.
    assert few == 2 + 3 + 7 + 5 + (2 + 1 + 4) + 2


def test_oktopk_works_region_by_region() -> None:
    def counted(ranks: int) -> tuple[int, int]:
        world = MethodContext(ranks)
        return (
            launches("oktopk", "compress", world, iteration=1),
            launches("oktopk", "decompress", world, iteration=1),
        )

    near, far = counted(8), counted(24)
    # A region: magnitudes, a search, its values. A rank's pairs: read, add, write.
    assert far[0] - near[0] == 16 * (1 + 5 + 1)
    assert far[1] - near[1] == 16 * 3


def test_dragonn_may_keep_a_residual_as_its_command_line_does() -> None:
    def moved(memory: str) -> float:
        kernels = found("dragonn", "compress", MethodContext(4), memory=memory, compress_above=1000)
        return sum(one.moved_bytes for one in kernels)

    # Products 2 + 2, sum 3, and the difference 3; 100 pairs of 16 bytes taken out of it.
    assert moved("residual") - moved("none") == 4 * 10 * 10_000 + 16 * 100
    # Product 2, sum 3; 100 values cleared.
    assert moved("momentum") - moved("none") == 4 * 5 * 10_000 + 4 * 100
    residual = load_method("dragonn", {"memory": "residual"})
    assert residual.memory_bytes([gradient(1000)], 4) == 4000.0


@pytest.mark.parametrize("name", SELECTING)
def test_exact_selection_is_that_of_the_software_unless_another_is_asked(name: str) -> None:
    for era, selection in (("torch1.8", "old"), ("torch2", "new")):
        kernels = found(name, "compress", MethodContext(4, software=era))
        assert f"topk_{selection}" in {kernel.name for kernel in kernels}, era
    asked = found(name, "compress", MethodContext(4, software="torch1.8"), kernel="new")
    assert "topk_new" in {kernel.name for kernel in asked}
