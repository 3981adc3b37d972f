"""How some of the methods that were compared scale: each at other numbers of GPUs."""

from __future__ import annotations

from perfsim.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.own_fusion import for_method
from perfsim.planning.comparison import BASELINE, Comparison
from perfsim.planning.space import gpu_counts, thinned
from perfsim.prediction import Prediction, predict
from perfsim.ranking import Tell

__all__ = ["CURVES", "scaling_of"]

CURVES = 3
"""Methods whose scaling is looked at: S-SGD, the fastest, and the scenario's own or the next."""


def scaling_of(
    comparison: Comparison, catalog: Catalog | None = None, tell: Tell | None = None
) -> dict[str, dict[int, Prediction]]:
    """Return predictions by GPUs of S-SGD, the fastest method, and the scenario's own or the next.

    All else is as it was compared; nodes stay as full as they are. ``tell`` is called before each
    method.

    Examples
    --------
    >>> from perfsim import Scenario, compare
    >>> found = compare(Scenario(model="resnet18", gpus=2, net="1gbe"), ["ssgd", "dgc"])
    >>> {name: list(curve) for name, curve in scaling_of(found).items()}
    {'ssgd': [1, 2, 4, 8, 16, 32, 64], 'dgc': [1, 2, 4, 8, 16, 32, 64]}
    """
    catalog = catalog or Catalog()
    ones = comparison.ranking.predictions
    order = (BASELINE, comparison.ranking.winner, comparison.own, *ones)
    names = [name for name in dict.fromkeys(order) if name in ones][:CURVES]
    found = {}
    for done, name in enumerate(names):
        if tell is not None:
            tell(done, len(names), f"scaling of {name}")
        found[name] = _curve(comparison, name, catalog)
    return found


def _curve(comparison: Comparison, name: str, catalog: Catalog) -> dict[int, Prediction]:
    known = comparison.ranking.predictions[name]
    own, each = known.scenario["gpus"], known.scenario["gpus_per_node"]
    found: dict[int, Prediction] = {}
    for gpus in thinned(gpu_counts(own, each), known):
        changes = {"gpus": gpus, "gpus_per_node": min(gpus, each), "placement": None}
        asked = comparison.asked[name].model_copy(update=changes)
        try:
            found[gpus] = known if gpus == own else predict(for_method(asked, name)[0], catalog)
        except RequestError:
            continue  # the method does not run on so many
    return found
