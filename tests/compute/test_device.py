"""Devices: rates, kernel points, and what a kernel costs with and without them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.compute.device import load_device, read_device
from perfsim.compute.kernel import (
    Kernel,
    KernelLoop,
    count_kernels,
    elementwise,
    gemm,
    gram_schmidt,
    qr,
    scatter_add,
)
from perfsim.errors import RequestError
from perfsim.methods.building.sparsify import exact, sampled_threshold
from perfsim.quantity import Quantity
from perfsim.session import RememberingDevice
from support.builders import hand_device
from support.hand_device_files import points
from support.what_ships import SHIPPED

GPUS = sorted(SHIPPED.files("devices"))


# By hand


def test_without_points_bytes_over_bandwidth_plus_launches() -> None:
    cost = hand_device().cost(Kernel("select", 10, moved_bytes=1e9, flops=1e6, launches=3))
    assert math.isclose(cost.seconds, 1e-3 + 3e-5)
    assert math.isclose(cost.latency_s, 3e-5)
    assert [term.term for term in cost.terms] == ["memory bandwidth", "kernel launch"]


def test_without_points_the_spread_is_that_of_the_bound_for_its_share() -> None:
    device = hand_device()
    bandwidth = device.memory_bandwidth._replace(spread=0.2)
    rates = {"fp32": device.rates["fp32"]._replace(spread=0.4)}
    wide = replace(device, memory_bandwidth=bandwidth, rates=rates)
    # 1 ms of memory or 1 ms of products, beside 1 ms of launches: half the spread of the bound.
    moved = Kernel("select", 10, moved_bytes=1e9, launches=100)
    product = Kernel("product", 10, moved_bytes=1e6, flops=1e10, launches=100)
    assert device.cost(moved).spread is None
    assert wide.cost(moved).spread == pytest.approx(0.1)
    assert wide.cost(product).spread == pytest.approx(0.2)
    launch = device.launch_s._replace(spread=0.6)
    assert replace(wide, launch_s=launch).cost(moved).spread == pytest.approx(0.1 + 0.3)
    assert wide.cost(Kernel("nothing", 0, 0.0, launches=0)).spread is None


def test_without_points_operations_over_matrix_rate_where_they_take_longer() -> None:
    cost = hand_device().cost(Kernel("product", 10, moved_bytes=1e6, flops=1e12))
    assert math.isclose(cost.seconds, 0.1 + 1e-5)
    assert cost.terms[0].term == "matrix rate fp32"


def test_lone_point_is_flat_below_and_proportional_above(tmp_path: Path) -> None:
    device = replace(hand_device(), points=points(tmp_path, "pack,1000,0,50,measured,,paper,"))
    for elements, microseconds, outside in (
        (1000, 50, False),
        (250, 50, False),
        (249, 50, True),
        (4000, 200, False),
        (8000, 400, True),
    ):
        cost = device.cost(Kernel("pack", elements, 0.0))
        assert math.isclose(cost.seconds, microseconds * 1e-6)
        assert cost.terms[0].extrapolated is outside
    assert device.cost(Kernel("pack", 1000, 0.0)).terms[0].quantity.kind == "measured"
    assert device.cost(Kernel("pack", 999, 0.0)).terms[0].quantity.kind == "derived"


def test_repeats_become_their_geometric_mean_and_show_the_spread(tmp_path: Path) -> None:
    rows = ("pack,1000,0,50,measured,,one,", "pack,1000,0,200,measured,,two,")
    cost = replace(hand_device(), points=points(tmp_path, *rows)).cost(Kernel("pack", 1000, 0.0))
    assert math.isclose(cost.seconds, 100e-6)
    assert cost.spread is not None
    assert math.isclose(cost.spread, 1.645 * math.log(4) / math.sqrt(2))
    assert cost.terms[0].quantity.source == "one; two"


def test_width_lies_between_in_logs_and_grows_linearly_beyond(tmp_path: Path) -> None:
    rows = ("qr,100,2,10,measured,,paper,", "qr,100,8,40,measured,,paper,")
    device = replace(hand_device(), points=points(tmp_path, *rows))
    for width, microseconds in ((1, 10), (2, 10), (4, 20), (8, 40), (10, 50)):
        assert math.isclose(
            device.cost(Kernel("qr", 100, 0.0, width=width)).seconds * 1e6, microseconds
        )


def test_past_its_last_point_a_width_grows_as_one_measured_further(tmp_path: Path) -> None:
    rows = (
        "qr,100,2,10,measured,,paper,",
        "qr,1000,2,12,measured,,paper,",
        "qr,100,8,40,measured,,paper,",
    )
    device = replace(hand_device(), points=points(tmp_path, *rows))
    assert math.isclose(device.cost(Kernel("qr", 1000, 0.0, width=8)).seconds, 48e-6)


def test_points_of_a_reference_are_scaled_above_their_flat_part(tmp_path: Path) -> None:
    rows = ("pack,1000,0,50,measured,,paper,", "pack,2000,0,90,measured,,paper,")
    source = replace(hand_device(), name="source", points=points(tmp_path, *rows))
    half = source.memory_bandwidth._replace(value=source.memory_bandwidth.value / 2)
    slow = replace(hand_device(), memory_bandwidth=half, references=(source,), points={})
    assert math.isclose(slow.cost(Kernel("pack", 1000, 0.0)).seconds, 50e-6)
    cost = slow.cost(Kernel("pack", 2000, 0.0))
    assert math.isclose(cost.seconds, 50e-6 + 2 * 40e-6)
    assert cost.terms[0].quantity.kind == "derived"
    assert "source" in cost.terms[0].quantity.source


def test_quantity_of_a_cost_states_its_range(tmp_path: Path) -> None:
    rows = ("pack,1000,0,50,measured,,paper,", "pack,2000,0,90,measured,,paper,")
    device = replace(hand_device(), points=points(tmp_path, *rows))
    quantity: Quantity = device.cost(Kernel("pack", 1500, 0.0)).terms[0].quantity
    assert (quantity.low, quantity.high, quantity.range_unit) == (1000, 2000, "elements")


# By law


@pytest.mark.parametrize("gpu", ["v100", "p100", "h200", "k80"])
@given(
    small=st.integers(1, 10**9),
    factor=st.floats(1.0, 100.0),
    name=st.sampled_from(["randk_encode", "topk_old", "eigh", "inverse", "cholesky"]),
)
def test_more_elements_never_cost_less(gpu: str, small: int, factor: float, name: str) -> None:
    device = load_device(gpu, SHIPPED)
    less, more = (
        device.cost(Kernel(name, size, 4.0 * size)).seconds for size in (small, int(small * factor))
    )
    assert more >= less * (1 - 1e-12)


@given(rows=st.integers(1, 10**6), rank=st.integers(1, 128))
def test_more_rows_never_cost_less_at_any_rank(rows: int, rank: int) -> None:
    device = load_device("v100", SHIPPED)
    for kernel in (qr, gram_schmidt):
        less, more = (device.cost(kernel(size, rank)).seconds for size in (rows, 2 * rows))
        assert more >= less * (1 - 1e-12)


@pytest.mark.parametrize("software", ["torch1.8", "torch2"])
@pytest.mark.parametrize("gpu", ["v100", "p100", "a100", "h100", "mi250x"])
@pytest.mark.parametrize(
    "kernel",
    [
        elementwise(3 * 10**6, 3),
        elementwise(1, 2, 5),
        gemm(512, 512, 4),
        gram_schmidt(4608, 4),
        qr(4608, 4),
        scatter_add(10**5),
        exact(10**6, "auto", "torch2"),
        sampled_threshold(10**6, 0.001, "torch2"),
        sampled_threshold(10**6, 0.001, "torch1.8"),
        Kernel("eager_launch", 12, 0.0, launches=12),
    ],
    ids=lambda kernel: kernel.name,
)
def test_the_time_alone_is_that_of_the_cost(gpu: str, software: str, kernel: Kernel) -> None:
    device = load_device(gpu, SHIPPED, software)
    remembering = RememberingDevice.like(device)
    expected = device.cost(kernel).seconds
    times = device.seconds(kernel), remembering.seconds(kernel), remembering.seconds(kernel)
    assert times == (expected,) * 3 and expected > 0


def test_a_name_is_priced_by_its_parts_only_where_it_has_some() -> None:
    """Points of another era price an operation of a library, not a method's code."""
    device = RememberingDevice.like(load_device("v100", SHIPPED, "torch2"))
    whole = sampled_threshold(10**6, 0.001, "torch2")
    alone = whole._replace(parts=())
    assert alone.name in device.other_eras
    assert device.seconds(alone) == device.cost(alone).seconds
    assert device.seconds(whole) == sum(map(device.seconds, whole.parts)) != device.seconds(alone)


def test_kernels_are_counted_in_the_order_in_which_they_first_run() -> None:
    """Equal kernels are one, whether or not they are one object."""
    one, other = elementwise(1000, 3), elementwise(500, 3)
    again = one._replace()
    assert again is not one
    counted = count_kernels((other, one, again, other, one))
    assert [*counted.items()] == [(other, 2), (one, 3)]
    loop = KernelLoop([((one, other, one), 3)]).then(again)
    assert [*count_kernels(loop).items()] == [(one, 7), (other, 3)]


@pytest.mark.parametrize("gpu", GPUS)
def test_every_shipped_device_loads_with_a_source_for_every_number(gpu: str) -> None:
    device = load_device(gpu, SHIPPED)
    assert device.name == gpu
    quantities = [device.memory_bandwidth, device.launch_s, *device.rates.values()]
    assert all(quantity.source and quantity.value > 0 for quantity in quantities)
    assert "fp32" in device.rates
    assert all(other in GPUS for other in device.reference_names)
    assert device.describe()["gpu"] == gpu
    for alias in device.aliases:
        assert load_device(alias, SHIPPED).name == gpu


def test_aliases_name_one_gpu_each() -> None:
    names = [
        name
        for path in SHIPPED.files("devices").values()
        for name in (path.stem, *read_device(path).aliases)
    ]
    assert len(names) == len(set(names))


# By published value


@pytest.mark.parametrize(
    ("kernel", "elements", "microseconds"),
    [
        # Espresso (Wang et al. 2023), V100, 2^20 elements: encode = total - decode
        ("randk_encode", 2**20, 88 - 34),
        ("efsign_encode", 2**20, 270 - 140),
        ("onebit_encode", 2**20, 620 - 170),
        # DRAGONN (Wang et al. 2022): 512 MB in 35.4 ms by DGC, 13.2 ms by its own hashing
        ("dgc_tight_encode", 2**27, 35400),
        ("dragonn_encode", 2**27, 13200),
        # kfac_pytorch time_breakdown.py: top-k of the whole ResNet-50 gradient
        ("topk_old", 25_557_032, 239_000),
    ],
)
def test_v100_kernels_as_published(kernel: str, elements: int, microseconds: float) -> None:
    cost = load_device("v100", SHIPPED).cost(Kernel(kernel, elements, 0.0))
    assert math.isclose(cost.seconds * 1e6, microseconds, rel_tol=1e-9)


def test_gram_schmidt_of_resnet50_as_published() -> None:
    """Vineeth et al. (arXiv 2109.12497): 4.91 and 13.97 ms for 54 matrices at ranks 1 and 2."""
    device = load_device("v100", SHIPPED, "torch1.8")
    for rank, milliseconds in ((1, 4.91), (2, 13.97)):
        total_s = 54 * device.cost(gram_schmidt(512, rank)).seconds
        assert math.isclose(total_s * 1e3, milliseconds, rel_tol=1e-3)


def test_v100_adds_vectors_as_neusight_measured() -> None:
    """NeuSight's elem.csv: adding 134217728 fp32 elements takes 1.95228 ms on a V100 PCIe."""
    cost = load_device("v100-pcie", SHIPPED).cost(elementwise(134_217_728, passes=3))
    assert math.isclose(cost.seconds, 1.95228e-3, rel_tol=0.03)


def test_old_topk_on_p100_tells_the_measured_v100_time_within_a_fifth() -> None:
    """12.8 ns an element on P100, times the ratio of bandwidths, against 239 ms on V100."""
    p100, v100 = (load_device(name, SHIPPED) for name in ("p100", "v100"))
    alone = replace(v100, points={}, references=(p100,))
    cost = alone.cost(Kernel("topk_old", 25_557_032, 0.0))
    assert math.isclose(cost.seconds, 0.239, rel_tol=0.2)


# Bad input


def test_unknown_gpu_gives_the_nearest() -> None:
    with pytest.raises(RequestError, match=r"gpu: no 'v10O'; did you mean 'v100'\?"):
        load_device("v10O", SHIPPED)


def test_precision_that_a_gpu_lacks_is_refused() -> None:
    with pytest.raises(
        RequestError, match=r"v100 has no 'tf32' rate; allowed on this GPU: fp32, amp"
    ):
        load_device("v100", SHIPPED).matrix_rate("tf32")
