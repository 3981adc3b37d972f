"""compare(): methods side by side on one scenario, fastest first, relative to S-SGD."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from perfsim.catalog import Catalog
from perfsim.errors import RequestError, unknown
from perfsim.planning.chosen import chosen_methods, options_of_each, own_method
from perfsim.planning.comparison import BASELINE, Comparison
from perfsim.planning.comparison_notes import notes_of
from perfsim.prediction import Prediction, predict
from perfsim.ranking import Ranking, Tell, rank_methods
from perfsim.scenario import Scenario
from perfsim.session import standing

__all__ = ["SORTS", "Comparison", "compare"]

SORTS: dict[str, Callable[[Prediction], Any]] = {
    "time": lambda one: one.iteration_s,
    "high": lambda one: one.iteration_s_interval[1],
    "exposed": lambda one: one.breakdown_s["communication_exposed"],
    "sent": lambda one: one.communication["bytes_per_gpu"],
    "memory": lambda one: sum(one.memory_bytes.values()),
    "name": lambda one: one.scenario["method"],
}
"""What rows may be sorted by: the iteration, the upper end of its interval, the communication that
nothing hides, what a GPU sends, what it holds, the method's name. Ranks stay those by time."""


def compare(
    scenario: Scenario,
    methods: str | Iterable[str] | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    sort: str = "time",
    catalog: Catalog | None = None,
    tell: Tell | None = None,
) -> Comparison:
    """Predict methods side by side on one scenario.

    Parameters
    ----------
    scenario : what is asked; its options and ``single_gpu_kernels`` are for the method it states
    methods : names, as a list or with commas between; None for all. The scenario's own is added.
    options : by name, for all methods that have it, or by ``method.name``, for one
    sort : what rows are sorted by, one of ``SORTS``
    tell : called before each prediction

    Raises
    ------
    RequestError
        If the scenario cannot be predicted, a name does not exist, or no method applies.

    Examples
    --------
    >>> from perfsim import Scenario, compare
    >>> asked = Scenario(model="resnet50", gpus=16, net="1gbe")
    >>> found = compare(asked, ["ssgd", "topk", "dgc"], options={"density": 0.01})
    >>> [one.scenario["method"] for one in found.rows]
    ['topk', 'dgc', 'ssgd']
    >>> found.rows[0].speedup > 2
    True
    >>> [row["against_ssgd"] for row in found.records()]
    ['faster', 'faster', None]
    """
    if sort not in SORTS:
        raise unknown("--sort", sort, SORTS)
    catalog = catalog or standing()
    own = own_method(scenario)
    names = chosen_methods(methods, own)
    given = options_of_each(scenario, own, names, options or {})
    plain = scenario.model_copy(
        update={"method": BASELINE, "options": {}, "single_gpu_kernels": None}
    )
    asked = _asked(scenario, plain, own, given)
    ranking = rank_methods(plain, asked, catalog, tell)
    if not ranking.predictions:
        why = "; ".join(f"{name}: {reason}" for name, reason in ranking.refused.items())
        raise RequestError(f"--methods: none of them applies: {why}.")
    rows = list(ranking.predictions.values())
    if sort != "time":  # ties keep the ranking's order
        rows.sort(key=SORTS[sort])
    notes = notes_of(ranking, options or {}, given, catalog)
    return Comparison(ranking, rows, sort, own, _baseline(ranking, plain, catalog), notes, asked)


def _asked(
    scenario: Scenario, plain: Scenario, own: str | None, given: Mapping[str, Mapping[str, Any]]
) -> dict[str, Scenario]:
    """Return the scenario for each method: ``plain`` with its options, and its kernels' time."""
    kernels = scenario.single_gpu_kernels
    if own is None and kernels is not None:
        raise RequestError(
            "--single-gpu-kernels: it is for one method; name that by --method, or leave it out."
        )
    return {
        name: plain.model_copy(
            update={"options": options, "single_gpu_kernels": kernels if name == own else None}
        )
        for name, options in given.items()
    }


def _baseline(ranking: Ranking, plain: Scenario, catalog: Catalog) -> Prediction:
    """Return S-SGD with DDP's buckets and overlap, whatever is asked of the others."""
    own = ranking.predictions.get(BASELINE)
    if own is not None and own.iteration_s == own.baseline_s:
        return own
    changes: dict[str, Any] = {"fusion": None, "bucket": None, "fusion_options": {}}
    return predict(plain.model_copy(update={**changes, "overlap": True}), catalog)
