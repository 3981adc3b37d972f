"""The device at hand: what PyTorch runs on, its name, its clock, and inputs for its kernels."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any, Protocol

from perfsim.compute.device import device_named
from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError, unknown
from perfsim.sums import sum_in_order

__all__ = [
    "TORCH_DEVICES",
    "CpuClock",
    "CudaClock",
    "DeviceClock",
    "KernelDevice",
    "device_name",
    "process_waited_s",
    "torch_device",
    "waited_for_core_s",
]

TORCH_DEVICES = ("cuda", "cpu")
_SCHEDULE = Path("/proc/thread-self/schedstat")
_TASKS = Path("/proc/self/task")

MAKER_WORDS = frozenset({"nvidia", "tesla", "quadro", "geforce", "graphics", "device"})
"""Words of a driver's name for a GPU that are left out of the name of one without a file."""
_BETWEEN_WORDS = re.compile(r"[^a-z0-9]+")


def torch_device(command: str, device: str | None) -> tuple[Any, str]:
    """Return the torch module and the device asked for; None is a GPU if PyTorch sees one.

    Raises
    ------
    RequestError
        If PyTorch is not installed, or has no such device.
    """
    try:
        import torch
    except ImportError:
        raise RequestError(
            "",
            "PyTorch is not installed; pip install 'perfsim[calibrate]'.",
            source=command,
        ) from None
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device not in TORCH_DEVICES:
        raise unknown("device", device, TORCH_DEVICES)
    if device == "cuda" and not torch.cuda.is_available():
        raise RequestError("device", "cuda, but PyTorch sees no GPU here.", value=device)
    return torch, device


def device_name(driver_name: str, catalog: Catalog) -> str:
    """Return perfsim's name of a device, from the name that its driver gives it.

    A GPU without a file is called as its driver does, without the maker's words.

    Examples
    --------
    >>> words = "Tesla V100-PCIE-32GB", "NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 4090 Ti"
    >>> [device_name(one, Catalog()) for one in words]
    ['v100-pcie', 'a100', 'rtx-4090-ti']
    """
    if name := device_named(driver_name, catalog):
        return name
    words = [word for word in _BETWEEN_WORDS.split(driver_name.lower()) if word]
    return "-".join(word for word in words if word not in MAKER_WORDS)[:64] or "device"


def waited_for_core_s(schedule: Path = _SCHEDULE) -> float | None:
    """Return how long this thread has been ready to run without a core [s]; None off Linux.

    References
    ----------
    Linux, Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat: time on a core, time on a
    run queue, turns [ns, ns, 1].
    """
    try:
        return int(schedule.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def process_waited_s(tasks: Path = _TASKS) -> float:
    """Return how long the threads of this process have been ready without a core [s]; 0 off Linux.

    The time of threads that have ended is lost.
    """
    waited = (waited_for_core_s(task / "schedstat") for task in tasks.glob("*"))
    return sum_in_order(each_s or 0.0 for each_s in waited)


class DeviceClock(Protocol):
    """A clock that marks moments without waiting for the device."""

    def mark(self) -> Any:
        """Return a mark of now, on the device's own time line."""
        ...

    def wait(self) -> None:
        """Wait until the device has done everything."""
        ...

    def between(self, first: Any, last: Any) -> float:
        """Return the time between two marks, after `wait` [s]."""
        ...


class CpuClock:
    """The processor's clock: work is done when the call returns."""

    def mark(self) -> float:
        """Return the clock's reading [s]."""
        return time.perf_counter()

    def wait(self) -> None:
        """Do nothing: there is nothing to wait for."""

    def between(self, first: float, last: float) -> float:
        """Return the time between two marks [s]."""
        return last - first


class CudaClock:
    """CUDA events on the current stream; recording one takes microseconds of the host."""

    def __init__(self) -> None:
        import torch

        self._cuda = torch.cuda

    def mark(self) -> Any:
        """Record an event."""
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self) -> None:
        """Wait for the device."""
        self._cuda.synchronize()

    def between(self, first: Any, last: Any) -> float:
        """Return the time between two events [s]."""
        return float(first.elapsed_time(last)) / 1e3


class KernelDevice:
    """A device of PyTorch, with its clock and with inputs that are the same in every run.

    Parameters
    ----------
    device : "cuda" or "cpu"; None is a GPU if PyTorch sees one

    Raises
    ------
    RequestError
        If PyTorch is not installed, or has no such device.
    """

    def __init__(self, device: str | None = None) -> None:
        torch, device = torch_device("calibrate kernels", device)
        self.torch, self.device, self.gpu = torch, device, device == "cuda"
        torch.backends.cuda.matmul.allow_tf32 = False
        self.clock: DeviceClock = CudaClock() if self.gpu else CpuClock()
        self._random = torch.Generator(device=device).manual_seed(1)

    def normal(self, *shape: int) -> Any:
        """Return fp32 values of a normal distribution, in place of gradients."""
        return self.torch.randn(*shape, device=self.device, generator=self._random)

    def random_indices(self, count: int, below: int) -> Any:
        """Return ``count`` random indices (int64, which PyTorch's indexing takes)."""
        return self.torch.randint(below, (count,), device=self.device, generator=self._random)

    def free_memory(self) -> None:
        """Give the memory of past inputs back to the device."""
        if self.gpu:
            self.torch.cuda.empty_cache()

    @property
    def driver_name(self) -> str:
        """What the driver calls the device."""
        return str(self.torch.cuda.get_device_name()) if self.gpu else "cpu"

    @property
    def memory_bytes(self) -> int:
        """Memory of the device, as its driver says (of a CPU: the system) [B]."""
        if self.gpu:
            return int(self.torch.cuda.get_device_properties(0).total_memory)
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    @property
    def software(self) -> str:
        """The versions that decide how long a kernel takes."""
        torch = self.torch
        if self.gpu:
            driver = getattr(torch._C, "_cuda_getDriverVersion", lambda: 0)()
            versions = f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}"
            return f"{versions}, driver API {driver}" if driver else versions
        return f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads"

    def precisions(self) -> tuple[str, ...]:
        """Return the precisions whose matrix products are measured on this device."""
        if not self.gpu:
            return ("fp32",)
        ampere_or_newer = self.torch.cuda.get_device_capability()[0] >= 8
        return ("fp32", "tf32", "amp-fp16", "amp-bf16") if ampere_or_newer else ("fp32", "amp-fp16")
