"""From measured curves to a network: its links, the knots of every curve, NCCL's tuner there."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perfsim.calibrate.fit import Unidentified
from perfsim.calibrate.knots import CurveFit, fit_curve
from perfsim.calibrate.link_fit import LinkFit, fit_link
from perfsim.network.link import Link
from perfsim.network.measured import CollectiveCurve
from perfsim.network.tuner_fit import TunedChoice, communicator, fit_tuner
from perfsim.units import format_bytes, format_seconds

__all__ = ["NetworkFit", "fit_network", "inside_preset", "order"]

CLASSES = ("intra", "inter")

DIFFERENT = 0.2
"""Repeats further apart than this, +-, are hardly of one thing: those of our data reach 18 %."""


@dataclass(frozen=True)
class NetworkFit:
    """A fitted network.

    ``curves`` are the measured curves, ``fits`` their knots, ``inside`` the preset that stands for
    the GPUs of a node where the curves tell no intra-node link, ``refused`` a sentence a link or
    number that the data cannot tell.
    """

    curves: tuple[CollectiveCurve, ...]
    fits: tuple[CurveFit, ...]
    links: dict[str, LinkFit]
    tuner: TunedChoice | None
    inside: str
    refused: tuple[str, ...]

    def warnings(self) -> list[str]:
        """Return a sentence a curve that falls as size grows, and a point that was left out."""
        found = []
        for curve in self.curves:
            if curve.spread is not None and curve.spread > DIFFERENT:
                found.append(
                    f"{curve.name}: repeats differ by +-{curve.spread:.0%}, and their middle is"
                    " taken; are all files of one cluster and one setting?"
                )
            falls = curve.falls()
            if falls:
                worst = max(falls, key=lambda fall: fall[2])
                more = f" and {len(falls) - 1} more" if len(falls) > 1 else ""
                found.append(
                    f"{curve.name}: time falls by {worst[2]:.0%} from {format_bytes(worst[0])} to"
                    f" {format_bytes(worst[1])}{more}; kept as measured"
                )
        for fit in self.fits:
            for size, seconds, off in fit.left_out:
                found.append(
                    f"{fit.curve.name}: {format_seconds(seconds)} at {format_bytes(size)} is"
                    f" {abs(off):.0%} off its neighbours; left out of the fit"
                )
        return found


def inside_preset(curve: CollectiveCurve) -> str:
    """Return the preset of a node's own links, by GPU generation and slot.

    Examples
    --------
    >>> inside_preset(CollectiveCurve("reduce", 8, 2, 4, (8.0,), (1e-5,), "measured", "x", gpu="A100-SXM4"))
    'nvlink-a100'
    """
    of = communicator(curve)
    if of.intra == "nvlink":
        family = {"volta": "v100", "pascal": "v100", "ampere": "a100"}.get(of.architecture, "h100")
        return f"nvlink-{family}"
    stated = re.search(r"PCIe ?([345])", f"{curve.gpu} {curve.fabric}", re.IGNORECASE)
    usual = {"blackwell": "5", "hopper": "5", "ada": "4", "ampere_rtx": "4"}
    return f"pcie{stated[1] if stated else usual.get(of.architecture, '3')}"


def fit_network(
    curves: Sequence[CollectiveCurve],
    nics_per_node: int,
    load_inside: Callable[[str], Link | None],
) -> NetworkFit:
    """Fit a network to measured curves.

    Parameters
    ----------
    curves : of one cluster, any collectives and numbers of ranks
    nics_per_node : NICs that the GPUs of a node share
    load_inside : preset's name -> its intra-node link, for nodes whose own link is not measured

    Raises
    ------
    Unidentified
        If the curves tell neither link; says which measurement would.
    """
    curves = sorted(curves, key=order)
    across = [curve for curve in curves if curve.nodes > 1]
    within = [curve for curve in curves if curve.nodes == 1 and curve.ranks > 1]
    tuner = _tuner(across)
    links: dict[str, LinkFit] = {}
    refused: list[str] = []
    inside_name = ""
    inside: Link | None = None
    if within:
        try:
            links["intra"] = fit_link("intra", within, None, 1, None)
            inside = links["intra"].link
        except Unidentified as error:
            refused.append(f"link between the GPUs of a node: {error}")
    if across and inside is None and max(curve.gpus_per_node for curve in across) > 1:
        inside_name = inside_preset(across[-1])
        inside = load_inside(inside_name)
    if across:
        try:
            links["inter"] = fit_link("inter", across, inside, nics_per_node, tuner)
        except Unidentified as error:
            refused.append(f"link between nodes: {error}")
    if not links:
        raise Unidentified("; ".join(refused) or "no curve of several ranks", ("rate",))
    refused += [f"{of}, {sentence}" for of, link in links.items() for sentence in link.untold]
    fits = tuple(fit_curve(curve) for curve in curves)
    return NetworkFit(tuple(curves), fits, links, tuner, inside_name, tuple(refused))


def order(curve: CollectiveCurve) -> tuple[object, ...]:
    """Return a key that no two curves share, so that the order of files changes nothing."""
    held = (curve.algorithm, curve.protocol)
    shape = (curve.collective, curve.nodes, curve.ranks, curve.gpus_per_node)
    about = (curve.library, curve.version, curve.gpu, curve.fabric, curve.series, curve.source)
    return (*shape, *held, *about, curve.size_bytes, curve.seconds)


def _tuner(across: Sequence[CollectiveCurve]) -> TunedChoice | None:
    """Return NCCL's tuner as the largest group of its own all-reduces between nodes shows it."""
    groups: dict[int, list[CollectiveCurve]] = {}
    for curve in across:
        own = not curve.algorithm and not curve.protocol
        if curve.collective == "all_reduce" and curve.library == "nccl" and own:
            groups.setdefault(curve.gpus_per_node, []).append(curve)
    if not groups:
        return None
    return fit_tuner(max(groups.values(), key=lambda group: (len(group), group[0].gpus_per_node)))
