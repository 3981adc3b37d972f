"""K-FAC's shared parts by hand: kernels, fusion of factors, placement, grid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.compute.device import load_device
from perfsim.compute.kernel import cholesky, cholesky_inverse, eigh, elementwise, factor_product
from perfsim.methods.base import MethodContext, PassPoint
from perfsim.methods.building.kfac_factors import (
    HKBU,
    HKBU_LATER,
    KAISA,
    KfacLayer,
    decomposed,
    inverted,
    packed_triangle,
    preconditioned,
    rescaled,
    unpacked_triangle,
)
from perfsim.methods.building.kfac_grid import KfacGrid, bucketed
from perfsim.methods.building.kfac_placement import busiest_rank, least_loaded, round_robin
from perfsim.methods.building.kfac_schedule import (
    KroneckerFactor,
    after_backward,
    in_hooks,
    kronecker_factors,
)
from support.what_ships import SHIPPED

CONV = KfacLayer("c", True, False, 27, 64, 1000, 0.0, 0.2)
DENSE = KfacLayer("d", False, True, 11, 4, 8, 0.1, 0.1)

# Kernels


def test_a_convolutions_factors_by_hand() -> None:
    before, product, average = HKBU.input_factor(CONV)
    # copy, divide by positions, divide by rows: a read and a write each of 1000 x 27 values
    assert before == elementwise(27_000, 6, 3)
    assert (product.elements, product.flops) == (1000 * 27 * 27, 2 * 1000 * 27 * 27)
    assert average == elementwise(27 * 27, 7, 3)
    assert HKBU.output_factor(CONV)[0] == elementwise(64_000, 8, 4)
    assert HKBU_LATER.output_factor(CONV)[2] == elementwise(64 * 64, 5, 2)
    assert KAISA.input_factor(CONV)[2] == elementwise(27 * 27, 12, 5)


def test_a_bias_joins_a_column_of_ones() -> None:
    assert HKBU.input_factor(DENSE)[0] == elementwise(8 * 11, 2 + 2, 1 + 2)
    assert HKBU.output_factor(DENSE)[0] == elementwise(8 * 4, 2, 1)
    assert KAISA.input_factor(DENSE)[0] == elementwise(8 * 11, 4 + 2, 2 + 2)


def test_packing_and_inverting_by_hand() -> None:
    # triu_indices writes two int64, the gather reads them and moves a float: 16 + 16 + 8 bytes
    assert packed_triangle(3).moved_bytes == 6 * 40
    both, divided = unpacked_triangle(3, mean=True)
    # two triangles' places (32), then scatter, gather and scatter of 24 each
    assert both.moved_bytes == 6 * (32 + 72) and divided == elementwise(9, 2)
    assert unpacked_triangle(3) == (both,)
    assert inverted(3)[1:] == (cholesky(3), cholesky_inverse(3))
    assert decomposed(3, copied=True) == (*decomposed(3, copied=False), elementwise(9, 2))
    assert eigh(3) in decomposed(3, copied=False)


def test_preconditioning_is_two_products_or_four() -> None:
    two = preconditioned(CONV, "cholesky")
    # 2 g g a + 2 g a a
    assert sum(kernel.flops for kernel in two) == 2 * 64 * 64 * 27 + 2 * 64 * 27 * 27
    four = preconditioned(CONV, "eigen")
    assert sum(kernel.flops for kernel in four) == 2 * sum(kernel.flops for kernel in two)
    passes = [
        preconditioned(CONV, "eigen", quotients=known)[2].moved_bytes / (4 * 64 * 27)
        for known in (False, True)
    ]
    assert passes == [6, 3]
    assert rescaled(DENSE).launches == 2 * rescaled(CONV).launches


def test_measured_products_are_read_off_on_the_2080_ti_and_scale_with_the_batch() -> None:
    device = load_device("rtx2080ti", SHIPPED)
    # 6272 x 2304 was measured in 5150 us; all shapes of that work in 5150 to 5840 us.
    whole, quarter = (device.cost(factor_product(rows, 2304)) for rows in (6272, 1568))
    assert whole.seconds == pytest.approx(5.5e-3, rel=0.07)
    assert whole.terms[0].quantity.kind == "measured"
    assert quarter.seconds == pytest.approx(whole.seconds / 4, rel=0.15)


@given(st.integers(1, 5000))
def test_an_inverse_and_its_parts_never_shrink_with_the_side(side: int) -> None:
    device = load_device("rtx2080ti", SHIPPED)
    for make in (cholesky, cholesky_inverse, eigh):
        assert device.cost(make(side)).seconds <= device.cost(make(side + 1)).seconds * (1 + 1e-9)


# Fusion of factors


def made(*sides: int) -> list[KroneckerFactor]:
    """Return factors of one matrix a layer: A in a forward hook each 1 s, G in backward."""
    found = []
    for place, side in enumerate(sides):
        found.append(KroneckerFactor(f"{place} A", side, (), PassPoint("forward", float(place))))
        found.append(
            KroneckerFactor(
                f"{place} G", side, (), PassPoint("backward", float(len(sides) - place))
            )
        )
    return found


def world(alpha_s: float, packing_s: float = 0.0) -> MethodContext:
    """Return a world of all-reduces of ``alpha_s`` a message."""
    return MethodContext(
        4, 4, 1, lambda _c, _size, _group="all": alpha_s, lambda _kernel: packing_s
    )


def test_factors_in_hooks_are_merged_while_it_pays() -> None:
    # A message costs 1.5 s whatever its size and factors come 1 s apart: each waits 1 s to save
    # 1.5 s, so that all merge. At 0.5 s none does.
    for alpha_s, messages in ((1.5, 1), (0.5, 3)):
        jobs = in_hooks(made(2, 3, 4), world(alpha_s), "mgwfbp")
        sends = [job for job in jobs if job.name.startswith("factors forward")]
        assert len(sends) == messages
        assert sends[-1].needs[-1] == "2 A" and sends[-1].begins == PassPoint("forward", 2.0)


def test_time_spent_on_factors_comes_between_them() -> None:
    # With 2 s a factor on the compute stream they come 3 s apart: waiting costs more than 1.5 s.
    jobs = in_hooks(made(2, 3), world(1.5, packing_s=2.0), "mgwfbp")
    assert sum(job.name.startswith("factors forward") for job in jobs) == 2


def test_backward_factors_come_last_layer_first() -> None:
    jobs = in_hooks(made(2, 3), world(0.0), "none")
    names = [job.name for job in jobs if job.begins.phase == "backward"]
    assert names == ["1 G", "0 G", "factors backward 0", "factors backward 1"]


def test_after_the_backward_pass_a_and_g_alternate_in_messages() -> None:
    first, *messages = after_backward(made(2, 3), world(0.0), "none", PassPoint("backward", 9.0))
    assert first.needs == ("averaged",)
    # 3 and 6 values in the triangles, of A and of G
    assert [job.stages[1].size_bytes for job in messages] == [12, 12, 24, 24]  # type: ignore[union-attr]
    [one] = after_backward(made(2, 3), world(0.0), "threshold", PassPoint("backward", 9.0))[1:]
    assert one.stages[1].size_bytes == 72  # type: ignore[union-attr]


def test_products_are_a_and_g_of_each_layer() -> None:
    names = [(one.name, one.side, one.hook) for one in kronecker_factors([CONV], HKBU)]
    assert names == [
        ("c A", 27, PassPoint("forward", 0.0)),
        ("c G", 64, PassPoint("backward", 0.2)),
    ]


def test_a_bucket_goes_in_the_hook_of_what_no_longer_fits() -> None:
    jobs = bucketed(made(1, 1, 1), [4, 4, 8, 8, 4, 4], 12, PassPoint("backward", 9.0))
    # Order of hooks: A0 4, A1 8, A2 4, G2 4, G1 8, G0 4. 4 + 8 fill one; A2 opens the next,
    # which G1 closes at 8; G1 and G0 fill the last, sent after the passes.
    sends = [job for job in jobs if job.name.startswith("factors")]
    assert [job.stages[0].size_bytes for job in sends] == [12, 8, 12]  # type: ignore[union-attr]
    assert [job.needs for job in sends] == [("2 A",), ("1 G",), ("0 G",)]
    assert [job.begins for job in sends] == [
        PassPoint("forward", 2.0),
        PassPoint("backward", 2.0),
        PassPoint("backward", 9.0),
    ]


# Placement


def test_largest_first_to_the_least_loaded() -> None:
    # 5 to 0, 4 to 1, 3 to 1 (4 < 5), 3 to 0 (5 < 7), 2 to 1 (7 < 8)
    assert least_loaded([3, 5, 3, 2, 4], 2) == [1, 0, 0, 1, 1]
    assert busiest_rank([1, 0, 0, 1, 1], [3, 5, 3, 2, 4]) == 1
    assert busiest_rank([], []) == 0
    assert round_robin(4, 3) == [0, 1, 2, 0]


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=60), st.integers(1, 16))
def test_no_rank_carries_more_than_the_mean_and_one_task(weights: list[int], ranks: int) -> None:
    owners = least_loaded(weights, ranks)
    loads = [sum(w for w, at in zip(weights, owners, strict=True) if at == r) for r in range(ranks)]
    assert max(loads) <= sum(weights) / ranks + max(weights)


def test_a_grid_of_workers() -> None:
    grid = KfacGrid(8, 2)
    assert list(grid.members(3)) == [3, 7] and grid.worker_group == (2, 4)
    assert grid.receiver_group == 4 and grid.refusal() == ""
    assert KfacGrid(8, 8).worker_group == "all" and KfacGrid(8, 1).receiver_group == "all"
    assert "cannot split 8 ranks into groups of 3" in KfacGrid(8, 3).refusal()
    assert KfacGrid(8, 4).refusal() == "" and KfacGrid(8, 4).worker_group == (4, 2)


@pytest.mark.parametrize("neighbours", [False, True])
def test_worker_groups_and_rows_share_one_rank_each(neighbours: bool) -> None:
    for workers in (1, 2, 4, 8):
        grid = KfacGrid(8, workers, neighbours)
        members = [list(grid.members(column)) for column in range(grid.columns)]
        assert sorted(rank for group in members for rank in group) == list(range(8))
        for column, group in enumerate(members):
            assert len(group) == workers and {grid.column(rank) for rank in group} == {column}
    beside = KfacGrid(8, 2, neighbours=True)
    assert beside.worker_group == 2 and beside.receiver_group == (4, 2)


def test_layers_go_to_the_group_then_the_rank_with_least_work() -> None:
    layers = [DENSE._replace(name=str(side), inputs=side, outputs=side) for side in (1, 4, 2, 3)]
    # Work 2, 128, 16, 54; groups {0, 2} and {1, 3}: 4 to rank 0; 3 to the other group, rank 1;
    # then that group has less (54 < 128): 2 to rank 3, and 1 to rank 3 (16 < 54).
    assert KfacGrid(4, 2).assigned(layers) == [3, 0, 3, 1]
    # Up to release 0.3 each goes to the rank with least of all: 4 to 0, 3 to 1, 2 to 2, 1 to 3.
    assert KfacGrid(4, 2, neighbours=True).assigned(layers) == [3, 0, 2, 1]
