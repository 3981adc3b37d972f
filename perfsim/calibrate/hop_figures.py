"""What a hop costs by NCCL's own figures, where nothing measured shows a latency."""

from __future__ import annotations

from perfsim.cluster.growth.communicator import communicator, figures_of
from perfsim.cluster.latency import Latency
from perfsim.cluster.measured import Curve

__all__ = ["hop_figures"]

SIMPLE = 2
"""Place of the Simple protocol among a hop's three figures."""


def hop_figures(of: str, curve: Curve) -> tuple[Latency, Latency]:
    """Return the latency of a ring's and a tree's hop by NCCL's tuner (Simple), kind derived.

    Parameters
    ----------
    of : "inter" or "intra"
    curve : tells the version, the GPUs and the links inside a node

    References
    ----------
    github.com/NVIDIA/nccl, src/graph/tuning.cc, hwLat. Measured hops are 1 to 2 times that over
    Slingshot and 3 to 6 times over TCP.

    Examples
    --------
    >>> large = Curve("all_reduce", 2, 2, 1, (1e9,), (1.0,), "measured", "x", version="2.23.4")
    >>> [one.alpha_s for one in hop_figures("inter", large)]
    [(1.4e-05,), (1.4e-05,)]
    """
    told = communicator(curve)
    version, known = figures_of(told)
    hop_us = known.hop_us["net" if of == "inter" else told.intra]
    source = (
        f"{curve.source}: {curve.name} starts above 64 KiB and shows no latency; a Simple hop by"
        f" NCCL {version}'s tuner (src/graph/tuning.cc)"
    )
    ring, tree = (
        Latency((1.0,), (hop_us[name][SIMPLE] * 1e-6,), "derived", source, None, *_range(curve))
        for name in ("ring", "tree")
    )
    return ring, tree


def _range(curve: Curve) -> tuple[float, float]:
    return curve.size_bytes[0], curve.size_bytes[-1]
