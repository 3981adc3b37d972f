"""Adapters (LoRA): a frozen model with two narrow matrices beside each of some dense layers.

``llama3-8b+lora16:attention`` is the name inside perfsim of llama3-8b with adapters of rank 16
beside the projections of its attention; ``+qlora16`` says that its dense layers are kept in 4 bits,
``+fp32qlora16`` that all else is kept in fp32 besides.

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
trl and HF's guides call it on one GPU and with DDP; trl leaves it out with FSDP.
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
    "LORA_BASES",
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

WIDE = "fp32"
RESIDUAL_DTYPES = ("auto", WIDE)
"""Words for the type of values between layers: as precision and autocast say; fp32."""

_SIGNS = {"+fp32qlora": (True, True), "+qlora": (True, False), "+lora": (False, False)}
"""What stands between a model's name and its adapters -> whether the model is packed and wide."""


class Adapters(NamedTuple):
    """The rank of a model's adapters, and which layers have one: `ADAPTED_LAYERS`, or names.

    ``packed`` says whether the frozen dense layers are kept in 4 bits, experts among them (each is
    a module of dense layers in transformers 4, all of which bitsandbytes replaces). ``wide`` says
    whether all that is not packed is fp32, and so the values between layers.
    """

    rank: int
    layers: str = ALL_LAYERS
    packed: bool = False
    wide: bool = False


def check_adapters(rank: int | None, layers: str, base: str, residual_dtype: str) -> None:
    """Refuse what is asked of adapters, or of a packed model beside them, without these.

    Parameters
    ----------
    rank : of the adapters; None without any
    layers, base, residual_dtype : words as in `ADAPTED_LAYERS`, `LORA_BASES`, `RESIDUAL_DTYPES`

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
    return f"{model}{sign}{adapters.rank}{which}"


@cache
def base_model(name: str) -> tuple[str, Adapters | None]:
    """Return the model of a name without its adapters, and these; None without any.

    Examples
    --------
    >>> base_model("gpt2+lora8:c_attn")
    ('gpt2', Adapters(rank=8, layers='c_attn', packed=False, wide=False))
    """
    for sign, (packed, wide) in _SIGNS.items():
        base, found, said = name.rpartition(sign)
        rank, _, layers = said.partition(":")
        if found and rank.isdecimal():
            return base, Adapters(int(rank), layers or ALL_LAYERS, packed, wide)
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
    >>> from perfsim.models.language import NAMED, architecture_layers
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
            packed=adapters.packed and (may[at] or is_expert(layer)),
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
