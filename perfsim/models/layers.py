"""What network definitions are made of: layers with their tensors and their work for one sample."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter
from typing import Literal, NamedTuple, get_args

__all__ = [
    "HEAD_WIDTH",
    "MODULES",
    "PACKED_BITS",
    "Activation",
    "LayerShape",
    "ModelBuilder",
    "ModelLayer",
    "Module",
    "Scores",
    "Split",
    "attention",
    "batchnorm",
    "conv",
    "embedding",
    "is_expert",
    "layer_figures",
    "layernorm",
    "linear",
    "lstm",
    "matmul",
    "pooled",
]

LayerShape = tuple[int, ...]
_FLOAT_BYTES = 4
"""Bytes of an fp32 value."""
HEAD_WIDTH = 64
"""Values of a head of attention in BERT, GPT-2 and ViT."""


Activation = Literal[
    "one-kernel", "relu", "relu2", "gelu_new", "gelu_fast", "quick_gelu", "xielu", "clamped_swiglu"
]
"""What an activation is, by its name in Hugging Face transformers (activations.py, ACT2FN).

"one-kernel" is a GELU, a SiLU or any other that PyTorch has a kernel for. "clamped_swiglu" is the
gate of gpt-oss (modeling_gpt_oss.py, GptOssExperts._apply_gate)."""

Scores = Literal["", "softcap", "sinks", "relative", "alibi"]
"""What code does with scores of attention that PyTorch's scaled_dot_product_attention does not.

They are capped by a hyperbolic tangent (Gemma 2), a learned score of each head stands beside those
of the tokens (gpt-oss), or a bias by distance is added: a learned one (T5) or ALiBi's (MPT).
Hugging Face transformers runs all by single operations (modeling_gemma2.py, modeling_gpt_oss.py:
eager_attention_forward, ``_supports_sdpa = False``; modeling_mpt.py: MptAttention; modeling_t5.py
of 4.57.1 and 5.0.0: T5Attention, which 5.24.0 hands to scaled_dot_product_attention with the bias
as its mask: no kernel of `perfsim.compute.attention` takes one)."""

Module = Literal[
    "", "core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts"
]
"""A part of a block that may be computed again by itself, by Megatron-LM's names for them.

Attention without its projections; the normalisations before attention and before the dense layers;
the wide projections of latent attention; dense layers; experts with their router; their activation,
which is no layer of its own; shared experts (NVIDIA/Megatron-LM@d98e8a64
megatron/core/transformer/transformer_config.py, recompute_modules)."""
MODULES: tuple[Module, ...] = get_args(Module)[1:]

PACKED_BITS = 4.0 + 0.127
"""Bits of a value in 4 bits and its part of the constants of a block (Dettmers et al., arXiv
2305.14314, section 3: 8 / 64 + 32 / (64 x 256) = 0.127 bits by double quantization)."""

Split = Literal["", "column", "row", "vocabulary"]
"""How tensor parallelism divides a layer's matrix (Shoeybi et al., arXiv 1909.08053, section 3).

By its outputs ("column"), by its inputs, so that the outputs are sums over ranks ("row"), or by the
words of an embedding or output layer ("vocabulary"); "" leaves it whole on every rank."""


class ModelLayer(NamedTuple):
    """One layer of a network definition, for one sample.

    Parameters
    ----------
    name : public name of the module (torchvision, timm, transformers)
    kind : conv, batchnorm, linear, embedding, layernorm, rmsnorm, lstm, attention, parameter
    tensors : (public name, shape) of its parameters; none for products without parameters
        (attention scores, an output layer tied to the embedding)
    flops : floating-point operations of the forward pass for one sample, 2 a multiply-add;
        element-wise work counts as none
    activation_bytes : what it writes for one sample in fp32 [B]
    rows : rows of its matrix product for one sample (tokens, points of a map); 0 for other layers
    copies : values for one sample that element-wise work beside the layer reads or writes:
        additions of a shortcut, concatenations, poolings, dropout
    heads : attention heads, for kind attention
    causal : whether a token attends to those before it only
    window : share of the tokens that a token attends to at most, where attention has a window; of
        the tokens of a document where it stays within documents
    document : tokens of a document of a packed sample, where attention stays within documents; 0:
        it goes over all tokens
    keys : tokens that queries of a causal attention may attend to, where a rank has the queries of
        some tokens only; 0: as many as it has rows
    gathered : share of its rows that is left where code gathers the masked tokens first
    dropped : values for one sample that dropout passes over
    activated : whether an activation follows a dense layer
    activation : which one
    fp32 : whether eager code works in fp32 whatever the precision: a normalisation up to the
        product with its weight, a dense layer on a copy of what it reads
    scores : what the code of an attention does that one kernel of PyTorch's does not
    reads_again : whether it reads a tensor that an earlier layer reads and keeps too
    kept : values for one sample that eager code keeps for the backward pass besides, as copies
    rotated : values for one sample that rotary positions turn
    permuted : values for one sample that each pass reads and writes to put rows in another order,
        those of tokens by their experts
    unfused : values for one sample that each pass reads and writes in operations beside the layer
        that no library of kernels fuses
    modulated : values for one sample that are multiplied by what the sample has for each feature,
        and added to such, behind a normalisation
    scaled : values for one sample that are multiplied so before they are added to the stream
    frozen : whether its tensors are not trained: no product makes their gradients
    adapter : rank of the two matrices that are trained beside a frozen one (LoRA); 0: none
    adapter_fp32 : whether the adapter's matrices are fp32 where values have 16 bits, so that it
        casts what it reads and what is added
    adapter_drops : whether dropout works on what the adapter reads
    packed : bits of the values that are made of its frozen matrix in each pass, which is kept in
        4 bits; 0: it is not packed
    wide : whether values between layers are fp32 in half precision too, beside packed matrices:
        each of these casts what it reads to 16 bits and what it writes back; without autocast all
        else computes in fp32
    split : how tensor parallelism divides it
    parts : heads that its outputs are divided by, each whole on one rank; 0: any part will do
    groups : of experts, and in how many of them those of a token are
    chosen : experts that a token goes to, for experts
    module : the part of a block that it belongs to, by Megatron-LM's names; "" for another
    """

    name: str
    kind: str
    tensors: tuple[tuple[str, LayerShape], ...]
    flops: float
    activation_bytes: float
    rows: int = 0
    copies: float = 0.0
    heads: int = 0
    causal: bool = False
    gathered: float = 1.0
    dropped: float = 0.0
    activated: bool = False
    rotated: float = 0.0
    permuted: float = 0.0
    unfused: float = 0.0
    split: Split = ""
    parts: int = 0
    groups: tuple[int, int] = (1, 1)
    chosen: int = 0
    activation: Activation = "one-kernel"
    fp32: bool = False
    scores: Scores = ""
    kept: float = 0.0
    reads_again: bool = False
    frozen: bool = False
    adapter: int = 0
    packed: int = 0
    module: Module = ""
    window: float = 1.0
    wide: bool = False
    document: int = 0
    adapter_fp32: bool = False
    adapter_drops: bool = False
    modulated: float = 0.0
    scaled: float = 0.0
    keys: int = 0

    @property
    def outputs(self) -> float:
        """Values that it writes for one sample."""
        return self.activation_bytes / _FLOAT_BYTES

    @property
    def elements(self) -> int:
        """Parameters of the layer, but those of an adapter beside it."""
        return sum(math.prod(shape) for _, shape in self.tensors)

    @property
    def stored(self) -> tuple[tuple[str, LayerShape], ...]:
        """(name, shape) of its tensors as they are kept, in values as wide as it computes in.

        One of 4 bits takes so many of them; one of fp32, where all else is narrow, takes two each.
        """
        if not self.packed:
            if self.wide:
                return tuple([(name, (2, *shape)) for name, shape in self.tensors])
            return self.tensors
        name, shape = self.tensors[0]
        share = PACKED_BITS / self.packed
        return ((name, (round(math.prod(shape) * share),)), *self.tensors[1:])

    @property
    def stored_elements(self) -> int:
        """Values that its parameters take, as wide as it computes in: two where it is wide."""
        return sum([math.prod(shape) for _, shape in self.stored])

    @property
    def trained(self) -> tuple[tuple[str, LayerShape], ...]:
        """(name, shape) of the tensors that have gradients, an adapter's by their names in PEFT.

        The adapter of a matrix of ``m`` outputs and ``n`` inputs is A (r, n) and B (m, r), whose
        product is added to it (Hu et al., LoRA, arXiv 2106.09685, section 4.1).
        """
        if not self.frozen:
            return self.tensors
        if not self.adapter:
            return ()
        stem = self.tensors[0][0].removesuffix(".weight")
        inputs, outputs = self.inner, self.outputs / max(self.rows, 1)
        return (
            (f"{stem}.lora_A.weight", (self.adapter, round(inputs))),
            (f"{stem}.lora_B.weight", (round(outputs), self.adapter)),
        )

    @property
    def inner(self) -> float:
        """Inner dimension of its product."""
        return self.flops / (2.0 * self.outputs)

    @property
    def trained_elements(self) -> int:
        """Parameters that have gradients."""
        if not self.frozen:
            return self.elements
        return sum([math.prod(shape) for _, shape in self.trained]) if self.adapter else 0


ModelBuilder = Callable[..., tuple[ModelLayer, ...]]
"""Returns the layers of one network in forward order; one over text may take ``tokens``."""


layer_figures = attrgetter(
    *[field for field in ModelLayer._fields if field not in ("name", "tensors")]
)
"""Takes all that tells a layer from others, beside its name and its tensors."""

_EXPERT_AXES = 3
"""Axes of a tensor that holds a weight of every expert."""


def is_expert(layer: ModelLayer) -> bool:
    """Tell whether a layer has a weight for each of several experts."""
    one = len(layer.tensors) == 1 and layer.kind == "linear"  # a ViT's positions have as many axes
    return one and len(layer.tensors[0][1]) == _EXPERT_AXES


def pooled(size: int, kernel: int, stride: int, padding: int = 0, ceil: bool = False) -> int:
    """Return the width of a convolution's or pooling's output.

    Examples
    --------
    >>> pooled(224, 7, 2, 3), pooled(112, 3, 2, 0, ceil=True)
    (112, 56)
    """
    span = size + 2 * padding - kernel
    return (-(-span // stride) if ceil else span // stride) + 1


def conv(
    name: str,
    inputs: int,
    outputs: int,
    kernel: int | tuple[int, int],
    width: int | tuple[int, int],
    *,
    bias: bool = False,
) -> ModelLayer:
    """Return a convolution that writes ``outputs`` maps of ``width`` (x ``width``) points.

    Examples
    --------
    >>> conv("conv1", 3, 64, 7, 112).flops
    236027904.0
    """
    high, wide = (kernel, kernel) if isinstance(kernel, int) else kernel
    points = math.prod((width, width) if isinstance(width, int) else width)
    tensors: list[tuple[str, LayerShape]] = [(f"{name}.weight", (outputs, inputs, high, wide))]
    if bias:
        tensors.append((f"{name}.bias", (outputs,)))
    flops = 2.0 * inputs * high * wide * outputs * points
    written = float(_FLOAT_BYTES * outputs * points)
    return ModelLayer(name, "conv", tuple(tensors), flops, written, points)


def _scale_and_shift(name: str, kind: str, features: int, points: int) -> ModelLayer:
    tensors = ((f"{name}.weight", (features,)), (f"{name}.bias", (features,)))
    return ModelLayer(name, kind, tensors, 0.0, float(_FLOAT_BYTES * features * points))


def batchnorm(
    name: str, features: int, width: int | tuple[int, int] = 1, copies: float = 0.0
) -> ModelLayer:
    """Return a batch normalisation over maps of ``width`` (x ``width``) points."""
    points = math.prod((width, width) if isinstance(width, int) else width)
    return _scale_and_shift(name, "batchnorm", features, points)._replace(copies=copies)


def layernorm(
    name: str, features: int, rows: int = 1, *, added: bool = False, dropped: bool = False
) -> ModelLayer:
    """Return a layer normalisation of ``rows`` vectors of ``features`` values.

    ``added`` says that a shortcut is added beside it, ``dropped`` that dropout runs beside it.
    """
    layer = _scale_and_shift(name, "layernorm", features, rows)
    values = layer.outputs
    return layer._replace(copies=values * added, dropped=values * dropped)


def linear(
    name: str,
    inputs: int,
    outputs: int,
    rows: int = 1,
    *,
    bias: bool = True,
    transposed: bool = False,
    activated: bool = False,
    split: Split = "",
    parts: int = 0,
) -> ModelLayer:
    """Return a dense layer on ``rows`` vectors; ``transposed`` stores its weight as (in, out).

    Examples
    --------
    >>> linear("fc", 2048, 1000).elements
    2049000
    """
    shape = (inputs, outputs) if transposed else (outputs, inputs)
    tensors: list[tuple[str, LayerShape]] = [(f"{name}.weight", shape)]
    if bias:
        tensors.append((f"{name}.bias", (outputs,)))
    flops = 2.0 * inputs * outputs * rows
    written = float(_FLOAT_BYTES * outputs * rows)
    return ModelLayer(
        name,
        "linear",
        tuple(tensors),
        flops,
        written,
        rows,
        activated=activated,
        split=split,
        parts=parts,
    )


def embedding(
    name: str, entries: int, features: int, rows: int, *, split: Split = ""
) -> ModelLayer:
    """Return an embedding table of ``entries`` vectors; a sample looks up ``rows``."""
    tensors = ((f"{name}.weight", (entries, features)),)
    written = float(_FLOAT_BYTES * features * rows)
    return ModelLayer(name, "embedding", tensors, 0.0, written, split=split)


def lstm(prefix: str, suffix: str, inputs: int, hidden: int, steps: int) -> ModelLayer:
    """Return one LSTM layer in PyTorch's names: four gates, two weights, two biases."""
    tensors: tuple[tuple[str, LayerShape], ...] = (
        (f"{prefix}.weight_ih_{suffix}", (4 * hidden, inputs)),
        (f"{prefix}.weight_hh_{suffix}", (4 * hidden, hidden)),
        (f"{prefix}.bias_ih_{suffix}", (4 * hidden,)),
        (f"{prefix}.bias_hh_{suffix}", (4 * hidden,)),
    )
    flops = 2.0 * 4 * hidden * (inputs + hidden) * steps
    name = f"{prefix}.{suffix}"
    return ModelLayer(name, "lstm", tensors, flops, float(_FLOAT_BYTES * hidden * steps), steps)


def attention(
    name: str,
    width: int,
    tokens: int,
    *,
    heads: int = 0,
    causal: bool = False,
    dropped: bool = False,
) -> ModelLayer:
    """Return the products of scores and of values, without parameters of their own.

    Heads are 64 wide where ``heads`` is not given, as in BERT, GPT-2 and ViT.

    Examples
    --------
    >>> attention("attn", 768, 1024).heads, attention("attn", 768, 1024).flops
    (12, 3221225472.0)
    """
    flops = 4.0 * tokens * tokens * width
    written = float(_FLOAT_BYTES * tokens * width)
    heads = heads or width // HEAD_WIDTH
    scores = float(heads * tokens**2) * dropped
    made = ModelLayer(name, "attention", (), flops, written, tokens, heads=heads, causal=causal)
    return made._replace(dropped=scores, module="core_attn")


def matmul(
    name: str, kind: str, flops: float, outputs: int, rows: int = 0, *, split: Split = ""
) -> ModelLayer:
    """Return a matrix product without parameters of its own, such as a tied output layer."""
    return ModelLayer(name, kind, (), flops, float(_FLOAT_BYTES * outputs), rows, split=split)
