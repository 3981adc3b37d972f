"""Hold adapters in fp32 (`lora_dtype`) against PEFT.

``python tests/scripts/adapters_in_fp32.py`` prints what the element-wise operations of a block of
Mistral move in bf16 with adapters beside its attention, forward and backward, in bytes for a token
and value of the hidden width, and how many operations run: with adapters in bf16, with those that
PEFT makes fp32 (``autocast_adapter_dtype``), and the difference; as PyTorch's operations move them
on a CPU, and as perfsim counts them before the factors of eager kernels. Products and attention are
left out of the bytes. It needs ``pip install torch 'transformers>=5.24,<6' peft``.
`adapters_in_fp32.txt` has what it printed last.
"""

from __future__ import annotations

from typing import Any

import peft
import torch
import transformers
from mistral_block import EACH, RANK, counted_block, mistral, moved, run_block, with_peft
from passes_against_pytorch import ReadsAndWrites

from perfsim.models.adapters import Adapters

_PRODUCTS = ("mm", "addmm", "attention")

Counts = tuple[float, float, float]
"""Bytes for a token and value of the hidden width, forward and backward; operations of both."""


class Operations(ReadsAndWrites):
    """Counts what operations read and write that are no products, and all that run."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operation; add what it moves where it is no product."""
        name = function._schema.name.removeprefix("aten::")
        if any(one in name for one in _PRODUCTS):
            self.operations += 1
            return function(*args, **(kwargs or {}))
        return super().__torch_dispatch__(function, types, args, kwargs)


def by_peft(fp32: bool) -> Counts:
    """Return what PyTorch's operations move in a block, and how many there are."""
    body = with_peft(mistral(), autocast_adapter_dtype=fp32)
    forward, backward = run_block(body, torch.bfloat16, Operations)
    operations = forward.operations + backward.operations
    return forward.moved / EACH, backward.moved / EACH, operations


def by_perfsim(fp32: bool) -> Counts:
    """Return what perfsim counts for the same block."""
    block = counted_block(Adapters(RANK, "attention", fp32=fp32))
    operations = sum(layer.operations for layer in block)
    return moved(block, "forward"), moved(block, "backward"), operations


def main() -> None:
    """Print a line a kind of counting."""
    transformers.logging.set_verbosity_error()
    versions = f"peft {peft.__version__}, transformers {transformers.__version__}"
    print(f"{versions}, PyTorch {torch.__version__}")
    print(f"{'bytes both ways, operations':28}{'bf16':>18}{'fp32':>18}{'difference':>18}")
    for name, count in (("PyTorch's operations", by_peft), ("perfsim", by_perfsim)):
        narrow, wide = count(False), count(True)
        more = [one - other for one, other in zip(wide, narrow, strict=True)]
        cells = (" ".join(f"{one:5.0f}" for one in found) for found in (narrow, wide, more))
        print(f"{name:28}" + "".join(f"{cell:>18}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
