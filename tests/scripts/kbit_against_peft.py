"""Hold values between layers in fp32 (`residual_dtype`) against PEFT and bitsandbytes.

``python tests/scripts/kbit_against_peft.py`` prints what the element-wise operations of a block of
Mistral move beside a base in 4 bits, forward and backward, in bytes for a token and value of the
hidden width: under autocast with all 16 bits wide, with what PEFT's prepare_model_for_kbit_training
makes of it, and the difference; and with that without autocast. As PyTorch's operations move them
on a CPU, and as perfsim counts them before the factors of eager kernels. Products, attention and
unpacking are left out. It needs ``pip install torch 'transformers>=5.24,<6' peft bitsandbytes``.
`kbit_against_peft.txt` has what it printed last.
"""

from __future__ import annotations

from typing import Any

import bitsandbytes
import peft
import torch
import transformers
from mistral_block import EACH, RANK, counted_block, mistral, moved, run_block, with_peft
from passes_against_pytorch import ReadsAndWrites

from perfsim.models.adapters import HALF_BITS, Adapters

_PRODUCTS = ("mm", "addmm", "gemm_4bit", "dequantize", "attention")

Both = tuple[float, float]
"""Bytes for a token and value of the hidden width, forward and backward."""


class ElementWise(ReadsAndWrites):
    """Counts what operations read and write that are no products."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operation; add what it moves where it is no product."""
        name = function._schema.name
        if name.removeprefix("aten::") == "empty" or any(one in name for one in _PRODUCTS):
            return function(*args, **(kwargs or {}))
        return super().__torch_dispatch__(function, types, args, kwargs)


def packed_model() -> Any:
    """Return a Mistral of two blocks, the dense layers of which bitsandbytes keeps in 4 bits."""
    model = mistral()
    usual = {"quant_type": "nf4", "compress_statistics": True}
    for module in list(model.modules()):
        for name, layer in list(module.named_children()):
            if isinstance(layer, torch.nn.Linear):
                sides = layer.in_features, layer.out_features
                made = bitsandbytes.nn.Linear4bit(
                    *sides, bias=False, compute_dtype=torch.bfloat16, **usual
                )
                made.weight = bitsandbytes.nn.Params4bit(
                    layer.weight.data.clone(), requires_grad=False, **usual
                )
                made.compute_type_is_set = True
                setattr(module, name, made.to("cpu"))
    model.is_loaded_in_4bit = True
    return model.requires_grad_(False)


def by_peft(wide: bool, autocast: bool = True) -> Both:
    """Return what PyTorch's operations move in a block."""
    model = packed_model()
    if wide:
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    dtype = torch.float32 if wide else torch.bfloat16
    forward, backward = run_block(with_peft(model), dtype, ElementWise, autocast=autocast)
    return forward.moved / EACH, backward.moved / EACH


def by_perfsim(wide: bool, autocast: bool = True) -> Both:
    """Return what perfsim counts for the same block."""
    adapters = Adapters(RANK, "attention", packed=HALF_BITS, wide=wide)
    block = counted_block(adapters, autocast=wide and autocast)
    return moved(block, "forward"), moved(block, "backward")


def main() -> None:
    """Print a line a kind of counting."""
    transformers.logging.set_verbosity_error()
    versions = f"peft {peft.__version__}, bitsandbytes {bitsandbytes.__version__}"
    print(f"{versions}, transformers {transformers.__version__}, PyTorch {torch.__version__}")
    kinds = ("16 bits", "fp32", "difference", "no autocast")
    print(f"{'bytes, forward and backward':30}" + "".join(f"{kind:>16}" for kind in kinds))
    for name, count in (("PyTorch's operations", by_peft), ("perfsim", by_perfsim)):
        narrow, wide = count(False), count(True)
        more = [one - other for one, other in zip(wide, narrow, strict=True)]
        columns = narrow, wide, more, count(True, False)
        cells = (f"{both[0]:9.0f}{both[1]:7.0f}" for both in columns)
        print(f"{name:30}" + "".join(cells), flush=True)


if __name__ == "__main__":
    main()
