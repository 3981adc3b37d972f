"""Quantising methods: what each sends and runs, by hand and by law."""

from __future__ import annotations

import pytest
from builders import bucket, gradient, hand_device, profile, ring_cluster
from hypothesis import given
from hypothesis import strategies as st
from test_every_method import by_formula, mean, one_matrix

from perfsim import fusion
from perfsim.bits import sign_bytes, sign_decode, sign_encode
from perfsim.catalog import Catalog
from perfsim.device import load_device
from perfsim.errors import RequestError
from perfsim.kernel import Kernel
from perfsim.method import Compute, Method, Send, World
from perfsim.methods import load_method
from perfsim.plan import Plan
from perfsim.queued import in_turn, queued, summed
from perfsim.schedule import schedule

NAMES = ("efsignsgd", "eightbit", "natural", "onebit", "qsgd", "signsgd", "signum", "terngrad")

Sent = tuple[str, float]


def sends(method: Method, elements: int, world: World) -> list[Sent]:
    """Return (collective, bytes) of the sends of one gradient."""
    return [
        (stage.collective, stage.size_bytes)
        for stage in method.stages(bucket(gradient(elements)), world, 0)
        if isinstance(stage, Send)
    ]


def computes(method: Method, elements: int, ranks: int) -> list[Compute]:
    """Return the computing stages of one gradient."""
    stages = method.stages(bucket(gradient(elements)), World(ranks), 0)
    return [stage for stage in stages if isinstance(stage, Compute)]


def passes(stage: Compute, elements: int) -> float:
    """Return how many times a stage reads or writes ``elements`` fp32 values."""
    return sum(kernel.moved_bytes for kernel in stage.kernels) / (4.0 * elements)


def plan(name: str, options: dict[str, str], ranks: int) -> Plan:
    """Return the plan for a model of two tensors on equal hops."""
    method = load_method(name, options)
    made = profile([(640, 32), 64], [0.010, 0.012], backward_s=0.013, forward_s=0.006)
    fuse = fusion.load(method.default_fusion()).fuse
    return schedule(made, method, fuse, hand_device(), ring_cluster(ranks, "1GB/s,20us"))[0]


@pytest.mark.parametrize(
    # 1001 values: 125.125 bytes of bits; 31.28 words of 32; a byte each.
    ("packing", "size"),
    [("bits", 126), ("bit2byte", 128), ("bytes", 1001)],
)
def test_signs_travel_packed_or_not(packing: str, size: int) -> None:
    for name in ("signsgd", "signum"):
        method = load_method(name, {"packing": packing})
        assert sends(method, 1001, World(6)) == [("all_gather", 6.0 * size)]
    scaled = load_method("efsignsgd", {"packing": packing})
    assert sends(scaled, 1001, World(6)) == [("all_gather", 6.0 * size), ("all_gather", 24.0)]


@given(elements=st.integers(1, 10**8))
def test_packed_signs_hold_every_value_and_waste_less_than_a_unit(elements: int) -> None:
    assert 0 <= 8 * sign_bytes(elements, "bits") - elements < 8
    assert 0 <= 8 * sign_bytes(elements, "bit2byte") - elements < 32


def test_what_bytes_of_signs_cost() -> None:
    # Compare 1 + 1/4, cast 1/4 + 1/4; unpack 1/4 + 1, twice and minus one 4.
    assert sign_encode(1000, "bytes").moved_bytes == 4000 * 1.75
    assert sign_decode(1000, "bytes").moved_bytes == 4000 * 5.25
    # With a scale: magnitude 2, mean 1; times the mean 2.
    assert sign_encode(1000, "bytes", scaled=True).moved_bytes == 4000 * 4.75
    assert sign_decode(1000, "bytes", scaled=True).moved_bytes == 4000 * 7.25


def test_the_authors_extension_is_bound_by_its_launches() -> None:
    # 31 x 5 shifts and masks and 2 more, sign, pad, cast; ones, 32 x 3, three.
    assert sign_encode(1000, "bit2byte").launches == 31 * 5 + 2 + 3
    assert sign_decode(1000, "bit2byte").launches == 1 + 32 * 3 + 3


@pytest.mark.parametrize("packing", ["bits", "bit2byte", "bytes"])
@pytest.mark.parametrize("name", ["signsgd", "signum", "efsignsgd"])
def test_every_rank_decodes_every_message(name: str, packing: str) -> None:
    method = load_method(name, {"packing": packing})
    few, many = (computes(method, 4096, ranks)[-1] for ranks in (4, 8))
    decode = few.kernels[0]
    assert few.kernels[:4] == in_turn([decode], 4) and many.kernels[:8] == in_turn([decode], 8)
    assert few.kernels[4] == summed(4096, 4) and many.kernels[8] == summed(4096, 8)
    assert few.kernels[5:] == many.kernels[9:] and few.kernels[5:]
    assert few.earliest == "backward" and computes(method, 4096, 4)[0].earliest == "ready"


@pytest.mark.parametrize("name", ["efsign_decode", "onebit_decode", "dgc_decode"])
def test_a_message_behind_another_pays_launches_not_the_floor(name: str) -> None:
    v100 = load_device("v100", Catalog())
    small, large = (Kernel(name, size, 4.0 * size) for size in (2**12, 2**25))
    first, behind = (v100.cost(kernel).seconds for kernel in (small, queued(small)))
    # 2 launches of zeros and scatter, or 5 of unpacking, at 8 us: not the 69, 230 or 289 us.
    launches = 2 if name == "dgc_decode" else 5
    assert behind == pytest.approx(launches * 8e-6, rel=0.1) and behind < first
    # What grows with size is kept: 128 MB cost less by the floor only, 300 us at most.
    assert 0 < v100.cost(large).seconds - v100.cost(queued(large)).seconds < 300e-6


@given(size=st.integers(1, 2**26), ranks=st.integers(1, 64))
def test_a_loop_over_messages_grows_evenly_with_the_ranks(size: int, ranks: int) -> None:
    v100 = load_device("v100", Catalog())
    kernel = sign_decode(size)
    costs = [
        sum(v100.cost(one).seconds for one in in_turn([kernel], times))
        for times in (1, ranks, ranks + 1)
    ]
    behind = v100.cost(queued(kernel)).seconds
    assert costs[0] == v100.cost(kernel).seconds >= behind
    assert costs[2] - costs[1] == pytest.approx(behind, rel=1e-6)


def test_the_server_hears_one_node_after_the_other() -> None:
    method = load_method("signsgd", {"exchange": "server", "packing": "bit2byte"})
    # 3 nodes of 4: fp32 inside, two messages of 128 bytes to rank 0, its vote sent out again.
    stages = method.stages(bucket(gradient(1001)), World(12, 3, 4), 0)
    assert [
        (stage.collective, stage.size_bytes, stage.group)
        for stage in stages
        if isinstance(stage, Send)
    ] == [
        ("all_reduce", 4004.0, "node"),
        ("send_recv", 128.0, "leaders"),
        ("send_recv", 128.0, "leaders"),
        ("broadcast", 128.0, "leaders"),
        ("broadcast", 128.0, "node"),
    ]
    vote = [stage for stage in stages if isinstance(stage, Compute)][1]
    # Three decodes, their sum, and the packing of its signs.
    assert len(vote.kernels) == 3 + 1 + 1
    assert sends(method, 1001, World(4, 1, 4)) == [("all_reduce", 4004.0)]
    assert sends(method, 1001, World(2, 2, 1)) == [("send_recv", 128.0), ("broadcast", 128.0)]


@pytest.mark.parametrize(
    ("name", "values", "scale"),
    [
        ("signsgd", 100, 0),
        ("signum", 100, 0),
        ("efsignsgd", 100, 4),
        ("terngrad", 800, 4),
        ("natural", 800, 0),
    ],
)
def test_two_steps_share_out_the_sum(name: str, values: int, scale: int) -> None:
    # 800 values on 4 ranks: a piece each, then the pieces' sums to all; a scale from each rank.
    method = load_method(name, {"exchange": "two_step"})
    scales = [("all_gather", 4.0 * scale)] if scale else []
    assert sends(method, 800, World(4)) == [
        ("all_to_all", float(values)),
        *scales,
        ("all_gather", float(values)),
        *scales,
    ]


def test_qsgd_in_two_steps_shares_out_levels_and_norms() -> None:
    method = load_method("qsgd", {"exchange": "two_step", "bits": 4, "group": 100})
    # 800 values of 4 bits are 400 bytes; 8 groups have 32 bytes of norms.
    parts = [400.0, 32.0]
    assert sends(method, 800, World(4)) == [
        *(("all_to_all", part) for part in parts),
        *(("all_gather", part) for part in parts),
    ]


@pytest.mark.parametrize(
    # 20544 values in two tensors: 2568 bytes of signs; levels with 41 norms; headers of 32 bytes
    # a piece in each of two calls, scales of 4 bytes in each of two, for both tensors flattened
    # (signs) or for each.
    ("name", "values", "rest"),
    [
        ("signsgd", 2568, 0),
        ("signum", 2568, 0),
        ("efsignsgd", 2568, 8),
        ("terngrad", 20544, 16),
        ("natural", 20544, 0),
        ("qsgd", 20544 + 4 * 41, 0),
        ("eightbit", 20544, 64),
    ],
)
@pytest.mark.parametrize("ranks", [4, 16])
def test_two_steps_send_two_messages_however_many_ranks(
    name: str, values: int, rest: int, ranks: int
) -> None:
    expected = 2 * (ranks - 1) / ranks * values + rest * (ranks - 1)
    assert plan(name, {"exchange": "two_step"}, ranks).sent_bytes == pytest.approx(expected)


@pytest.mark.parametrize(("name", "scales"), [("efsignsgd", 4), ("onebit", 8)])
def test_between_nodes_shares_travel_packed(name: str, scales: int) -> None:
    method = load_method(name, {"exchange": "between_nodes", "least": "800"})
    world = World(12, 3, 4)
    # 800 values on 4 GPUs: shares of 200, 25 bytes from each of 3 nodes, and their scales.
    stages = method.stages(bucket(gradient(800)), world, 0)
    assert [
        (stage.collective, stage.size_bytes, stage.group)
        for stage in stages
        if isinstance(stage, Send)
    ] == [
        ("reduce_scatter", 3200.0, "node"),
        ("all_gather", 75.0, "across"),
        ("all_gather", 3.0 * scales, "across"),
        ("all_gather", 3200.0, "node"),
    ]
    encode, decode = (stage for stage in stages if isinstance(stage, Compute))
    assert {stage.stream for stage in stages} == {"communication"}
    assert decode.kernels == (*in_turn(decode.kernels[:1], 3), summed(200, 3))
    assert {one.elements for one in encode.kernels} == {200}
    assert sends(method, 799, world) == [("all_reduce", 3196.0)]
    # One GPU a node: nothing to share out.
    assert [what for what, _ in sends(method, 800, World(3, 3, 1))] == ["all_gather"] * 2
    assert "only one" in method.refusal(World(4, 1, 4)) and not method.refusal(world)
    assert not method.refusal(World(1)) and not load_method(name, {}).refusal(World(4, 1, 4))


def test_efsign_keeps_what_was_lost() -> None:
    gradients = [gradient((100, 10)), gradient(10)]
    assert load_method("efsignsgd", {}).memory_bytes(gradients, 4) == 4.0 * 1010
    two = load_method("efsignsgd", {"exchange": "two_step"})
    assert two.memory_bytes(gradients, 4) == 4.0 * 1010 * 1.25
    assert load_method("onebit", {}).memory_bytes(gradients, 4) == 4.0 * 1010
    assert load_method("signum", {}).memory_bytes(gradients, 4) == 4.0 * 1010
    assert load_method("signsgd", {}).memory_bytes(gradients, 4) == 0


def test_error_feedback_decodes_the_own_message_once_more() -> None:
    for name, decode in (("efsignsgd", "efsign_decode"), ("onebit", "onebit_decode")):
        encode, decodes = computes(load_method(name, {}), 4096, 6)
        assert [kernel.name for kernel in encode.kernels].count(decode) == 1
        names = [kernel.name for kernel in decodes.kernels]
        assert names == [decode, *[f"{decode}_queued"] * 5, "elementwise", "elementwise"]


def test_grace_scales_adds_and_subtracts_for_the_residual() -> None:
    # 2 + 3 and 3 passes; compare, cast, mean 4.75; decode 7.25: the residual and one message.
    method = load_method("efsignsgd", {"packing": "bytes"})
    encode, decode = computes(method, 1000, 2)
    assert passes(encode, 1000) == pytest.approx(8 + 4.75 + 7.25)
    # Two messages, their sum 2 + 3, divided 2.
    assert passes(decode, 1000) == pytest.approx(2 * 7.25 + 5 + 2)


def test_onebit_sends_both_means() -> None:
    assert sends(load_method("onebit", {}), 1001, World(3)) == [
        ("all_gather", 3.0 * 126),
        ("all_gather", 24.0),
    ]
    bytes_each = load_method("onebit", {"packing": "bytes"})
    assert sends(bytes_each, 1001, World(3)) == [
        ("all_gather", 3003.0),
        ("all_gather", 12.0),
        ("all_gather", 12.0),
    ]
    # 7 + 3 for the residual, 10 and a cast of 0.5, and the own message's 6.
    encode, decode = computes(bytes_each, 1000, 3)
    assert passes(encode, 1000) == pytest.approx(10 + 10.5 + 6)
    # Three messages, their sum 2 + 3 + 3, mean 2.
    assert passes(decode, 1000) == pytest.approx(3 * 6 + 8 + 2)


def test_terngrad_sends_a_byte_or_two_bits_a_value() -> None:
    assert sends(load_method("terngrad", {}), 1001, World(2)) == [
        ("all_gather", 2002.0),
        ("all_gather", 8.0),
    ]
    packed = load_method("terngrad", {"packing": "two_bits"})
    assert sends(packed, 1001, World(2)) == [("all_gather", 2.0 * 251), ("all_gather", 8.0)]


def test_terngrad_clips_by_two_means_a_difference_a_square_and_a_clamp() -> None:
    encode, _ = computes(load_method("terngrad", {}), 1000, 2)
    plain, _ = computes(load_method("terngrad", {"clip": "false"}), 1000, 2)
    # mean 1, difference 2, square 2, mean 1, clamp 2; and the launch of the root.
    assert passes(encode, 1000) - passes(plain, 1000) == pytest.approx(8)
    assert encode.kernels[0].launches - plain.kernels[0].launches == 6


def test_natural_compression_sends_a_byte_a_value() -> None:
    assert sends(load_method("natural", {}), 1001, World(3)) == [("all_gather", 3003.0)]
    # Fused: draw 1, read value and draw, write a byte; then 3 times (1.25 and 3), the mean 2.
    encode, decode = computes(load_method("natural", {"kernel": "cuda"}), 1000, 3)
    assert passes(encode, 1000) == pytest.approx(3.25)
    assert passes(decode, 1000) == pytest.approx(3 * 4.25 + 2)
    unfused = computes(load_method("natural", {}), 1000, 3)
    assert passes(unfused[0], 1000) > 8 * passes(encode, 1000)


def test_eightbit_agrees_the_largest_before_the_bytes() -> None:
    method = load_method("eightbit", {})
    assert sends(method, 1000, World(5)) == [("all_gather", 20.0), ("all_gather", 5000.0)]
    # Only the four others are decoded and added: 4 x (1.25 + 3).
    assert passes(computes(method, 1000, 5)[-1], 1000) == pytest.approx(17.0)


def test_bytegrad_reduces_inside_nodes_first() -> None:
    method = load_method("eightbit", {"exchange": "two_step"})
    stages = method.stages(bucket(gradient(1000)), World(8, 2, 4), 0)
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
    assert sends(flat, 1000, World(8, 2, 4)) == [
        ("all_to_all", 1256.0),
        ("all_gather", 1256.0),
    ]
    # One node has nothing to quantise: it reduces and broadcasts in fp32.
    assert sends(method, 1000, World(4, 1, 4)) == [("reduce", 4000.0), ("broadcast", 4000.0)]


def test_bytegrad_reads_bounds_quantises_averages_and_quantises_again() -> None:
    method = load_method("eightbit", {"exchange": "two_step"})
    encode, middle, last = computes(method, 1000, 4)
    assert passes(encode, 1000) == pytest.approx(2 + 1.25)
    # Decode 1.25, mean 1 + 1/4, and bounds and bytes of the own quarter.
    assert passes(middle, 1000) == pytest.approx(1.25 + 1.25 + 3.25 / 4)
    assert passes(last, 1000) == pytest.approx(1.25)


def test_qsgd_at_two_scales_agrees_on_a_mask() -> None:
    method = load_method("qsgd", {"bits": 6, "exchange": "all_reduce", "second_bits": 10})
    assert sends(method, 1000, World(2)) == [
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


@pytest.mark.parametrize(
    # Calls a tensor: signs; with a scale; with two means in one; values.
    ("name", "calls"),
    [
        ("efsignsgd", 2),
        ("eightbit", 2),
        ("natural", 1),
        ("onebit", 2),
        ("qsgd", 2),
        ("signsgd", 1),
        ("signum", 1),
        ("terngrad", 2),
    ],
)
def test_the_frameworks_work_tensor_by_tensor(name: str, calls: int) -> None:
    assert plan(name, {}, 4).calls == 2 * calls


SIGNS = [{"packing": packing} for packing in ("bits", "bit2byte", "bytes")]
STEPS = [{"exchange": "all_gather"}, {"exchange": "two_step"}]
BETWEEN = [{"exchange": "between_nodes", "least": least} for least in ("1", "1000000")]


@pytest.mark.parametrize("ranks", [2, 3, 16])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(("signsgd", one | two) for one in [*STEPS, {"exchange": "server"}] for two in SIGNS),
        *((name, one | two) for name in ("signum", "efsignsgd") for one in STEPS for two in SIGNS),
        *((name, one) for name in ("efsignsgd", "onebit") for one in BETWEEN),
        ("onebit", {"packing": "bytes"}),
        *(("terngrad", one | {"packing": two}) for one in STEPS for two in ("bytes", "two_bits")),
        *((name, {"exchange": "two_step"}) for name in ("qsgd", "natural", "eightbit")),
        ("qsgd", {"exchange": "all_reduce"}),
        ("qsgd", {"exchange": "all_reduce", "bits": "4", "second_bits": "6"}),
    ],
)
def test_the_formula_of_the_wire_holds_for_every_form(
    name: str, options: dict[str, str], ranks: int
) -> None:
    method = load_method(name, options)
    # 384 x 256 values on 2, 3 and 16 ranks: pieces of QSGD's levels and norms divide evenly.
    sent = mean(one_matrix(method, ranks), "sent_bytes")
    assert sent == pytest.approx(by_formula(method, ranks), rel=1e-9)


@pytest.mark.parametrize(
    # Signs of both tensors flattened: all-to-all and all-gather, scales in two more; QSGD's norm,
    # then its levels.
    ("name", "exchange", "calls"),
    [
        ("signsgd", "two_step", 2),
        ("signum", "two_step", 2),
        ("efsignsgd", "two_step", 4),
        ("qsgd", "all_reduce", 2),
    ],
)
def test_what_is_flattened_first_is_one_message(name: str, exchange: str, calls: int) -> None:
    assert plan(name, {"exchange": exchange}, 4).calls == calls
    assert load_method("signsgd", {"exchange": "server"}).default_fusion() == "whole"


def test_signs_are_compared_alike() -> None:
    # Same packing, same loop: without residual or momentum signsgd is never the slower of them.
    device = load_device("v100", Catalog())
    for ranks in (2, 64):
        costs = {
            name: sum(
                device.cost(kernel).seconds
                for stage in computes(load_method(name, {}), 10**6, ranks)
                for kernel in stage.kernels
            )
            for name in ("signsgd", "signum", "efsignsgd")
        }
        # The momentum: 7 passes in 3 launches, no more.
        extra = device.cost(Kernel("elementwise", 10**6, 28e6, launches=3)).seconds
        assert costs["signum"] - costs["signsgd"] == pytest.approx(extra)
        assert costs["efsignsgd"] > costs["signsgd"]


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


@given(
    name=st.sampled_from(NAMES),
    exchange=st.sampled_from(["all_gather", "two_step"]),
    elements=st.integers(1, 10**7),
    ranks=st.integers(2, 256),
)
def test_stages_have_positive_work(name: str, exchange: str, elements: int, ranks: int) -> None:
    options = {} if name == "onebit" else {"exchange": exchange}
    for stage in load_method(name, options).stages(bucket(gradient(elements)), World(ranks), 0):
        if isinstance(stage, Send):
            assert stage.size_bytes > 0
        else:
            assert stage.kernels
            assert all(kernel.elements >= 1 and kernel.moved_bytes > 0 for kernel in stage.kernels)


@given(name=st.sampled_from(NAMES), elements=st.integers(1, 10**7), ranks=st.integers(2, 256))
def test_message_bytes_are_what_one_tensor_sends(name: str, elements: int, ranks: int) -> None:
    method = load_method(name, {})
    sent = sum(size / ranks for _, size in sends(method, elements, World(ranks)))
    assert sent == pytest.approx(method.message_bytes(gradient(elements), 0), rel=1e-9)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("signsgd", {"exchange": "sever"}, ["--set exchange", "'sever'", "'server'"]),
        ("efsignsgd", {"packing": "byte"}, ["--set packing", "'byte'", "'bytes'"]),
        ("onebit", {"packing": "bit2byte"}, ["--set packing", "'bits' or 'bytes'"]),
        ("qsgd", {"second_bits": "17"}, ["--set second_bits", "at most 16"]),
        ("natural", {"kernl": "cuda"}, ["no 'kernl'", "did you mean 'kernel'"]),
        ("eightbit", {"hierarchical": "false"}, ["hierarchical=False", "set exchange=two_step"]),
        ("qsgd", {"second_bits": "10"}, ["second_bits=10", "set exchange=all_reduce"]),
        ("qsgd", {"exchange": "all_reduce", "group": "64"}, ["group=64", "exchange=all_reduce"]),
        ("efsignsgd", {"least": "1"}, ["least=1", "set exchange=between_nodes"]),
        ("onebit", {"least": "1"}, ["least=1", "set exchange=between_nodes"]),
        ("randk", {"decoding": "one_by_one"}, ["decoding=one_by_one", "set shared_seed=False"]),
        ("randk_maxnorm", {"two_scale": "true", "bits": "4"}, ["bits=4", "set two_scale=False"]),
    ],
)
def test_a_wrong_option_is_one_clear_sentence(
    name: str, options: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(RequestError) as caught:
        load_method(name, options)
    assert all(word in str(caught.value) for word in words), str(caught.value)
