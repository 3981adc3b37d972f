"""PyTorch and the device that it computes on, or one sentence that says why not."""

from __future__ import annotations

from typing import Any

from perfsim.errors import RequestError, unknown

__all__ = ["DEVICES", "torch_device"]

DEVICES = ("cuda", "cpu")


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
            f"{command}: PyTorch is not installed; pip install 'perfsim[calibrate]'."
        ) from None
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device not in DEVICES:
        raise unknown("--device", device, DEVICES)
    if device == "cuda" and not torch.cuda.is_available():
        raise RequestError("--device: cuda, but PyTorch sees no GPU here.")
    return torch, device
