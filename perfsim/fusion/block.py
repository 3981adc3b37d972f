"""FSDP's units: the layers of one repeated block together, as wrapping by block class makes them.

A block is what a tensor's name says up to its first number that is followed by more
(``encoder.layer.3``, ``layer2.0``). What stands between blocks, such as embeddings or a head, is
a unit wherever it comes; in PyTorch all of it belongs to one unit, that of the model itself.
``--bucket`` is not used.

References
----------
Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB 2023 (arXiv
2304.11277). Code: pytorch/pytorch, torch/distributed/fsdp/wrap.py,
``transformer_auto_wrap_policy``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby

from perfsim.compute.profile import Gradient
from perfsim.fusion.bucket import Bucket, FusionContext

__all__ = ["LIMIT_BYTES", "OPTIONS", "SUMMARY", "block", "fuse"]

SUMMARY = "FSDP: the layers of one repeated block (encoder.layer.3, layer2.0)"
OPTIONS: Mapping[str, str] = {}
LIMIT_BYTES = None

BLOCK = re.compile(r"^(?:[^.]+\.)*?\d+(?=\.[^.]+\.)")


def block(name: str) -> str:
    """Return the block that a tensor belongs to, or "".

    Examples
    --------
    >>> block("bert.encoder.layer.3.output.dense.weight"), block("conv1.weight"), block("fc.0.bias")
    ('bert.encoder.layer.3', '', '')
    """
    found = BLOCK.match(name)
    return found.group() if found else ""


def fuse(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Return one bucket a block."""
    blocks = groupby(gradients, lambda gradient: block(gradient.name))
    return [Bucket.of(list(one)) for _, one in blocks]
