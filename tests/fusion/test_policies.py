"""Fusion on paper: what each policy makes of a few tensors, at the edges of its rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from perfsim import fusion
from perfsim.by_size import one_by_one
from perfsim.compute.profile import Gradient
from perfsim.errors import RequestError
from perfsim.fusion.buckets import Bucket, FusionContext, fill
from perfsim.fusion.policies import blocks_of


def tensors(*ready_s: float, elements: int = 1) -> list[Gradient]:
    """Return tensors of as many values, ready at these times, named by their place."""
    return [Gradient(str(n), (elements,), one, n) for n, one in enumerate(ready_s)]


def made(
    name: str,
    gradients: Sequence[Gradient],
    limit_bytes: float | None = None,
    all_reduce_s: Callable[[float], float] = lambda size: 1.0,
    negotiation_s: Callable[[int], float] = lambda tensors: 0.0,
    backward_s: float = 0.0,
    ranks: int = 1,
    **options: str,
) -> list[tuple[list[str], float]]:
    """Return the names in each bucket and when it is ready [s]."""
    context = FusionContext(
        limit_bytes,
        backward_s,
        lambda one: one.size_bytes,
        lambda collective: one_by_one(all_reduce_s),
        options,
        negotiation_s,
        count_ranks=lambda: ranks,
    )
    return [
        ([one.name for one in bucket.gradients], bucket.ready_s)
        for bucket in fusion.load_policy(name).fuse(gradients, context)
    ]


def names(buckets: list[tuple[list[str], float]]) -> list[str]:
    """Return each bucket as one word: "012" holds the first three."""
    return ["".join(members) for members, _ in buckets]


def test_a_bucket_of_two_matrices() -> None:
    """Three and six values: 36 bytes, ready with the later of the two."""
    bucket = Bucket.of([Gradient("a", (3,), 2.0, 0), Gradient("b", (2, 3), 1.0, 1)])
    assert (bucket.elements, bucket.size_bytes, bucket.ready_s) == (9, 36.0, 2.0)


def test_a_bucket_has_the_width_of_its_gradients() -> None:
    """Two and three values in 16 bits: 10 bytes."""
    halves = [Gradient(name, (n,), 0.0, 0, value_bytes=2.0) for name, n in (("a", 2), ("b", 3))]
    assert Bucket.of(halves).size_bytes == 10.0


def test_filling_stops_before_the_limit_is_passed() -> None:
    """Of 4, 4, 4, 12 and 4 bytes 8 hold two; what is larger stands alone, and nothing after it."""
    gradients = [Gradient(str(n), (size,), 0.0, 0) for n, size in enumerate((1, 1, 1, 3, 1))]

    def filled(limit_bytes: float) -> list[int]:
        return [len(one.gradients) for one in fill(gradients, lambda g: g.size_bytes, limit_bytes)]

    assert filled(8.0) == [2, 1, 1, 1]
    assert filled(7.9) == [1, 1, 1, 1, 1]
    assert filled(16.0) == [3, 2]
    assert filled(24.0) == [4, 1]


def test_ranks_agree_at_once_unless_told_otherwise() -> None:
    context = FusionContext(
        None, 0.0, lambda one: one.size_bytes, lambda collective: one_by_one(float)
    )
    assert context.negotiation_s(7) == 0.0
    assert context.options == {}


def test_what_is_no_policy_is_listed_nowhere() -> None:
    with pytest.raises(RequestError) as error:
        fusion.load_policy("asx")
    assert str(error.value) == (
        "fusion: no 'asx'; did you mean 'asc'? Allowed: asc, block, compressed, dear,"
        " dear_tuned, groups, hybrid_zero, megatron, mgwfbp, none, optimal, sent, size, threshold,"
        " whole, zero."
    )


def test_asc_merges_what_comes_before_the_message_could_start() -> None:
    """Of 1 s each: 0 starts at 0, 1 at 1 s, so 2 at 0.9 s joins it and 3 at 1 s does not."""
    found = made("asc", tensors(0.0, 0.5, 0.9, 1.0, 1.5, 9.0))
    assert names(found) == ["0", "12", "34", "5"]
    assert [ready_s for _, ready_s in found] == [0.0, 0.9, 1.5, 9.0]


def test_asc_counts_what_it_merged() -> None:
    """A second a byte, 4 bytes each: 0 ends at 4, 12 at 12, 34 at 20, 56 at 28."""
    gradients = tensors(0.0, 1.0, 3.0, 5.0, 11.9, 12.0, 19.9, 20.0, 27.9, 28.0)
    assert names(made("asc", gradients, all_reduce_s=lambda size: size)) == [
        "0",
        "12",
        "34",
        "56",
        "78",
        "9",
    ]


def test_asc_believes_the_cost_that_it_is_given() -> None:
    """1 s and 0.25 s a byte: 2 s a tensor, whatever the network takes."""
    gradients = tensors(0.0, 1.0, 1.9, 2.0)
    assert names(made("asc", gradients, merge_alpha="1s", merge_beta="0.25s/B")) == ["0", "12", "3"]


def test_mgwfbp_counts_what_it_merged() -> None:
    """1 s and 1 s a byte, 4 bytes a tensor; whoever waits less than 1 s for the next merges.

    0 goes at 0 and ends at 5 s. 1 comes at 1.5 s and could start at 5; 2 is there by then, and
    12 ends at 14. 3 could start at 14 and 4 at 15 comes exactly 1 s later: it goes apart, at 19.
    5 at 19.9 joins it (0.9 s) and 45 would start at 19.9; 6 at 20.8 joins as well.
    """
    found = made(
        "mgwfbp",
        tensors(0.0, 1.5, 4.0, 14.0, 15.0, 19.9, 20.8, 21.8),
        all_reduce_s=lambda size: 1.0 + size,
    )
    assert names(found) == ["0", "12", "3", "456", "7"]


def test_mgwfbp_joins_small_messages_up_to_a_size() -> None:
    """Below 8 bytes (two values) the next always joins; at 8 it does not."""
    apart = tensors(0.0, 10.0, 20.0, 30.0)
    assert names(made("mgwfbp", apart, merge_below="8B")) == ["01", "23"]
    assert names(made("mgwfbp", apart, merge_below="9B")) == ["012", "3"]
    assert names(made("mgwfbp", apart)) == ["0", "1", "2", "3"]


def test_a_merge_cost_needs_both_halves() -> None:
    for name in ("merge_alpha", "merge_beta"):
        with pytest.raises(RequestError) as error:
            made("mgwfbp", tensors(0.0), **{name: "1s"})
        assert str(error.value) == (
            f"fusion_options.{name}: merge_alpha and merge_beta go together; give both, or neither"
            " to merge by the network's own cost."
        )
        assert error.value.value == "1s"


def test_optimal_prefers_fewer_messages_where_the_end_is_the_same() -> None:
    """Free messages end with the last tensor however they are cut: one is enough."""
    assert names(made("optimal", tensors(0.0, 1.0, 2.0), all_reduce_s=lambda size: 0.0)) == ["012"]


def test_optimal_sends_early_what_pays() -> None:
    """1 s a message and 1 s a byte: 0 until 5 s, then both others at once until 14 s.

    All three at 3 s would end at 16 s, one by one at 15 s.
    """
    found = made("optimal", tensors(0.0, 2.0, 3.0), all_reduce_s=lambda size: 1.0 + size)
    assert names(found) == ["0", "12"]


def test_optimal_counts_every_byte_once() -> None:
    """0.5 s and 1 s a byte: one after the other ends at 4.5 + 4.5 s, both at once at 1 + 8.5 s."""
    found = made("optimal", tensors(0.0, 1.0), all_reduce_s=lambda size: 0.5 + size)
    assert names(found) == ["0", "1"]


def test_dear_fills_from_the_first_layer_and_cuts_none() -> None:
    """Layers of 8 bytes in backward order d c b a: below 24 bytes a and b go together, c and d."""
    gradients = [
        Gradient(f"{layer}{part}", (1,), 0.0, 3 - n)
        for n, layer in enumerate("dcba")
        for part in (0, 1)
    ]
    assert names(made("dear", gradients, 24.0)) == ["d0d1c0c1", "b0b1a0a1"]
    assert names(made("dear", gradients, 16.1)) == ["d0d1c0c1", "b0b1a0a1"]
    assert names(made("dear", gradients, 24.1)) == ["d0d1", "c0c1b0b1a0a1"]
    assert names(made("dear", gradients, 16.0)) == ["d0d1", "c0c1", "b0b1", "a0a1"]
    assert names(made("dear", gradients)) == ["d0d1c0c1b0b1a0a1"]


def test_dear_holds_less_than_25_mebibytes() -> None:
    """Five layers of 5 MiB reach 25 MiB; four stay below."""
    mib5 = 5 * 2**20 // 4
    assert names(made("dear", tensors(0, 1, 2, 3, 4, elements=mib5))) == ["0", "1234"]


def test_a_block_is_the_layers_below_its_number() -> None:
    """Digits that end a name, or are part of a word, number no block."""
    found = [
        Gradient(name, (1,), 0.0, 0)
        for name in ("fc.weight", "h.1.mlp.w", "h.1.att.w", "h.0.mlp.w", "emb.weight", "pos.weight")
    ]
    assert [len(members) for members, _ in made("block", found)] == [1, 2, 1, 2]
    named = ["layer2.0.conv1.weight", "conv1.weight", "h.12.b", "1.a.b"]
    assert blocks_of(named) == ["layer2.0", "", "", "1"]


def test_numbered_layers_without_layers_below_are_blocks() -> None:
    """A model of its user's own may hold layers.0, layers.1: each is a unit, not all of it one."""
    found = [
        Gradient(name, (1,), 0.0, 0)
        for name in ("head.w", "layers.1.w", "layers.1.b", "layers.0.w", "emb.w")
    ]
    assert [len(members) for members, _ in made("block", found)] == [1, 2, 1, 1]


def test_groups_by_count() -> None:
    """Seven in three lists as they were registered: 3, 2, 2, so that the last are ready first."""
    seven = tensors(*range(7))
    assert names(made("groups", seven, count="3")) == ["01", "23", "456"]
    assert names(made("groups", seven)) == ["0123456"]
    assert names(made("groups", seven, count="9")) == list("0123456")


def test_groups_by_size() -> None:
    """As stated, from the first that is ready; what is left over is one more."""
    seven = tensors(*range(7))
    assert names(made("groups", seven, sizes="1/2")) == ["0", "12", "3456"]
    assert names(made("groups", seven, sizes="5/9")) == ["01234", "56"]
    assert names(made("groups", seven, sizes="3/4")) == ["012", "3456"]


def test_groups_wait_for_the_next_cycle() -> None:
    """Cycles of 2 s: ready at 0, 1.9, 2 and 5 s is sent at 2, 2, 4 and 6 s."""
    found = made("groups", tensors(0.0, 1.9, 2.0, 5.0), count="4", cycle_time="2s")
    assert [ready_s for _, ready_s in found] == [2.0, 2.0, 4.0, 6.0]
    found = made("groups", tensors(0.0, 1.9), count="2", cycle_time="0s")
    assert [ready_s for _, ready_s in found] == [0.0, 1.9]
    found = made("groups", tensors(0.5, 1.9), count="2", cycle_time="0.5s")
    assert [ready_s for _, ready_s in found] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("options", "value", "message"),
    [
        (
            {"count": "0"},
            "0",
            "fusion_options.count: '0' is not allowed: it must be a whole number, 1 or more.",
        ),
        (
            {"count": "x"},
            "x",
            "fusion_options.count: 'x' is not allowed: it must be a whole number, 1 or more.",
        ),
        (
            {"sizes": "2/1.5"},
            "1.5",
            "fusion_options.sizes: '1.5' is not allowed: it must be a whole number, 1 or more.",
        ),
        (
            {"sizes": "2", "count": "1"},
            "2",
            "fusion_options.sizes: leave out fusion_options.count, which it replaces.",
        ),
        (
            {"cycle_time": "7"},
            "7",
            "fusion_options.cycle_time: '7' is not a time (a bare number has no unit); give a"
            " number and a unit such as '50us'. Units: s, ms, us, ns, min, h.",
        ),
    ],
)
def test_wrong_groups_are_refused(options: dict[str, str], value: str, message: str) -> None:
    with pytest.raises(RequestError) as error:
        made("groups", tensors(0.0, 1.0), **options)
    assert str(error.value) == message
    assert error.value.value == value


def test_zero_holds_half_a_billion_values() -> None:
    """Two of 2.5e8 values fill a bucket; one value more does not fit."""
    quarter = 250_000_000
    assert names(made("zero", tensors(0.0, 1.0, 2.0, elements=quarter))) == ["01", "2"]
    assert names(made("zero", tensors(0.0, 1.0, elements=quarter + 1))) == ["0", "1"]
    assert names(made("zero", tensors(0.0, 1.0, 2.0), 4.0)) == ["0", "1", "2"]


def test_zero_counts_values_whatever_their_width() -> None:
    """Eight bytes are two values of fp32: two of one value in 16 bits fill them, not four."""
    halves = [Gradient(name, (1,), 0.0, 0, value_bytes=2.0) for name in "abcd"]
    assert names(made("zero", halves, 8.0)) == ["ab", "cd"]


def test_megatron_closes_at_40_million_values_or_a_million_a_rank() -> None:
    """Two of 2e7 values reach 4e7; two of one less do not, but the third does.

    60 ranks want 6e7, which three of 2e7 reach. 40 want the 4e7 that all have; 41 want 4.1e7.
    """
    million20 = tensors(0.0, 1.0, 2.0, 3.0, elements=20_000_000)
    assert names(made("megatron", million20)) == ["01", "23"]
    assert names(made("megatron", tensors(*range(4), elements=19_999_999))) == ["012", "3"]
    assert names(made("megatron", million20, ranks=60)) == ["012", "3"]
    assert names(made("megatron", million20, ranks=40)) == ["01", "23"]
    assert names(made("megatron", million20, ranks=41)) == ["012", "3"]


def test_hybrid_zero_holds_512_mebi_values() -> None:
    """Two of 2^28 fill 2^29 exactly; of one more each goes alone. 16 bits fill it no later."""
    assert names(made("hybrid_zero", tensors(0.0, 1.0, 2.0, elements=2**28))) == ["01", "2"]
    assert names(made("hybrid_zero", tensors(0.0, 1.0, elements=2**28 + 1))) == ["0", "1"]
    halves = [Gradient(name, (3,), 0.0, 0, value_bytes=2.0) for name in "abcd"]
    assert names(made("hybrid_zero", halves, 24.0)) == ["ab", "cd"]


def test_hybrid_zero_sends_with_the_gradient_that_does_not_fit() -> None:
    """Two a bucket: 01 waits for 2 at 3 s, 23 for 4 at 6 s; 4 goes with the step, at 7 s."""
    found = made("hybrid_zero", tensors(0.0, 1.0, 3.0, 5.0, 6.0), 8.0, backward_s=7.0)
    assert names(found) == ["01", "23", "4"]
    assert [ready_s for _, ready_s in found] == [3.0, 6.0, 7.0]


def test_size_closes_a_bucket_that_reaches_the_limit_exactly() -> None:
    assert names(made("size", tensors(0.0, 1.0, 2.0), 8.0)) == ["01", "2"]
    assert names(made("size", tensors(*range(7)), 9.0)) == ["012", "345", "6"]
    found = made("size", tensors(0.0, 1.0, 2.0, 3.0), 8.0, first_bucket="4B")
    assert names(found) == ["0", "12", "3"]


def test_a_first_bucket_without_unit_is_refused() -> None:
    with pytest.raises(RequestError, match=r"^fusion_options\.first_bucket: '5' is not a size"):
        made("size", tensors(0.0), first_bucket="5")


def test_compressed_of_nothing_is_nothing_and_25_mebibytes_are_the_limit() -> None:
    mib5 = 5 * 2**20 // 4
    assert made("compressed", []) == []
    assert names(made("compressed", tensors(*range(6), elements=mib5))) == ["01234", "5"]
    assert names(made("compressed", tensors(0, 1, 2), 8.0)) == ["01", "2"]


def test_threshold_begins_its_next_cycle_when_the_last_has_sent() -> None:
    """Cycles of 1 s, agreement 0.3 s a tensor: two at 1 s go at 1.6, the next cycle is at 2 s.

    With 0.8 s a tensor they go at 2.6 s, and the third, there by then, after another 0.8 s.
    """
    gradients = tensors(0.5, 1.0, 1.5)
    quick = made(
        "threshold", gradients, None, negotiation_s=lambda n: 0.3 * n, cycle_time="1s", hook="9s"
    )
    assert names(quick) == ["01", "2"]
    assert [ready_s for _, ready_s in quick] == pytest.approx([1.6, 2.3])
    slow = made(
        "threshold", gradients, None, negotiation_s=lambda n: 0.8 * n, cycle_time="1s", hook="9s"
    )
    assert [ready_s for _, ready_s in slow] == pytest.approx([2.6, 3.4])


def test_threshold_without_cycles_sends_what_is_there() -> None:
    """Each is pushed when the GPU has made it; two at one moment go together."""
    found = made("threshold", tensors(0.5, 0.5, 2.0), cycle_time="0s", hook="9s")
    assert names(found) == ["01", "2"]
    assert [ready_s for _, ready_s in found] == [0.5, 2.0]


def test_threshold_skips_cycles_that_find_nothing() -> None:
    """Hooks at 1 and 2 s, 0.5 s ahead of the GPU: pushed at 0.5 and 1.5; cycles from -0.5 s on."""
    found = made("threshold", tensors(3.0, 3.5), cycle_time="0.4s", hook="1s", ahead="0.5s")
    assert names(found) == ["0", "1"]
    assert [ready_s for _, ready_s in found] == pytest.approx([3.0, 3.5])
    found = made("threshold", tensors(0.1, 3.5), cycle_time="0.4s", hook="1s", ahead="0.5s")
    assert [ready_s for _, ready_s in found] == pytest.approx([0.3, 3.5])
