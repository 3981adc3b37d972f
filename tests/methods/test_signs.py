"""Methods that send signs: how they are packed, scaled, decoded and added, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.compute.device import load_device
from perfsim.compute.kernel import Kernel
from perfsim.methods import load_method
from perfsim.methods.base import Compute, MethodContext, Send
from perfsim.methods.building.quantise import sign_bytes, sign_decode, sign_encode, summed
from perfsim.methods.building.queued_kernels import in_turn, queued
from support.builders import bucket, gradient
from support.quantised import computes, passes, sends
from support.what_ships import SHIPPED


@pytest.mark.parametrize(
    # 1001 values: 125.125 bytes of bits; 31.28 words of 32; a byte each.
    ("packing", "size"),
    [("bits", 126), ("bit2byte", 128), ("bytes", 1001)],
)
def test_signs_travel_packed_or_not(packing: str, size: int) -> None:
    for name in ("signsgd", "signum"):
        method = load_method(name, {"packing": packing})
        assert sends(method, 1001, MethodContext(6)) == [("all_gather", 6.0 * size)]
    scaled = load_method("efsignsgd", {"packing": packing})
    assert sends(scaled, 1001, MethodContext(6)) == [
        ("all_gather", 6.0 * size),
        ("all_gather", 24.0),
    ]


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
    v100 = load_device("v100", SHIPPED)
    small, large = (Kernel(name, size, 4.0 * size) for size in (2**12, 2**25))
    first, behind = (v100.cost(kernel).seconds for kernel in (small, queued(small)))
    # 2 launches of zeros and scatter, or 5 of unpacking, at 8 us: not the 69, 230 or 289 us.
    launches = 2 if name == "dgc_decode" else 5
    assert behind == pytest.approx(launches * 8e-6, rel=0.1) and behind < first
    # What grows with size is kept: 128 MB cost less by the floor only, 300 us at most.
    assert 0 < v100.cost(large).seconds - v100.cost(queued(large)).seconds < 300e-6


@given(size=st.integers(1, 2**26), ranks=st.integers(1, 64))
def test_a_loop_over_messages_grows_evenly_with_the_ranks(size: int, ranks: int) -> None:
    v100 = load_device("v100", SHIPPED)
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
    stages = method.stages(bucket(gradient(1001)), MethodContext(12, 3, 4), 0)
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
    assert sends(method, 1001, MethodContext(4, 1, 4)) == [("all_reduce", 4004.0)]
    assert sends(method, 1001, MethodContext(2, 2, 1)) == [
        ("send_recv", 128.0),
        ("broadcast", 128.0),
    ]


@pytest.mark.parametrize(("name", "scales"), [("efsignsgd", 4), ("onebit", 8)])
def test_between_nodes_shares_travel_packed(name: str, scales: int) -> None:
    method = load_method(name, {"exchange": "between_nodes", "least": "800"})
    world = MethodContext(12, 3, 4)
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
    assert [what for what, _ in sends(method, 800, MethodContext(3, 3, 1))] == ["all_gather"] * 2
    assert "only one" in method.refusal(MethodContext(4, 1, 4)) and not method.refusal(world)
    assert not method.refusal(MethodContext(1)) and not load_method(name, {}).refusal(
        MethodContext(4, 1, 4)
    )


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
    assert sends(load_method("onebit", {}), 1001, MethodContext(3)) == [
        ("all_gather", 3.0 * 126),
        ("all_gather", 24.0),
    ]
    bytes_each = load_method("onebit", {"packing": "bytes"})
    assert sends(bytes_each, 1001, MethodContext(3)) == [
        ("all_gather", 3003.0),
        ("all_gather", 12.0),
        ("all_gather", 12.0),
    ]
    # 7 + 3 for the residual, 10 and a cast of 0.5, and the own message's 6.
    encode, decode = computes(bytes_each, 1000, 3)
    assert passes(encode, 1000) == pytest.approx(10 + 10.5 + 6)
    # Three messages, their sum 2 + 3 + 3, mean 2.
    assert passes(decode, 1000) == pytest.approx(3 * 6 + 8 + 2)


def test_signs_are_compared_alike() -> None:
    # Same packing, same loop: without residual or momentum signsgd is never the slower of them.
    device = load_device("v100", SHIPPED)
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
