"""Pipelines of stages over links of very different speed, with compression on each link.

A model of its own beside the data-parallel scenarios, reached as a library or by
``perfsim pipeline FILE`` (see `perfsim.pipeline.file` for the file). A pipeline is no method:
``perfsim list methods`` does not show it.

What it covers: the GPipe schedule (all micro-batches forward, then all backward), one GPU a stage,
links that carry one message at a time beside the computation, Top-k messages whose ratio each
link gets in proportion to its own time (AdaTopK), and activations thresholded sample by sample
whose gradients cross in the same places (DCT-MP).

What it leaves out: the choice of stages (FusionLLM's OP-Fence) and of GPUs; stages of several
GPUs and their all-reduce (DCT's data-parallel part is the method `dct`); models that are no chain
of stages, such as embedding tables apart from the layers; selection and restoring on the GPU
where the caller gives no times for them; stragglers, lost connections, and links that share a
wire; what compression does to training.

References
----------
Tang et al. 2024, FusionLLM: A Decentralized LLM Training System on Geo-distributed GPUs with
Adaptive Compression, arXiv 2410.12707 (abstract); Gupta et al. 2021, KDD, arXiv 2010.08899,
section 2.2; Huang et al. 2019, GPipe, NeurIPS, section 2.

Examples
--------
Two sites, two GPUs each; between the sites 100 Mbit/s and 20 ms, inside them 10 Gbit/s:

>>> from perfsim.pipeline import Link, Stage, adaptive_ratios, iteration_s
>>> stages = [Stage(0.02, 0.04)] * 4
>>> lan, wan = Link(1e-4, 8e-10, 2**20), Link(0.02, 8e-8, 2**20)
>>> links = [lan, wan, lan]
>>> round(iteration_s(stages, links, micro_batches=8), 2)
5.94
>>> ratios = adaptive_ratios([link.dense_s for link in links], reduction=100)
>>> [round(ratio, 1) for ratio in ratios]
[2.9, 300.0, 2.9]
>>> round(iteration_s(stages, links, 8, ratios), 2)
0.74
>>> round(masked_iteration_s(stages, links, 8, share=0.05), 2)
0.94
"""

from __future__ import annotations

from perfsim.pipeline.iteration import Stage, iteration_s, masked_iteration_s
from perfsim.pipeline.link import Link, adaptive_ratios, masked_bytes, top_k_bytes

__all__ = [
    "Link",
    "Stage",
    "adaptive_ratios",
    "iteration_s",
    "masked_bytes",
    "masked_iteration_s",
    "top_k_bytes",
]
