"""Hold passes over memory against what PyTorch's operations in transformers' modules move.

``python tests/scripts/passes_against_pytorch.py`` prints a line a module: bytes that its operations
read and write for a value, forward and backward, in bf16 and in fp32, and what perfsim prices
(`perfsim/compute/by_operations.py`; normalisations beyond Llama's). It runs on a CPU and needs
``pip install torch 'transformers>=5.24,<6'``. `passes_against_pytorch.txt` has what it printed
last.

Each operation reads its inputs once and writes its outputs once; views, and memory that is only
reserved, are none. Products of attention are left out, as they are kernels of their own.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers.activations import ACT2FN

from perfsim.compute.by_operations import ACTIVATIONS, NORMS_IN_FP32, SCORES, ByOperations

WIDTHS = {torch.bfloat16: 2, torch.float32: 4}
NORMS = {
    "llama": "LlamaRMSNorm",
    "gemma": "GemmaRMSNorm",
    "olmo2": "Olmo2RMSNorm",
    "gpt_oss": "GptOssRMSNorm",
    "t5": "T5LayerNorm",
    "cohere": "CohereLayerNorm",
}
"""Normalisations by the kind of model that they are of."""
ROWS, WIDTH, HEADS, TOKENS, HEAD = 2048, 512, 8, 256, 64
"""Sizes at which what does not grow with the values counts for less than 1 %."""

Tensors = Sequence[Any]


class Counted(NamedTuple):
    """Bytes that operations read and write for a value, forward and backward, and how many ran."""

    forward: float
    backward: float
    operations: int


class ReadsAndWrites(TorchDispatchMode):
    """Counts what operations read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.moved, self.operations = 0.0, 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operation and add what it reads and writes."""
        found = function(*args, **(kwargs or {}))
        read = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        written = [one for one in tree_leaves(found) if isinstance(one, torch.Tensor)]
        name = function._schema.name.removeprefix("aten::")
        here = {one.untyped_storage().data_ptr() for one in read}
        view = all(one.untyped_storage().data_ptr() in here for one in written)
        if name in ("bmm", "detach", "empty_like") or (view and not name.endswith("_")):
            return found
        if "zeros" in name:
            read = []
        self.moved += sum(map(_bytes, [*read, *written]))
        self.operations += 1
        return found


def _bytes(tensor: Any) -> int:
    """Return the bytes of a tensor; one that is spread over rows is read once."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def counted(
    function: Callable[..., Any], inputs: Tensors, weights: Tensors, values: float
) -> Counted:
    """Return what a function's operations read and write for each of so many values."""
    given = [one.detach().clone().requires_grad_(True) for one in inputs]
    with ReadsAndWrites() as forward:
        found = function(*given)
    gradient = torch.ones_like(found)
    with ReadsAndWrites() as backward:
        torch.autograd.grad(found, [*given, *weights], gradient)
    operations = forward.operations + backward.operations
    return Counted(forward.moved / values, backward.moved / values, operations)


def priced(one: ByOperations, width: int) -> tuple[float, float]:
    """Return the bytes that perfsim prices for a value of so many bytes."""
    forward, backward = (
        width * passes + (4 - width) * wide
        for passes, wide in zip(one.passes, one.widened, strict=True)
    )
    return forward, backward


def module_of(kind: str) -> Any:
    """Return the module of transformers that has the code of a kind."""
    return importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")


def of_a_norm(kind: str, dtype: Any) -> Counted:
    """Return what a kind's normalisation reads and writes."""
    norm = getattr(module_of(kind), NORMS[kind])(WIDTH).to(dtype)
    inputs = [torch.randn(ROWS, WIDTH).to(dtype)]
    return counted(norm, inputs, list(norm.parameters()), ROWS * WIDTH)


def of_an_activation(name: str, dtype: Any) -> Counted:
    """Return what an activation reads and writes; gpt-oss' gate with the biases before it."""
    if name == "clamped_swiglu":
        return of_a_gate(dtype)
    function = ACT2FN[name].to(dtype)
    inputs = [torch.randn(ROWS, WIDTH).to(dtype)]
    return counted(function, inputs, list(function.parameters()), ROWS * WIDTH)


def of_a_gate(dtype: Any) -> Counted:
    """Return what gpt-oss' gate and its experts' biases read and write, for each of both halves."""
    apply, experts = module_of("gpt_oss").GptOssExperts._apply_gate, torch.arange(ROWS) * 8 // ROWS
    this, bias = SimpleNamespace(limit=7.0, alpha=1.702), torch.randn(8, 2 * WIDTH).to(dtype)

    def function(both: Any, biases: Any) -> Any:
        return apply(this, both + biases[experts])

    inputs = [torch.randn(ROWS, 2 * WIDTH).to(dtype), bias]
    return counted(function, inputs, [], ROWS * 2 * WIDTH)


def of_scores(scores: str, dtype: Any) -> Counted:
    """Return what attention of single operations reads and writes of its scores, for each."""
    kind = {"softcap": "gemma2", "sinks": "gpt_oss"}[scores]
    sinks = torch.randn(HEADS, dtype=dtype, requires_grad=True)
    this = SimpleNamespace(num_key_value_groups=1, head_dim=HEAD, training=True, sinks=sinks)
    mask = torch.zeros(1, 1, TOKENS, TOKENS).to(dtype)
    more = {"softcap": 50.0} if scores == "softcap" else {}

    def function(queries: Any, keys: Any, values: Any) -> Any:
        attend = module_of(kind).eager_attention_forward
        return attend(this, queries, keys, values, mask, scaling=HEAD**-0.5, **more)[0]

    inputs = [torch.randn(1, HEADS, TOKENS, HEAD).to(dtype) for _ in range(3)]
    weights = [sinks] if scores == "sinks" else []
    return counted(function, inputs, weights, HEADS * TOKENS**2)


def main() -> None:
    """Print a line a module: counted and priced bytes a value, forward and backward."""
    transformers.logging.set_verbosity_error()
    print(f"transformers {transformers.__version__}, PyTorch {torch.__version__}")
    print(f"{'':30}{'bf16: counted':>15}{'priced':>15}{'fp32: counted':>19}{'priced':>15}")
    for kind, name in NORMS.items():
        key = "layernorm" if kind == "cohere" else "rmsnorm"
        own = ByOperations((0, 0)) if kind == "llama" else NORMS_IN_FP32[key]
        _print(name, of_a_norm, kind, own, base=True)
    for activation, one in ACTIVATIONS.items():
        _print(activation, of_an_activation, activation, one)
    for scores, one in SCORES.items():
        _print(f"scores: {scores}", of_scores, scores, one)


def _print(
    title: str,
    count: Callable[[str, Any], Counted],
    name: str,
    one: ByOperations,
    base: bool = False,
) -> None:
    """Print a line; ``base`` says that what perfsim prices is beyond Llama's normalisation."""
    line = f"{title:30}"
    for dtype, width in WIDTHS.items():
        found = count(name, dtype)
        beside = of_a_norm("llama", dtype) if base else Counted(0.0, 0.0, 0)
        forward, backward = priced(one, width)
        both = (found.forward, found.backward)
        also = (beside.forward + forward, beside.backward + backward)
        line += "".join(f"{pair[0]:9.1f} {pair[1]:5.1f}" for pair in (both, also)) + "    "
    print(line + f"{found.operations:3} operations", flush=True)


if __name__ == "__main__":
    main()
