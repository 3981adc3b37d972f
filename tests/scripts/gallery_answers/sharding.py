"""Language models that GPUs share: FSDP, ZeRO, HSDP, tensor parallelism, and how they scale."""

from __future__ import annotations

from typing import Any

from perfsim.units import format_bytes, format_seconds
from scripts.gallery_found import (
    by_axes,
    each,
    fits,
    measured_each,
    overlap,
    rate,
    samples,
    seconds,
)


def fsdp_on_ethernet(asked: Any) -> str:
    """Return what 100 Gbit/s keeps of 1600 by micro-batch, and that 400 are enough."""
    of = by_axes(asked)
    assert all(map(fits, of.values()))
    batches = ("2", "6", "18")
    kept = {batch: rate(of["a2", batch]) / rate(of["oci-a100", batch]) for batch in batches}
    enough = min(rate(of["p4d", batch]) / rate(of["oci-a100", batch]) for batch in kept)
    times = sorted(seconds(of["a2", batch]) for batch in kept)
    assert list(kept.values()) == sorted(kept.values()) and kept["2"] < 0.2 and kept["18"] > 0.75
    assert times[-1] < 1.1 * times[0] and enough > 0.9
    row = of["oci-a100", "18"]
    assert overlap(of["a2", "18"], row) and not overlap(of["a2", "2"], of["oci-a100", "2"])
    return (
        f"It pays with a large batch alone. Over 100 GbE 64 GPUs keep {kept['2']:.0%} of their rate"
        f" over 1600 Gbit/s with micro-batch 2, {kept['6']:.0%} with 6 and {kept['18']:.0%} with"
        f" 18, where the intervals overlap. An iteration takes {format_seconds(times[0], 3)} to"
        f" {format_seconds(times[-1], 3)} in all three: every micro-batch sends as much, and only a"
        f" long one hides it. 400 Gbit/s a node keep {enough:.0%} or more. Measured over"
        f" 1600 Gbit/s with 18: {_beside(asked, row)}."
    )


def ddp_zero_or_fsdp(asked: Any) -> str:
    """Return who is ahead on either network, and what the saved memory is worth."""
    of = by_axes(asked)
    fast, slow = (
        {one: seconds(of[node, "6", one]) for one in ("ssgd", "zero", "fsdp")}
        for node in ("oci-a100", "a2")
    )
    apart = max(fast.values()) / min(fast.values()) - 1
    assert apart < 0.12 and slow["ssgd"] == min(slow.values())
    assert fast["ssgd"] == max(fast.values())
    assert all(fits(row) == (key[1:] != ("12", "ssgd")) for key, row in of.items())
    held = {one: format_bytes(float(of["a2", "6", one]["memory_bytes"]), 3) for one in fast}
    larger = rate(of["a2", "12", "fsdp"]) / rate(of["a2", "6", "ssgd"])
    shown = {one: float(of["a2", "6", one]["communication_exposed_s"]) for one in fast}
    assert larger > 1.2 and shown["ssgd"] == min(shown.values())
    assert all(overlap(of["a2", "6", "ssgd"], of["a2", "6", one]) for one in ("fsdp", "zero"))
    row = of["oci-a100", "12", "fsdp"]
    return (
        f"On a fast network FSDP, by little: over 1600 Gbit/s they are within {apart:.0%} of each"
        " other, and DDP (ssgd) is last, since each of its GPUs updates every parameter. Over"
        " 100 GbE DDP waits least for its messages, and is"
        f" {slow['fsdp'] / slow['ssgd']:.2f} times as fast as FSDP and"
        f" {slow['zero'] / slow['ssgd']:.2f} times as ZeRO-2, though the intervals overlap. But it"
        f" holds {held['ssgd']} where"
        f" they hold {held['fsdp']} and {held['zero']}: with micro-batch 12, which DDP has no"
        f" memory for, FSDP trains {larger:.2f} times as many samples a second over 100 GbE as DDP"
        f" with 6. Measured by FSDP over 1600 Gbit/s with 12: {_beside(asked, row)}."
    )


def does_hsdp_pay(asked: Any) -> str:
    """Return how many times as fast HSDP is by network and nodes."""
    of = by_axes(asked)
    assert all(map(fits, of.values()))
    gain = {
        (net, gpus): seconds(row) / seconds(of[net, "hybrid", gpus])
        for (net, shard, gpus), row in of.items()
        if shard == "full"
    }
    alike = max(abs(one - 1) for (net, _), one in gain.items() if net == "ib400")
    few = max(abs(gain["p4de", gpus] - 1) for gpus in ("16", "128"))
    assert gain["100gbe", "16"] > gain["100gbe", "128"] > 1.3 and gain["100gbe", "1024"] > 1.3
    assert max(alike, few) < 0.03 and gain["p4de", "1024"] > 1.3
    assert all(overlap(of[net, "full", gpus], of[net, "hybrid", gpus]) for net, gpus in gain)
    row = of["ib400", "hybrid", "128"]
    return (
        f"On slow networks from the second node on: over 100 GbE HSDP is"
        f" {gain['100gbe', '16']:.1f} times as fast on 2 nodes and"
        f" {gain['100gbe', '128']:.1f} times on 16. With 400 Gbit/s a node full sharding hides what"
        f" it sends, and HSDP gains nothing on 2 and 16 nodes (within {max(alike, few):.1%}). On"
        f" 128 it gains nothing over InfiniBand either, and is {gain['p4de', '1024']:.1f} times as"
        " fast over EFA, where the 1023 steps of a ring no longer hide. The intervals of the two"
        f" overlap everywhere. Measured by HSDP on 128 GPUs: {_beside(asked, row)}."
    )


def which_tp_70b(asked: Any) -> str:
    """Return the degree that trains most, and why not the others."""
    of = by_axes(asked)
    largest = {
        tp: max((int(batch) for (one, batch), row in of.items() if one == tp and fits(row)))
        for tp in ("4", "8")
    }
    assert not any(fits(row) for (tp, _), row in of.items() if tp == "2")
    best = {tp: of[tp, str(batch)] for tp, batch in largest.items()}
    least = format_bytes(float(of["2", "1"]["memory_bytes"]), 3)
    less = 1 - rate(best["8"]) / rate(best["4"])
    sent = {tp: float(row["sent_bytes_per_gpu"]) / samples(row) for tp, row in best.items()}
    assert less > 0.1 and sent["8"] > 1.5 * sent["4"]
    return (
        f"tp 4: {each(asked, best['4']):,.0f} tokens/s a GPU with micro-batch {largest['4']}, the"
        f" largest that fits. tp 2 does not fit at all ({least} with micro-batch 1). tp 8 has room"
        f" for micro-batch {largest['8']}, and trains {less:.0%} less all the same: a GPU sends"
        f" {sent['8'] / sent['4']:.1f} times as much a sample. Measured with tp 4:"
        f" {_beside(asked, best['4'])}."
    )


def is_my_scaling_normal(asked: Any) -> str:
    """Return what is kept of the rate on 8 GPUs, predicted and measured."""
    of = by_axes(asked)
    kept = {key: each(asked, row) / each(asked, of[key[0], "8"]) for key, row in of.items()}
    found = {key: measured_each(asked, row) for key, row in of.items()}
    real = {key: one / found[key[0], "8"] for key, one in found.items() if one is not None}
    off = [each(asked, of[key]) / found[key] - 1 for key in real]
    assert kept["8", "512"] > 0.95 and min(kept["8", gpus] for _, gpus in kept) > 0.95
    assert real["0", "256"] < 0.85 and real["8", "256"] > 0.95
    assert max(map(abs, off)) < 0.1
    return (
        f"It depends on the sharding. With the optimizer shared by all GPUs"
        f" {1 - real['0', '256']:.0%} of the rate on 8 GPUs are gone at 256"
        f" ({1 - kept['0', '256']:.0%} predicted, and {1 - kept['0', '512']:.0%} at 512): that is"
        f" normal. Shared inside the node {1 - real['8', '256']:.0%} are gone"
        f" ({1 - kept['8', '256']:.0%} predicted, {1 - kept['8', '512']:.0%} at 512), and a"
        f" loss of a tenth would not be normal. Predicted rates are {min(off):+.0%} to"
        f" {max(off):+.0%} off the {len(off)} measured ones."
    )


def _beside(asked: Any, row: Any) -> str:
    found = measured_each(asked, row)
    assert found is not None
    mid = each(asked, row)
    return f"{found:,.0f} tokens/s a GPU, predicted {mid:,.0f} ({mid / found - 1:+.1%})"
