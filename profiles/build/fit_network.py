"""Fit a network that nobody benchmarked on the exposed communication of a source's own runs.

    python profiles/build/fit_network.py --measurements FILE --group SOURCE --start NETWORK.toml \
        --out profiles/networks

The rows are those that the rules mark ``calibrates = "the network ..."``: exposed communication at
the smallest batch. The rate inside a node is fitted first, on the rows of one node, then the rate
between nodes on the others. Each minimises the absolute deviations of the time (robust: one
disturbed run does not pull it), with `predict` as the model. Latencies stay those of the start; the
tree's rate keeps its ratio to the ring's.

Nothing here keeps a rate near what microbenchmarks of the same hardware show. Tests do so for what
ships (`hardware.csv`), and ``calibrate_clusters.py`` fits with a prior.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from perfsim.data.catalog import Catalog
from perfsim.data.files import named_file, write_text
from perfsim.errors import RequestError
from perfsim.fusion.buckets import FusionContext
from perfsim.prediction import Prediction, predict
from perfsim.resolve import resolve
from perfsim.scenario import Scenario
from perfsim.units import parse_rate
from perfsim.validate.cases import Case, read_cases
from perfsim.validate.mapping import (
    EXPOSED_METRIC,
    RULES_FILE,
    MappingRule,
    rated_scenario,
    read_rules,
    role_of,
    several_nodes,
    single_gpu_cases,
)

__all__ = [
    "NETWORK_MARK",
    "FittedRow",
    "best_rate",
    "fit_rates",
    "fitted_rows",
    "network_cases",
]

NETWORK_MARK = "calibrates the network"
"""How the role of a case begins that the network is fitted on."""
_LOW, _HIGH, _POINTS = 1e7, 1e12, 51
"""Limits of the rates [B/s], and how many are tried first, evenly in the logarithm."""
_TOLERANCE = 1e-3
"""Relative width at which the search ends."""
_NOT_FITTED = ("curve", "tuner", "inside")
"""Keys of the start that do not apply to the fitted network."""

_Table = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FittedRow:
    """Exposed communication of one run [s], and the scenario that predicts it."""

    name: str
    scenario: Scenario
    measured_s: float

    @property
    def link_class(self) -> str:
        """The class of link that the run depends on: inter for several nodes, else intra."""
        return "inter" if several_nodes(self.scenario) else "intra"

    def at(self, path: Path) -> Scenario:
        """Return its scenario on the network of a file."""
        return self.scenario.model_copy(update={"net": str(path), "intra_net": None})


def network_cases(cases: Sequence[Case], rules: Sequence[MappingRule], group: str) -> list[Case]:
    """Return the cases of a source that calibrate its network."""
    return [
        case
        for case in cases
        if case.group == group
        and case.metric == EXPOSED_METRIC
        and role_of(case, rules).reason.startswith(NETWORK_MARK)
    ]


def fitted_rows(
    cases: Sequence[Case], rules: Sequence[MappingRule], group: str, catalog: Catalog
) -> list[FittedRow]:
    """Return the runs that calibrate the network of a source.

    Raises
    ------
    RequestError
        If there is none, or one of them cannot be predicted.
    """
    singles = single_gpu_cases(cases, rules)
    rows = [
        FittedRow(
            case.id, rated_scenario(case, role_of(case, rules), rules, singles, catalog), case.value
        )
        for case in network_cases(cases, rules, group)
    ]
    if not rows:
        raise RequestError("group", f"no case of {group!r} calibrates the network.")
    return rows


def best_rate(error: Callable[[float], float], low: float = _LOW, high: float = _HIGH) -> float:
    """Return the rate between two limits at which ``error`` is least, searched in the logarithm.

    A grid finds the valley, scipy's bounded search the rate between the neighbours of its best.

    Examples
    --------
    >>> round(best_rate(lambda rate: (1e9 / rate - 0.5) ** 2) / 1e9, 2)
    2.0
    """
    from scipy.optimize import minimize_scalar

    step = (high / low) ** (1.0 / (_POINTS - 1))
    grid = [low * step**index for index in range(_POINTS)]
    best = min(grid, key=error)
    result = minimize_scalar(
        lambda log_rate: error(math.exp(log_rate)),
        bounds=(math.log(max(low, best / step)), math.log(min(high, best * step))),
        method="bounded",
        options={"xatol": _TOLERANCE},
    )
    return math.exp(float(result.x))


def fit_rates(start: _Table, rows: Sequence[FittedRow], source: str) -> _Table:
    """Return the network of ``start`` with the rates that fit ``rows``.

    Parameters
    ----------
    start : a network file as TOML has it
    rows : the runs to fit on
    source : where the rows are published
    """
    network = {key: value for key, value in start.items() if key not in _NOT_FITTED}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{network['name']}.toml"
        for link_class in ("intra", "inter"):
            own = [row for row in rows if row.link_class == link_class]
            if own:
                network = _fit_link(network, link_class, own, path, source)
    return network


def _fit_link(
    network: _Table, link_class: str, rows: Sequence[FittedRow], path: Path, source: str
) -> _Table:
    """Return the network with the rate of one class of link fitted to the rows that use it."""

    def error(rate: float) -> float:
        _write(_with_rate(network, link_class, rate), path)
        return sum(abs(_exposed_s(predict(row.at(path))) - row.measured_s) for row in rows)

    rate = best_rate(error)
    _write(_with_rate(network, link_class, rate), path)
    errors = sorted(_error(row, predict(row.at(path))) for row in rows)
    sizes = sorted(size for row in rows for size in _bucket_sizes(row, path))
    ranks = [row.scenario.gpus for row in rows]
    names = ", ".join(row.name for row in rows)
    origin = {
        "range": [f"{sizes[0]:.0f}B", f"{sizes[-1]:.0f}B"],
        "residual": f"{min(3.0, errors[math.ceil(0.9 * len(errors)) - 1]):.1%}",
        "source": f"exposed communication of {source}, rows {names}; least absolute"
        " deviations of the time predicted; residual: 90th percentile of |predicted - measured|"
        " over all communication",
    }
    fitted = _with_rate(network, link_class, rate)
    for link in fitted["link"]:
        if link["class"] == link_class:
            link["ranks"] = [min(ranks), max(ranks)]
            link["rate"] |= origin | {"kind": "fitted"}
            origin["source"] = f"in proportion to the ring's rate; {origin['source']}"
            link["tree_rate"] |= origin | {"kind": "derived"}
    return fitted


def _exposed_s(prediction: Prediction) -> float:
    return prediction.breakdown_s["communication_exposed"]


def _error(row: FittedRow, prediction: Prediction) -> float:
    """Return the error of a row over all of its communication, hidden or not."""
    return abs(_exposed_s(prediction) - row.measured_s) / prediction.communication["busy_s"]


def _bucket_sizes(row: FittedRow, path: Path) -> list[float]:
    """Return the sizes of the buckets that a row sends [B]."""
    resolved = resolve(row.at(path), Catalog())
    profile = resolved.profile
    context = FusionContext(
        limit_bytes=resolved.limit_bytes,
        backward_s=profile.backward_s,
        message_bytes=lambda gradient: gradient.size_bytes,
        all_reduce_s=lambda size: resolved.cluster.cost("all_reduce", size).seconds,
        options=resolved.scenario.fusion_options,
    )
    buckets = resolved.policy.fuse(profile.in_ready_order(), context)
    return [bucket.size_bytes for bucket in buckets]


def _with_rate(network: _Table, link_class: str, rate: float) -> _Table:
    """Return the network with another rate of one class of link; its tree's rate in proportion."""
    links = [
        _link_with_rate(link, rate) if link["class"] == link_class else link
        for link in network["link"]
    ]
    return network | {"link": links}


def _link_with_rate(link: _Table, rate: float) -> _Table:
    ring: _Table = link["rate"]
    tree: _Table = link.get("tree_rate", ring)
    ratio = parse_rate(tree["value"], "tree_rate") / parse_rate(ring["value"], "rate")
    origin = {key: ring[key] for key in ("kind", "source")}
    return link | {
        "rate": {"value": f"{rate / 1e9:.4g}GB/s", **origin},
        "tree_rate": {"value": f"{ratio * rate / 1e9:.4g}GB/s", **origin},
    }


def _write(network: _Table, path: Path) -> None:
    path.write_text(tomli_w.dumps(network), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit a network on a source's exposed communication and write its file."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--measurements", type=Path, required=True, help="table of cases")
    parser.add_argument("--group", required=True, help="source, as ids begin: acpsgd")
    parser.add_argument("--start", type=Path, required=True, help="network file to start from")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the network to")
    given = parser.parse_args(arguments)
    catalog = Catalog()
    rules_path = catalog.beside("measurements", "", RULES_FILE)
    assert rules_path is not None
    cases = read_cases(given.measurements)
    rules = read_rules(rules_path)
    rows = fitted_rows(cases, rules, given.group, catalog)
    sources = sorted({case.provenance for case in network_cases(cases, rules, given.group)})
    start = tomllib.loads(given.start.read_text(encoding="utf-8"))
    network = fit_rates(start, rows, "; ".join(sources))
    path = named_file(given.out, str(network["name"]), ".toml")
    write_text(path, tomli_w.dumps(network))


if __name__ == "__main__":
    main()
