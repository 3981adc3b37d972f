"""What holds for all quantising methods: calls and bytes of every form, and their options."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.errors import RequestError
from perfsim.methods import load_method
from perfsim.methods.base import MethodContext, Send
from support.builders import bucket, gradient
from support.one_matrix import by_formula, mean, one_matrix
from support.quantised import plan, sends

NAMES = ("efsignsgd", "eightbit", "natural", "onebit", "qsgd", "signsgd", "signum", "terngrad")


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
    assert sends(method, 800, MethodContext(4)) == [
        ("all_to_all", float(values)),
        *scales,
        ("all_gather", float(values)),
        *scales,
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


@pytest.mark.parametrize(
    # Calls a tensor: signs; with a scale; with two means in one; values.
    ("name", "calls"),
    [
        ("efsignsgd", 2),
        ("eightbit", 2),
        ("natural", 1),
        ("onebit", 2),
        ("qsgd", 2),
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


@pytest.mark.parametrize(
    ("name", "forms"),
    [("signsgd", ["all_gather", "two_step", "server"]), ("signum", ["all_gather", "two_step"])],
)
def test_votes_go_in_one_buffer_as_the_authors_send_them(name: str, forms: list[str]) -> None:
    for exchange in forms:
        assert load_method(name, {"exchange": exchange}).default_fusion() == "whole"
    assert plan(name, {}, 4).calls == 1


@given(
    name=st.sampled_from(NAMES),
    exchange=st.sampled_from(["all_gather", "two_step"]),
    elements=st.integers(1, 10**7),
    ranks=st.integers(2, 256),
)
def test_stages_have_positive_work(name: str, exchange: str, elements: int, ranks: int) -> None:
    options = {} if name == "onebit" else {"exchange": exchange}
    for stage in load_method(name, options).stages(
        bucket(gradient(elements)), MethodContext(ranks), 0
    ):
        if isinstance(stage, Send):
            assert stage.size_bytes > 0
        else:
            assert stage.kernels
            assert all(kernel.elements >= 1 and kernel.moved_bytes > 0 for kernel in stage.kernels)


@given(name=st.sampled_from(NAMES), elements=st.integers(1, 10**7), ranks=st.integers(2, 256))
def test_message_bytes_are_what_one_tensor_sends(name: str, elements: int, ranks: int) -> None:
    method = load_method(name, {})
    sent = sum(size / ranks for _, size in sends(method, elements, MethodContext(ranks)))
    assert sent == pytest.approx(method.message_bytes(gradient(elements), 0), rel=1e-9)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("signsgd", {"exchange": "sever"}, ["options.exchange", "'sever'", "'server'"]),
        ("efsignsgd", {"packing": "byte"}, ["options.packing", "'byte'", "'bytes'"]),
        ("onebit", {"packing": "bit2byte"}, ["options.packing", "'bits' or 'bytes'"]),
        ("qsgd", {"second_bits": "17"}, ["options.second_bits", "16 or less"]),
        ("natural", {"kernl": "cuda"}, ["no 'kernl'", "did you mean 'kernel'"]),
        ("eightbit", {"hierarchical": "false"}, ["hierarchical: false", "set exchange=two_step"]),
        ("qsgd", {"second_bits": "10"}, ["second_bits: 10", "set exchange=all_reduce"]),
        ("qsgd", {"exchange": "all_reduce", "group": "64"}, ["group: 64", "exchange=all_reduce"]),
        ("efsignsgd", {"least": "1"}, ["least: 1", "set exchange=between_nodes"]),
        ("onebit", {"least": "1"}, ["least: 1", "set exchange=between_nodes"]),
        ("randk", {"decoding": "one_by_one"}, ["decoding: one_by_one", "set shared_seed=false"]),
        ("randk_maxnorm", {"two_scale": "true", "bits": "4"}, ["bits: 4", "set two_scale=false"]),
    ],
)
def test_a_wrong_option_is_one_clear_sentence(
    name: str, options: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(RequestError) as caught:
        load_method(name, options)
    assert all(word in str(caught.value) for word in words), str(caught.value)
