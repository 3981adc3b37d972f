"""Methods: what each sends and runs, by hand and by law."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.errors import RequestError
from perfsim.fusion.buckets import Bucket
from perfsim.methods import load_method, method_class, method_names
from perfsim.methods.base import Compute, Method, MethodContext, Send
from support.builders import bucket, gradient

METHODS = ("acpsgd", "dgc", "gaussiank", "powersgd", "qsgd", "randk", "signsgd", "ssgd", "topk")


def sends(method: Method, one: Bucket, ranks: int, iteration: int = 0) -> list[tuple[str, float]]:
    """Return (collective, bytes) of a bucket's sends."""
    return [
        (stage.collective, stage.size_bytes)
        for stage in method.stages(one, MethodContext(ranks), iteration)
        if isinstance(stage, Send)
    ]


def test_the_folder_holds_these_methods() -> None:
    assert set(METHODS) <= set(method_names())


@pytest.mark.parametrize("name", method_names())
def test_every_method_says_what_it_is(name: str) -> None:
    cls = method_class(name)
    assert cls.summary and cls.citation and cls.__doc__
    assert all(field.description for field in cls.model_fields.values())
    assert load_method(name, {}).default_fusion()


def test_ssgd_sends_every_byte_once() -> None:
    assert sends(load_method("ssgd", {}), bucket(gradient(1000)), 8) == [("all_reduce", 4000.0)]


def test_topk_gathers_values_and_indices() -> None:
    # k = 1 % of 1000 = 10; 4 ranks; 4 bytes a value and 4 an index.
    method = load_method("topk", {"density": "0.01"})
    assert sends(method, bucket(gradient(1000)), 4) == [("all_gather", 160.0)] * 2


def test_randk_with_a_shared_seed_reduces_values_only() -> None:
    one = bucket(gradient(1000))
    assert sends(load_method("randk", {"density": 0.01}), one, 4) == [("all_reduce", 40.0)]
    apart = load_method("randk", {"density": 0.01, "shared_seed": "false"})
    assert sends(apart, one, 4) == [("all_gather", 160.0)] * 2


def test_randk_shuffles_all_places_where_the_code_does() -> None:
    options = {"density": 0.01, "shared_seed": False, "draw": "randperm"}
    first = load_method("randk", options).stages(bucket(gradient(1000)), MethodContext(4), 0)[0]
    assert isinstance(first, Compute)
    # Copy, scale and add; clear by a mask and copy; the places of 10 values are cut, read and cast.
    assert [(one.name, one.elements, one.launches) for one in first.kernels] == [
        ("elementwise", 1000, 5),
        ("randperm", 1000, 7),
        ("elementwise", 10, 3),
    ]


def test_dgc_sends_vectors_dense() -> None:
    method = load_method("dgc", {"density": 0.01})
    mixed = bucket(gradient((100, 20)), gradient(64))
    # k = 20 of 2000; 4 ranks; 4 bytes a value and 8 an index.
    assert sends(method, mixed, 4) == [
        ("all_reduce", 256.0),
        ("all_gather", 320.0),
        ("all_gather", 640.0),
    ]
    assert sends(method, bucket(gradient(64)), 4) == [("all_reduce", 256.0)]


def test_dgc_compresses_vectors_where_the_code_does() -> None:
    method = load_method("dgc", {"density": 0.05, "vectors": "sparse", "index_bytes": 4})
    mixed = bucket(gradient((100, 20)), gradient(64))
    # k = 100 of 2000 and 4 of 64 (rounded up); 4 ranks; 4 bytes a value and an index.
    assert sends(method, mixed, 4) == [("all_gather", 4.0 * 104 * 4)] * 2
    encodes = [
        kernel.elements
        for stage in method.stages(mixed, MethodContext(4), 0)
        if isinstance(stage, Compute)
        for kernel in stage.kernels
        if kernel.name == "dgc_encode"
    ]
    assert encodes == [2000, 64]
    assert method.message_bytes(gradient(64), 0) == 8 * 4


def test_gaussiank_pads_to_four_thirds() -> None:
    method = load_method("gaussiank", {"density": 0.01})
    assert sends(method, bucket(gradient(3000)), 2) == [("all_gather", 4.0 * 40 * 2)] * 2


def test_signsgd_sends_a_bit_and_decodes_for_every_rank() -> None:
    method = load_method("signsgd", {})
    stages = method.stages(bucket(gradient(1001)), MethodContext(6), 0)
    assert sends(method, bucket(gradient(1001)), 6) == [("all_gather", 126.0 * 6)]
    last = stages[-1]
    # Six decodes, their sum and its sign.
    assert isinstance(last, Compute) and len(last.kernels) == 6 + 2


def test_qsgd_packs_bits_and_a_norm_a_group() -> None:
    method = load_method("qsgd", {"bits": 4, "group": 512})
    # 1024 values of 4 bits are 512 bytes; two groups add 8.
    parts = [("all_gather", 1024.0), ("all_gather", 16.0)]
    assert sends(method, bucket(gradient(1024)), 2) == parts


@pytest.mark.parametrize(
    # 7 x 18 = 126 and 7 x 19 = 133 against 127; NCCL sums no 16-bit integers.
    ("bits", "ranks", "width"),
    [(4, 18, 1), (4, 19, 4), (8, 1, 1), (8, 2, 4), (2, 127, 1)],
)
def test_qsgd_sums_in_the_narrowest_integer(bits: int, ranks: int, width: int) -> None:
    method = load_method("qsgd", {"bits": bits, "exchange": "all_reduce"})
    assert sends(method, bucket(gradient(100)), ranks) == [
        ("all_reduce", 4.0),
        ("all_reduce", 100.0 * width),
    ]


def test_powersgd_hook_waits_for_both_factors_in_the_hook() -> None:
    method = load_method("powersgd", {"rank": 2})
    mixed = bucket(gradient((64, 128)), gradient(64))
    stages = method.stages(mixed, MethodContext(4), 0)
    assert sends(method, mixed, 4) == [
        ("all_reduce", 256.0),
        ("all_reduce", 4.0 * 64 * 2),
        ("all_reduce", 4.0 * 128 * 2),
    ]
    # Before the first send; then what unpacks the vector, what makes Q, and what rebuilds.
    computes = [stage for stage in stages if isinstance(stage, Compute)]
    assert [(stage.stream, stage.blocks) for stage in computes] == [
        ("compute", False),
        ("compute", True),
        ("compute", True),
        ("compute", True),
    ]


def test_powersgd_hook_leaves_a_matrix_that_would_not_halve() -> None:
    # Rank 4 of 8 x 8: 64 values become 64; min_compression_rate is 2.
    one = bucket(gradient((8, 8)))
    assert sends(load_method("powersgd", {}), one, 4) == [("all_reduce", 256.0)]
    paper = load_method("powersgd", {"variant": "after_backward"})
    assert sends(paper, one, 4) == [("all_reduce", 128.0)] * 2


def test_acpsgd_sends_p_and_q_in_turn_with_the_vectors() -> None:
    method = load_method("acpsgd", {"rank": 4})
    mixed = bucket(gradient((64, 32, 3, 3)), gradient(64))
    assert sends(method, mixed, 4, 0) == [("all_reduce", 4.0 * (64 * 4 + 64))]
    assert sends(method, mixed, 4, 1) == [("all_reduce", 4.0 * (288 * 4 + 64))]


@given(
    name=st.sampled_from(METHODS),
    shape=st.one_of(
        st.tuples(st.integers(1, 5000)), st.tuples(st.integers(1, 300), st.integers(1, 300))
    ),
    ranks=st.integers(2, 64),
    iteration=st.integers(0, 1),
)
def test_message_bytes_are_what_one_tensor_sends(
    name: str, shape: tuple[int, ...], ranks: int, iteration: int
) -> None:
    method = load_method(name, {})
    one = gradient(shape)
    sent = sum(
        size / ranks if collective == "all_gather" else size
        for collective, size in sends(method, bucket(one), ranks, iteration)
    )
    expected = method.message_bytes(one, iteration)
    # GaussianK rounds its padding up to a whole value (8 bytes) and never sends more than all.
    slack = 8.0 if name == "gaussiank" else 0.0
    assert min(expected, 8.0 * one.elements) <= sent + 1e-9
    assert sent <= expected + slack + 1e-9


@given(name=st.sampled_from(METHODS), elements=st.integers(1, 10**7), ranks=st.integers(2, 1024))
def test_stages_have_positive_work(name: str, elements: int, ranks: int) -> None:
    for stage in load_method(name, {}).stages(
        bucket(gradient((elements, 1))), MethodContext(ranks), 0
    ):
        if isinstance(stage, Send):
            assert stage.size_bytes > 0
        else:
            assert stage.kernels
            assert all(kernel.elements >= 1 and kernel.moved_bytes > 0 for kernel in stage.kernels)


def test_topk_keeps_at_least_one() -> None:
    assert sends(load_method("topk", {}), bucket(gradient(3)), 2) == [("all_gather", 8.0)] * 2
    assert ceil(3 * 0.001) == 1


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("dgc", {"density": "0"}, ["options.density", "'0'", "above 0"]),
        ("dgc", {"density": "2"}, ["options.density", "1.0 or less"]),
        ("powersgd", {"rank": "0"}, ["options.rank", "1 or more"]),
        ("acpsgd", {"rank": "1.5"}, ["options.rank", "'1.5'", "whole number"]),
        ("topk", {"densty": "0.1"}, ["no 'densty'", "did you mean 'density'"]),
        ("bsp", {"rank": "4"}, ["no 'rank'", "write_back"]),
        ("topk", {"kernel": "fast"}, ["options.kernel", "'auto', 'old', 'sort' or 'new'"]),
        ("horovod", {"cycle_time": "3ms"}, ["no 'cycle_time'", "or fusion_options.cycle_time"]),
        ("dcg", {}, ["method", "'dcg'", "did you mean 'dgc'"]),
    ],
)
def test_a_wrong_option_is_one_clear_sentence(
    name: str, options: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(RequestError) as caught:
        load_method(name, options)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message
