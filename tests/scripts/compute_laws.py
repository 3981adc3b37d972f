"""Whether the computation of all models on all GPUs obeys its laws.

``python tests/scripts/compute_laws.py [--software ERA] [MODEL ...]`` asks every shipped model on
every GPU, at each of its precisions, at batches 1 to 512 by powers of two, and prints each law's
violations:

- batch: samples/s does not fall with the batch, and a larger batch does not take less time;
- precision: tf32 is not slower than fp32, and from batch 64 mixed precision not slower than
  either, nor fp8 than bf16, nor nvfp4 than fp8. That is asked of models which have 16 bits
  themselves: autocast launches a cast for each operation, and a host may take longer for these than
  the GPU saves;
- generation: a board is not slower than the one that its file says it succeeds.

A violation is backed if an iteration of that model was measured at either of its two places. The
command ends with 1 if any is not backed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from perfsim.compute.anchors import Anchors, GpuPrecision
from perfsim.compute.device import load_device
from perfsim.compute.profile import Profile
from perfsim.compute.software import ERAS
from perfsim.compute.transfer import Training, TransferInputs, known_iterations, transfer
from perfsim.resolve import find_profile
from perfsim.session import Session

__all__ = ["BATCHES", "Violation", "shipped_models", "violations"]

BATCHES = tuple(2**power for power in range(10))
FULL_BATCH = 64
"""Smallest batch at which products fill tensor cores, so that mixed precision must pay."""
_TOLERANCE = 1e-9
_WIDER = {
    "amp-fp16": ("tf32", "fp32"),
    "amp-bf16": ("tf32", "fp32"),
    "fp8": ("amp-bf16",),
    "nvfp4": ("fp8", "amp-bf16"),
}
_SHOWN = 5
"""How many violations of a family are printed."""


class Violation(NamedTuple):
    """One broken law: what is slower than what, how much, and whether a measured row says so."""

    law: str
    model: str
    slower: GpuPrecision
    faster: GpuPrecision
    batch: int
    ratio: float
    backed: bool

    @property
    def family(self) -> str:
        """Law, GPUs and precisions: what the violations of several models and batches share."""
        other = "" if self.faster == self.slower else f" than {self.faster}"
        return f"{self.law}: {self.slower}{other}"


def shipped_models(catalog: Session) -> list[str]:
    """Return the names of all models with a profile."""
    return sorted({stem.split(".")[0] for stem in catalog.files("models")})


def violations(
    catalog: Session,
    models: Iterable[str],
    gpus: Iterable[str],
    batches: Sequence[int] = BATCHES,
    software: str | None = None,
    *,
    autocast: bool = False,
) -> Iterator[Violation]:
    """Ask models on GPUs, and those that they succeed, and yield what breaks a law.

    With ``autocast`` that of precisions is not asked.
    """
    training = Training(autocast=autocast)
    devices = {gpu: load_device(gpu, catalog) for gpu in gpus}
    before = {one.succeeds for one in devices.values() if one.succeeds}
    devices |= {gpu: load_device(gpu, catalog) for gpu in before}
    for model in models:
        seconds: dict[GpuPrecision, dict[int, float]] = {}
        profiles: dict[GpuPrecision, Profile] = {}
        for gpu, device in devices.items():
            for precision in device.rates:
                at = GpuPrecision(gpu, precision)
                profile = find_profile(model, gpu, None, precision, catalog)
                profiles[at] = profile
                seconds[at] = {
                    batch: transfer(
                        profile, device, batch, precision, catalog, software, training=training
                    ).quantity.value
                    for batch in batches
                }

        def measured(*places: GpuPrecision, profiles: Any = profiles) -> bool:
            return any(_measured(profiles[at], at, catalog) for at in places)

        for at, by_batch in seconds.items():
            yield from _batch_law(model, at, by_batch, measured)
        for law, slow, fast, least in _pairs(catalog, seconds):
            for batch in () if autocast and law == "precision" else batches:
                ratio = seconds[slow][batch] / seconds[fast][batch]
                if batch >= least and ratio > 1 + _TOLERANCE:
                    backed = measured(slow, fast)
                    yield Violation(law, model, slow, fast, batch, ratio, backed)


def _measured(profile: Profile, at: GpuPrecision, catalog: Session) -> bool:
    """Tell whether an iteration of the profile's model was measured at a GPU and precision."""
    device = load_device(at.gpu, catalog)
    known = Anchors(catalog)
    inputs = TransferInputs(profile, device, known, catalog, True, True, profile.sequence)
    return bool(known_iterations(inputs, at))


def _batch_law(
    model: str,
    at: GpuPrecision,
    seconds: dict[int, float],
    measured: Callable[[GpuPrecision], bool],
) -> Iterator[Violation]:
    for small, large in pairwise(sorted(seconds)):
        shorter = seconds[small] / seconds[large]
        falls = (seconds[large] / large) / (seconds[small] / small)
        for law, ratio in (("time falls with the batch", shorter), ("rate falls", falls)):
            if ratio > 1 + _TOLERANCE:
                yield Violation(law, model, at, at, large, ratio, measured(at))


def _pairs(
    catalog: Session, places: Iterable[GpuPrecision]
) -> Iterator[tuple[str, GpuPrecision, GpuPrecision, int]]:
    """Yield (law, what must not be slower, than what, from which batch)."""
    places = list(places)
    for at in places:
        for wider in _WIDER.get(at.precision, ()):
            if (other := at._replace(precision=wider)) in places:
                yield "precision", at, other, FULL_BATCH
        if at.precision == "tf32":
            yield "precision", at, at._replace(precision="fp32"), 1
        succeeded = load_device(at.gpu, catalog).succeeds
        if succeeded and (other := at._replace(gpu=succeeded)) in places:
            yield "generation", at, other, 1


def report(found: Sequence[Violation]) -> str:
    """Return the violations in words: counted by law and evidence, then by family."""
    lines = []
    for backed in (True, False):
        these = [one for one in found if one.backed == backed]
        title = "backed by a measured row" if backed else "without a measured row"
        lines.append(f"{len(these)} violations {title}")
        for family, count in Counter(one.family for one in these).most_common():
            worst = sorted((one for one in these if one.family == family), key=lambda x: -x.ratio)
            shown = ", ".join(f"{x.model} b{x.batch} {x.ratio:.3g}x" for x in worst[:_SHOWN])
            lines.append(f"  {count:4} {family}: {shown}")
    return "\n".join(lines)


def main() -> int:
    """Print the violations of the laws; return 1 if any has no measured row behind it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help="models (default: all)")
    parser.add_argument(
        "--software", choices=list(ERAS), help="software era (default: as measured)"
    )
    asked = parser.parse_args()
    catalog = Session()
    models = asked.models or shipped_models(catalog)
    gpus = sorted(catalog.files("devices"))
    found = list(violations(catalog, models, gpus, software=asked.software))
    print(f"{len(models)} models on {len(gpus)} GPUs, batches {BATCHES[0]} to {BATCHES[-1]}")
    print(report(found))
    return int(not all(one.backed for one in found))


if __name__ == "__main__":
    sys.exit(main())
