"""Methods that select values: what they exchange and run, by hand and by law."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.errors import RequestError
from perfsim.methods import load_method
from perfsim.methods.base import MethodContext
from perfsim.methods.building.sparsify import decoded
from support.builders import bucket, gradient, ring_cluster
from support.selections import plans, sends
from support.stages import kernels, moved

SIMPLE = ("topk", "redsync", "sidco", "mstopk", "gaussiank")


def encode(name: str, elements: int, ranks: int = 4, **options: object) -> float:
    """Return the bytes that selection moves in one bucket of a matrix."""
    stages = load_method(name, options).stages(
        bucket(gradient((elements, 1))), MethodContext(ranks), 0
    )
    return moved(kernels(stages, "compress"))


# Decoding.


def test_one_tensor_a_rank_is_decoded_and_added() -> None:
    # Of each tensor: 4 scatters into zeros, then sums 2 + 3 x 3 passes and a division, 2: 13.
    found = decoded([100, 10], 11, 4, "one_by_one")
    names = ["dgc_decode"] + ["dgc_decode_queued"] * 3 + ["elementwise"]
    assert [kernel.name for kernel in found] == names * 2
    assert [kernel.moved_bytes for kernel in found[3:6]] == [400, 13 * 400, 40]


@pytest.mark.parametrize("name", ["topk", "dgc", "randk"])
def test_decoding_rank_by_rank_grows_with_the_ranks(name: str) -> None:
    options = {"decoding": "one_by_one"} | ({"shared_seed": False} if name == "randk" else {})
    one = bucket(gradient((1000, 10)))
    launches = [
        sum(
            kernel.launches
            for kernel in kernels(
                load_method(name, options).stages(one, MethodContext(ranks), 0), "decompress"
            )
        )
        for ranks in (4, 8)
    ]
    # 2 launches a rank to decode, one to add, and a division.
    assert launches == [13, 25]


def test_randk_takes_the_mean_where_it_is_small() -> None:
    one = bucket(gradient(1000))
    seeded = load_method("randk", {"density": 0.01}).stages(one, MethodContext(4), 0)
    # 10 sums are divided (80 bytes); the gradient is cleared (4000) and filled.
    assert [kernel.moved_bytes for kernel in kernels(seeded, "decompress")] == [80, 4000]
    apart = load_method("randk", {"density": 0.01, "shared_seed": False})
    # Cleared and filled, 30 pairs more added (16 bytes each), all of it divided (8000).
    assert [
        kernel.moved_bytes
        for kernel in kernels(apart.stages(one, MethodContext(4), 0), "decompress")
    ] == [4000, 480, 8000]


# DGC.


def dgc_places(iteration: int, **options: object) -> float:
    """Return the places (4 bytes) that a rank sends of a matrix of 10,000."""
    method = load_method("dgc", {"index_bytes": 4, **options})
    stages = method.stages(bucket(gradient((100, 100))), MethodContext(2), iteration)
    return sends(stages)[1][1] / 8


def test_dgc_warm_up_quarters_the_density() -> None:
    # 0.25, 0.0625, 0.015625, 0.00390625 of 10,000, then 0.001; never below the density.
    asked = [dgc_places(0, warmup_epochs=4, epoch=epoch) for epoch in range(6)]
    assert asked == [2500, 625, 157, 40, 10, 10]
    assert dgc_places(0, warmup_epochs=4) == dgc_places(0) == 10
    assert dgc_places(0, warmup_epochs=4, epoch=3, density=0.01) == 100
    # The code's own coefficient for 5 epochs: 0.001 ** (1 / 6) = 0.316.
    assert dgc_places(0, warmup_epochs=5, warmup_coefficient=0.001 ** (1 / 6), epoch=1) == 1000


def test_dgc_averages_a_training_with_its_warm_up() -> None:
    method = load_method("dgc", {"warmup_epochs": 2, "epochs": 10})
    rounds = method.rounds()
    assert [(one.iterations, one.count) for one in rounds] == [((0,), 1), ((1,), 1), ((2,), 8)]
    assert [dgc_places(e, warmup_epochs=2, epochs=10) for e in range(3)] == [2500, 625, 10]
    found = plans(method, bucket(gradient((100, 100))), ring_cluster(4, "1GB/s,20us"))
    # (4 - 1) x 12 bytes x (2500 + 625 + 8 x 10) over 10 epochs.
    assert sum(plan.count * plan.sent_bytes for plan in found) / 10 == pytest.approx(36 * 320.5)
    shorter = load_method("dgc", {"warmup_epochs": 4, "epochs": 2}).rounds()
    assert [(one.iterations, one.count) for one in shorter] == [((0,), 1), ((1,), 1)]


def test_dgc_tries_thresholds_again_tensor_by_tensor() -> None:
    # 1.75 passes of 4 bytes each time, over 10,000 elements.
    more = encode("dgc", 10000, adaptations=3) - encode("dgc", 10000)
    assert more == pytest.approx(3 * 1.75 * 4 * 10000)


# Thresholds.


def test_gaussiank_counts_once_more_for_each_correction() -> None:
    # 9 passes to add, fit, take magnitudes and copy; 1.75 a count; 14 values sent, 3 passes.
    assert encode("gaussiank", 10000, corrections=0) == 4 * ((9 + 1.75) * 10000 + 3 * 14)
    assert encode("gaussiank", 10000) == 4 * ((9 + 3 * 1.75) * 10000 + 3 * 14)


def test_redsync_tries_at_most_three_or_six_ratios() -> None:
    # 9 passes around the search; 2 k = 20 sent.
    assert encode("redsync", 10000) == 4 * ((9 + 3 * 1.75) * 10000 + 3 * 20)
    trimmed = encode("redsync", 10000, search="trimmed", surplus=1)
    assert trimmed == 4 * ((9 + 6 * 1.75) * 10000 + 3 * 10)
    assert encode("redsync", 10000, counts=1) == 4 * ((9 + 1.75) * 10000 + 3 * 20)


def test_redsync_sends_its_surplus_but_never_more_than_all() -> None:
    method = load_method("redsync", {"density": 0.4, "surplus": 3})
    stages = method.stages(bucket(gradient(1000)), MethodContext(2), 0)
    assert [size for _, size, _ in sends(stages)] == [8000, 8000]


def test_sidco_fits_once_or_in_stages() -> None:
    # 17 passes around, 1 for the mean, 1.75 to find what is above; 10 sent.
    once = 4 * ((17 + 1 + 1.75) * 10000 + 3 * 10)
    assert encode("sidco", 10000) == once
    # Three stages for 0.001: a quarter, then sqrt(0.004) of what is left, twice: the second
    # compares 10,000 and keeps 2500, the third compares those and keeps 159;
    # each compacts (4), takes the minimum and the mean of what stays.
    ratio = (0.001 / 0.25) ** 0.5
    last = ceil(2500 * ratio)
    assert last == 159
    assert encode("sidco", 10000, fits=3) == pytest.approx(
        once + 4 * (1.75 * 12500 + 6 * (2500 + last))
    )
    # Pareto subtracts the minimum there too; gamma takes logarithms once.
    pareto = encode("sidco", 10000, fits=3, distribution="pareto")
    assert pareto == pytest.approx(once + 4 * (1.75 * 12500 + 8 * (2500 + last)))
    gamma = encode("sidco", 10000, fits=3, distribution="gamma")
    assert gamma - pareto == pytest.approx(4 * 5 * 10000)


def test_sidco_of_a_quarter_or_more_needs_one_fit() -> None:
    assert encode("sidco", 10000, density=0.3, fits=4) == encode("sidco", 10000, density=0.3)


# Laws.


@given(
    name=st.sampled_from(SIMPLE),
    elements=st.integers(1, 10**6),
    ranks=st.integers(2, 64),
    density=st.sampled_from([0.001, 0.01, 1.0]),
)
def test_no_rank_sends_more_pairs_than_there_are_values(
    name: str, elements: int, ranks: int, density: float
) -> None:
    method = load_method(name, {"density": density})
    for collective, size, _ in sends(
        method.stages(bucket(gradient(elements)), MethodContext(ranks), 0)
    ):
        assert collective == "all_gather"
        assert 4 * ranks <= size <= 4 * ranks * elements


@given(name=st.sampled_from(SIMPLE), elements=st.integers(2, 10**6))
def test_more_values_never_take_less_work(name: str, elements: int) -> None:
    assert encode(name, elements) >= encode(name, elements - 1)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("topk", {"exchange": "ring"}, ["options.exchange", "'all_gather' or 'all_reduce'"]),
        ("dgc", {"epoch": "-2"}, ["options.epoch", "-1 or more"]),
        ("dgc", {"warmup_coefficient": "1"}, ["options.warmup_coefficient", "below 1"]),
        ("sidco", {"fits": "0"}, ["options.fits", "1 or more"]),
        ("sidco", {"distribution": "normal"}, ["options.distribution", "'exponential'"]),
        ("redsync", {"search": "trim"}, ["options.search", "'binary' or 'trimmed'"]),
        ("mstopk", {"samples": "0"}, ["options.samples", "1 or more"]),
        ("mstopk", {"sample": "20"}, ["did you mean 'samples'"]),
    ],
)
def test_a_wrong_option_is_one_clear_sentence(
    name: str, options: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(RequestError) as caught:
        load_method(name, options)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


# Rand-k with max-norm quantisation.


def test_randk_maxnorm_agrees_the_norm_then_sums_integers() -> None:
    one = bucket(gradient((300, 100)), gradient(100))
    stages = load_method("randk_maxnorm", {}).stages(one, MethodContext(4), 0)
    assert sends(stages) == [("all_gather", 16.0, "all"), ("all_reduce", 40000.0, "all")]
    # Packed (2 passes of 30,100), then 10,000 gathered (4), taken absolute (2) and reduced (1);
    # 27.5 to round.
    assert moved(kernels(stages, "compress")) == 4 * (2 * 30100 + (7 + 27.5) * 10000)
    # Scaled (2) and put back (4); everything zeroed (1) and added (3).
    back = kernels(stages, "decompress")
    assert moved(back) == 4 * (6 * 10000 + 4 * 30100)


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"bits": 7}, [8.0, 10000.0]),
        ({"values": 20000}, [8.0, 80000.0]),
        ({"values": 10**6}, [8.0, 120000.0]),
        ({"two_scale": True}, [8.0, 10000.0, 10000.0]),
    ],
)
def test_randk_maxnorm_by_option(options: dict[str, object], sizes: list[float]) -> None:
    method = load_method("randk_maxnorm", options)
    one = bucket(gradient((300, 100)))
    stages = method.stages(one, MethodContext(2), 0)
    assert [size for _, size, _ in sends(stages)] == sizes
    [plan] = plans(method, one, ring_cluster(2, "1GB/s,20us"))
    # Of two ranks each sends half of what is gathered and all of what is reduced.
    assert plan.sent_bytes == pytest.approx(sizes[0] / 2 + sum(sizes[1:]))
    assert method.message_bytes(one.gradients[0], 0) == sum(sizes) - 4
