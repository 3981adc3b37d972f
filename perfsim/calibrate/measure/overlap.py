"""``perfsim calibrate kernels --beside``: how far an all-reduce slows computation down.

Every rank of a job computes, alone and while all-reduces run beside it.
"""

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

CALIBRATE_OVERLAP_SCHEMA = "perfsim/calibrate-beside/1"
LOOP_S = {"cuda": 0.05, "cpu": 0.2}
"""Length of a loop of computation [s]: many calls, so that its ends do not matter.
No source: chosen."""
MESSAGE_BYTES = 25 * 2**20
"""The bucket of PyTorch's DDP by default (bucket_cap_mb=25)."""
LOOPS = 11
"""Loops of each kind, whose median counts. No source: chosen."""
FIRST_MESSAGES = 1
MAX_MESSAGES = 4096
"""All-reduces beside a loop: they double from the first to the most. One is enough on slow links,
where it lasts longer than any loop. No source: chosen."""
JOIN_S = 300
"""How long ranks may take to join and to answer [s]. No source: chosen."""


@dataclass(frozen=True, slots=True)
class SlowedComputation:
    """One loop of computation, alone and beside all-reduces [s]; the slowest rank's medians."""

    computation: str
    alone_s: float
    beside_s: float

    @property
    def factor(self) -> float:
        """How many times as long the loop takes beside all-reduces."""
        return self.beside_s / self.alone_s


@dataclass(frozen=True, slots=True)
class OverlapMeasurement:
    """The slowdowns that all ranks measured."""

    device: str
    backend: str
    ranks: int
    slowed: tuple[SlowedComputation, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the object that the command prints as JSON."""
        return {
            "schema": CALIBRATE_OVERLAP_SCHEMA,
            "device": self.device,
            "backend": self.backend,
            "ranks": self.ranks,
            "computations": [
                {
                    "computation": loop.computation,
                    "alone_s": loop.alone_s,
                    "beside_s": loop.beside_s,
                    "slowdown": loop.factor,
                }
                for loop in self.slowed
            ],
        }

    def report(self) -> str:
        """Return the lines that the command prints."""
        lines = [f"{self.ranks} ranks, {self.backend}, {self.device}: beside all-reduces of 25 MiB"]
        for loop in self.slowed:
            times = f"{format_seconds(loop.alone_s)} alone, {format_seconds(loop.beside_s)} beside"
            lines.append(f"{loop.computation}: {loop.factor:.3f} times as long ({times})")
        backward = self.slowed[0]
        lines.append(f"use: overlap_slowdown = {max(1.0, backward.factor):.3f} in a scenario file")
        return "\n".join(lines)


def measure_overlap(device: str | None = None) -> OverlapMeasurement | None:
    """Measure on all ranks of a torchrun job; rank 0 gets the result, others None.

    Computation runs on its own stream: first alone, then after several all-reduces were handed to
    the library (nccl: its own streams; gloo: its own threads). The last all-reduce must still run
    when the computation ends. If it does not, their number doubles and the loop runs again. So
    all of the computation has communication beside it. On CPUs both share the cores: there the
    factor holds for this machine and its number of threads only.

    Parameters
    ----------
    device : cuda or cpu; None is a GPU if there is one

    Raises
    ------
    RequestError
        If this is no job of two ranks or more, a rank has no GPU of its own, or messages run out
        before the computation does.
    """
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    rank, world_size, local_rank = (_launch_variable(name) for name in names)
    if world_size < 2:
        why = "computation beside communication needs 2 ranks or more."
        raise RequestError("", why, value=world_size, source="WORLD_SIZE")
    kernel_device = KernelDevice(device)
    torch = kernel_device.torch
    if kernel_device.gpu:
        if local_rank >= torch.cuda.device_count():
            raise RequestError("beside", f"local rank {local_rank} has no GPU of its own.")
        torch.cuda.set_device(local_rank)
    else:
        torch.set_num_threads(1)
    backend = "nccl" if kernel_device.gpu else "gloo"
    dist = torch.distributed
    try:
        dist.init_process_group(backend, timeout=timedelta(seconds=JOIN_S))
        job = _Job(kernel_device, dist)
        slowed = tuple(job.slowed(name, make(kernel_device)) for name, make in COMPUTATIONS.items())
        dist.barrier()
    except RuntimeError as error:
        first = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise RequestError("beside", f"the job broke off on rank {rank}: {first[:200]}.") from None
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    if rank:
        return None
    return OverlapMeasurement(kernel_device.driver_name, backend, world_size, slowed)


def _launch_variable(name: str) -> int:
    value = os.environ.get(name, "")
    if not value.isdecimal():
        raise RequestError(
            "",
            "not set; start every rank with torchrun --nproc-per-node 2 -m perfsim calibrate"
            " kernels --beside.",
            value=value,
            source=name,
        )
    return int(value)


class _Job:
    """The loops of all ranks, in step: ranks decide alike, by the slowest rank's times."""

    def __init__(self, device: KernelDevice, dist: Any) -> None:
        self.device, self.dist = device, dist
        self.message = device.torch.zeros(MESSAGE_BYTES // 4, device=device.device)
        self.messages = FIRST_MESSAGES

    def slowed(self, name: str, call: Call) -> SlowedComputation:
        """Return one computation's times: alone and beside in turn, so that a drift meets both."""
        call()
        self.dist.all_reduce(self.message)
        self._alone_s(call, 3)
        call_s = self._greatest(self._alone_s(call, 3)) / 3
        calls = max(1, round(LOOP_S[self.device.device] / call_s))
        alone: list[float] = []
        beside: list[float] = []
        while len(beside) < LOOPS:
            self.dist.barrier()
            alone_s = self._greatest(self._alone_s(call, calls))
            self.dist.barrier()
            beside_s, covered = self._beside_s(call, calls)
            if self._greatest(0.0 if covered else 1.0):
                self.messages *= 2
                if self.messages > MAX_MESSAGES:
                    raise RequestError(
                        "beside", f"{MAX_MESSAGES} all-reduces of 25 MiB end before {name} does."
                    )
                continue
            alone.append(alone_s)
            beside.append(self._greatest(beside_s))
        return SlowedComputation(name, median(alone), median(beside))

    def _alone_s(self, call: Call, calls: int) -> float:
        self.device.clock.wait()
        return self._loop_s(call, calls)

    def _beside_s(self, call: Call, calls: int) -> tuple[float, bool]:
        """Return the loop's time after all-reduces began, and whether it ended before them."""
        self.device.clock.wait()
        works = [self.dist.all_reduce(self.message, async_op=True) for _ in range(self.messages)]
        seconds = self._loop_s(call, calls)
        covered = not works[-1].is_completed()
        for work in works:
            work.wait()
        self.device.clock.wait()
        return seconds, covered

    def _loop_s(self, call: Call, calls: int) -> float:
        """Return the time of a loop on the current stream, whatever other streams do."""
        if not self.device.gpu:
            begun = time.perf_counter()
            for _ in range(calls):
                call()
            return time.perf_counter() - begun
        first, last = (self.device.torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(calls):
            call()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) / 1e3

    def _greatest(self, value: float) -> float:
        """Return the greatest of all ranks' values."""
        values = self.device.torch.tensor([value], device=self.device.device)
        self.dist.all_reduce(values, self.dist.ReduceOp.MAX)
        return float(values.item())


def _convolution(device: KernelDevice) -> Call:
    """Return the backward pass of a middle convolution of ResNet-50, batch 128 (CPU: 1)."""
    torch = device.torch
    images = device.normal(128 if device.gpu else 1, 128, 28, 28).requires_grad_()
    weight = (device.normal(128, 128, 3, 3) * 0.03).requires_grad_()
    out = torch.nn.functional.conv2d(images, weight, padding=1)
    gradient = torch.ones_like(out)
    return lambda: torch.autograd.grad(out, (images, weight), gradient, retain_graph=True)


def _product(device: KernelDevice) -> Call:
    side = 2048 if device.gpu else 256
    a, b = device.normal(side, side), device.normal(side, side)
    return lambda: a @ b


def _add(device: KernelDevice) -> Call:
    a, b = (device.normal(2**26 if device.gpu else 2**22) for _ in range(2))
    return lambda: a.add_(b)


COMPUTATIONS: dict[str, Callable[[KernelDevice], Call]] = {
    "convolution backward": _convolution,
    "matrix product": _product,
    "element-wise add": _add,
}
"""The first one's slowdown is the factor that a scenario takes."""
