"""What PyTorch's dispatcher runs, by name, for the scripts that count what a host launches.

It needs ``pip install torch``: scripts import it where they count.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["DispatchedCalls"]


class DispatchedCalls(TorchDispatchMode):
    """Counts the operations that run within it; ``seen`` has them as ``aten.add.Tensor``."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, _: Any, args: Any = (), named: Any = None) -> Any:
        """Run an operation and count it."""
        self.seen[str(function)] += 1
        return function(*args, **(named or {}))

    def by_operation(self) -> Counter[str]:
        """Return the counts by operation, such as ``add``, whatever it takes."""
        found: Counter[str] = Counter()
        for name, count in self.seen.items():
            found[name.split(".")[1]] += count
        return found
