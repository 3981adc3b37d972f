"""What eager code makes of several kernels: activations, and scores of attention.

Passes are the reads and writes of PyTorch's operations over values of the width of a product,
counted by a dispatch mode on the modules of transformers 5.24.0 in bf16 and fp32
(tests/scripts/passes_against_pytorch.py); the values that are kept, by saved-tensor hooks. Fused
software has one kernel in place of each.
"""

from __future__ import annotations

from typing import NamedTuple

from perfsim.models.layers import Activation, ModelLayer, Scores, is_expert

__all__ = [
    "ACTIVATIONS",
    "BARE_LAYERNORM",
    "MASKS",
    "MODULATED",
    "NORMS_IN_FP32",
    "SCALED",
    "SCORES",
    "SUMMED",
    "ByOperations",
    "activated_values",
    "all_keys",
    "is_bare_layernorm",
    "mask_values",
]


class ByOperations(NamedTuple):
    """Operations that stand in code for one kernel, for each value that they work on.

    ``passes`` are reads and writes, forward and backward; ``widened`` how many of them are of fp32
    where other values have 16 bits. ``launches`` are the operations of both passes beyond those of
    one kernel. ``kept`` are values that wait for the backward pass besides what one kernel keeps,
    ``masks`` bytes of booleans. ``fp32`` says that autocast runs them in fp32.
    """

    passes: tuple[float, float]
    widened: tuple[float, float] = (0.0, 0.0)
    launches: float = 0.0
    kept: float = 0.0
    masks: float = 0.0
    fp32: bool = False


ACTIVATIONS: dict[Activation, ByOperations] = {
    "relu2": ByOperations((4, 10), launches=4, fp32=True),
    "gelu_new": ByOperations((18, 28), launches=17, kept=3, fp32=True),
    "gelu_fast": ByOperations((21, 36), launches=20, kept=6),
    "quick_gelu": ByOperations((7, 14), launches=6, kept=1),
    "xielu": ByOperations((29, 60), launches=42, kept=3, masks=1, fp32=True),
    "clamped_swiglu": ByOperations((12, 22.5), launches=23, kept=1.5),
}
"""Activations by their operations (activations.py of transformers).

A square of a ReLU; 0.5 x (1 + tanh(c (x + 0.044715 x^3))), whose power autocast takes in fp32, and
so all that follows; the same in other order; x sigmoid(1.702 x); xIELU, two branches of which a
mask chooses. gpt-oss' gate reads both halves of what its experts' first product and biases write:
it clamps them, and keeps the clamped gate, its sigmoid, their product and one more than the other
half (modeling_gpt_oss.py, GptOssExperts._apply_gate): counted for each value of both halves, with
the biases' gathering and addition."""

NORMS_IN_FP32: dict[str, ByOperations] = {
    "rmsnorm": ByOperations((0, 0), (2, 6)),
    "layernorm": ByOperations((5, 10), (7, 16), launches=12),
}
"""What normalisations in fp32 take beyond Llama's RMSNorm, which is 36 bytes a value forward and 92
backward in 16 bits, 28 and 92 in fp32: Gemma's, OLMo 2's and gpt-oss' 40 and 104, and 28 and 92;
Cohere's 60 and 144, and 48 and 132. T5's is Llama's to 2 bytes, and counts as Gemma's."""

BARE_LAYERNORM = ByOperations((0, 0), (8, 9), launches=4)
"""What OLMo's layer normalisation without a weight takes beyond PyTorch's one kernel, which is 4
bytes a value forward and 6 backward in 16 bits: casts to fp32 and back, and fp32 between them, 20
and 24; in fp32 it is that kernel."""


def is_bare_layernorm(layer: ModelLayer) -> bool:
    """Tell whether a layer is OLMo's normalisation in fp32, without a weight (`BARE_LAYERNORM`)."""
    return layer.fp32 and layer.kind == "layernorm" and not layer.tensors


SCORES: dict[str, ByOperations] = {
    "softcap": ByOperations((12, 12), (8, 9)),
    "sinks": ByOperations((11, 16)),
    "relative": ByOperations((5, 4), (8, 9)),
    "alibi": ByOperations((8, 7), (8, 11)),
}
"""Scale, mask, cap, sink or bias and softmax of eager attention, for a score
(eager_attention_forward of modeling_gemma2.py, whose softmax is fp32, and of modeling_gpt_oss.py,
whose is not). T5 adds a bias with the mask in it, and its softmax is fp32 between casts; the
gradient of the bias reads that of the scores once (T5Attention of transformers 5.0.0). MPT scales,
adds a bias in fp32 and masks what that made fp32 (MptAttention). With copies of queries, keys and
values, of 64 for 256 scores, they were counted as 27 and 29 bytes in bf16, 22 and 22 in fp32, and
as 36 and 42, 40 and 40."""

MASKS: dict[Scores, ByOperations] = {
    "": ByOperations((1.5, 0), launches=1),
    "relative": ByOperations((2, 4)),
    "alibi": ByOperations((2, 0)),
}
"""What makes a mask of 16 bits for PyTorch's kernel, for a score of it: one head's, or, with a
bias, each head's.

A mask of booleans, as transformers' are, is replaced by 0 and minus infinity in each layer: a byte
read, a value written (``convert_boolean_attn_mask``, pytorch/pytorch
aten/src/ATen/native/transformers/attention.cpp). With a bias the values of it are put in, read and
written; its gradient, which the kernel writes, is read and written masked, then read to be summed
over samples and added to that of other layers (transformers 5.24.0, integrations/sdpa_attention.py,
``create_position_bias_mask``, of bf16 values). ALiBi has no gradient. With a bias the launches are
no more than those of the single operations in whose place these stand."""


def all_keys(layer: ModelLayer) -> float:
    """Return the keys that an attention has, whatever a query attends to.

    Examples
    --------
    >>> core = ModelLayer("core", "attention", (), 0.0, 0.0, rows=100, causal=True)
    >>> all_keys(core), all_keys(core._replace(rows=50, keys=100))
    (100, 100)
    """
    return (layer.keys or layer.rows) if layer.causal else layer.flops / (4.0 * layer.outputs)


def mask_values(layer: ModelLayer) -> float:
    """Return the values of an attention's mask for one sample: with a bias, each head has its own.

    Examples
    --------
    >>> causal = ModelLayer("core", "attention", (), 0.0, 0.0, rows=100, heads=8, causal=True)
    >>> mask_values(causal), mask_values(causal._replace(scores="relative"))
    (10000.0, 80000.0)
    """
    return float((layer.heads if layer.scores else 1) * layer.rows * all_keys(layer))


MODULATED = ByOperations((4, 7), launches=7, fp32=True)
SCALED = ByOperations((2, 6), launches=4)
"""What a diffusion transformer does with normalised tokens, x (1 + scale) + shift, and with what a
part of a block adds, gate x, beyond the addition: backward each also sums over a sample's tokens.
Autocast normalises in fp32, so that the first is in it (facebookresearch/DiT@00d70acc models.py,
DiTBlock; counted: tests/scripts/dit_against_pytorch.txt)."""
SUMMED = (0.0, 2.0)
"""What is left of both where a compiler or a library fuses them with what stands beside them: the
sums over a sample's tokens, which read a value and its gradient. Derived."""


def activated_values(layer: ModelLayer) -> float:
    """Return the values that a layer's activation works on: of experts' gate and other half one."""
    both = is_expert(layer) and layer.copies > 0 and layer.activation != "clamped_swiglu"
    return layer.outputs / 2 if both else layer.outputs
