"""How wrong the epochs of a method are by what other sources published.

``python tests/scripts/epochs_left_out.py`` asks for each published run, at its own setting, what
the rows of all other sources say (`perfsim.time_to_accuracy.epochs_factor`), and prints how far
that is from what the run needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite, log
from statistics import fmean
from typing import NamedTuple

from perfsim.data.catalog import Catalog
from perfsim.methods import method_class
from perfsim.methods.learning import Evidence, known_evidence, same_update
from perfsim.time_to_accuracy import EpochsFactor, epochs_factor, epochs_ratio

SMALL_TEXTS = ("penn treebank", "wikitext", "tinystories")


class Asked(NamedTuple):
    """What a run needed, as a multiple of S-SGD's epochs, and what other sources say of it."""

    needed: float
    told: EpochsFactor


def data_word(row: Evidence) -> str:
    """Return the word for a row's data by which others are asked for."""
    data = row.data.lower()
    found = [word for word in ("imagenet", "cifar") if word in data]
    if any(text in data for text in SMALL_TEXTS):
        found.append("small text")
    if row.task == "language model pretraining":
        found.append("web")
    return found[0] if found else ""


def asked_of_others() -> Iterator[Asked]:
    """Yield each run that can be compared, and what the other sources' rows say."""
    rows = [row for row in known_evidence(Catalog()) if method_class(row.method).lossy]
    for row in rows:
        needed = epochs_ratio(row)
        if needed is None:
            continue
        update = same_update(row.method)
        others = [
            one for one in rows if same_update(one.method) == update and one.source != row.source
        ]
        options = dict(pair.split("=", 1) for pair in row.options.split("; ") if pair)
        told = epochs_factor(row.method, options, others, (), row.task, data_word(row), row.workers)
        yield Asked(needed, told)


def main() -> None:
    """Print the runs, how many are told of, and how far off that is."""
    every = list(asked_of_others())
    known = [(one.needed, one.told) for one in every if one.told.known]
    reached = [(needed, told) for needed, told in known if isfinite(needed)]
    errors = [log((told.middle or 1.0) / needed) for needed, told in reached]
    inside = [(told.low or 0.0) <= needed <= (told.high or 0.0) for needed, told in known]
    short = [one for one in every if one.told.fell_short]
    print(f"{len(every)} runs, {len(known)} of which other sources tell")
    print(f"  off {fmean(map(abs, errors)):.1%} in the mean (of logarithms {fmean(errors):+.1%})")
    print(f"  inside the ends {fmean(inside):.0%}; {len(known) - len(reached)} fell short")
    fell = sum(not isfinite(one.needed) for one in short)
    print(f"  told to fall short {len(short)}, of which {fell} did")


if __name__ == "__main__":
    main()
