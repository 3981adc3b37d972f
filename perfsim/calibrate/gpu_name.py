"""perfsim's name of a device from the words of its driver."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["device_name"]

MAKERS = frozenset({"nvidia", "tesla", "quadro", "geforce", "graphics", "device"})
OTHER_BOARDS = frozenset({"ti", "super", "pcie", "nvl", "max", "mobile", "laptop"})
"""Words after a GPU's name that make it another board, with other rates."""
BOARD = re.compile(r"[^a-z0-9]+")


def device_name(word: str, known: Iterable[str]) -> str:
    """Return perfsim's name of a device that the driver calls ``word``.

    A known name counts where it is what ``word`` begins with, makers' names left out, and no word
    behind it makes it another board.

    Examples
    --------
    >>> gpus = ["v100", "v100-pcie", "rtx3090", "a100"]
    >>> [device_name(word, gpus) for word in ("Tesla V100-PCIE-16GB", "NVIDIA A100-SXM4-80GB")]
    ['v100-pcie', 'a100']
    >>> device_name("NVIDIA GeForce RTX 3090 Ti", gpus)
    'rtx-3090-ti'
    """
    words = [one for one in BOARD.split(word.lower()) if one and one not in MAKERS]
    plain = {name.replace("-", ""): name for name in known}
    for count in range(len(words), 0, -1):
        found = plain.get("".join(words[:count]))
        if found and not OTHER_BOARDS & set(words[count:]):
            return found
    return "-".join(words)[:64] or "device"
