"""Fit a network to measured curves: its links, the knots of every curve, and NCCL's tuner."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perfsim.calibrate.fit import Unidentified
from perfsim.calibrate.knots import CurveFit, fit_curve
from perfsim.calibrate.link_fit import LinkFit, fit_link
from perfsim.libraries import library
from perfsim.network.link import Link
from perfsim.network.measured import CollectiveCurve
from perfsim.network.self_check import contradictions
from perfsim.network.tuner_fit import TunedChoice, communicator, fit_tuner
from perfsim.units import format_bytes, format_seconds

__all__ = ["NetworkFit", "curve_order", "fit_network", "inside_preset"]

_MAX_REPEAT_SPREAD = 0.2
"""Repeats of a size further apart than this, +-, are hardly of one setting.

No source: chosen above the 18 % that the median over sizes reaches in our data."""


@dataclass(frozen=True)
class NetworkFit:
    """A fitted network.

    ``curves`` are the measured curves, ``fits`` their knots, ``links`` the fits by class (inter,
    intra), ``inside`` the preset taken for the GPUs of a node where the curves determine no
    intra-node link, ``undetermined`` a sentence a link or number that they leave open.
    """

    curves: tuple[CollectiveCurve, ...]
    fits: tuple[CurveFit, ...]
    links: dict[str, LinkFit]
    tuner: TunedChoice | None
    inside: str
    undetermined: tuple[str, ...]

    def warnings(self) -> list[str]:
        """Return a sentence a curve that falls as size grows, and a point that was left out."""
        sentences = []
        for curve in self.curves:
            size, spread = curve.widest or (0.0, 0.0)
            where = f" at {format_bytes(size)}"
            if curve.spread is not None and curve.spread > spread:  # one that a file states
                spread, where = curve.spread, ""
            if spread > _MAX_REPEAT_SPREAD:
                sentences.append(
                    f"{curve.name}: repeats differ by +-{spread:.0%}{where}, and their middle is"
                    " taken; are all files of one cluster and one setting?"
                )
            falls = curve.falls()
            if falls:
                before, after, lost = max(falls, key=lambda fall: fall[2])
                more = f" and {len(falls) - 1} more" if len(falls) > 1 else ""
                sentences.append(
                    f"{curve.name}: time falls by {lost:.0%} from {format_bytes(before)} to"
                    f" {format_bytes(after)}{more}; kept as measured"
                )
        for fit in self.fits:
            for size, seconds, off in fit.left_out:
                sentences.append(
                    f"{fit.curve.name}: {format_seconds(seconds)} at {format_bytes(size)} is"
                    f" {abs(off):.0%} off its neighbours; left out of the fit"
                )
        sentences += contradictions(self.curves)
        return sentences


def fit_network(
    curves: Sequence[CollectiveCurve],
    nics_per_node: int | None,
    load_inside: Callable[[str], Link | None],
) -> NetworkFit:
    """Fit a network to measured curves.

    Parameters
    ----------
    curves : of one cluster, any collectives and numbers of ranks
    nics_per_node : NICs that the GPUs of a node share; None where nobody states them
    load_inside : preset's name -> its intra-node link, for nodes whose own link is not measured

    Raises
    ------
    Unidentified
        If the curves determine neither link; says which measurement would.
    """
    curves = sorted(curves, key=curve_order)
    across = [curve for curve in curves if curve.nodes > 1]
    within = [curve for curve in curves if curve.nodes == 1 and curve.ranks > 1]
    tuner = _tuner(across)
    links: dict[str, LinkFit] = {}
    undetermined: list[str] = []
    preset = ""
    inside: Link | None = None
    if within:
        try:
            links["intra"] = fit_link("intra", within, None, 1, None)
            inside = links["intra"].link
        except Unidentified as error:
            undetermined.append(f"link between the GPUs of a node: {error}")
    if across and inside is None and max(curve.gpus_per_node for curve in across) > 1:
        preset = inside_preset(across[-1])
        inside = load_inside(preset)
    if across:
        try:
            links["inter"] = fit_link("inter", across, inside, nics_per_node, tuner)
        except Unidentified as error:
            undetermined.append(f"link between nodes: {error}")
    if not links:
        raise Unidentified("; ".join(undetermined) or "no curve of several ranks", ("rate",))
    for link_class, link in links.items():
        undetermined += [f"{link_class}, {sentence}" for sentence in link.undetermined]
    fits = tuple(fit_curve(curve) for curve in curves)
    return NetworkFit(tuple(curves), fits, links, tuner, preset, tuple(undetermined))


def curve_order(curve: CollectiveCurve) -> tuple[object, ...]:
    """Return a key that no two curves share, so that the order of files changes nothing."""
    held = (curve.algorithm, curve.protocol)
    ranks = (curve.collective, curve.nodes, curve.ranks, curve.gpus_per_node)
    about = (curve.library, curve.version, curve.gpu, curve.fabric, curve.series, curve.source)
    return (*ranks, *held, *about, curve.size_bytes, curve.seconds)


def inside_preset(curve: CollectiveCurve) -> str:
    """Return the preset of a node's own links, by maker, GPU generation and slot.

    Examples
    --------
    >>> about = {"kind": "measured", "source": "a log", "gpu": "A100-SXM4"}
    >>> inside_preset(CollectiveCurve("reduce", 8, 2, 4, (8.0,), (1e-5,), **about))
    'nvlink-a100'
    """
    stated = communicator(curve)
    if re.search(r"\bMI3\d\d", curve.gpu):
        family = "mi300x"  # the only one of AMD's whose links were measured
        return f"{family}-infinity-fabric"
    if stated.intra == "nvlink":
        families = {"volta": "v100", "pascal": "v100", "ampere": "a100"}
        return f"nvlink-{families.get(stated.architecture, 'h100')}"
    slot = re.search(r"PCIe ?([345])", f"{curve.gpu} {curve.fabric}", re.IGNORECASE)
    generations = {"blackwell": "5", "hopper": "5", "ada": "4", "ampere_rtx": "4"}
    return f"pcie{slot[1] if slot else generations.get(stated.architecture, '3')}"


def _tuner(across: Sequence[CollectiveCurve]) -> TunedChoice | None:
    """Return NCCL's tuner as the largest group of its own all-reduces between nodes shows it."""
    groups: dict[int, list[CollectiveCurve]] = {}
    for curve in across:
        own_choice = not curve.algorithm and not curve.protocol
        tuned = library(curve.library).compares_times and own_choice
        if curve.collective == "all_reduce" and tuned:
            groups.setdefault(curve.gpus_per_node, []).append(curve)
    if not groups:
        return None
    return fit_tuner(max(groups.values(), key=lambda group: (len(group), group[0].gpus_per_node)))
