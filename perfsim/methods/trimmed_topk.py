"""Trimmed Top-k: RedSync with its ratio lowered in steps."""

from typing import ClassVar, Literal

from pydantic import Field

from perfsim.methods.redsync import Redsync


class TrimmedTopk(Redsync):
    """Keeps what is above mean + ratio (maximum - mean), the ratio lowered until k are found.

    This is `redsync` with ``search`` trimmed by default, RedSync's selection for smaller layers.
    The ratio begins at 0.8 and falls in steps of 0.2, 6 counts at most; all else is as there. Bytes
    a rank: (P-1) x 8 x surplus k. Memory: the residual. Left out: as for `redsync`, and the exact
    Top-k of what trimming leaves, which only the paper describes.
    """

    summary: ClassVar[str] = "Top-k by a threshold lowered in steps (RedSync's trimmed Top-k)"
    citation: ClassVar[str] = (
        "Fang et al. 2018, RedSync, arXiv 1808.04357; code hclhkbu/GaussianK-SGD@0de3eeb"
        " compression.py, RedSyncTrimCompressor"
    )

    search: Literal["binary", "trimmed"] = Field("trimmed", description="how the ratio is found")
