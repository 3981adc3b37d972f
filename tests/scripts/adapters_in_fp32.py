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
from passes_against_pytorch import ReadsAndWrites

from perfsim.compute.work import work_of
from perfsim.models.adapters import Adapters, with_adapters
from perfsim.models.language import Architecture, architecture_layers

HIDDEN, FFN, HEADS, GROUPS, TOKENS, RANK = 1024, 3584, 8, 2, 512, 2
"""Mistral 7B's proportions."""
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj"]
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
    sizes = {"hidden_size": HIDDEN, "intermediate_size": FFN, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": HEADS, "num_key_value_heads": GROUPS, "vocab_size": 512}
    config = transformers.MistralConfig(**sizes, head_dim=HIDDEN // HEADS, sliding_window=None)
    model = transformers.AutoModel.from_config(config).to(torch.bfloat16)
    adapters = peft.LoraConfig(r=RANK, target_modules=TARGETS, lora_dropout=0.0)
    made = peft.get_peft_model(model, adapters, autocast_adapter_dtype=fp32)
    body = made.train().base_model.model
    values = torch.randn(1, TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    places = torch.arange(TOKENS)[None]
    turned = body.rotary_emb(values, places)
    with Operations() as forward:
        found = body.layers[1](
            values,
            attention_mask=None,
            position_ids=places,
            position_embeddings=turned,
            use_cache=False,
        )
    written = found[0] if isinstance(found, tuple) else found
    with Operations() as backward:
        written.backward(torch.ones_like(written))
    each = TOKENS * HIDDEN
    operations = forward.operations + backward.operations
    return forward.moved / each, backward.moved / each, operations


def by_perfsim(fp32: bool) -> Counts:
    """Return what perfsim counts for the same block, without factors of eager kernels."""
    shape = Architecture(
        layers=2, hidden=HIDDEN, heads=HEADS, kv=GROUPS, head=HIDDEN // HEADS, ffn=FFN, vocab=512
    )
    layers = with_adapters(
        architecture_layers(shape, TOKENS), Adapters(RANK, "attention", fp32=fp32)
    )
    block = [one for one in work_of(layers, "torch2").layers if ".1." in one.name]

    def moved(way: str) -> float:
        streams = (one for layer in block for one in getattr(layer, way) if one.kind == "stream")
        return sum((4 if one.wide else 2) * one.values for one in streams) / (TOKENS * HIDDEN)

    return moved("forward"), moved("backward"), sum(layer.operations for layer in block)


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
