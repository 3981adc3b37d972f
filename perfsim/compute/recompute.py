"""What the backward pass computes again: a word, or parts of each block by their names.

Activations that are computed again need not be kept (Chen et al., "Training deep nets with
sublinear memory cost", arXiv 1604.06174). Megatron-LM's option for parts is recompute_modules
(NVIDIA/Megatron-LM@d98e8a64 megatron/core/transformer/transformer_config.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from perfsim.compute.execution import Execution
from perfsim.compute.profile import Profile, matches_definition
from perfsim.errors import RequestError, any_of, own_name, unknown
from perfsim.models import build_model, has_attention
from perfsim.models.blocks import block_count
from perfsim.models.layers import MODULES, ModelLayer, Module, is_expert

__all__ = [
    "MODULES",
    "RECOMPUTE",
    "blocks_again",
    "check_modules",
    "check_recompute",
    "checked_recompute",
    "is_again",
    "layers_again",
    "modules_again",
    "named_modules",
    "of_blocks",
]

WITH = "+"
"""Stands between parts; a comma does too, where it separates nothing else."""
RECOMPUTE = ("none", "selective", "full")
"""Words for what a backward pass computes again: nothing; what the software's selective
recomputation does; the whole forward pass."""

_WORDS = (*RECOMPUTE, *MODULES)
_OF_BLOCKS = re.compile(r"full:([1-9][0-9]{0,5})")
"""The whole forward pass of so many blocks."""


def of_blocks(blocks: int) -> str:
    """Return the word for all of the first so many blocks of each chunk of a stage."""
    return f"full:{blocks}"


def blocks_again(recompute: str) -> int:
    """Return of how many blocks all is computed again, the first of each chunk of a stage.

    It is 0 where no number is asked for: with ``full`` all layers are.

    So Megatron-LM's ``recompute_num_layers`` has it by the method "block" (NVIDIA/Megatron-LM
    @d98e8a64 megatron/core/transformer/transformer_block.py, ``_checkpointed_forward``).

    Examples
    --------
    >>> [blocks_again(one) for one in ("full:5", "full", "selective", "moe_act")]
    [5, 0, 0, 0]
    """
    found = _OF_BLOCKS.fullmatch(recompute)
    return int(found[1]) if found else 0


def named_modules(recompute: str) -> frozenset[str]:
    """Return the parts of a block that are asked for by name; none where a word says what is.

    Examples
    --------
    >>> sorted(named_modules("layernorm+moe_act")), sorted(named_modules("full"))
    (['layernorm', 'moe_act'], [])
    """
    named = recompute not in RECOMPUTE and not blocks_again(recompute)
    return frozenset(recompute.split(WITH)) if named else frozenset()


def modules_again(recompute: str, execution: Execution) -> frozenset[str]:
    """Return the parts of a block that software computes again; none where it is no whole part.

    Selective recomputation is that of attention without its projections in Megatron-LM, and
    wherever scores are stored (Korthikanti et al., arXiv 2205.05198, section 5). In torchtitan it
    is element-wise work and every second product (pytorch/torchtitan
    torchtitan/distributed/activation_checkpoint.py), of experts in grouped products each.

    Examples
    --------
    >>> from perfsim.compute.execution import execution_of
    >>> [sorted(modules_again("selective", execution_of(era))) for era in ("megatron", "torch2")]
    [['core_attn'], []]
    """
    if recompute == "selective" and execution.recomputes_attention:
        return frozenset({"core_attn"})
    return named_modules(recompute)


def layers_again(
    blocks: Sequence[tuple[int, int]], recompute: str, first: int = 0, end: int | None = None
) -> frozenset[int]:
    """Return the layers of the first blocks, as many as are asked for (`blocks_again`), by number.

    Parameters
    ----------
    blocks : the first layer of each and the one after its last
    first, end : of the chunk of a stage whose blocks count; all by default

    Examples
    --------
    >>> sorted(layers_again([(1, 3), (3, 5), (5, 7)], "full:1"))
    [1, 2]
    >>> sorted(layers_again([(1, 3), (3, 5), (5, 7)], "full:1", 3))
    [3, 4]
    """
    own = [span for span in blocks if first <= span[0] and (end is None or span[0] < end)]
    return frozenset(index for span in own[: blocks_again(recompute)] for index in range(*span))


def checked_recompute(value: str, field: str) -> str:
    """Return what is computed again as a scenario keeps it: a word, or parts in one order.

    Raises
    ------
    RequestError
        If a part is not known, or a word stands beside others.

    Examples
    --------
    >>> checked_recompute("Full", "recompute"), checked_recompute("moe_act, mlp", "recompute")
    ('full', 'mlp+moe_act')
    >>> checked_recompute("full:5", "recompute")
    'full:5'
    """
    word, colon, number = value.strip().partition(":")
    if colon and own_name(word, _WORDS) == "full":
        if not blocks_again(f"full:{number.strip()}"):
            why = "says of how many blocks all is computed again after full, such as full:5."
            raise RequestError(field, why, value=value)
        return of_blocks(int(number))
    given = [one.strip() for one in value.replace(",", WITH).split(WITH)]
    asked = [own_name(one, _WORDS) for one in given]
    if len(asked) == 1 and asked[0] in RECOMPUTE:
        return asked[0]
    for one in asked:
        if one in RECOMPUTE:
            why = f"{one} stands by itself: it is a word for all, not a part of a block."
            raise RequestError(field, why, value=value)
        if one not in MODULES:
            raise unknown(field, one, _WORDS)
    return WITH.join(one for one in MODULES if one in asked)


def check_recompute(profile: Profile, recompute: str) -> None:
    """Refuse to recompute a network without blocks of attention, or parts that are not known.

    Raises
    ------
    RequestError
        The message says which parts there are.
    """
    model = profile.model
    if recompute == "none":
        return
    if not matches_definition(profile):
        if recompute in RECOMPUTE:
            return
        why = (
            f"perfsim has no layers of {model}, so that none of their parts is known; allowed:"
            f" {', '.join(RECOMPUTE)}."
        )
        raise RequestError("recompute", why, value=recompute)
    if not has_attention(model):
        why = "only transformers have blocks to compute again; leave `recompute` out."
        raise RequestError("recompute", why, value=recompute)
    if again := blocks_again(recompute):
        blocks = block_count(build_model(model))
        if blocks < again:
            why = f"{model} has {blocks} blocks; set full, or fewer."
            raise RequestError("recompute", why, value=recompute)
    elif recompute not in RECOMPUTE:
        check_modules(recompute, build_model(model), model)


def check_modules(recompute: str, layers: Iterable[ModelLayer], model: str) -> None:
    """Refuse parts that a model does not have.

    Raises
    ------
    RequestError
        The message says which parts it has.
    """
    there: set[str] = set()
    for layer in layers:
        there.add(layer.module)
        if is_expert(layer):
            there.add("moe_act")
    known = [one for one in MODULES if one in there]
    for one in sorted(named_modules(recompute) - there):
        why = f"{model} has no {one}; of the parts that are computed again it has {any_of(known)}."
        raise RequestError("recompute", why, value=recompute)


def is_again(module: Module, modules: Iterable[str]) -> bool:
    """Tell whether a layer of some part is computed again; shared experts are among the experts."""
    return module in modules or (module == "shared_experts" and "moe" in modules)
