"""The link between a GPU and memory of its host, PCIe or NVLink-C2C, and copies over it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from perfsim.compute.kernel import Kernel
from perfsim.errors import RequestError

__all__ = [
    "MAX_LANES",
    "HostLink",
    "WithHost",
    "copied_in",
    "copied_out",
    "host_link",
    "link_words",
    "rate_of_copy",
]

MAX_LANES = 16
"""Lanes of PCIe that a board has at most, and most boards have."""


class WithHost(Protocol):
    """What may have a link to its host: a GPU, with the generation of its PCIe or its C2C."""

    @property
    def name(self) -> str:
        """The name that errors say."""

    @property
    def pcie(self) -> int | None:
        """The generation; None where none is stated."""

    @property
    def pcie_lanes(self) -> int:
        """How many lanes of it the board has."""

    @property
    def c2c_gpus(self) -> int | None:
        """How many GPUs share the NVLink-C2C of a Grace; None without one."""


class HostLink(NamedTuple):
    """What a GPU reaches from its memory to pinned memory of its host, and back [B/s]."""

    out: float
    back: float


_LINKS = {3: HostLink(13.1e9, 12.4e9), 4: HostLink(25.7e9, 25.8e9), 5: HostLink(54.2e9, 54.3e9)}
"""By generation of PCIe, 16 lanes: copies of 1 GB in pinned memory by bandwidthTest, on a cluster
with PCIe 3 and on an A100 (jdh4/della-gpu-A100 README.md, TIGER and DELLA); of 1.07 GB by PyTorch
on an H100 (profiles/devices/h100.kernels.csv, copy_to_host and copy_to_gpu). Two GPUs behind one
switch would share it: no node type says which do."""


_C2C = HostLink(346e9 / 1.15, 346e9)
"""NVLink-C2C between a Grace and a Hopper, 450 GB/s a direction by its data sheet: copy engines of
a GH200 reach 346 GB/s from the host, 15 % more than to it (NVIDIA/nvbandwidth issue 23). Where two
Blackwells share a Grace's, which is as fast by its data sheet (900 GB/s, both directions), each has
half of it; that was not measured."""


def host_link(device: WithHost) -> HostLink:
    """Return the link of a GPU to its host.

    Eight lanes of a generation carry as many bytes a second as sixteen of the one before it, by
    which a board with eight is priced.

    Raises
    ------
    RequestError
        If its file names no NVLink-C2C and no generation of PCIe whose rate is known.
    """
    if device.c2c_gpus:
        return HostLink(_C2C.out / device.c2c_gpus, _C2C.back / device.c2c_gpus)
    as_wide = device.pcie and device.pcie - (device.pcie_lanes < MAX_LANES)
    if as_wide not in _LINKS:
        known = ", ".join(map(str, _LINKS))
        said = f"PCIe {device.pcie}" if device.pcie else "no generation of PCIe"
        why = (
            f"copies to the host go over PCIe; the file of {device.name} names {said}, and copies"
            f" were measured over generations {known}. Leave it out."
        )
        raise RequestError("offload", why)
    return _LINKS[as_wide]


def link_words(device: WithHost) -> str:
    """Return what joins a GPU to its host, as a reader knows it."""
    if device.c2c_gpus == 1:
        return "NVLink-C2C"
    return f"NVLink-C2C, shared by {device.c2c_gpus}" if device.c2c_gpus else f"PCIe {device.pcie}"


_OUT, _IN = "offload_out", "offload_in"
"""Names of copies that are priced by the link alone: no device has points of them."""


def copied_out(size_bytes: float, copies: int = 1) -> Kernel:
    """Return the copy of so many bytes from a GPU to pinned memory, in so many calls."""
    return Kernel(_OUT, round(size_bytes), size_bytes, launches=copies)


def copied_in(size_bytes: float, copies: int = 1) -> Kernel:
    """Return the copy of so many bytes from pinned memory to a GPU, in so many calls.

    Examples
    --------
    >>> copied_in(54.3e6).name, copied_in(54.3e6).moved_bytes
    ('offload_in', 54300000.0)
    """
    return Kernel(_IN, round(size_bytes), size_bytes, launches=copies)


def rate_of_copy(kernel: Kernel, device: WithHost) -> float | None:
    """Return how fast such a copy goes [B/s]; None for a kernel that is none.

    Raises
    ------
    RequestError
        If it is one, and the link of the GPU is not known.
    """
    if kernel.name not in (_OUT, _IN):
        return None
    link = host_link(device)
    return link.out if kernel.name == _OUT else link.back
