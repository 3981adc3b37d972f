"""What a link costs while NCCL is held to one protocol, from curves measured with NCCL_PROTO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfsim.calibrate.link_hops import served_by, wired
from perfsim.calibrate.link_rate import CLEAREST
from perfsim.calibrate.robust import FitResult, Parameter, Unidentified, fit
from perfsim.cluster.link import Held, Link
from perfsim.cluster.measured import Curve
from perfsim.library.nccl_figures import PROTOCOLS
from perfsim.quantity import Quantity

__all__ = ["held_curves", "protocol_fits"]

NEEDS = {
    "alpha": "Measure messages of a few bytes with this NCCL_PROTO.",
    "beta": "Measure messages of 64 MiB and more with this NCCL_PROTO.",
}


def held_curves(curves: Sequence[Curve], untold: list[str]) -> list[Curve]:
    """Return the curves that NCCL chose the protocol of, else those of the fastest one held."""
    usual = [curve for curve in curves if not curve.protocol]
    if usual or not curves:
        return usual
    # Of held protocols the one with the widest rate is nearest to NCCL's own choice.
    named = [name for name in PROTOCOLS[::-1] if any(one.protocol == name for one in curves)]
    protocol = named[0] if named else curves[0].protocol
    untold.append(f"NCCL's own choice of protocol: measure without NCCL_PROTO; taken as {protocol}")
    return [curve for curve in curves if curve.protocol == protocol]


def protocol_fits(
    of: str,
    curves: Sequence[Curve],
    link: Link,
    inside: Link | None,
    nics: int,
    untold: list[str],
) -> tuple[dict[str, Held], dict[str, FitResult]]:
    """Return rate and hop latency of each protocol that was held fixed, and the fits behind them.

    Alpha and beta of the algorithm's formula are fitted to all sizes at once, relative errors,
    robust; where NCCL chose between ring and tree the faster of the two is the model.
    """
    found: dict[str, Held] = {}
    fits: dict[str, FitResult] = {}
    for protocol in PROTOCOLS:
        held = {(one.collective, one.algorithm): one for one in curves if one.protocol == protocol}
        curve = next((held[key] for key in CLEAREST if key in held), None)
        if curve is None:
            continue
        try:
            fits[protocol] = _fit(of, curve, link, inside, nics)
        except (Unidentified, ValueError) as error:
            untold.append(f"protocol {protocol}: {curve.name}: {error}")
            continue
        values = fits[protocol].values
        source = f"{curve.source}: {curve.name}"
        origin = (fits[protocol].p90, curve.size_bytes[0], curve.size_bytes[-1])
        rate = Quantity(1.0 / values["beta"], "B/s", "fitted", source, *origin)
        alpha = Quantity(values["alpha"], "s/hop", "fitted", source, *origin)
        share, more_s = rate.value / link.rate.value, alpha.value - link.ring.alpha_s[0]
        found[protocol] = Held(rate, alpha, share, more_s)
    return found, fits


def _fit(of: str, curve: Curve, link: Link, inside: Link | None, nics: int) -> FitResult:
    names = (curve.algorithm,) if curve.algorithm else ("ring", "tree")
    algorithms = [served_by(curve, curve.size_bytes[0], name) for name in names]
    ratio = link.tree_rate.value / link.rate.value

    def model(sizes: Sequence[float], alpha: float, beta: float) -> list[float]:
        rate = link.rate._replace(value=1.0 / max(beta, 1e-30))
        tree = link.tree_rate._replace(value=ratio * rate.value)
        wiring = wired(of, curve, replace(link, rate=rate, tree_rate=tree), inside, nics)
        hops = wiring.hops()._replace(alpha_intra_s=alpha, alpha_inter_s=alpha)
        times = []
        for size in sizes:
            if of == "inter":
                inside_s = wiring.intra.ring.at(size) if wiring.intra is not None else 0.0
                hops = hops._replace(alpha_intra_s=inside_s)
            times.append(min(one.formula(size, hops).seconds for one in algorithms))
        return times

    start = (
        Parameter("alpha", max(link.ring.alpha_s[0], 1e-9), "s/hop", low=0.0),
        Parameter("beta", 1.0 / link.rate.value, "s/B", low=0.0),
    )
    title = f"hops of {curve.protocol}"
    sizes = list(curve.size_bytes)
    return fit(model, sizes, curve.seconds, start, needs=NEEDS, title=title)
