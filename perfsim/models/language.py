"""Language models and vision transformers by their numbers: layers, width, heads, vocabulary.

`Architecture` has the numbers; `architecture_layers` turns them into layers in the tensor names of
Hugging Face transformers' Llama. `perfsim.models.named` has the published models by name.
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

__all__ = ["Architecture", "architecture_layers"]

Family = Literal["decoder", "encoder", "pre-norm-encoder", "encoder-decoder", "vit", "dit"]
Pool = Literal["token", "distilled", "mean", "none"]
"""What the output layer of a vision transformer reads: a class token that attends to all patches,
or the same beside a second token for a teacher's classes (DeiT); their mean, without such a token;
each patch (timm's global_pool "token" and "avg", and "")."""
Objective = Literal["sentences", "words", "replaced"]
"""What an encoder is pre-trained to tell: masked words and, with ``types`` above 1, whether two
sentences follow each other (BERT); masked words alone; of each word whether it is a replaced one
(ELECTRA's discriminator)."""
Norm = Literal[
    "rms",
    "rms-fp32",
    "rms-without-weight",
    "layer",
    "layer-without-bias",
    "layer-fp32",
    "layer-without-weight",
]
"""Normalisations as code writes them: by the root mean square (Llama's) or by mean and variance.

Those in fp32 multiply by their weight before they cast back to 16 bits: Gemma's, OLMo 2's and
gpt-oss' by the root mean square, and Cohere's layer normalisation, which has no bias and is made of
single operations (Hugging Face transformers, modeling_*.py). T5's keeps as much as the first: an
fp32 copy, the 16-bit input and what the weight multiplies. Those without a weight have no bias
either: nanochat's by the root mean square, which is otherwise Llama's, and OLMo's, one kernel on an
fp32 copy. Fused kernels have none of this."""
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

    ``embedding`` is the width of embeddings that a product brings to the model's (0: as wide as
    it); ``embedding_norm`` says that they are normalised before the first block. With
    ``full_first`` it is the first layer that attends to all tokens, and every ``full_every``-th
    from it on. ``objective`` is what an encoder is pre-trained to tell.

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
    embedding: int = 0
    embedding_norm: bool = False
    full_first: bool = False
    objective: Objective = "sentences"

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
    >>> from perfsim.models.named import NAMED
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
    if shape.family == "pre-norm-encoder":
        return tuple(_pre_norm_encoder(shape, tokens))
    return tuple(_decoder(shape, tokens) if shape.family == "decoder" else _encoder(shape, tokens))


def _norm(
    name: str, shape: Architecture, rows: int, width: int = 0, added: bool = False
) -> ModelLayer:
    dropped = added and shape.drops
    made = layernorm(name, width or shape.hidden, rows, added=added, dropped=dropped)
    if shape.norm == "layer":
        return made
    kind = "rmsnorm" if shape.norm.startswith("rms") else made.kind
    fp32 = shape.norm.endswith("fp32") or shape.norm == "layer-without-weight"
    weights = 0 if shape.norm.endswith("without-weight") else 1
    return made._replace(kind=kind, tensors=made.tensors[:weights], fp32=fp32)


def _decoder(shape: Architecture, tokens: int) -> Iterator[ModelLayer]:
    yield from _embeddings("model", shape, tokens)
    if shape.embedding_norm:
        yield _norm("model.embed_layernorm", shape, tokens)
    for index in range(shape.layers):
        yield from _block(f"model.layers.{index}", shape, index, tokens, causal=True)
    yield _norm("model.norm", shape, tokens)
    yield _head(shape, tokens)


def _embeddings(prefix: str, shape: Architecture, tokens: int) -> Iterator[ModelLayer]:
    name, width = f"{prefix}.embed_tokens", shape.embedding or shape.hidden
    yield embedding(name, shape.vocab, width, tokens, split="vocabulary")
    learned = tokens if shape.positions < 0 else shape.positions
    if learned:
        made = embedding(f"{prefix}.embed_positions", learned, width, tokens)
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
    share = _reach(shape.window, tokens, causal) if _slides(shape, index) else 1.0
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


def _reach(window: int, tokens: int, causal: bool) -> float:
    """Return the share of attention's work that a window leaves.

    Of a window w before a token the mean reach is w - w^2 / 2t of t tokens, where all have t / 2:
    as causal work counts the whole square and half of it is done, so many of the t are asked. One
    to both sides, h each, misses h (h + 1) / 2 tokens at either end.
    """
    if causal:
        reached = min(tokens, window)
        return (2.0 * reached - reached**2 / tokens) / tokens
    side = min(window // 2, tokens - 1)
    return (1.0 + 2.0 * side - side * (side + 1) / tokens) / tokens


def _slides(shape: Architecture, index: int) -> bool:
    """Tell whether a layer's attention reaches a window only."""
    if shape.full_every:
        return (index + (not shape.full_first)) % shape.full_every != 0
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
    width, narrow = shape.hidden, shape.embedding or shape.hidden
    yield from _embeddings("bert", shape, tokens)
    if shape.types:
        yield embedding("bert.token_type_embeddings", shape.types, narrow, tokens)
    yield layernorm("bert.embeddings.LayerNorm", narrow, tokens, added=True, dropped=True)
    if narrow != width:
        yield linear("bert.embeddings_project", narrow, width, tokens)
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
    if shape.objective == "replaced":
        made = linear("discriminator_predictions.dense", width, width, tokens, activated=True)
        yield made._replace(activation=shape.activation)
        yield linear("discriminator_predictions.dense_prediction", width, 1, tokens)
        return
    sentences = shape.types > 1 and shape.objective == "sentences"
    if sentences:
        yield linear("bert.pooler", width, width)
    masked = (
        linear("cls.transform", width, narrow, tokens),
        layernorm("cls.transform.LayerNorm", narrow, tokens),
        ModelLayer(
            "cls.predictions",
            "linear",
            (("cls.predictions.bias", (shape.vocab,)),),
            2.0 * narrow * shape.vocab * tokens,
            4.0 * shape.vocab * tokens,
            tokens,
            split="vocabulary",
        ),
    )
    for layer in masked:
        yield layer._replace(gathered=_MASKED_SHARE)
    if sentences:
        yield linear("cls.seq_relationship", width, 2)


def _pre_norm_encoder(shape: Architecture, tokens: int) -> Iterator[ModelLayer]:
    """Yield ModernBERT: a decoder's blocks, whose tokens attend to both sides.

    What normalises the embeddings stands in place of the first block's own (transformers,
    modeling_modernbert.py). Words are told, of all tokens, behind a dense layer and a
    normalisation; one that classifies reads the first token so.
    """
    yield from _embeddings("model", shape, tokens)
    for index in range(shape.layers):
        yield from _block(f"model.layers.{index}", shape, index, tokens, causal=False)
    yield _norm("model.final_norm", shape, tokens)
    width, rows = shape.hidden, 1 if shape.classes else tokens
    yield linear("head.dense", width, width, rows, bias=False, activated=True)
    yield _norm("head.norm", shape, rows)
    yield linear("classifier", width, shape.classes) if shape.classes else _head(shape, tokens)


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


_BESIDE_PATCHES: dict[Pool, tuple[str, ...]] = {
    "token": ("cls_token",),
    "distilled": ("cls_token", "distillation_token"),
}
"""Tokens of a vision transformer that stand beside those of patches."""


def _vision(shape: Architecture) -> Iterator[ModelLayer]:
    """Yield a vision transformer: patches, blocks, and an output layer over classes."""
    width, patches = shape.hidden, prod(shape.patches)
    tokens = _BESIDE_PATCHES.get(shape.pool, ())
    rows = patches + len(tokens)
    yield conv("patch_embed.proj", shape.channels, width, shape.patch, shape.patches, bias=True)
    for token in tokens:
        tensors = ((token, (1, 1, width)),)
        yield ModelLayer(token, "parameter", tensors, 0.0, 4.0 * width)
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
