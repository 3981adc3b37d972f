"""Methods that round to levels (TernGrad, natural compression, 8 bits, QSGD), by hand."""

from __future__ import annotations

import pytest

from perfsim.methods import load_method
from perfsim.methods.base import MethodContext, Send
from support.builders import bucket, gradient
from support.quantised import computes, passes, sends


def test_qsgd_in_two_steps_shares_out_levels_and_norms() -> None:
    method = load_method("qsgd", {"exchange": "two_step", "bits": 4, "group": 100})
    # 800 values of 4 bits are 400 bytes; 8 groups have 32 bytes of norms.
    parts = [400.0, 32.0]
    assert sends(method, 800, MethodContext(4)) == [
        *(("all_to_all", part) for part in parts),
        *(("all_gather", part) for part in parts),
    ]


def test_terngrad_sends_a_byte_or_two_bits_a_value() -> None:
    assert sends(load_method("terngrad", {}), 1001, MethodContext(2)) == [
        ("all_gather", 2002.0),
        ("all_gather", 8.0),
    ]
    packed = load_method("terngrad", {"packing": "two_bits"})
    assert sends(packed, 1001, MethodContext(2)) == [("all_gather", 2.0 * 251), ("all_gather", 8.0)]


def test_terngrad_clips_by_two_means_a_difference_a_square_and_a_clamp() -> None:
    encode, _ = computes(load_method("terngrad", {}), 1000, 2)
    plain, _ = computes(load_method("terngrad", {"clip": "false"}), 1000, 2)
    # mean 1, difference 2, square 2, mean 1, clamp 2; and the launch of the root.
    assert passes(encode, 1000) - passes(plain, 1000) == pytest.approx(8)
    assert encode.kernels[0].launches - plain.kernels[0].launches == 6


def test_natural_compression_sends_a_byte_a_value() -> None:
    assert sends(load_method("natural", {}), 1001, MethodContext(3)) == [("all_gather", 3003.0)]
    # Fused: draw 1, read value and draw, write a byte; then 3 times (1.25 and 3), the mean 2.
    encode, decode = computes(load_method("natural", {"kernel": "cuda"}), 1000, 3)
    assert passes(encode, 1000) == pytest.approx(3.25)
    assert passes(decode, 1000) == pytest.approx(3 * 4.25 + 2)
    unfused = computes(load_method("natural", {}), 1000, 3)
    assert passes(unfused[0], 1000) > 8 * passes(encode, 1000)


def test_eightbit_agrees_the_largest_before_the_bytes() -> None:
    method = load_method("eightbit", {})
    assert sends(method, 1000, MethodContext(5)) == [("all_gather", 20.0), ("all_gather", 5000.0)]
    # Only the four others are decoded and added: 4 x (1.25 + 3).
    assert passes(computes(method, 1000, 5)[-1], 1000) == pytest.approx(17.0)


def test_bytegrad_reduces_inside_nodes_first() -> None:
    method = load_method("eightbit", {"exchange": "two_step"})
    stages = method.stages(bucket(gradient(1000)), MethodContext(8, 2, 4), 0)
    # Two leaders: 1000 bytes and a header of 32 for each of two pieces.
    assert [
        (stage.collective, stage.size_bytes, stage.group)
        for stage in stages
        if isinstance(stage, Send)
    ] == [
        ("reduce", 4000.0, "node"),
        ("all_to_all", 1064.0, "leaders"),
        ("all_gather", 1064.0, "leaders"),
        ("broadcast", 4000.0, "node"),
    ]
    assert {stage.stream for stage in stages} == {"communication"}
    flat = load_method("eightbit", {"exchange": "two_step", "hierarchical": "false"})
    assert sends(flat, 1000, MethodContext(8, 2, 4)) == [
        ("all_to_all", 1256.0),
        ("all_gather", 1256.0),
    ]
    # One node has nothing to quantise: it reduces and broadcasts in fp32.
    assert sends(method, 1000, MethodContext(4, 1, 4)) == [
        ("reduce", 4000.0),
        ("broadcast", 4000.0),
    ]


def test_bytegrad_reads_bounds_quantises_averages_and_quantises_again() -> None:
    method = load_method("eightbit", {"exchange": "two_step"})
    encode, middle, last = computes(method, 1000, 4)
    assert passes(encode, 1000) == pytest.approx(2 + 1.25)
    # Decode 1.25, mean 1 + 1/4, and bounds and bytes of the own quarter.
    assert passes(middle, 1000) == pytest.approx(1.25 + 1.25 + 3.25 / 4)
    assert passes(last, 1000) == pytest.approx(1.25)


def test_qsgd_at_two_scales_agrees_on_a_mask() -> None:
    method = load_method("qsgd", {"bits": 6, "exchange": "all_reduce", "second_bits": 10})
    assert sends(method, 1000, MethodContext(2)) == [
        ("all_reduce", 4.0),
        ("all_reduce", 1000.0),
        ("all_reduce", 1000.0),
    ]
    norms, draw, choice, done, back = computes(method, 1000, 2)
    assert draw.blocks and choice.blocks and not done.blocks
    # Packed 2, magnitude 2, its largest 1; cleared 1, added 3.
    assert passes(norms, 1000) == 5 and passes(back, 1000) == 4
    one = computes(load_method("qsgd", {"bits": 6, "exchange": "all_reduce"}), 1000, 2)[1]
    # Drawn twice; compare 1.25 and cast 0.5.
    assert passes(draw, 1000) == pytest.approx(2 * passes(one, 1000) + 1.75)
    # A byte a value: products 3 x 1/4 each, difference 2/4, sum 3/4.
    assert passes(choice, 1000) == pytest.approx(2.75)
    # Two scalings 1.25 each, two products 2.25 each, difference 0.5, sum 3.
    assert passes(done, 1000) == pytest.approx(10.5)


def test_qsgd_joins_the_pieces_that_come_back() -> None:
    method = load_method("qsgd", {"exchange": "two_step"})
    # Four pieces of a quarter: a byte a level 1/4, cast 1, scale 2; joined 2, mean 2.
    assert passes(computes(method, 1000, 4)[-1], 1000) == pytest.approx(3.25 + 2 + 2)
    # All of four messages: the same and added 3; the mean once.
    assert passes(computes(load_method("qsgd", {}), 1000, 4)[-1], 1000) == pytest.approx(
        4 * 6.25 + 2
    )


def test_terngrad_joins_the_pieces_that_come_back() -> None:
    method = load_method("terngrad", {"exchange": "two_step"})
    # Four pieces of a quarter: cast 1.25, multiply 2; joined 2, mean 2.
    assert passes(computes(method, 1000, 4)[-1], 1000) == pytest.approx(3.25 + 2 + 2)


def test_eightbit_in_two_steps_works_by_bucket() -> None:
    assert load_method("eightbit", {"exchange": "two_step"}).default_fusion() == "size"
