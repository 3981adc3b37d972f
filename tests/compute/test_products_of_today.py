"""Products in fp8 and nvfp4, and of several experts: what they cost beside their operations."""

from __future__ import annotations

import pytest

from perfsim.compute.device import load_device
from perfsim.compute.kernel_time import cast_time, kernel_rates
from perfsim.compute.work import Work, work_of
from perfsim.models import build_model
from perfsim.models.layers import ModelLayer, is_expert, linear
from perfsim.models.split import Degrees, split_layers
from support.what_ships import SHIPPED

H100 = load_device("h100", SHIPPED)
WIDE = Work("product", 2.0 * 8192**3, 2.0 * 8192**2, 8192.0**2, 8192.0)


def test_an_fp8_product_casts_what_it_reads_and_writes() -> None:
    """A third of 4 bytes a value of input and output, once for each of three products."""
    eight = kernel_rates(H100, "fp8", "megatron")
    plain = eight._replace(cast_bytes=0.0)
    more_s = eight.seconds(WIDE, 1, True) - plain.seconds(WIDE, 1, True)
    assert more_s == pytest.approx(4 / 3 * 2 * 8192**2 / eight.bytes_per_s)


def test_an_nvfp4_product_reads_once_more_and_writes_less() -> None:
    """Read twice in 16 bits, written twice in 4 with a byte for 16 values: a third of 5.125."""
    four = kernel_rates(load_device("gb300", SHIPPED), "nvfp4", "megatron")
    plain = four._replace(cast_bytes=0.0)
    more_s = four.seconds(WIDE, 1, True) - plain.seconds(WIDE, 1, True)
    assert more_s == pytest.approx(5.125 / 3 * 2 * 8192**2 / four.bytes_per_s)


def test_fp8_gains_more_on_wide_products_than_on_narrow_ones() -> None:
    def gain(width: float) -> float:
        work = Work("product", 2.0 * 32768 * width**2, 2.0 * 32768 * width, width**2, width)
        half, eight = (kernel_rates(H100, one, "megatron") for one in ("amp-bf16", "fp8"))
        return half.seconds(work, 1, True) / eight.seconds(work, 1, True)

    assert gain(1024) < 1.05 < gain(4096) < gain(16384) < 2.0


def _experts(count: int, rows: int) -> ModelLayer:
    made = linear("experts.up", 4096, 14336, rows, bias=False)
    return ModelLayer(
        made.name,
        made.kind,
        (("experts.up", (count, 14336, 4096)),),
        made.flops,
        made.activation_bytes,
        rows,
        split="column",
    )


def test_each_expert_costs_some_tokens_more() -> None:
    """174 forward and 242 backward: eight experts of 512 tokens, 1.34 and 1.47 times the work."""
    layer = _experts(8, 8 * 512)
    made = work_of([layer, layer], "megatron").layers[0]
    assert is_expert(layer)
    assert 1 + made.forward[0].fixed / layer.flops == pytest.approx(1 + 174 / 512)
    assert 1 + made.backward[0].fixed / layer.flops == pytest.approx(1 + 242 / 512)


def test_what_experts_cost_besides_is_no_shorter_in_fp8() -> None:
    """As measured in bf16; the tokens' own operations take the rate of fp8."""
    [made] = work_of([_experts(8, 8 * 512)] * 2, "megatron").layers[0].forward[:1]
    work = made._replace(values=0.0, weights=0.0)
    half, eight = (kernel_rates(H100, word, "megatron") for word in ("amp-bf16", "fp8"))
    for rates in (half, eight):
        beside_s = rates.seconds(work, 1, True) - rates.seconds(work._replace(fixed=0.0), 1, True)
        assert beside_s == pytest.approx(work.fixed / half.flops_per_s["product"], rel=1e-6)


def test_experts_with_biases_pay_for_operations_that_nothing_fuses() -> None:
    """9 f of 4 experts a token, and 7 h, in each pass (gpt-oss); nothing where all is captured.

    Eager code has more of them between both products (`by_operations.ACTIVATIONS`).
    """
    layers = build_model("gpt-oss-20b", 1024)
    first, last = [layer for layer in layers if is_expert(layer)][:2]
    assert (first.unfused, last.unfused) == (9 * 4 * 1024 * 2880, 7 * 4 * 1024 * 2880)
    for era, between, behind in (("megatron", 1, 1), ("torch2", 0, 1), ("mlperf", 0, 0)):
        for one, there in ((first, between), (last, behind)):
            found = work_of([one, one], era).layers[0]
            assert sum(work.values == one.unfused for work in found.forward) == there
            assert sum(work.values == one.unfused for work in found.backward) == there


def test_ranks_that_share_experts_pay_for_fewer_of_them() -> None:
    whole = _experts(8, 8 * 512)
    part = split_layers([whole], Degrees(ep=4))[0]
    both = [work_of([one, one], "megatron").layers[0].forward[0].fixed for one in (whole, part)]
    assert both[0] == pytest.approx(4 * both[1])


def test_casts_are_those_of_half_precision() -> None:
    assert cast_time(1e9, kernel_rates(H100, "fp32", "megatron")) == 0.0
    half = kernel_rates(H100, "amp-bf16", "megatron")
    assert cast_time(1e9, half) == pytest.approx(12e9 / half.bytes_per_s)


def test_narrow_experts_copy_their_rows_to_a_multiple_and_cast_one_by_one() -> None:
    """4 bytes a value that comes in, once a pass, and a launch an expert where each is launched."""
    layer = _experts(8, 8 * 512)
    made = work_of([layer, layer], "megatron").layers[0]
    eight = kernel_rates(H100, "fp8", "megatron")
    copied_s = 4 * 4096 * 4096 / eight.bytes_per_s
    for work, copies in ((made.forward[0], 1), (made.backward[0], 1), (made.backward[1], 0)):
        plain = work._replace(padded=0.0)
        more_s = eight.seconds(work, 1, True) - eight.seconds(plain, 1, True)
        assert more_s == pytest.approx(copies * copied_s)
        each = eight.one_by_one()
        more_s = each.seconds(work, 1, True) - eight.seconds(work, 1, True)
        assert more_s == pytest.approx(copies * 8 * each.constants.gap_s)
    half = kernel_rates(H100, "amp-bf16", "megatron")
    tuned = kernel_rates(H100, "fp8", "mlperf")
    for rates in (half, tuned):  # nothing is cast, or all is captured in one kernel
        bare = made.forward[0]._replace(padded=0.0, casts=0)
        assert rates.one_by_one().seconds(made.forward[0], 1, True) == rates.seconds(bare, 1, True)


def test_what_leaves_experts_is_copied_back() -> None:
    """Rows are padded as they come to the first product and cut again behind the last one."""
    block = [layer for layer in build_model("mixtral-8x7b", 1024) if is_expert(layer)][:2]
    padded = [one.forward[0].padded for one in work_of([*block, block[1]], "megatron").layers[:2]]
    assert padded == [2 * 1024 * 4096] * 2


@pytest.mark.parametrize(("tokens", "launches_bind"), [(16, True), (4096, False)])
def test_a_product_an_expert_takes_its_launch_at_least(tokens: int, launches_bind: bool) -> None:
    """33 us, which TransformerEngine's pull request 3134 has for 128 tokens of 8 experts."""
    layer = _experts(8, 8 * tokens)
    work = work_of([layer, layer], "megatron").layers[0].forward[0]._replace(weights=0.0, fixed=0.0)
    rates = kernel_rates(H100, "amp-bf16", "megatron")
    beside_s = rates.seconds(work._replace(flops=0.0, values=0.0), 1, True)
    alone_s, each_s = rates.seconds(work, 1, True), rates.one_by_one().seconds(work, 1, True)
    assert (each_s == alone_s) != launches_bind
    if launches_bind:
        assert each_s == pytest.approx(8 * 33e-6 + beside_s)
