"""The training schemes of the emulated jobs, each written after its own description."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from perfsim.compute.profile import Gradient, Profile
from perfsim.fusion.buckets import Bucket, fill
from support.emulated.engine import Engine, ring_reduce_scatter
from support.emulated.select_time import select_s

__all__ = ["SCHEMES"]

FLOAT_BYTES = 4


class Plain:
    """PyTorch's DDP as it is, its own buckets and no hook."""

    period = 1

    def __init__(self, case: dict[str, Any], profile: Profile, net: Any, optimizer: Any) -> None:
        self._net = DistributedDataParallel(net, bucket_cap_mb=case["bucket_mb"])
        self._optimizer = optimizer

    def step(self, x: Any, number: int) -> None:
        """Train one iteration."""
        self._optimizer.zero_grad(set_to_none=True)
        self._net(x).sum().backward()
        self._optimizer.step()

    def stop(self) -> None:
        """Leave DDP to the garbage collector."""


class Bucketed:
    """Buckets of a size in the order of readiness, their messages on one stream."""

    period = 1
    blocks = False

    def __init__(self, case: dict[str, Any], profile: Profile, net: Any, optimizer: Any) -> None:
        self.case, self.profile, self._net, self._optimizer = case, profile, net, optimizer
        self.options = case.get("options", {})
        self.number = 0
        self.buffers: dict[Any, Any] = {}
        self._engines = [
            Engine(net.held, buckets, self.compute, self.send, blocks=self.blocks)
            for buckets in self.plans()
        ]

    def plans(self) -> list[list[Bucket]]:
        """Return the buckets of each iteration of a period."""
        ordered = self.profile.in_ready_order()
        limit = self.case["bucket_mb"] * 2**20
        return [fill(ordered, lambda gradient: gradient.size_bytes, limit)]

    def compute(self, bucket: Bucket) -> float:
        """Return the seconds of a bucket's kernels."""
        return 0.0

    def send(self, bucket: Bucket) -> None:
        """Communicate a bucket."""
        dist.all_reduce(self.buffer("dense", bucket.elements))

    def step(self, x: Any, number: int) -> None:
        """Train one iteration."""
        self.number = number
        engine = self._engines[number % len(self._engines)]
        engine.begin()
        self._optimizer.zero_grad(set_to_none=True)
        self._net(x).sum().backward()
        engine.wait()
        self._optimizer.step()

    def stop(self) -> None:
        """Take the hooks away."""
        for engine in self._engines:
            engine.stop()

    def buffer(self, name: str, elements: int) -> Any:
        """Return a buffer of so many floats, made once."""
        return self.buffers.setdefault((name, elements), torch.zeros(max(1, elements)))


class Half(Bucketed):
    """Half the bytes: an all-reduce of fp16, carried as half as many fp32 values."""

    def send(self, bucket: Bucket) -> None:
        """Communicate a bucket."""
        dist.all_reduce(self.buffer("half", -(-bucket.elements // 2)))


class TopK(Bucketed):
    """Values and indices of the k largest of a bucket, two all-gathers."""

    def kept(self, bucket: Bucket) -> int:
        """Return k."""
        return max(1, math.ceil(bucket.elements * self.options["density"]))

    def compute(self, bucket: Bucket) -> float:
        """Select."""
        return select_s(bucket.elements)

    def send(self, bucket: Bucket) -> None:
        """Communicate a bucket."""
        kept, ranks = self.kept(bucket), dist.get_world_size()
        for name in ("values", "indices"):
            parts = list(self.buffer(f"all {name}", kept * ranks).split(kept))
            dist.all_gather(parts, self.buffer(name, kept))


class PowerSgd(Bucketed):
    """PyTorch's hook: what is not compressed, then P, then Q; the backward pass waits."""

    blocks = True

    def send(self, bucket: Bucket) -> None:
        """Communicate a bucket."""
        rank = self.options["rank"]
        left = sent_p = sent_q = 0
        for gradient in bucket.gradients:
            rows, columns = gradient.matrix
            if len(gradient.shape) > 1 and (rows + columns) * rank * 2 < gradient.elements:
                sent_p += rows * rank
                sent_q += columns * rank
            else:
                left += gradient.elements
        for name, elements in (("left", left), ("p", sent_p), ("q", sent_q)):
            if elements:
                dist.all_reduce(self.buffer(name, elements))


class AcpSgd(Bucketed):
    """P of every matrix in even iterations, Q in odd ones, with the vectors of the bucket."""

    period = 2

    def plans(self) -> list[list[Bucket]]:
        """Return buckets of P and of Q: the limit is scaled by compressed over full size."""
        ordered = self.profile.in_ready_order()
        full = sum(gradient.size_bytes for gradient in ordered)
        plans = []
        for turn in (0, 1):
            size = self._size(turn)
            limit = self.case["bucket_mb"] * 2**20 * sum(map(size, ordered)) / full
            plans.append(fill(ordered, size, limit))
        return plans

    def send(self, bucket: Bucket) -> None:
        """Communicate a bucket."""
        size = self._size(self.number % 2)
        dist.all_reduce(self.buffer("factor", int(sum(map(size, bucket.gradients)) // FLOAT_BYTES)))

    def _size(self, turn: int) -> Callable[[Gradient], float]:
        rank = self.options["rank"]

        def size(gradient: Gradient) -> float:
            if len(gradient.shape) < 2:
                return gradient.size_bytes
            return float(FLOAT_BYTES * gradient.matrix[turn] * min(rank, *gradient.matrix))

        return size


class Periodic:
    """Local steps; after every ``interval`` of them the whole model is averaged."""

    def __init__(self, case: dict[str, Any], profile: Profile, net: Any, optimizer: Any) -> None:
        self.period = case["options"]["interval"]
        self._net, self._optimizer = net, optimizer
        self._whole = torch.zeros(profile.elements)

    def step(self, x: Any, number: int) -> None:
        """Train one iteration."""
        self._optimizer.zero_grad(set_to_none=True)
        self._net(x).sum().backward()
        self._optimizer.step()
        if number % self.period == self.period - 1:
            dist.all_reduce(self._whole)

    def stop(self) -> None:
        """Nothing to stop."""


class DeAr(Bucketed):
    """Reduce-scatter in the backward pass, all-gather in the next forward, bucket by bucket."""

    def __init__(self, case: dict[str, Any], profile: Profile, net: Any, optimizer: Any) -> None:
        super().__init__(case, profile, net, optimizer)
        self._gathered: dict[int, Any] = {}
        firsts: dict[int, list[int]] = {}
        for index, bucket in enumerate(self._engines[0].buckets):
            first = min(gradient.layer for gradient in bucket.gradients)
            firsts.setdefault(first, []).append(index)
        for layer, indices in firsts.items():
            net[layer].register_forward_pre_hook(self._waits(indices))

    def send(self, bucket: Bucket) -> None:
        """Reduce-scatter a bucket."""
        ring_reduce_scatter(self.buffer("dense", bucket.elements))

    def step(self, x: Any, number: int) -> None:
        """Train one iteration; its all-gathers end in the next."""
        engine = self._engines[0]
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._net(x).sum()
        engine.begin()
        loss.backward()
        engine.wait()
        for index in reversed(range(len(engine.buckets))):
            bucket = engine.buckets[index]
            self._gathered[index] = engine.stream.put(lambda bucket=bucket: self._gather(bucket))
        self._optimizer.step()

    def _gather(self, bucket: Bucket) -> None:
        part = -(-bucket.elements // dist.get_world_size())
        whole = self.buffer("gathered", part * dist.get_world_size())
        dist.all_gather(list(whole.split(part)), self.buffer("shard", part))

    def _waits(self, indices: Sequence[int]) -> Callable[..., None]:
        def waits(*_: Any) -> None:
            for index in indices:
                if index in self._gathered:
                    self._gathered.pop(index).wait()

        return waits


SCHEMES = {
    "ddp": Plain,
    "ssgd": Bucketed,
    "fp16": Half,
    "topk": TopK,
    "powersgd": PowerSgd,
    "acpsgd": AcpSgd,
    "cpsgd": Periodic,
    "dear": DeAr,
}
