"""How wide the values and weights of a model are in half precision: what may be asked, and notes.

Autocast casts the values of an fp32 model at each operation; a model that is kept, gathered or
divided in 16 bits computes in these throughout. What autocast adds is in `perfsim.compute.work`.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfsim.compute.attention import check_kernel_precision
from perfsim.compute.execution import execution_of
from perfsim.compute.profile import AUTOCAST_PRECISIONS, HALF_PRECISIONS, OPERAND_BYTES
from perfsim.errors import RequestError
from perfsim.models.adapters import WIDE
from perfsim.note import Note, assumption, warning

__all__ = [
    "IN_16_BITS",
    "check_half_weights",
    "check_lora_dtype",
    "check_value_types",
    "in_16_bits",
    "notes_on_autocast",
    "notes_on_residuals",
]


def check_half_weights(precision: str, *, master_weights: bool) -> None:
    """Refuse weights that are kept in 16 bits where values are not that narrow.

    Raises
    ------
    RequestError
        If the precision is none of `HALF_PRECISIONS`.
    """
    if precision not in HALF_PRECISIONS and not master_weights:
        why = f"in {precision} all is kept in fp32; leave this out, or set `precision` amp-bf16."
        raise RequestError("master_weights", why, value=False)


def check_lora_dtype(
    precision: str, era: str, lora_dtype: str, *, casts: bool, master_weights: bool
) -> None:
    """Refuse adapters in fp32 where the values beside them have not 16 bits, or no known code does.

    Parameters
    ----------
    era : the software that runs the model
    lora_dtype : a word of `LORA_DTYPES`
    casts, master_weights : as for `check_value_types`

    Raises
    ------
    RequestError
        If precision, software or code has no such adapters.
    """
    if lora_dtype != WIDE:
        return
    if not execution_of(era).autocasts:
        why = f"is what eager PyTorch does with PEFT, not {era}; leave it or `software` out."
    elif precision not in AUTOCAST_PRECISIONS:
        why = f"is for a model of 16 bits, not {precision}; leave it out, or set `precision` bf16."
    elif casts:
        why = (
            "is for a model that computes in 16 bits throughout: autocast computes adapters in 16"
            " bits, whatever they are kept in; leave it or `autocast` out."
        )
    elif not master_weights:
        why = "keeps them and their state in fp32; leave it or `master_weights` out."
    else:
        return
    raise RequestError("lora_dtype", why, value=WIDE)


def check_value_types(
    precision: str,
    era: str,
    asked: bool | None,
    residual_dtype: str,
    *,
    casts: bool,
    master_weights: bool,
) -> None:
    """Refuse casts where nothing is cast, and values in fp32 where no known code has them.

    Parameters
    ----------
    era : the software that runs the model
    asked : whether autocast was asked for; None where nothing was said of it
    casts : whether the method's code casts the values of an fp32 model
    master_weights : whether the optimizer keeps parameters in fp32

    Raises
    ------
    RequestError
        If precision, software or code has no such values.
    """
    if residual_dtype == WIDE:
        _check_wide(precision, era, asked, casts=casts, master_weights=master_weights)
        if asked is False:
            check_kernel_precision(era, "fp32")
    if asked is None or precision in AUTOCAST_PRECISIONS:
        return
    if precision in OPERAND_BYTES:
        if not asked:
            return
        why = (
            f"in {precision} values have 16 bits, and the operands of dense products alone are cast"
            " further; leave it out, or set `precision` amp-bf16."
        )
        raise RequestError("autocast", why, value=True)
    why = f"nothing is cast in {precision}; leave `autocast` out, or set `precision` amp-bf16."
    raise RequestError("autocast", why, value=asked)


def _check_wide(
    precision: str, era: str, asked: bool | None, *, casts: bool, master_weights: bool
) -> None:
    """Refuse values between layers in fp32 where no code that is known here has them."""
    if not execution_of(era).autocasts:
        why = f"is what eager PyTorch does with PEFT, not {era}; leave it or `software` out."
    elif precision not in AUTOCAST_PRECISIONS:
        why = f"is for values of 16 bits, not {precision}; leave it out, or set `precision` bf16."
    elif not master_weights:
        why = "needs parameters in fp32 that are not packed; leave it or `master_weights` out."
    elif not (casts or asked is False):
        why = (
            "needs autocast, which is off here: code that shards or divides a model hands values to"
            " its layers in 16 bits, so that trl leaves PEFT's preparation out; leave it out, or"
            " leave `autocast` off by name, for code that does not."
        )
    else:
        return
    raise RequestError("residual_dtype", why, value=WIDE)


def notes_on_autocast(casts: bool | None, ssgd_casts: bool | None, method: str) -> list[str]:
    """Say how mixed precision is reached, where nobody asked for a way and it matters.

    Parameters
    ----------
    casts : whether autocast casts values in the method's code; None where it makes no difference
    ssgd_casts : the same of S-SGD beside it; None also where that computes alike
    method : its name
    """
    if casts:
        why = "mixed precision casts the values of an fp32 model at each operation"
        return [assumption(f"`autocast`: {why}, as with DDP.", "`autocast`")]
    if casts is None or not ssgd_casts:
        return []
    return [in_16_bits([method], "S-SGD beside it")]


def notes_on_residuals(residual_dtype: str, *, casts: bool) -> list[str]:
    """Say how wide the values between packed layers are, where these have 16 bits or compute in it.

    ``casts`` says whether autocast runs beside them.
    """
    if residual_dtype == WIDE and not casts:
        return [
            "Values between layers are fp32, and nothing casts them: attention, adapters and output"
            " layer compute in fp32, packed layers cast what they read to 16 bits and what they"
            " write back, as bitsandbytes since 0.47 where bnb_4bit_compute_dtype is bf16. Before,"
            " or without it, these compute in fp32 too: set `precision` fp32 and leave"
            " `residual_dtype` out."
        ]
    if not casts:
        return []
    if residual_dtype == WIDE:
        return [
            "Values between layers are fp32, as PEFT's prepare_model_for_kbit_training makes them:"
            " element-wise kernels move twice the bytes, and packed layers cast what they read and"
            " write (PEFT 0.21.2, bitsandbytes 0.50.2)."
        ]
    return [
        assumption(
            "`residual_dtype` auto: kernels between packed layers move 16 bits a value; trl and"
            " others call PEFT's prepare_model_for_kbit_training, which makes them fp32"
            " (`residual_dtype` fp32, some 20 % longer).",
            "`residual_dtype` auto",
        )
    ]


IN_16_BITS = "in 16 bits throughout"
"""Stands in the note of a method whose model computes in 16 bits where S-SGD's does not."""


def in_16_bits(methods: Sequence[str], others: str) -> Note:
    """Return the note that some methods compute in 16 bits where ``others`` do not.

    Examples
    --------
    >>> in_16_bits(["fsdp", "zero"], "others").partition(" by")[0]
    'fsdp, zero: computed in 16 bits throughout, others'
    """
    names, alike = ", ".join(methods), "set `autocast` either way to compare alike"
    return warning(
        f"{names}: computed {IN_16_BITS}, {others} by autocast over an fp32 model, as their codes"
        f" do; {alike}.",
        f"{names}: computed in 16 bits, {others} by autocast; {alike}",
    )
