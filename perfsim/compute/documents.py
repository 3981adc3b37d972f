"""Packed samples: attention stays within the documents of a sample, so that it has less work."""

from __future__ import annotations

from perfsim.compute.execution import execution_of
from perfsim.compute.profile import Profile, defined_tokens, matches_definition
from perfsim.compute.software import NEWEST, WITH
from perfsim.errors import RequestError
from perfsim.models import build_model, packed_model, takes_tokens
from perfsim.sums import sum_in_order

__all__ = ["documents_note", "tokens_of_documents"]


def tokens_of_documents(asked: int | None, seq: int | None, profile: Profile) -> int | None:
    """Return the tokens of a document within which attention stays; None: the whole sample.

    Parameters
    ----------
    asked : tokens of a document, as `document_tokens` of a scenario has them
    seq : tokens of a sample; None: those of the profile

    Raises
    ------
    RequestError
        If a sample of this model holds no such documents.
    """
    if asked is None:
        return None
    if not (matches_definition(profile) and takes_tokens(profile.model)):
        why = f"is for transformers over text that perfsim has the layers of; {profile.model} is"
        raise RequestError("document_tokens", f"{why} none; leave it out.", value=asked)
    sample = seq or profile.sequence
    packed_model(profile.model, sample, asked)
    return None if asked == sample else asked


def documents_note(document_tokens: int, profile: Profile, era: str) -> str:
    """Say what attention within documents saves in a software era.

    Raises
    ------
    RequestError
        If the software has no kernel that stays within them.
    """
    execution = execution_of(era)
    layers = build_model(profile.model, defined_tokens(profile))
    attention = [layer for layer in layers if layer.kind == "attention"]
    within = all(execution.in_one_kernel(layer.scores) for layer in attention)
    if execution.masked or not within:
        why = (
            f"{era} has no kernel of attention that stays within documents of"
            f" {profile.model}: all scores of a sample are computed; leave it out, or name another"
            f" `software`, such as {NEWEST}{WITH}flash2."
        )
        raise RequestError("document_tokens", why, value=document_tokens)
    if execution.unpadded and not attention[0].causal:
        why = f"samples of {profile.model} in {era} hold one text each, whose padding"
        raise RequestError(
            "document_tokens", f"{why} is skipped; leave it out.", value=document_tokens
        )
    packed = packed_model(profile.model, defined_tokens(profile), document_tokens)
    scores = sum_in_order(layer.flops for layer in packed if layer.kind == "attention")
    share = scores / sum_in_order(layer.flops for layer in attention)
    return (
        f"Attention stays within documents of {document_tokens:,} tokens: it has {share:.2g} of the"
        f" scores of whole samples of {profile.sequence:,}, at the rate of short sequences."
    )
