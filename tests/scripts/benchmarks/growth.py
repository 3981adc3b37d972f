"""How the cost of a prediction grows: with tensors and buckets, and not with GPUs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from perfsim.data.catalog import Catalog
from perfsim.fusion.buckets import Bucket
from perfsim.prediction import predict
from perfsim.resolve import Setup, resolve
from perfsim.scenario import make_scenario
from perfsim.schedule.rounds import schedule
from perfsim.what_if import steady_s
from scripts.benchmarks.row import Row, least_cpu_s

GPUS = (8, 16, 64, 256, 1024, 4096, 16384)
COPIES = (1, 2, 4, 8, 16)
FLAT = 1.5
"""Times as long with 16,384 GPUs as with 8."""
LINEAR = 1.5
"""Times the milliseconds a tensor of the largest over those of the smallest."""
MODEL: dict[str, Any] = {"model": "resnet50", "net": "10gbe", "gpus_per_node": 8}


def rows() -> Iterator[Row]:
    """Yield the milliseconds by GPUs, then by tensors with as many buckets."""
    for method in ("ssgd", "dgc"):
        taken_ms = []
        for gpus in GPUS:
            asked = make_scenario({**MODEL, "gpus": gpus, "method": method})
            taken_ms.append(1e3 * least_cpu_s(partial(predict, asked)))
            yield Row(f"predict() resnet50, {method}, {gpus:,} GPUs", taken_ms[-1], "ms")
        ratio = taken_ms[-1] / taken_ms[0]
        yield Row(f"    {GPUS[-1]:,} GPUs over {GPUS[0]}, {method}", ratio, "times", FLAT)
    resolved = resolve(make_scenario({**MODEL, "gpus": 64, "fusion": "none"}), Catalog())
    each_us = []
    for copies in COPIES:
        longer = _longer(resolved, copies)
        tensors = len(longer.profile.gradients)
        with _no_collection():
            taken_ms = 1e3 * least_cpu_s(partial(_evaluated, longer), 7)
        each_us.append(1e3 * taken_ms / tensors)
        note = f"{each_us[-1]:.1f} us each"
        yield Row(f"{tensors:,} tensors in as many buckets", taken_ms, "ms", note=note)
    ratio = each_us[-1] / each_us[0]
    yield Row(f"    a tensor of {COPIES[-1]} times as many over one", ratio, "times", LINEAR)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Measure as timeit does: what the collector looks through is whatever else was made before."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _longer(resolved: Setup, copies: int) -> Setup:
    """Return the scenario with a model whose layers stand there several times."""
    profile = resolved.profile
    length_s, width = profile.backward_s, len(profile.layers)
    gradients = [
        replace(
            one,
            name=f"{copy}.{one.name}",
            layer=one.layer + copy * width,
            ready_s=one.ready_s + (copies - 1 - copy) * length_s,
        )
        for copy in range(copies)
        for one in profile.gradients
    ]
    longer = replace(
        profile,
        gradients=tuple(gradients),
        layers=profile.layers * copies,
        iteration_s=profile.iteration_s * copies,
        optimizer_s=profile.optimizer_s * copies,
    )
    return replace(resolved, transferred=resolved.transferred._replace(profile=longer))


def _evaluated(resolved: Setup) -> float:
    """Return the iteration of ssgd, a bucket a tensor [s]."""
    plans = schedule(
        resolved.profile,
        resolved.method,
        lambda gradients, context: [Bucket.of([one]) for one in gradients],
        resolved.device,
        resolved.cluster,
    )
    return steady_s(plans)
