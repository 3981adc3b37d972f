"""How wrong a profile moved to another GPU is. ``python tests/scripts/leave_one_out.py``.

Taken are all GPUs, precisions and models that were measured at batches of 8 or more, except the
GPU and precision of the profile itself. All measured iterations of the model there are left out,
the profile is moved there, on the software of each, by those that remain, and compared with those
left out (several sources: their geometric mean; forward and backward alone: scaled by the
profile's share). The error is max(predicted / measured, measured / predicted) - 1.
"""

from __future__ import annotations

from functools import cache
from math import exp, log
from statistics import geometric_mean

from perfsim.compute.anchors import Anchor, load_anchors
from perfsim.compute.device import load_device
from perfsim.compute.profile import Profile, read_profile
from perfsim.compute.transfer import transfer
from perfsim.session import Session

MIN_BATCH = 8
WORST = 8
"""How many of the worst are printed."""


@cache
def errors() -> dict[tuple[str, str, str, int], float]:
    """Return the error of every (GPU, precision, model, batch) left out."""
    catalog = Session()
    known = {gpu: tuple(load_anchors(gpu, catalog)) for gpu in catalog.files("devices")}
    profiles = {path.name.split(".")[0]: path for path in catalog.files("models").values()}
    read = {model: read_profile(path) for model, path in profiles.items()}
    goals: dict[tuple[str, str, str, int], list[Anchor]] = {}
    for gpu, anchors in known.items():
        for anchor in anchors:
            profile = read.get(anchor.model)
            if profile is None or profile.sequence != anchor.sequence or anchor.use == "ratio":
                continue
            own = (profile.gpu, profile.precision) == (gpu, anchor.precision)
            if anchor.batch >= MIN_BATCH and not own:
                key = (gpu, anchor.precision, anchor.model, anchor.batch)
                goals.setdefault(key, []).append(anchor)
    results = {}
    for key, anchors in goals.items():
        gpu, precision, model, batch = key
        rest = {
            other: [a for a in others if (other, a.precision, a.model) != key[:3]]
            for other, others in known.items()
        }
        device = load_device(gpu, catalog)
        predicted_s = geometric_mean(
            transfer(
                read[model], device, batch, precision, rest, one.software, catalog=catalog
            ).quantity.value
            for one in anchors
        )
        results[key] = exp(abs(log(predicted_s / _measured_s(read[model], anchors)))) - 1
    return results


def _measured_s(profile: Profile, anchors: list[Anchor]) -> float:
    """Return the whole iteration that the anchors give [s]."""
    whole = profile.iteration_s / (profile.forward_s + profile.backward_s)
    factors = [whole if anchor.covers == "forward_backward" else 1.0 for anchor in anchors]
    return geometric_mean(
        anchor.iteration_s * factor for anchor, factor in zip(anchors, factors, strict=True)
    )


def spread(found: dict[tuple[str, str, str, int], float]) -> tuple[int, float, float]:
    """Return count, median and 90th percentile of the errors."""
    rising = sorted(found.values())
    at = [rising[min(len(rising) - 1, int(share * len(rising)))] for share in (0.5, 0.9)]
    return len(rising), at[0], at[1]


def told() -> str:
    """Return count, median and 90th percentile in words, and the worst."""
    found = errors()
    count, middle, ninth = spread(found)
    lines = [f"{count} left out: median {middle:.1%}, 90th percentile {ninth:.1%}; the worst:"]
    for key in sorted(found, key=lambda key: -found[key])[:WORST]:
        gpu, precision, model, batch = key
        lines.append(f"  {model} on {gpu}, {precision}, batch {batch}: {found[key]:.0%}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(told())
