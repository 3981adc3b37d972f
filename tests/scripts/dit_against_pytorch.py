"""Hold a diffusion transformer's block against the operations of PyTorch.

``python tests/scripts/dit_against_pytorch.py`` prints two tables. The first has a line for each
part of a block that other transformers have not (facebookresearch/DiT@00d70acc models.py,
DiTBlock): what its operations read and write for a value, forward and backward, in bf16, fp32 and
under autocast [B], how many of them run, and what perfsim prices. The second has the bytes that a
whole block keeps for the backward pass, as PyTorch's saved-tensor hooks see them and as perfsim
counts them. It runs on a CPU and needs ``pip install torch``. `dit_against_pytorch.txt` has what it
printed last.

Each operation reads its inputs once and writes its outputs once; what a sample has for a feature,
rather than for a token, counts for less than 1 %.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from memory_against_pytorch import as_on_a_gpu
from passes_against_pytorch import ReadsAndWrites
from torch import nn

from perfsim.compute.by_operations import MODULATED, SCALED
from perfsim.compute.execution import execution_of
from perfsim.compute.memory import activation_bytes
from perfsim.models.language import architecture_layers
from perfsim.models.named import NAMED

SAMPLES, TOKENS, WIDTH = 2, 256, 512
VALUES = SAMPLES * TOKENS * WIDTH
HEADS = 8


def modulated(tokens: Any, shift: Any, scale: Any, _stream: Any) -> Any:
    """Scale and shift normalised tokens."""
    return tokens * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


def scaled(tokens: Any, gate: Any, _shift: Any, stream: Any) -> Any:
    """Multiply what a part of a block adds to the stream, and add it."""
    return stream + gate.unsqueeze(1) * tokens


def added(tokens: Any, _gate: Any, _shift: Any, stream: Any) -> Any:
    """Add what a part of a block adds to the stream: what other transformers do."""
    return stream + tokens


def counted(part: Callable[..., Any], types: tuple[Any, Any, Any]) -> tuple[float, float, int]:
    """Return bytes a value of both passes, and operations; types: tokens', features', stream's."""

    def made(shape: tuple[int, ...], dtype: Any) -> Any:
        return torch.randn(shape, dtype=dtype, requires_grad=True)

    one = SAMPLES, WIDTH
    values = made((SAMPLES, TOKENS, WIDTH), types[0]), made(one, types[1]), made(one, types[1])
    stream = made((SAMPLES, TOKENS, WIDTH), types[2])
    with ReadsAndWrites() as forward:
        written = part(*values, stream)
    gradient = torch.ones_like(written)
    needed = values if part is modulated else (*values, stream)
    with ReadsAndWrites() as backward:
        torch.autograd.grad(written, needed, gradient, allow_unused=True)
    operations = forward.operations + backward.operations
    return forward.moved / VALUES, backward.moved / VALUES, operations


class Block(nn.Module):
    """A block of a diffusion transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH, elementwise_affine=False) for _ in range(2))
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.modulation = nn.Linear(WIDTH, 6 * WIDTH)

    def forward(self, stream: Any, condition: Any) -> Any:
        """Run it."""
        silu = nn.functional.silu(condition)
        one, two, three, four, five, six = self.modulation(silu).chunk(6, dim=1)
        tokens = modulated(self.norms[0](stream), one, two, None)
        samples, count, width = tokens.shape
        parts = self.qkv(tokens).reshape(samples, count, 3, HEADS, width // HEADS)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4).unbind(0)
        found = nn.functional.scaled_dot_product_attention(queries, keys, values)
        tokens = self.proj(found.transpose(1, 2).reshape(samples, count, width))
        stream = scaled(tokens, three, None, stream)
        tokens = self.fc1(modulated(self.norms[1](stream), four, five, None))
        tokens = self.fc2(nn.functional.gelu(tokens, approximate="tanh"))
        return scaled(tokens, six, None, stream)


def kept_by_pytorch(dtype: Any) -> float:
    """Return the bytes a value between blocks that a block keeps, but its parameters."""
    blocks = nn.Sequential(Block(), Block()).to(dtype)
    own = {one.untyped_storage().data_ptr() for one in blocks.parameters()}
    sizes: list[float] = []
    stream = torch.randn(SAMPLES, TOKENS, WIDTH, dtype=dtype, requires_grad=True)
    condition = torch.randn(SAMPLES, WIDTH, dtype=dtype)
    seen = {*own}
    for block in blocks:
        found: list[float] = []

        def keep(tensor: Any, found: list[float] = found) -> Any:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                found.append(storage.nbytes())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            stream = block(stream, condition)
        sizes.append(sum(found))
    return sizes[1] / VALUES


def kept_by_perfsim(precision: str) -> float:
    """Return the same as perfsim counts it."""
    shape = NAMED["dit-b2"]._replace(hidden=WIDTH, heads=HEADS, kv=HEADS, ffn=4 * WIDTH)
    sizes = [
        activation_bytes(
            architecture_layers(shape._replace(layers=layers)),
            SAMPLES,
            precision,
            execution_of("torch2"),
            loss=False,
        ).kept
        for layers in (1, 2)
    ]
    return (sizes[1] - sizes[0]) / VALUES


HALF, FULL = torch.bfloat16, torch.float32
TYPES = {
    "bf16": ((HALF, HALF, HALF), (HALF, HALF, HALF)),
    "fp32": ((FULL, FULL, FULL), (FULL, FULL, FULL)),
    "autocast": ((FULL, HALF, FULL), (HALF, HALF, FULL)),
}
"""Precision -> types of what is modulated and of what is scaled, as DiTBlock has them there."""


def main() -> None:
    """Print a line a part and precision."""
    print(f"PyTorch {torch.__version__}")
    print(f"{'bytes a value, both passes':28}{'PyTorch':>16}{'operations':>12}{'perfsim':>16}")
    for word, (first, second) in TYPES.items():
        passes = [(4 if first[0] is FULL else 2) * one for one in MODULATED.passes]
        _print(f"modulated, {word}", counted(modulated, first), passes)
        gated, plain = counted(scaled, second), counted(added, second)
        more = tuple(one - other for one, other in zip(gated, plain, strict=True))
        _print(
            f"scaled, {word}", more, [(4 if second[0] is FULL else 2) * n for n in SCALED.passes]
        )
    as_on_a_gpu()
    print(f"{'bytes a value kept':28}{'PyTorch':>16}{'':12}{'perfsim':>16}")
    for precision, dtype in (("bf16", HALF), ("fp32", FULL)):
        both = kept_by_pytorch(dtype), kept_by_perfsim(precision)
        print(f"a block, {precision:19}{both[0]:16.1f}{'':12}{both[1]:16.1f}", flush=True)


def _print(name: str, found: tuple[Any, ...], passes: list[float]) -> None:
    ours = f"{passes[0]:9.0f}{passes[1]:7.0f}"
    print(f"{name:28}{found[0]:9.1f}{found[1]:7.1f}{found[2]:12}{ours}", flush=True)


if __name__ == "__main__":
    main()
