"""How much longer computation takes while an all-reduce runs beside it, on every rank of a job."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from typing import Any

from perfsim.calibrate.measure.device import KernelDevice
from perfsim.calibrate.measure.kernel_benches import Call
from perfsim.errors import RequestError
from perfsim.units import format_seconds

__all__ = ["OverlapMeasurement", "SlowedComputation", "measure_overlap"]

OVERLAP_SCHEMA = "perfsim/calibrate-beside/1"
LOOP_S = {"cuda": 0.05, "cpu": 0.2}
"""Length of a loop of computation: many calls, so that its ends do not matter."""
MESSAGE_BYTES = 25 * 2**20
"""A message of DDP's usual bucket."""
REPEATS = 11
MOST_MESSAGES = 4096
PATIENCE_S = 300


@dataclass(frozen=True, slots=True)
class SlowedComputation:
    """One loop of computation, alone and beside all-reduces [s]; the slowest rank's medians."""

    computation: str
    alone_s: float
    beside_s: float

    @property
    def factor(self) -> float:
        """How many times as long it takes."""
        return self.beside_s / self.alone_s


@dataclass(frozen=True, slots=True)
class OverlapMeasurement:
    """What was found on all ranks."""

    device: str
    backend: str
    ranks: int
    slowed: tuple[SlowedComputation, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``calibrate kernels --beside --json`` prints."""
        return {
            "schema": OVERLAP_SCHEMA,
            "device": self.device,
            "backend": self.backend,
            "ranks": self.ranks,
            "computations": [
                {
                    "computation": one.computation,
                    "alone_s": one.alone_s,
                    "beside_s": one.beside_s,
                    "slowdown": one.factor,
                }
                for one in self.slowed
            ],
        }

    def report(self) -> str:
        """Return the lines that the command prints."""
        lines = [f"{self.ranks} ranks, {self.backend}, {self.device}: beside all-reduces of 25 MiB"]
        for one in self.slowed:
            times = f"{format_seconds(one.alone_s)} alone, {format_seconds(one.beside_s)} beside"
            lines.append(f"{one.computation}: {one.factor:.3f} times as long ({times})")
        backward = self.slowed[0]
        lines.append(f"use: overlap_slowdown = {max(1.0, backward.factor):.3f} in a scenario file")
        return "\n".join(lines)


def measure_overlap(device: str | None = None) -> OverlapMeasurement | None:
    """Measure on all ranks of a torchrun job; rank 0 gets the result, others None.

    Computation runs on its own stream, first alone, then after so many all-reduces have been
    handed to the library (nccl: streams of its own; gloo: threads of its own) that the last one is
    still under way when the computation ends: else there are more of them, and it runs again. So
    all of the computation had communication beside it. On CPUs both share the cores, so that the
    factor is one of this machine and its threads.

    Parameters
    ----------
    device : cuda or cpu; None is a GPU if there is one

    Raises
    ------
    RequestError
        If this is no job of two ranks or more, a rank has no GPU of its own, or messages run out
        before the computation does.
    """
    rank, world_size, local_rank = (_told(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    if world_size < 2:
        raise RequestError("WORLD_SIZE: computation beside communication needs 2 ranks or more.")
    place = KernelDevice(device)
    torch = place.torch
    if place.gpu:
        if local_rank >= torch.cuda.device_count():
            raise RequestError("beside", f"local rank {local_rank} has no GPU of its own.")
        torch.cuda.set_device(local_rank)
    else:
        torch.set_num_threads(1)
    backend = "nccl" if place.gpu else "gloo"
    dist = torch.distributed
    try:
        dist.init_process_group(backend, timeout=timedelta(seconds=PATIENCE_S))
        job = _Job(place, dist)
        slowed = tuple(job.slowed(name, make(place)) for name, make in COMPUTATIONS.items())
        dist.barrier()
    except RuntimeError as error:
        first = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise RequestError("beside", f"the job broke off on rank {rank}: {first[:200]}.") from None
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return OverlapMeasurement(place.word, backend, world_size, slowed) if rank == 0 else None


class _Job:
    """All ranks' loops, in step: each decision is of the slowest rank's times."""

    def __init__(self, place: KernelDevice, dist: Any) -> None:
        self.place, self.dist = place, dist
        self.message = place.torch.zeros(MESSAGE_BYTES // 4, device=place.device)
        self.messages = 4

    def slowed(self, name: str, call: Call) -> SlowedComputation:
        """Return one computation's times, alone and beside in turn so that a drift meets both."""
        call()
        self.dist.all_reduce(self.message)
        self._computed_s(call, 3)
        each_s = self._most(self._computed_s(call, 3)) / 3
        calls = max(1, round(LOOP_S[self.place.device] / each_s))
        alone: list[float] = []
        beside: list[float] = []
        while len(beside) < REPEATS:
            self.dist.barrier()
            alone_s = self._most(self._computed_s(call, calls))
            self.dist.barrier()
            beside_s, covered = self._beside_s(call, calls)
            if self._most(0.0 if covered else 1.0):
                self.messages *= 2
                if self.messages > MOST_MESSAGES:
                    raise RequestError(
                        "beside", f"{MOST_MESSAGES} all-reduces of 25 MiB end before {name} does."
                    )
                continue
            alone.append(alone_s)
            beside.append(self._most(beside_s))
        return SlowedComputation(name, median(alone), median(beside))

    def _computed_s(self, call: Call, calls: int) -> float:
        clock = self.place.clock
        clock.wait()
        return self._loop_s(call, calls)

    def _loop_s(self, call: Call, calls: int) -> float:
        """Return the time of a loop on the current stream, whatever other streams do."""
        if not self.place.gpu:
            begun = time.perf_counter()
            for _ in range(calls):
                call()
            return time.perf_counter() - begun
        first, last = (self.place.torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(calls):
            call()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) / 1e3

    def _beside_s(self, call: Call, calls: int) -> tuple[float, bool]:
        """Return the loop's time after all-reduces were begun, and whether it ended before them."""
        self.place.clock.wait()
        works = [self.dist.all_reduce(self.message, async_op=True) for _ in range(self.messages)]
        seconds = self._loop_s(call, calls)
        covered = not works[-1].is_completed()
        for work in works:
            work.wait()
        self.place.clock.wait()
        return seconds, covered

    def _most(self, value: float) -> float:
        """Return the greatest of all ranks' values."""
        told = self.place.torch.tensor([value], device=self.place.device)
        self.dist.all_reduce(told, self.dist.ReduceOp.MAX)
        return float(told.item())


def _convolution(place: KernelDevice) -> Call:
    """Return the backward pass of a middle convolution of ResNet-50, batch 128 (CPU: 1)."""
    torch = place.torch
    images = place.normal(128 if place.gpu else 1, 128, 28, 28).requires_grad_()
    weight = (place.normal(128, 128, 3, 3) * 0.03).requires_grad_()
    out = torch.nn.functional.conv2d(images, weight, padding=1)
    gradient = torch.ones_like(out)
    return lambda: torch.autograd.grad(out, (images, weight), gradient, retain_graph=True)


def _product(place: KernelDevice) -> Call:
    side = 2048 if place.gpu else 256
    one, two = place.normal(side, side), place.normal(side, side)
    return lambda: one @ two


def _stream(place: KernelDevice) -> Call:
    one, two = (place.normal(2**26 if place.gpu else 2**22) for _ in range(2))
    return lambda: one.add_(two)


COMPUTATIONS: dict[str, Callable[[KernelDevice], Call]] = {
    "convolution backward": _convolution,
    "matrix product": _product,
    "element-wise add": _stream,
}


def _told(name: str) -> int:
    value = os.environ.get(name, "")
    if not value.isdecimal():
        raise RequestError(
            name,
            "not set; start --beside as torchrun --nproc-per-node 2 -m perfsim calibrate"
            " kernels `beside`.",
        )
    return int(value)
