"""What low-rank methods share: ranks, groups of one shape, and their kernels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.compute.kernel import gemm, gram_schmidt, qr
from perfsim.methods.building.low_rank import (
    LowRankTensor,
    Orthogonaliser,
    factored_matrices,
    orthogonalise,
)
from support.builders import gradient, hand_device


@pytest.mark.parametrize(
    ("rank", "kernel", "name"),
    [
        (2, "auto", "gram_schmidt"),
        (3, "auto", "qr"),
        (1, "qr", "qr"),
        (32, "gram_schmidt", "gram_schmidt"),
    ],
)
def test_the_orthogonaliser_is_pytorchs_by_rank(
    rank: int, kernel: Orthogonaliser, name: str
) -> None:
    assert orthogonalise(512, rank, kernel).name == name


def test_matrices_of_one_shape_are_grouped_and_keep_their_order() -> None:
    # A 3 x 3 convolution of 32 channels is seen as 64 x 288.
    gradients = [gradient((64, 32, 3, 3)), gradient((8, 6)), gradient((64, 288)), gradient((3, 2))]
    assert factored_matrices(gradients, 4, together=True) == [
        LowRankTensor(2, 64, 288, 4),
        LowRankTensor(1, 8, 6, 4),
        LowRankTensor(1, 3, 2, 2),
    ]
    assert [one.count for one in factored_matrices(gradients, 4, together=False)] == [1, 1, 1, 1]


def test_a_group_is_one_launch_and_all_the_work() -> None:
    three = LowRankTensor(3, 64, 128, 4)
    one = gemm(64, 128, 4)
    product = three.p_product()
    assert (product.launches, product.width) == (1, 4)
    assert product.elements == 3 * 64 * 128
    assert (product.moved_bytes, product.flops) == (3 * one.moved_bytes, 3 * one.flops)
    # Each is read once more where it is added to: 4 x 3 x 8192 bytes.
    assert three.added().moved_bytes - three.rebuilt().moved_bytes == 98304


def test_gram_schmidt_takes_a_group_together_and_qr_does_not() -> None:
    three = LowRankTensor(3, 64, 128, 2)
    [together] = three.orthonormal(64, "auto")
    assert together.launches == gram_schmidt(64, 2).launches
    assert together.moved_bytes == 3 * gram_schmidt(64, 2).moved_bytes
    assert LowRankTensor(3, 64, 128, 4).orthonormal(128, "auto") == [qr(128, 4)] * 3


@given(
    shapes=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=12),
    rank=st.integers(1, 50),
)
def test_grouping_changes_launches_only(shapes: list[tuple[int, int]], rank: int) -> None:
    gradients = [gradient(shape) for shape in shapes]
    apart, grouped = (
        factored_matrices(gradients, rank, together=together) for together in (False, True)
    )
    for what in ("elements", "p_elements", "q_elements"):
        sums = [sum(getattr(one, what) for one in made) for made in (apart, grouped)]
        assert sums[0] == sums[1]
    flops = [sum(one.q_product().flops for one in made) for made in (apart, grouped)]
    assert flops[0] == flops[1]
    device = hand_device()
    times = [sum(device.cost(one.rebuilt()).seconds for one in made) for made in (apart, grouped)]
    assert times[1] <= times[0] * (1 + 1e-12)
