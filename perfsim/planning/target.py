"""What a training run is and may take: samples, epochs, a deadline, a budget."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perfsim.errors import RequestError, nearest
from perfsim.limits import shown

__all__ = ["DATASETS", "Target", "parse_budget", "parse_epochs", "parse_power", "parse_samples"]

DATASETS = {
    "imagenet": (1_281_167, "ILSVRC2012 training set, Russakovsky et al. 2015, arXiv 1409.0575"),
    "cifar10": (50_000, "Krizhevsky 2009, Learning Multiple Layers of Features, section 3"),
    "cifar100": (50_000, "Krizhevsky 2009, Learning Multiple Layers of Features, section 3"),
    "squad": (87_599, "SQuAD 1.1 training questions, Rajpurkar et al. 2016, arXiv 1606.05250"),
}
"""Samples of a training set, and where the number stands."""

_SAMPLES = re.compile(r"\s*(\d+(?:\.\d+)?(?:[eE]\d+)?)\s*samples\s*")
_POWER = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(kW|W)\s*")
_MONEY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]{3})\s*")


@dataclass(frozen=True)
class Target:
    """A run of so many epochs over so many samples, and its limits (None: none).

    ``epochs`` hold for every method that ``epochs_of`` does not name. ``gpu_power_w`` is what one
    GPU takes while it trains [W].
    """

    samples: int
    epochs: float
    epochs_of: Mapping[str, float] = field(default_factory=dict)
    deadline_s: float | None = None
    budget: float | None = None
    currency: str = ""
    gpu_power_w: float | None = None

    def samples_of(self, method: str) -> float:
        """Return how many samples a method trains on, over all epochs."""
        return self.samples * self.epochs_of.get(method, self.epochs)


def parse_samples(text: str) -> int:
    """Return the samples of a data set: a name, or a number with its unit.

    Raises
    ------
    RequestError
        If it is neither.

    Examples
    --------
    >>> parse_samples("imagenet"), parse_samples("3e6 samples")
    (1281167, 3000000)
    """
    if text.lower() in DATASETS:
        return DATASETS[text.lower()][0]
    match = _SAMPLES.fullmatch(text)
    if match is None or float(match[1]) < 1:
        near = nearest(text, DATASETS)
        hint = f"; did you mean {near!r}?" if near else ";"
        raise RequestError(
            f"--dataset: no {shown(text)}{hint} allowed: {', '.join(DATASETS)}, or a number of"
            " samples such as '1281167samples'."
        )
    return int(float(match[1]))


def parse_epochs(text: str, of: Sequence[str] = ()) -> tuple[float, dict[str, float]]:
    """Return the epochs of every method, and those of single ones (``METHOD=EPOCHS``).

    Raises
    ------
    RequestError
        If one is no number above zero.

    Examples
    --------
    >>> parse_epochs("90", ["topk=100"])
    (90.0, {'topk': 100.0})
    """
    single = {}
    for pair in of:
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not name:
            raise RequestError(
                f"--epochs-of: {shown(pair)} is not METHOD=EPOCHS, such as topk=100."
            )
        single[name] = _epochs(value, "--epochs-of")
    return _epochs(text, "--epochs"), single


def _epochs(text: str, flag: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise RequestError(f"{flag}: {shown(text)} is not a number of epochs above zero.")
    return value


def parse_budget(text: str) -> tuple[float, str]:
    """Return an amount and its currency, in three letters.

    Raises
    ------
    RequestError
        If it is no amount with a currency: a bare number has no unit.

    Examples
    --------
    >>> parse_budget("500usd")
    (500.0, 'usd')
    """
    match = _MONEY.fullmatch(text)
    if match is None or float(match[1]) <= 0:
        raise RequestError(
            f"--budget: {shown(text)} is not an amount with its currency, as 500usd."
        )
    return float(match[1]), match[2].lower()


def parse_power(text: str) -> float:
    """Return a power [W].

    Raises
    ------
    RequestError
        If it is no power above zero with its unit.

    Examples
    --------
    >>> parse_power("250W"), parse_power("0.7 kW")
    (250.0, 700.0)
    """
    match = _POWER.fullmatch(text)
    if match is None or float(match[1]) <= 0:
        raise RequestError(f"--gpu-power: {shown(text)} is not a power with its unit, as 250W.")
    return float(match[1]) * (1000.0 if match[2] == "kW" else 1.0)
