"""Adapters (LoRA): a frozen model with two narrow matrices beside each of some dense layers.

``llama3-8b+lora16:attention`` is the name inside perfsim of llama3-8b with adapters of rank 16
beside the projections of its attention; ``+qlora16`` says that its dense layers are kept in 4 bits,
``+fp32qlora16`` that all else is kept in fp32 besides, ``+q32lora16`` that they are made fp32 where
values have that width. ``+lora16w`` says that the adapters are fp32
beside a model of 16 bits, ``+lora16d`` that dropout works on what they read.

References
----------
Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022 (arXiv 2106.09685). Code:
huggingface/peft, src/peft/tuners/lora/layer.py (``Linear.forward``), whose target_modules are names
of modules or "all-linear": all dense layers but the output layer. Dettmers et al., "QLoRA:
Efficient Finetuning of Quantized LLMs", NeurIPS 2023 (arXiv 2305.14314). Code:
bitsandbytes-foundation/bitsandbytes, bitsandbytes/autograd/_functions.py (``MatMul4Bit``).

huggingface/peft 0.21.2, src/peft/utils/other.py (``prepare_model_for_kbit_training``), makes all
parameters fp32 that are not packed: embeddings, normalisations, the output layer. A normalisation
whose weight is fp32 writes fp32, and bitsandbytes 0.50.2 (bitsandbytes/nn/modules.py,
``Linear4bit.forward``) casts what a packed layer reads to its 16 bits and what it writes back to
the type that it read. So all between packed layers is fp32, but for attention and what follows it.
trl and HF's guides call it on one GPU and with DDP; trl leaves it out with FSDP. Without autocast
attention is fp32 too, as are adapters (PEFT casts what they read to their own fp32) and the output
layer. Until bitsandbytes 0.46.1 (there, ``set_compute_type``; pull request 1623) a packed layer
computed in the fp32 that it first read, whatever it was told: all of the model was fp32 then, as it
is where bnb_4bit_compute_dtype is left at its default of fp32.

Since 0.12 PEFT makes adapters fp32 beside a model of 16 bits, unless ``autocast_adapter_dtype`` is
False (0.21.2, src/peft/tuners/tuners_utils.py, ``cast_adapter_dtype``). Each then casts what it
reads to fp32, and what it adds to back (``Linear.forward``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from perfsim.errors import RequestError, unknown
from perfsim.models.layers import ModelLayer, is_expert

__all__ = [
    "ADAPTED_LAYERS",
    "ALL_LAYERS",
    "AS_COMPUTED",
    "FLOAT_BITS",
    "HALF_BITS",
    "LORA_BASES",
    "LORA_DTYPES",
    "RESIDUAL_DTYPES",
    "WIDE",
    "Adapters",
    "adapted_name",
    "base_model",
    "check_adapters",
    "with_adapters",
]

ALL_LAYERS = "all"
"""All dense layers but the output layer, as PEFT's "all-linear"."""
_ATTENTION, _MLP = "attention", "mlp"
ADAPTED_LAYERS = (ALL_LAYERS, _ATTENTION, _MLP)
"""Words for layers that have adapters, besides the last parts of their names."""

AS_COMPUTED = "none"
LORA_BASES = (AS_COMPUTED, "nf4")
"""Words for what a frozen model is packed in: nothing, as it computes; 4 bits a value of a dense
layer but the output layer, as bitsandbytes keeps them."""

HALF_BITS, FLOAT_BITS = 16, 32
"""Bits of a value that is made of a packed one, by precision."""

WIDE = "fp32"
RESIDUAL_DTYPES = ("auto", WIDE)
"""Words for the type of values between layers: as precision and autocast say; fp32."""

LORA_DTYPES = ("auto", WIDE)
"""Words for the type of adapters: that of values; fp32 beside values of 16 bits."""

_SIGNS = {
    "+fp32qlora": (HALF_BITS, True),
    "+q32lora": (FLOAT_BITS, False),
    "+qlora": (HALF_BITS, False),
    "+lora": (0, False),
}
"""What stands between a model's name and its adapters -> bits of values that are made of packed
ones, 0 where none is, and whether the model is wide."""
_FP32, _DROPS = "w", "d"
"""What stands behind the rank where adapters are fp32, and where dropout works before them."""
_RANK = re.compile(f"([0-9]+)(?P<fp32>{_FP32}?)(?P<drops>{_DROPS}?)")


class Adapters(NamedTuple):
    """The rank of a model's adapters, and which layers have one: `ADAPTED_LAYERS`, or names.

    ``packed`` are the bits of the values that are made of frozen dense layers in 4 bits, experts
    among them (each is a module of dense layers in transformers 4, all of which bitsandbytes
    replaces); 0: these are not packed. ``wide`` says
    whether all that is not packed is fp32, and so the values between layers. ``fp32`` says whether
    the adapters' own matrices are, beside a model of 16 bits, ``drops`` whether dropout works on
    what they read.
    """

    rank: int
    layers: str = ALL_LAYERS
    packed: int = 0
    wide: bool = False
    fp32: bool = False
    drops: bool = False


def check_adapters(
    rank: int | None, layers: str, base: str, residual_dtype: str, dtype: str, dropout: float
) -> None:
    """Refuse what is asked of adapters, or of a packed model beside them, without these.

    Parameters
    ----------
    rank : of the adapters; None without any
    layers, base, residual_dtype : words as in `ADAPTED_LAYERS`, `LORA_BASES`, `RESIDUAL_DTYPES`
    dtype : of the adapters, as in `LORA_DTYPES`
    dropout : share of what they read that is dropped

    Raises
    ------
    RequestError
        The message says what to give besides.
    """
    if residual_dtype == WIDE and base == AS_COMPUTED:
        why = (
            "is for adapters beside a packed model; give `lora_base` nf4, or leave it out:"
            " `autocast` says whether values of an fp32 model are cast."
        )
        raise RequestError("residual_dtype", why, value=residual_dtype)
    if rank is not None:
        return
    if layers != ALL_LAYERS:
        why = "says which layers have adapters; give their rank as `lora`, or leave it out."
        raise RequestError("lora_layers", why, value=layers)
    if base != AS_COMPUTED:
        why = "says what a frozen model is packed in; give the rank of adapters as `lora`, or leave"
        raise RequestError("lora_base", f"{why} it out.", value=base)
    if dtype != LORA_DTYPES[0]:
        why = "is the type of adapters; give their rank as `lora`, or leave it out."
        raise RequestError("lora_dtype", why, value=dtype)
    if dropout:
        why = "is dropped before adapters; give their rank as `lora`, or leave it out."
        raise RequestError("lora_dropout", why, value=dropout)


def adapted_name(model: str, adapters: Adapters) -> str:
    """Return the name of a model with adapters.

    Examples
    --------
    >>> adapted_name("llama3-8b", Adapters(16)), adapted_name("gpt2", Adapters(8, "c_attn"))
    ('llama3-8b+lora16', 'gpt2+lora8:c_attn')
    """
    which = "" if adapters.layers == ALL_LAYERS else f":{adapters.layers}"
    kind = adapters.packed, adapters.wide
    sign = next(sign for sign, known in _SIGNS.items() if known == kind)
    flags = _FP32 * adapters.fp32 + _DROPS * adapters.drops
    return f"{model}{sign}{adapters.rank}{flags}{which}"


@cache
def base_model(name: str) -> tuple[str, Adapters | None]:
    """Return the model of a name without its adapters, and these; None without any.

    Examples
    --------
    >>> base_model("gpt2+lora8:c_attn")
    ('gpt2', Adapters(rank=8, layers='c_attn', packed=0, wide=False, fp32=False, drops=False))
    """
    for sign, (packed, wide) in _SIGNS.items():
        base, found, said = name.rpartition(sign)
        stated, _, layers = said.partition(":")
        rank = _RANK.fullmatch(stated)
        if found and rank:
            flags = rank["fp32"] == _FP32, rank["drops"] == _DROPS
            return base, Adapters(int(rank[1]), layers or ALL_LAYERS, packed, wide, *flags)
    return name, None


def with_adapters(layers: Sequence[ModelLayer], adapters: Adapters) -> tuple[ModelLayer, ...]:
    """Return the layers of a model all frozen, some of them with an adapter.

    Experts have none: each of their matrices is a part of one tensor.

    Raises
    ------
    RequestError
        If the model is no transformer, or no layer has one of the names; says which there are.

    Examples
    --------
    >>> from perfsim.models.language import architecture_layers
    >>> from perfsim.models.named import NAMED
    >>> made = with_adapters(architecture_layers(NAMED["llama3-8b"]), Adapters(16, "q_proj,v_proj"))
    >>> sum(layer.trained_elements for layer in made)
    6815744
    """
    if not any(layer.kind == "attention" for layer in layers):
        raise RequestError("lora", "only transformers have adapters; leave it out.")
    last = len(layers) - 1
    may = [_is_matrix(layer) and at != last for at, layer in enumerate(layers)]
    names = [layer.name.rpartition(".")[2] for layer in layers]
    known = sorted({name for name, fits in zip(names, may, strict=True) if fits})
    words = {part.strip() for part in adapters.layers.split(",")}
    for word in sorted(words - {*ADAPTED_LAYERS, *known}):
        raise unknown("lora_layers", word, (*ADAPTED_LAYERS, *known))

    def has_adapter(at: int) -> bool:
        kind = _ATTENTION if _IN_ATTENTION.search(layers[at].name) else _MLP
        return may[at] and not words.isdisjoint((ALL_LAYERS, kind, names[at]))

    if not any(map(has_adapter, range(len(layers)))):
        why = f"{adapters.layers} is no dense layer of this model; it has {', '.join(known)}."
        raise RequestError("lora_layers", why, value=adapters.layers)
    return tuple(
        layer._replace(
            frozen=True,
            adapter=adapters.rank if has_adapter(at) else 0,
            adapter_fp32=adapters.fp32 and has_adapter(at),
            adapter_drops=adapters.drops and has_adapter(at),
            packed=adapters.packed if may[at] or is_expert(layer) else 0,
            wide=adapters.wide,
        )
        for at, layer in enumerate(layers)
    )


_IN_ATTENTION = re.compile("attn|attention", re.IGNORECASE)
"""What stands in the name of a projection of attention, in the public names of all models."""


def _is_matrix(layer: ModelLayer) -> bool:
    """Tell whether a layer is a dense one with a matrix of its own, but no table of words."""
    shapes = [shape for _, shape in layer.tensors[:1]]
    own = bool(shapes) and len(shapes[0]) > 1 and not is_expert(layer)
    return layer.kind == "linear" and own and layer.split != "vocabulary"
