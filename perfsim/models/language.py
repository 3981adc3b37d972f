"""Language models and vision transformers by their numbers: layers, width, heads, vocabulary.

`Architecture` has the numbers; `architecture_layers` turns them into layers in the tensor names of
Hugging Face transformers' Llama. ``NAMED`` has the published models by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import Any, Literal, NamedTuple

from perfsim.errors import RequestError
from perfsim.models.layers import (
    Activation,
    LayerShape,
    ModelLayer,
    Module,
    Scores,
    attention,
    conv,
    embedding,
    layernorm,
    linear,
    matmul,
)

__all__ = ["NAMED", "Architecture", "architecture_layers"]

Family = Literal["decoder", "encoder", "encoder-decoder", "vit", "dit"]
Pool = Literal["token", "mean", "none"]
"""What the output layer of a vision transformer reads: a class token that attends to all patches;
their mean, without such a token; each patch (timm's global_pool "token" and "avg", and "")."""
Norm = Literal["rms", "rms-fp32", "layer", "layer-without-bias", "layer-fp32"]
"""Normalisations as code writes them: by the root mean square (Llama's) or by mean and variance.

Those in fp32 multiply by their weight before they cast back to 16 bits: Gemma's, OLMo 2's and
gpt-oss' by the root mean square, and Cohere's layer normalisation, which has no bias and is made of
single operations (Hugging Face transformers, modeling_*.py). T5's keeps as much as the first: an
fp32 copy, the 16-bit input and what the weight multiplies. Fused kernels have none of this."""
Bias = Literal["none", "qkv", "attention", "ffn", "all"]


class Architecture(NamedTuple):
    """The numbers of a transformer, by the names that a specification has them.

    ``kv`` are heads of keys and values (grouped heads), ``head`` values of a head. ``positions``
    are learned ones: 0 for none (rotary, relative), -1 for as many as tokens; ``spare`` ones of
    them no token has. ``seq`` are tokens a sample if nothing else is asked. ``norms`` are
    normalisations a block. Layers from ``dense`` on have ``experts``, of which ``topk`` work for a
    token, ``expert_ffn`` wide, and ``shared`` ones that work for all; those of a token are in
    ``topk_groups`` of ``groups`` of experts (0: in any). ``window`` is the reach of
    attention in every ``window_every``-th layer (0: all tokens), or with ``full_every`` in all but
    every ``full_every``-th. ``kv_rank`` and ``q_rank`` are the widths to which latent attention
    projects keys with values, and queries; ``rope`` is the width of a head that carries the
    position there, ``value`` that of a head's values (0: ``head``, as that of its keys).
    ``activation`` is what it is in the dense layers. ``dropout`` says that a decoder drops scores
    of attention and what it adds to the stream, and T5 what its dense layers work on too;
    ``residual_dropout`` that it drops what it adds to the stream alone. ``qk_norm`` normalises the
    queries and keys of each head, with ``qk_norm_all`` those of all heads together. ``parallel``
    says that two normalisations of a block read the same, as attention and dense layers work beside
    each other; with one normalisation they do.

    Images are ``image`` points high and ``image_width`` wide (0: as wide as high), of ``channels``,
    in squares of ``patch`` points; ``pool`` is what the output layer reads. A diffusion transformer
    learns variances beside noise (``learn_sigma``), so that it writes two values for each of its
    input; ``vocab`` are its classes, beside which stands one for none. ``classes`` are those of an
    output layer that classifies texts, in place of one over words (0). ``targets`` are the tokens
    of an encoder-decoder's decoder, whatever its encoder has; 0: 114 for 512 of these.

    Six say how Hugging Face transformers writes it, which counts where software runs single
    operations: ``router_fp32`` that experts are chosen by a product in fp32, ``softcap`` that
    scores of attention are capped by a hyperbolic tangent, ``sinks`` that a learned score of each
    head stands beside them, ``alibi`` that a bias by distance is added to them, ``fused_qkv`` that
    queries, keys and values are views of what one product writes, ``partial_rotary`` that positions
    turn a part of each head, which is then joined with the rest.
    """

    layers: int
    hidden: int
    heads: int
    kv: int
    head: int
    ffn: int
    vocab: int
    family: Family = "decoder"
    seq: int = 2048
    positions: int = 0
    norm: Norm = "rms"
    gated: bool = True
    bias: Bias = "none"
    tied: bool = False
    norms: int = 2
    qk_norm: bool = False
    experts: int = 0
    topk: int = 0
    expert_ffn: int = 0
    shared: int = 0
    dense: int = 0
    window: int = 0
    window_every: int = 1
    kv_rank: int = 0
    q_rank: int = 0
    rope: int = 0
    image: int = 224
    patch: int = 16
    head_bias: bool = False
    shared_gate: bool = False
    types: int = 2
    spare: int = 0
    groups: int = 0
    topk_groups: int = 0
    activation: Activation = "one-kernel"
    full_every: int = 0
    value: int = 0
    qk_norm_all: bool = False
    dropout: bool = False
    residual_dropout: bool = False
    router_fp32: bool = False
    softcap: bool = False
    sinks: bool = False
    fused_qkv: bool = False
    partial_rotary: bool = False
    parallel: bool = False
    alibi: bool = False
    image_width: int = 0
    channels: int = 3
    pool: Pool = "token"
    learn_sigma: bool = False
    classes: int = 0
    targets: int = 0

    @property
    def over_images(self) -> bool:
        """Whether it is a network over images, which has as many tokens as these have patches."""
        return self.family in ("vit", "dit")

    @property
    def patches(self) -> tuple[int, int]:
        """How many patches an image is high and wide."""
        return self.image // self.patch, (self.image_width or self.image) // self.patch

    @property
    def drops(self) -> bool:
        """Whether dropout works on what a block adds to the stream."""
        return self.dropout or self.residual_dropout

    @property
    def scores(self) -> Scores:
        """What its code does with scores of attention."""
        if self.family == "encoder-decoder":
            return "relative"
        words: dict[Scores, bool] = {
            "softcap": self.softcap,
            "sinks": self.sinks,
            "alibi": self.alibi,
        }
        return next((word for word, done in words.items() if done), "")


def architecture_layers(shape: Architecture, tokens: int | None = None) -> tuple[ModelLayer, ...]:
    """Return the layers of a transformer in forward order.

    Parameters
    ----------
    tokens : tokens a sample; None for those of the architecture

    Raises
    ------
    RequestError
        If ``tokens`` is beyond the positions that it learns, or it is a network over images.

    Examples
    --------
    >>> sum(layer.elements for layer in architecture_layers(NAMED["llama3-8b"]))
    8030261248
    """
    if shape.over_images:
        if tokens is not None:
            raise RequestError("seq", "a vision transformer takes no tokens.", value=tokens)
        return tuple(_vision(shape) if shape.family == "vit" else _diffusion(shape))
    tokens = tokens or shape.seq
    if shape.positions > 0 and tokens > shape.positions - shape.spare:
        why = f"the model learns {shape.positions - shape.spare} positions, found {tokens}."
        raise RequestError("seq", why, value=tokens)
    if shape.family == "encoder-decoder":
        return tuple(_encoder_decoder(shape, tokens))
    return tuple(_decoder(shape, tokens) if shape.family == "decoder" else _encoder(shape, tokens))


def _norm(
    name: str, shape: Architecture, rows: int, width: int = 0, added: bool = False
) -> ModelLayer:
    dropped = added and shape.drops
    made = layernorm(name, width or shape.hidden, rows, added=added, dropped=dropped)
    if shape.norm == "layer":
        return made
    kind = "rmsnorm" if shape.norm.startswith("rms") else made.kind
    fp32 = shape.norm.endswith("fp32")
    return made._replace(kind=kind, tensors=made.tensors[:1], fp32=fp32)


def _decoder(shape: Architecture, tokens: int) -> Iterator[ModelLayer]:
    yield from _embeddings("model", shape, tokens)
    for index in range(shape.layers):
        yield from _block(f"model.layers.{index}", shape, index, tokens, causal=True)
    yield _norm("model.norm", shape, tokens)
    yield _head(shape, tokens)


def _embeddings(prefix: str, shape: Architecture, tokens: int) -> Iterator[ModelLayer]:
    name = f"{prefix}.embed_tokens"
    yield embedding(name, shape.vocab, shape.hidden, tokens, split="vocabulary")
    learned = tokens if shape.positions < 0 else shape.positions
    if learned:
        made = embedding(f"{prefix}.embed_positions", learned, shape.hidden, tokens)
        yield made._replace(dropped=made.outputs * shape.dropout)


def _head(shape: Architecture, tokens: int) -> ModelLayer:
    if shape.classes:  # of all tokens, of which the last one's counts
        return linear("score", shape.hidden, shape.classes, tokens, bias=False)
    if shape.tied:
        flops = 2.0 * shape.hidden * shape.vocab * tokens
        outputs = shape.vocab * tokens
        made = matmul("lm_head", "linear", flops, outputs, tokens, split="vocabulary")
        bias = (("lm_head.bias", (shape.vocab,)),)
        return made._replace(tensors=bias) if shape.head_bias else made
    width, biased = shape.hidden, shape.head_bias
    return linear("lm_head", width, shape.vocab, tokens, bias=biased, split="vocabulary")


def _block(
    name: str, shape: Architecture, index: int, tokens: int, *, causal: bool
) -> Iterator[ModelLayer]:
    """Yield a block: normalise, attend, normalise, transform each token."""
    first = _norm(f"{name}.input_layernorm", shape, tokens, added=True)
    yield first._replace(module="layernorm")
    yield from _attention(f"{name}.self_attn", shape, index, tokens, causal=causal)
    if shape.norms == 4:
        yield _norm(f"{name}.post_attention_layernorm", shape, tokens)
    if shape.norms > 1:
        made = _norm(f"{name}.pre_feedforward_layernorm", shape, tokens, added=True)
        yield made._replace(reads_again=shape.parallel, module="layernorm")
    if shape.experts and index >= shape.dense:
        yield from _experts(f"{name}.mlp", shape, tokens)
    else:
        yield from _in_module("mlp", _feedforward(f"{name}.mlp", shape, shape.ffn, tokens))
    if shape.norms == 4:
        yield _norm(f"{name}.post_feedforward_layernorm", shape, tokens)


def _in_module(module: Module, layers: Iterable[ModelLayer]) -> Iterator[ModelLayer]:
    return (layer._replace(module=module) for layer in layers)


def _attention(
    name: str, shape: Architecture, index: int, tokens: int, *, causal: bool
) -> Iterator[ModelLayer]:
    if shape.kv_rank:
        yield from _latent_attention(name, shape, tokens)
        return
    query, pair = shape.heads * shape.head, shape.kv * shape.head
    biased = shape.bias in ("qkv", "attention", "all")
    rotary = 0.0 if shape.positions else 1.0
    heads = {"q_proj": shape.heads, "k_proj": shape.kv, "v_proj": shape.kv}
    for part, width in (("q_proj", query), ("k_proj", pair), ("v_proj", pair)):
        made = linear(
            f"{name}.{part}",
            shape.hidden,
            width,
            tokens,
            bias=biased,
            split="column",
            parts=heads[part],
        )
        yield made if part == "v_proj" else made._replace(rotated=rotary * made.outputs)
    if shape.qk_norm:
        yield _norm_of_heads(f"{name}.q_norm", shape, shape.heads, tokens)
        yield _norm_of_heads(f"{name}.k_norm", shape, shape.kv, tokens)
    reached = min(tokens, shape.window) if _slides(shape, index) else tokens
    made = attention(
        f"{name}.attn",
        query,
        tokens,
        heads=shape.heads,
        causal=causal,
        dropped=shape.dropout,
    )
    # Of a window w the mean reach is w - w^2 / 2t of t tokens, where all have t / 2: as causal work
    # counts the whole square and half of it is done, so many of the t are asked.
    share = (2.0 * reached - reached**2 / tokens) / tokens if causal else reached / tokens
    # Turned queries and keys are tensors of their own, beside the product's output that the values
    # are a view of. Joined parts stand head by head, so that the output is copied to rows.
    kept = tokens * ((query + pair) * shape.fused_qkv + query * shape.partial_rotary)
    yield made._replace(
        flops=made.flops * share,
        scores=shape.scores,
        kept=float(kept),
        window=reached / tokens,
    )
    biased = shape.bias in ("attention", "all")
    yield linear(f"{name}.o_proj", query, shape.hidden, tokens, bias=biased, split="row")


def _slides(shape: Architecture, index: int) -> bool:
    """Tell whether a layer's attention reaches a window only."""
    if shape.full_every:
        return (index + 1) % shape.full_every != 0
    return shape.window > 0 and (index + 1) % shape.window_every == 0


def _norm_of_heads(name: str, shape: Architecture, heads: int, tokens: int) -> ModelLayer:
    """Return what normalises the queries, or the keys, of so many heads."""
    if shape.qk_norm_all:
        return _norm(name, shape, tokens, heads * shape.head)
    return _norm(name, shape, tokens * heads, shape.head)


def _latent_attention(name: str, shape: Architecture, tokens: int) -> Iterator[ModelLayer]:
    """Yield DeepSeek's attention: keys and values are made of one narrow projection."""
    wide = shape.heads * (shape.head + shape.rope)
    if shape.q_rank:
        yield linear(f"{name}.q_a_proj", shape.hidden, shape.q_rank, tokens, bias=False)
        yield _norm(f"{name}.q_a_layernorm", shape, tokens, shape.q_rank)
        query = linear(f"{name}.q_b_proj", shape.q_rank, wide, tokens, bias=False)
    else:
        query = linear(f"{name}.q_proj", shape.hidden, wide, tokens, bias=False)
    turned = float(tokens * shape.heads * shape.rope)
    yield query._replace(rotated=turned, split="column", parts=shape.heads, module="mla_up_proj")
    narrow = shape.kv_rank + shape.rope
    yield linear(f"{name}.kv_a_proj_with_mqa", shape.hidden, narrow, tokens, bias=False)
    yield _norm(f"{name}.kv_a_layernorm", shape, tokens, shape.kv_rank)
    value = shape.value or shape.head
    both = shape.heads * (shape.head + value)
    made = linear(f"{name}.kv_b_proj", shape.kv_rank, both, tokens, bias=False)
    yield made._replace(split="column", parts=shape.heads, module="mla_up_proj")
    values = shape.heads * value
    drops = shape.dropout
    made = attention(f"{name}.attn", values, tokens, heads=shape.heads, causal=True, dropped=drops)
    # Scores are products as wide as keys, what they weigh is as wide as values.
    yield made._replace(flops=made.flops * (shape.head + value + shape.rope) / (2 * value))
    yield linear(f"{name}.o_proj", values, shape.hidden, tokens, bias=False, split="row")


def _feedforward(name: str, shape: Architecture, inner: int, tokens: int) -> Iterator[ModelLayer]:
    biased, width = shape.bias in ("ffn", "all"), shape.hidden
    up = linear(f"{name}.up_proj", width, inner, tokens, bias=biased, split="column")
    dropped = up.outputs * (shape.dropout and shape.family == "encoder-decoder")
    if shape.gated:
        gate = linear(f"{name}.gate_proj", width, inner, tokens, bias=biased, split="column")
        yield gate._replace(activated=True, activation=shape.activation)
        yield up._replace(copies=up.outputs, dropped=dropped)
    else:
        # What dropout writes is another tensor than the output that a ReLU keeps.
        kept = dropped * (shape.activation == "relu")
        made = up._replace(activated=True, activation=shape.activation)
        yield made._replace(dropped=dropped, kept=kept)
    yield linear(f"{name}.down_proj", inner, width, tokens, bias=biased, split="row")


_CLAMPED, _ADDED = 9.0, 7.0
"""Values that operations beside experts with biases move in each pass, for a value between their
two products and for one behind them: the gate is cut in two, clamped twice and joined, the bias of
each expert is weighted and added, and the tokens of all are joined and cast: 8 and 10, 6 and 8
(NVIDIA/Megatron-LM@d7288711 megatron/core/fusions/fused_bias_geglu.py,
megatron/core/transformer/moe/experts.py: _apply_bias)."""


def _experts(name: str, shape: Architecture, tokens: int) -> Iterator[ModelLayer]:
    """Yield a router and its experts, which keep their weights in one tensor for each product."""
    rows, inner, width = tokens * shape.topk, shape.expert_ffn, shape.hidden
    router = linear(f"{name}.gate", width, shape.experts, tokens, bias=False)
    yield router._replace(fp32=shape.router_fp32, module="moe")

    def product(part: str, inputs: int, outputs: int, **more: Any) -> ModelLayer:
        tensors: tuple[tuple[str, LayerShape], ...] = (
            (f"{name}.experts.{part}", (shape.experts, outputs, inputs)),
        )
        made = linear(f"{name}.experts.{part}", inputs, outputs, rows, bias=False)
        return made._replace(tensors=tensors, chosen=shape.topk, module="moe", **more)

    # Tokens are put in the order of their experts, and back, weighted, behind them.
    spread, ordered = float(rows * width), float((rows + tokens) * width)
    clamped, added, activation = 0.0, 0.0, shape.activation
    if shape.bias in ("ffn", "all"):
        clamped, added = _CLAMPED * rows * inner, _ADDED * spread
        activation = "clamped_swiglu"
    if shape.gated:
        first = product("gate_up_proj", width, 2 * inner, activated=True, activation=activation)
        first = first._replace(copies=first.outputs / 2)
    else:
        first = product("up_proj", width, inner, activated=True, activation=shape.activation)
    groups = (shape.groups, shape.topk_groups) if shape.groups else (1, 1)
    yield first._replace(permuted=ordered, unfused=clamped, split="column", groups=groups)
    last = product("down_proj", inner, width, copies=spread)
    yield last._replace(permuted=ordered, unfused=added, split="row")
    yield from _in_module("shared_experts", _shared_experts(name, shape, tokens))


def _shared_experts(name: str, shape: Architecture, tokens: int) -> Iterator[ModelLayer]:
    """Yield the experts that work for all tokens, if there are any, and their gate."""
    if shape.shared_gate:
        yield linear(f"{name}.shared_expert_gate", shape.hidden, 1, tokens, bias=False)
    if shape.shared:
        inner = shape.shared * shape.expert_ffn
        *inputs, last = _feedforward(f"{name}.shared_experts", shape, inner, tokens)
        yield from inputs
        weighted = last.outputs * shape.shared_gate  # its output, by what the gate's product says
        yield last._replace(copies=weighted, kept=weighted)


_MASKED_SHARE = 20 / 128
"""Tokens that BERT's pre-training predicts: 20 of 128 (google-research/bert, README.md)."""


def _encoder(shape: Architecture, tokens: int) -> Iterator[ModelLayer]:
    """Yield BERT or RoBERTa: normalised after each part, with the heads of pre-training.

    One that classifies has a dense layer and an output layer on the first token instead
    (transformers, modeling_bert.py and modeling_roberta.py, ...ForSequenceClassification).
    """
    width = shape.hidden
    yield from _embeddings("bert", shape, tokens)
    yield embedding("bert.token_type_embeddings", shape.types, width, tokens)
    yield layernorm("bert.embeddings.LayerNorm", width, tokens, added=True, dropped=True)
    for index in range(shape.layers):
        name = f"bert.layers.{index}"
        for part in ("query", "key", "value"):
            made = linear(f"{name}.{part}", width, width, tokens, split="column")
            yield made._replace(parts=shape.heads)
        yield attention(f"{name}.attn", width, tokens, heads=shape.heads, dropped=True)
        yield linear(f"{name}.output", width, width, tokens, split="row")
        yield layernorm(f"{name}.attention.LayerNorm", width, tokens, added=True, dropped=True)
        first = linear(f"{name}.intermediate", width, shape.ffn, tokens, activated=True)
        yield first._replace(activation=shape.activation, split="column")
        yield linear(f"{name}.dense", shape.ffn, width, tokens, split="row")
        yield layernorm(f"{name}.LayerNorm", width, tokens, added=True, dropped=True)
    if shape.classes:
        yield linear("bert.pooler", width, width)
        yield linear("classifier", width, shape.classes)
        return
    if shape.types > 1:
        yield linear("bert.pooler", width, width)
    masked = (
        linear("cls.transform", width, width, tokens),
        layernorm("cls.transform.LayerNorm", width, tokens),
        ModelLayer(
            "cls.predictions",
            "linear",
            (("cls.predictions.bias", (shape.vocab,)),),
            2.0 * width * shape.vocab * tokens,
            4.0 * shape.vocab * tokens,
            tokens,
            split="vocabulary",
        ),
    )
    for layer in masked:
        yield layer._replace(gathered=_MASKED_SHARE)
    if shape.types > 1:
        yield linear("cls.seq_relationship", width, 2)


_TARGET_SHARE = 114 / 512
"""Tokens of the target for each of the input in T5's pre-training: 114 of 512 (Raffel et al., arXiv
1910.10683, section 3.1.4 and its code's span corruption)."""
_BUCKETS = 32
"""Buckets of relative positions in T5 (Raffel et al., section 2.1)."""


def _encoder_decoder(shape: Architecture, tokens: int) -> Iterator[ModelLayer]:
    """Yield T5: the decoder attends to the encoder too, and has tokens of its own number.

    Cross-attention and the embedding of both halves are divided as in Megatron-LM (NVIDIA/
    Megatron-LM@00caa53a core/models/T5/t5_spec.py, t5_model.py).
    """
    targets = shape.targets or max(1, round(tokens * _TARGET_SHARE))
    words = embedding("shared", shape.vocab, shape.hidden, tokens + targets, split="vocabulary")
    yield words._replace(dropped=words.outputs * shape.dropout)
    for half, rows in (("encoder", tokens), ("decoder", targets)):
        relative = f"{half}.block.0.relative_attention_bias"
        yield embedding(relative, _BUCKETS, shape.heads, rows)
        for index in range(shape.layers):
            name = f"{half}.block.{index}"
            yield _norm(f"{name}.layer_norm", shape, rows, added=True)
            decodes = half == "decoder"
            yield from _attention(f"{name}.SelfAttention", _plain(shape), 0, rows, causal=decodes)
            if decodes:
                yield _norm(f"{name}.cross.layer_norm", shape, rows, added=True)
                first = index == 0
                yield from _cross_attention(f"{name}.EncDecAttention", shape, rows, tokens, first)
            yield _norm(f"{name}.ff.layer_norm", shape, rows, added=True)
            yield from _feedforward(f"{name}.ff", shape, shape.ffn, rows)
        last = _norm(f"{half}.final_layer_norm", shape, rows)
        yield last._replace(dropped=last.outputs * shape.dropout)
    yield _head(shape, targets)


def _cross_attention(
    name: str, shape: Architecture, rows: int, tokens: int, first: bool
) -> Iterator[ModelLayer]:
    """Yield attention of ``rows`` tokens of a decoder to the ``tokens`` of its encoder.

    All but the ``first`` read what the first one reads of the encoder.
    """
    wide, heads = shape.heads * shape.head, shape.heads
    for part, of in (("q_proj", rows), ("k_proj", tokens), ("v_proj", tokens)):
        made = linear(f"{name}.{part}", shape.hidden, wide, of, bias=False)
        again = part == "k_proj" and not first
        yield made._replace(split="column", parts=heads, reads_again=again)
    made = attention(f"{name}.attn", wide, rows, heads=heads, dropped=shape.dropout)
    share = tokens / rows
    yield made._replace(flops=made.flops * share, dropped=made.dropped * share, scores=shape.scores)
    yield linear(f"{name}.o_proj", wide, shape.hidden, rows, bias=False, split="row")


def _plain(shape: Architecture) -> Architecture:
    """Return the shape as attention sees it without rotary positions."""
    return shape._replace(positions=-1)


def _vision(shape: Architecture) -> Iterator[ModelLayer]:
    """Yield a vision transformer: patches, blocks, and an output layer over classes."""
    width, token = shape.hidden, shape.pool == "token"
    patches = prod(shape.patches)
    rows = patches + token
    yield conv("patch_embed.proj", shape.channels, width, shape.patch, shape.patches, bias=True)
    if token:
        tensors = (("cls_token", (1, 1, width)),)
        yield ModelLayer("cls_token", "parameter", tensors, 0.0, 4.0 * width)
    positions = (("pos_embed", (1, rows, width)),)
    yield ModelLayer("pos_embed", "parameter", positions, 0.0, 4.0 * rows * width)
    for index in range(shape.layers):
        yield from _block(f"blocks.{index}", _plain(shape), index, rows, causal=False)
    yield layernorm("norm", width, rows)
    yield linear("head", width, shape.vocab, patches if shape.pool == "none" else 1)


_FREQUENCIES = 256
"""Sines and cosines of a time step that a diffusion transformer reads (facebookresearch/
DiT@00d70acc models.py, TimestepEmbedder)."""


def _diffusion(shape: Architecture) -> Iterator[ModelLayer]:
    """Yield a diffusion transformer (Peebles & Xie, arXiv 2212.09748) on latent images.

    Of time step and class a dense layer makes what shifts and scales the normalised tokens of each
    part of a block, and what multiplies that which the part adds (adaLN-Zero). Normalisations have
    no parameters, positions are not learned (facebookresearch/DiT@00d70acc models.py).
    """
    width, rows = shape.hidden, prod(shape.patches)
    first = linear("t_embedder.mlp.0", _FREQUENCIES, width)
    yield first._replace(activated=True)
    yield linear("t_embedder.mlp.2", width, width)
    yield embedding("y_embedder.embedding_table", shape.vocab + 1, width, 1)
    yield conv("x_embedder.proj", shape.channels, width, shape.patch, shape.patches, bias=True)
    for index in range(shape.layers):
        name = f"blocks.{index}"
        yield linear(f"{name}.adaLN_modulation.1", width, 6 * width)
        for layer in _block(name, _plain(shape), index, rows, causal=False):
            if layer.kind == "layernorm":
                yield _modulated(layer)
            elif layer.split == "row":
                yield layer._replace(scaled=layer.outputs)
            else:
                yield layer
    yield linear("final_layer.adaLN_modulation.1", width, 2 * width)
    yield _modulated(layernorm("final_layer.norm_final", width, rows))
    written = shape.patch**2 * shape.channels * (1 + shape.learn_sigma)
    yield linear("final_layer.linear", width, written, rows)


def _modulated(norm: ModelLayer) -> ModelLayer:
    """Return a normalisation without parameters whose outputs are scaled and shifted."""
    return norm._replace(tensors=(), modulated=norm.outputs)


def _llama(
    layers: int, hidden: int, heads: int, kv: int, ffn: int, vocab: int, **more: Any
) -> Architecture:
    made = Architecture(layers, hidden, heads, kv, hidden // heads, ffn, vocab)
    return made._replace(**more)


def _gpt3(layers: int, hidden: int, heads: int, **more: Any) -> Architecture:
    made = Architecture(layers, hidden, heads, heads, hidden // heads, 4 * hidden, 50257)
    learned = made._replace(positions=2048, norm="layer", gated=False, bias="all", tied=True)
    return learned._replace(**more)


_OPT: dict[str, Any] = {"vocab": 50272, "positions": 2050, "spare": 2}
_OPT |= {"activation": "relu", "residual_dropout": True}


def _dit(layers: int, hidden: int, heads: int) -> Architecture:
    made = Architecture(layers, hidden, heads, heads, hidden // heads, 4 * hidden, 1000)
    made = made._replace(family="dit", norm="layer", gated=False, bias="all")
    return made._replace(image=32, patch=2, channels=4, learn_sigma=True)


def _t5(layers: int, hidden: int, heads: int, head: int, ffn: int) -> Architecture:
    made = Architecture(layers, hidden, heads, heads, head, ffn, 32128, family="encoder-decoder")
    made = made._replace(seq=512, gated=False, tied=True, activation="relu")
    return made._replace(norm="rms-fp32", dropout=True)


def _qwen3(layers: int, hidden: int, heads: int, expert_ffn: int) -> Architecture:
    made = Architecture(layers, hidden, heads, 4, 128, 3 * hidden, 151936, seq=4096, qk_norm=True)
    return made._replace(experts=128, topk=8, expert_ffn=expert_ffn)


def _qwen3_dense(
    layers: int, hidden: int, heads: int, ffn: int, tied: bool = False
) -> Architecture:
    made = Architecture(layers, hidden, heads, 8, 128, ffn, 151936, seq=4096, tied=tied)
    return made._replace(qk_norm=True)


def _olmo2(layers: int, hidden: int, kv: int, ffn: int) -> Architecture:
    made = _llama(layers, hidden, hidden // 128, kv, ffn, 100352, seq=4096, norm="rms-fp32")
    return made._replace(qk_norm=True, qk_norm_all=True)


def _glm4_5(layers: int, hidden: int, ffn: int, experts: int, expert_ffn: int) -> Architecture:
    made = Architecture(layers, hidden, 96, 8, 128, ffn, 151552, seq=4096, bias="qkv")
    made = made._replace(router_fp32=True, partial_rotary=True)
    return made._replace(experts=experts, topk=8, expert_ffn=expert_ffn, shared=1)


def _gpt_oss(layers: int, experts: int) -> Architecture:
    made = Architecture(layers, 2880, 64, 8, 64, 2880, 201088, seq=4096)
    made = made._replace(window=128, window_every=2, bias="all", norm="rms-fp32", sinks=True)
    return made._replace(experts=experts, topk=4, expert_ffn=2880)


def _nemotron(layers: int, hidden: int, heads: int, kv: int, ffn: int) -> Architecture:
    made = _llama(layers, hidden, heads, kv, ffn, 256000, seq=4096, norm="layer", gated=False)
    return made._replace(activation="relu2", partial_rotary=True)


NAMED: dict[str, Architecture] = {
    # Brown et al., arXiv 2005.14165, table 2.1; XL with 16 heads, since its 24 do not divide 2048,
    # and 13B with a width of 5120, of which its 40 heads of 128 are.
    "gpt3-125m": _gpt3(12, 768, 12),
    "gpt3-350m": _gpt3(24, 1024, 16),
    "gpt3-760m": _gpt3(24, 1536, 16),
    "gpt3-1.3b": _gpt3(24, 2048, 16),
    "gpt3-2.7b": _gpt3(32, 2560, 32),
    "gpt3-6.7b": _gpt3(32, 4096, 32),
    "gpt3-13b": _gpt3(40, 5120, 40),
    "gpt3-175b": _gpt3(96, 12288, 96),
    # Zhang et al., arXiv 2205.01068, table 1; 50272 words and two more positions: facebook/opt-*
    # config.json. OPT-350M is missing: it alone normalises afterwards and projects its embedding.
    "opt-125m": _gpt3(12, 768, 12, **_OPT),
    "opt-1.3b": _gpt3(24, 2048, 32, head=64, **_OPT),
    "opt-2.7b": _gpt3(32, 2560, 32, **_OPT),
    "opt-6.7b": _gpt3(32, 4096, 32, **_OPT),
    "opt-13b": _gpt3(40, 5120, 40, **_OPT),
    "opt-30b": _gpt3(48, 7168, 56, **_OPT),
    "opt-66b": _gpt3(64, 9216, 72, **_OPT),
    # mosaicml/llm-foundry@8c8dd48 scripts/train/benchmarking/README.md: learned positions, biases.
    **{
        f"mpt-{size}": _gpt3(layers, hidden, heads, vocab=50368, positions=-1)
        for size, layers, hidden, heads in (
            ("125m", 12, 768, 12),
            ("350m", 24, 1024, 16),
            ("760m", 24, 1536, 12),
            ("1b", 24, 2048, 16),
            ("3b", 32, 2560, 20),
            ("7b", 32, 4096, 32),
            ("13b", 40, 5120, 40),
            ("30b", 48, 7168, 56),
            ("70b", 80, 8192, 64),
        )
    },
    # Touvron et al., arXiv 2302.13971 and 2307.09288; Dubey et al., arXiv 2407.21783, table 3.
    "llama-7b": _llama(32, 4096, 32, 32, 11008, 32000),
    "llama-13b": _llama(40, 5120, 40, 40, 13824, 32000),
    "llama2-7b": _llama(32, 4096, 32, 32, 11008, 32000, seq=4096),
    "llama2-13b": _llama(40, 5120, 40, 40, 13824, 32000, seq=4096),
    "llama2-70b": _llama(80, 8192, 64, 8, 28672, 32000, seq=4096),
    "llama3-8b": _llama(32, 4096, 32, 8, 14336, 128256, seq=8192),
    "llama3-70b": _llama(80, 8192, 64, 8, 28672, 128256, seq=8192),
    "llama3-405b": _llama(126, 16384, 128, 8, 53248, 128256, seq=8192),
    # meta-llama/Llama-3.2-1B and -3B config.json.
    "llama3.2-1b": _llama(16, 2048, 32, 8, 8192, 128256, seq=8192, tied=True),
    "llama3.2-3b": _llama(28, 3072, 24, 8, 8192, 128256, seq=8192, tied=True),
    # InternLM (InternLM-7B config.json: 103168 words, biases on q, k, v, o).
    "internlm-7b": _llama(32, 4096, 32, 32, 11008, 103168, bias="attention"),
    # Jiang et al., arXiv 2310.06825, table 1; Jiang et al., arXiv 2401.04088, table 1.
    "mistral-7b": _llama(32, 4096, 32, 8, 14336, 32000, seq=8192, window=4096),
    "mixtral-8x7b": _llama(
        32, 4096, 32, 8, 14336, 32000, seq=4096, experts=8, topk=2, expert_ffn=14336
    ),
    # mistralai/Mixtral-8x22B-v0.1 config.json.
    "mixtral-8x22b": _llama(
        56, 6144, 48, 8, 16384, 32000, seq=4096, experts=8, topk=2, expert_ffn=16384
    ),
    # mistralai/Mistral-Small-24B-Base-2501 config.json.
    "mistral-small-24b": _llama(40, 5120, 32, 8, 32768, 131072, seq=8192, head=128),
    # Qwen2.5 technical report, arXiv 2412.15115, table 1; widths: Qwen/Qwen2.5-* config.json.
    "qwen2.5-7b": _llama(28, 3584, 28, 4, 18944, 152064, seq=4096, bias="qkv"),
    "qwen2.5-32b": _llama(64, 5120, 40, 8, 27648, 152064, seq=4096, bias="qkv"),
    "qwen2.5-72b": _llama(80, 8192, 64, 8, 29568, 152064, seq=4096, bias="qkv"),
    # Qwen3 technical report, arXiv 2505.09388, tables 1 and 2; widths: Qwen/Qwen3-* config.json.
    "qwen3-0.6b": _qwen3_dense(28, 1024, 16, 3072, tied=True),
    "qwen3-1.7b": _qwen3_dense(28, 2048, 16, 6144, tied=True),
    "qwen3-4b": _qwen3_dense(36, 2560, 32, 9728, tied=True),
    "qwen3-8b": _qwen3_dense(36, 4096, 32, 12288),
    "qwen3-14b": _qwen3_dense(40, 5120, 40, 17408),
    "qwen3-32b": _qwen3_dense(64, 5120, 64, 25600),
    "qwen3-30b-a3b": _qwen3(48, 2048, 32, 768),
    "qwen3-235b-a22b": _qwen3(94, 4096, 64, 1536),
    # gpt-oss, arXiv 2508.10925, section 2; widths: openai/gpt-oss-* config.json. Biases of experts
    # and attention sinks (0.04 % of the parameters) are left out.
    "gpt-oss-20b": _gpt_oss(24, 32),
    "gpt-oss-120b": _gpt_oss(36, 128),
    # NVIDIA/NeMo@e2de75c1 nemo/collections/llm/gpt/model/nemotron.py; 256000 words: Nemotron-4,
    # arXiv 2402.16819 (15B) and 2406.11704 (340B), tables 1; 8B: nvidia/nemotron-3-8b-base-4k.
    "nemotron3-8b": _nemotron(32, 4096, 32, 32, 16384),
    "nemotron3-22b": _nemotron(40, 6144, 48, 48, 24576),
    "nemotron4-15b": _nemotron(32, 6144, 48, 8, 24576),
    "nemotron4-340b": _nemotron(96, 18432, 96, 8, 73728),
    # BigScience Workshop, arXiv 2211.05100, table 3; 250880 words with padding, no learned
    # positions (ALiBi), a normalised embedding: bigscience/bloom config.json.
    "bloom-176b": Architecture(
        *(70, 14336, 112, 112, 128, 57344, 250880),
        norm="layer",
        gated=False,
        bias="all",
        tied=True,
    ),
    # Gemma 2, arXiv 2408.00118, table 1.
    "gemma2-9b": Architecture(
        42,
        3584,
        16,
        8,
        256,
        14336,
        256000,
        seq=8192,
        tied=True,
        norm="rms-fp32",
        norms=4,
        window=4096,
        window_every=2,
        softcap=True,
    ),
    # Gemma 3, arXiv 2503.19786, section 2: five layers with a window for each without; widths:
    # google/gemma-3-1b-pt config.json.
    "gemma3-1b": Architecture(
        *(26, 1152, 4, 1, 256, 6912, 262144),
        seq=8192,
        tied=True,
        norm="rms-fp32",
        norms=4,
        qk_norm=True,
        window=512,
        full_every=6,
    ),
    # Phi-4, arXiv 2412.08905; widths: microsoft/phi-4 config.json.
    "phi-4": _llama(40, 5120, 40, 10, 17920, 100352, seq=4096)._replace(
        fused_qkv=True, partial_rotary=True
    ),
    # OLMo 2, arXiv 2501.00656; widths: allenai/OLMo-2-* config.json. It normalises behind attention
    # and products, which costs the same.
    "olmo2-7b": _olmo2(32, 4096, 32, 11008),
    "olmo2-13b": _olmo2(40, 5120, 40, 13824),
    "olmo2-32b": _olmo2(64, 5120, 8, 27648),
    # HuggingFaceTB/SmolLM3-3B config.json.
    "smollm3-3b": _llama(36, 2048, 16, 4, 11008, 128256, seq=4096, tied=True),
    # GLM-4.5, arXiv 2508.06471, table 1 (without its layer that predicts a second token); widths:
    # zai-org/GLM-4.5* config.json.
    "glm4.5-air": _glm4_5(46, 4096, 10944, 128, 1408)._replace(dense=1),
    "glm4.5": _glm4_5(92, 5120, 12288, 160, 1536)._replace(dense=3, qk_norm=True),
    # MiniMaxAI/MiniMax-M2 config.json (without its modules that predict further tokens).
    "minimax-m2": Architecture(
        *(62, 3072, 48, 8, 128, 1536, 200064),
        seq=4096,
        qk_norm=True,
        qk_norm_all=True,
        experts=256,
        topk=8,
        expert_ffn=1536,
        partial_rotary=True,
    ),
    # DeepSeek-V2 and -V2-Lite, arXiv 2405.04434, section 3.1.2 and appendix B; DeepSeek-V3, arXiv
    # 2412.19437, section 4.2 (without its module that predicts a second token); Kimi K2, arXiv
    # 2507.20534, table 2: DeepSeek-V3's blocks, moonshotai/Kimi-K2-Base config.json.
    "deepseek-v2-lite": Architecture(
        27,
        2048,
        16,
        16,
        128,
        10944,
        102400,
        seq=4096,
        experts=64,
        topk=6,
        expert_ffn=1408,
        shared=2,
        dense=1,
        router_fp32=True,
        kv_rank=512,
        rope=64,
    ),
    "deepseek-v2": Architecture(
        *(60, 5120, 128, 128, 128, 12288, 102400),
        seq=4096,
        experts=160,
        topk=6,
        expert_ffn=1536,
        shared=2,
        dense=1,
        router_fp32=True,
        kv_rank=512,
        q_rank=1536,
        rope=64,
        groups=8,
        topk_groups=3,
    ),
    "kimi-k2": Architecture(
        *(61, 7168, 64, 64, 128, 18432, 163840),
        seq=4096,
        experts=384,
        topk=8,
        expert_ffn=2048,
        shared=1,
        dense=1,
        router_fp32=True,
        kv_rank=512,
        q_rank=1536,
        rope=64,
    ),
    "deepseek-v3": Architecture(
        61,
        7168,
        128,
        128,
        128,
        18432,
        129280,
        seq=4096,
        experts=256,
        topk=8,
        expert_ffn=2048,
        shared=1,
        dense=3,
        router_fp32=True,
        kv_rank=512,
        q_rank=1536,
        rope=64,
        groups=8,
        topk_groups=4,
    ),
    # Peebles & Xie, arXiv 2212.09748, table 1, on latents of images of 256 x 256 in patches of 2.
    "dit-s2": _dit(12, 384, 6),
    "dit-b2": _dit(12, 768, 12),
    "dit-l2": _dit(24, 1024, 16),
    "dit-xl2": _dit(28, 1152, 16),
    # Raffel et al., arXiv 1910.10683, section 3.7.
    "t5-small": _t5(6, 512, 8, 64, 2048),
    "t5-base": _t5(12, 768, 12, 64, 3072),
    "t5-large": _t5(24, 1024, 16, 64, 4096),
    "t5-3b": _t5(24, 1024, 32, 128, 16384),
    "t5-11b": _t5(24, 1024, 128, 128, 65536),
}
"""Published models by the name that ``model`` takes."""
