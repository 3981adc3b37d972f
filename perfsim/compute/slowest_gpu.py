"""How much longer the slowest of the GPUs of a run computes, for which the others wait.

GPUs of one type differ: by what each chip leaks and how it is cooled, a power limit leaves them
different clocks. Where all exchange gradients in each iteration, the slowest sets the pace. The
rate of one GPU is normally distributed around the mean, so that the slowest of n is
``E[max of n] = inverse Phi((n - 3/8) / (n + 1/4))`` standard deviations behind (Blom, Statistical
Estimates and Transformed Beta-Variables, 1958).
"""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist

from perfsim.compute.profile import Profile

__all__ = ["GPU_SPREAD", "pace_of", "slowest_gpu", "with_slowest"]

GPU_SPREAD = 0.011
"""Standard deviation of the rates of GPUs of one type, over their mean.

Products of bf16 for 300 s on all GPUs of a node at once: 0.0115 of 40 B200 in five nodes, 0.0103 of
the 8 B300 of one (mit-orcd/orcd-benchmarks, summaries of gpu-fryer of 2026-08-06, 2026-08-10 and
2026-10-05; the first at c2760c54 b200-nodes/out-gpu-fryer). Not taken, as they tell a range alone:
5 % and more between the 8 GPUs of a node (stas00/ml-engineering@744d01e1 compute/accelerator,
silicon lottery), 8 % between most V100 of a cluster (Sinha et al., Not All GPUs Are Created Equal,
arXiv 2208.11035), 0.018 and 0.015 where rates are normal. On the first's nodes Megatron-LM trains a
GPT of 7B by data parallelism, whose messages take below 1 % of an iteration, at 989 TFLOP/s a GPU
on one B200, 967 on 8 and 957 on 24 (b200-nodes/output-megatron): 2.2 and 3.3 % behind; this law
says 1.6 and 2.1 %."""


@lru_cache(maxsize=1024)
def slowest_gpu(gpus: int) -> float:
    """Return how many times as long the slowest of so many GPUs computes as one does on average.

    It is rounded to a thousandth: numbers of GPUs that are alike share what is computed of them.

    Examples
    --------
    >>> slowest_gpu(1), slowest_gpu(8), slowest_gpu(1024)
    (1.0, 1.016, 1.036)
    """
    if gpus == 1:
        return 1.0
    return round(1.0 + GPU_SPREAD * NormalDist().inv_cdf((gpus - 0.375) / (gpus + 0.25)), 3)


def pace_of(profile: Profile, slowest: float) -> float:
    """Return how many times as long both passes take beside a slowest GPU.

    A host that takes as long as the slowest GPU is not slowed.

    Parameters
    ----------
    slowest : how many times as long the slowest GPU computes as this one
    """
    return max(profile.host_share, profile.device_share * slowest)


def with_slowest(profile: Profile, slowest: float) -> Profile:
    """Return a profile whose passes take as long as on the slowest GPU (see `pace_of`)."""
    return profile.with_shares(profile.host_share, profile.device_share * slowest)
