"""How much the GPUs of a node slow each other: they share its host, its input and its power.

A time that was measured on one GPU holds for a node with one job on one GPU. With more, the host
launches for all of them and reads, decodes and copies the samples of all. The slowdown is a share
of both passes for each doubling of the GPUs of a node, ``1 + m log2(g)``.

``python profiles/build/node_load.py`` prints ``m`` by source.
"""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["INPUTS", "InputLoad", "node_load"]


class InputLoad(NamedTuple):
    """What one kind of input costs: a share of both passes for each doubling of a node's GPUs.

    ``low`` and ``high`` are the quartiles of the sources that tell it, or of the runs of the one.
    """

    words: str
    share: float
    low: float
    high: float
    source: str


INPUTS = {
    "storage": InputLoad(
        "images read and decoded by the host",
        0.015,
        0.006,
        0.027,
        "median of 8 sources, one left out 0.013 to 0.018: TensorFlow's benchmarks of 2017 (real"
        " data) 0.018, AdaptDL's steps 0.091 and its compute timers 0.013, Cupcake -0.010, NVIDIA"
        " DeepLearningExamples 0.003 and 0.030, DLPerf 0.023, Gradient-Compression on CIFAR 0.008",
    ),
    "tokens": InputLoad(
        "tokenised text",
        0.032,
        0.014,
        0.054,
        "NVIDIA DeepLearningExamples, 106 runs of BERT on 4 to 16 GPUs of a node, quartiles 0.014"
        " and 0.054; DLPerf shows more (0.087), part of it another cause",
    ),
    "synthetic": InputLoad(
        "made once, on the GPU",
        0.008,
        0.002,
        0.024,
        "median of 6 sources, one left out 0.003 to 0.012: TensorFlow's benchmarks of 2017"
        " (synthetic data) 0.003 on DGX-1, 0.024 and 0.025 on K80, Bagua 0.002, HKBU"
        " ddl-benchmarks -0.004, DLPerf 0.012",
    ),
}
"""By kind of input. Source: `profiles/build/node_load.py`, 2026-11-23."""


def node_load(name: str, gpus: int) -> float:
    """Return how many times as long both passes take with ``gpus`` of a node in use.

    Examples
    --------
    >>> node_load("storage", 1), round(node_load("storage", 8), 3)
    (1.0, 1.045)
    """
    return 1.0 + INPUTS[name].share * math.log2(gpus)
