"""What a source itself measured of computation: its single-GPU rate, or its compute phase.

Such a case calibrates: it fixes the computation of the source's other cases, and is never counted
as a test. The nearest one serves: of the same ranks and network, else of the same system, else of
the same model, GPU and batch; of several, those that stand nearest in the source (the longest
common beginning of their ``provenance``: the same folder, the same session). A rate of one GPU
comes before a compute phase; before both a step on several GPUs less its exposed communication,
where both rows of it are marked as calibration: what several GPUs do one GPU need not.

Where the source calibrates computation at other batches only, perfsim's own estimate carries it:
by as much as the source took longer there than predicted (``Singles.ratio``), it takes longer at
the batch that is asked.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from math import log
from statistics import median

from perfsim.validate.measurements.case import Case

__all__ = ["ADDED", "PHASES", "Singles", "is_single"]

ADDED = "compress_plus_comm_s"
"""What a method adds to an iteration, on one GPU its kernels alone: what these cost in the
source's other cases of the same system, and taken off the iteration of the same run, so that what
is left is the computation that every method shares."""

PHASES = ("compute_s", "fwd_bwd_s", "breakdown_fwd_bwd_s")
"""Metrics that are the time of forward and backward, without what communication adds."""

STEP, EXPOSED = "iteration_s", "exposed_comm_s"
"""Metrics of one run that together tell its step without communication."""

TOLD = re.compile(r"single-GPU value is (\d+(?:\.\d+)?)")
"""A rate on one GPU [samples/s] in a case's notes."""

Key = tuple[str, ...]
Known = dict[Key, list[tuple[str, float]]]
"""By what they hold for: where each stands in the source, and its seconds."""


def is_single(case: Case) -> bool:
    """Tell whether a case calibrates the computation of others."""
    return case.metric in PHASES or (
        case.gpus == "1" and case.metric in ("throughput", "iteration_s", ADDED)
    )


class Singles:
    """The calibrating cases of a table, by what they hold for.

    Parameters
    ----------
    cases : all cases of the table
    marked : ids of those that their row or a rule marks as calibration
    """

    def __init__(self, cases: Sequence[Case], marked: Collection[str] = ()) -> None:
        self._without = _without_communication([case for case in cases if case.id in marked])
        self._whole: Known = defaultdict(list)
        self._phase: Known = defaultdict(list)
        self._alike: dict[Key, list[Case]] = defaultdict(list)
        self._ratios: dict[str, float | None] = {}
        self._added: Known = defaultdict(list)
        added = {_run(case): case.value for case in cases if case.metric == ADDED}
        for case in cases:
            self._alike[_what(case)].append(case)
            batch = case.whole("batch_per_gpu")
            told = TOLD.search(case.notes)
            if case.metric == ADDED and case.gpus == "1" and case.value > 0:
                self._added[_program(case)].append((case.provenance, case.value))
            for key in _keys(case):
                if told and batch:
                    self._whole[key].append((case.provenance, batch / float(told[1])))
                elif case.metric in PHASES:
                    self._phase[key].append((case.provenance, case.value))
                elif is_single(case) and case.value > 0:
                    if case.metric == "iteration_s":
                        seconds = case.value - added.get(_run(case), 0.0)
                        self._whole[key].append((case.provenance, seconds))
                    elif batch and case.metric == "throughput":
                        self._whole[key].append((case.provenance, batch / case.value))

    def iteration_s(self, case: Case) -> float | None:
        """Return the source's iteration without communication [s], the median of several."""
        found = self._nearest(self._without, case, _keys(case))
        return self._nearest(self._whole, case, _keys(case)) if found is None else found

    def phase_s(self, case: Case) -> float | None:
        """Return the source's forward and backward [s], the median of several."""
        return self._nearest(self._phase, case, _keys(case))

    def ratio(self, case: Case, ratio_of: Callable[[Case], float | None]) -> float | None:
        """Return measured over predicted time of the source's computation, at the nearest batch.

        Of the same system if any, else of the same model and GPU; of several at that batch, the
        median of those that stand nearest. None where the source does not calibrate it.

        Parameters
        ----------
        ratio_of : measured over predicted time of a case that calibrates computation, else None
        """
        batch = case.whole("batch_per_gpu")
        if batch is None:
            return None
        known = [one for one in self._alike[_what(case)] if self._ratio(one, ratio_of)]
        known = [one for one in known if one.system == case.system] or known
        if not known:
            return None

        def place(one: Case) -> tuple[float, int]:
            own = one.whole("batch_per_gpu") or batch
            return abs(log(own / batch)), -_alike(case.provenance, one.provenance)

        least = min(map(place, known))
        return median(self._ratio(one, ratio_of) or 1.0 for one in known if place(one) == least)

    def _ratio(self, case: Case, ratio_of: Callable[[Case], float | None]) -> float | None:
        if case.id not in self._ratios:
            whole = case.whole("batch_per_gpu")
            self._ratios[case.id] = ratio_of(case) if whole else None
        return self._ratios[case.id]

    def kernels_s(self, case: Case) -> float | None:
        """Return what the same system added to an iteration on one GPU [s], the median."""
        return self._nearest(self._added, case, [_program(case)])

    def _nearest(self, known: Known, case: Case, keys: Sequence[Key]) -> float | None:
        key = next((key for key in keys if key in known), None)
        if key is None:
            return None
        shared = [_alike(case.provenance, where) for where, _ in known[key]]
        near = max(shared)
        return median(
            value for (_, value), length in zip(known[key], shared, strict=True) if length == near
        )


def _what(case: Case) -> Key:
    return case.group, case.model, case.gpu


def _without_communication(cases: Sequence[Case]) -> Known:
    """Return steps on several GPUs less their exposed communication, where both were measured."""
    runs: dict[Key, dict[str, Case]] = defaultdict(dict)
    for case in cases:
        if case.metric in (STEP, EXPOSED) and case.gpus != "1":
            runs[_run(case)][case.metric] = case
    known: Known = defaultdict(list)
    for told in runs.values():
        if len(told) == 2 and told[STEP].value > told[EXPOSED].value:
            for key in _keys(told[STEP]):
                seconds = told[STEP].value - told[EXPOSED].value
                known[key].append((told[STEP].provenance, seconds))
    return known


def _run(case: Case) -> Key:
    """Return what cases of one run share."""
    return (
        *(case.provenance, case.system, case.model, case.gpu, case.gpus, case.gpus_per_node),
        *(case.network, case.batch_per_gpu, case.fusion, case.rank_or_density),
    )


def _program(case: Case) -> Key:
    what = (case.group, case.system, case.model, case.gpu, case.batch_per_gpu)
    return (*what, case.fusion, case.rank_or_density)


def _keys(case: Case) -> list[Key]:
    what = (case.group, case.model, case.gpu, case.batch_per_gpu)
    return [(*what, case.gpus, case.network), (*what, case.system), what]


def _alike(one: str, other: str) -> int:
    """Return how many letters two texts begin with in common."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
