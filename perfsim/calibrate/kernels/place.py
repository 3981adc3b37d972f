"""Where kernels run: a device, its name, its software, and random inputs on it."""

from __future__ import annotations

import os
from typing import Any

from perfsim.calibrate.compute.clock import Clock, CpuClock, CudaClock
from perfsim.calibrate.torch_device import torch_device

__all__ = ["Place"]


class Place:
    """A device of PyTorch, with a clock of its own and inputs that are the same every time.

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
        self.clock: Clock = CudaClock() if self.gpu else CpuClock()
        self._random = torch.Generator(device=device).manual_seed(1)

    def normal(self, *shape: int) -> Any:
        """Return fp32 values of a normal distribution: gradients stand in by them."""
        return self.torch.randn(*shape, device=self.device, generator=self._random)

    def places(self, count: int, below: int) -> Any:
        """Return so many random places (int64, which PyTorch's indexing takes)."""
        return self.torch.randint(below, (count,), device=self.device, generator=self._random)

    def empty(self) -> None:
        """Give memory of past inputs back to the device."""
        if self.gpu:
            self.torch.cuda.empty_cache()

    @property
    def word(self) -> str:
        """What the driver calls the device."""
        return str(self.torch.cuda.get_device_name()) if self.gpu else "cpu"

    @property
    def memory_bytes(self) -> int:
        """Memory of the device, as the driver (of a CPU: the system) tells it [B]."""
        if self.gpu:
            return int(self.torch.cuda.get_device_properties(0).total_memory)
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    @property
    def software(self) -> str:
        """Versions that decide what a kernel takes."""
        torch = self.torch
        if self.gpu:
            driver = getattr(torch._C, "_cuda_getDriverVersion", lambda: 0)()
            return f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, driver API {driver}"
        return f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads"

    def precisions(self) -> tuple[str, ...]:
        """Return the precisions whose matrix products are worth measuring here."""
        if not self.gpu:
            return ("fp32",)
        newer = self.torch.cuda.get_device_capability()[0] >= 8
        return ("fp32", "tf32", "amp-fp16", "amp-bf16") if newer else ("fp32", "amp-fp16")
