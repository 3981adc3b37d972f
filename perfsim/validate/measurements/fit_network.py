"""A network that nobody measured, fitted on the exposed communication of a source's own runs.

``python -m perfsim.validate.measurements.fit_network --measurements FILE --group SOURCE --start
NETWORK.toml --out profiles/networks`` is the maintainers' command. The rows are those that the
rules mark ``calibrates = "the network ..."``: exposed communication at the smallest batch. First
the rate inside a node is searched on the rows of one node, then the rate between nodes on the
others, each for the least absolute deviations of the time (robust: one run that was disturbed does
not pull it), with `predict` as the model. Latencies stay those of the start; the tree's rate keeps
its ratio to the ring's.
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

from perfsim.data.catalog import Catalog
from perfsim.data.files import named_file, write_text
from perfsim.errors import RequestError
from perfsim.fusion.buckets import FusionContext
from perfsim.prediction import Prediction, predict
from perfsim.resolve import resolve
from perfsim.scenario import Scenario
from perfsim.units import parse_rate
from perfsim.validate.measurements.ask import scenario_of, singles_of, told_of
from perfsim.validate.measurements.case import Case, read_cases
from perfsim.validate.measurements.rules import MappingRule, read_rules
from perfsim.validate.measurements.single import EXPOSED

__all__ = ["FittedRow", "fit", "least", "marked", "rows_of"]

MARK = "calibrates the network"
LOW, HIGH, POINTS = 1e7, 1e12, 51
"""Rates that are tried [B/s], and how many, evenly in the logarithm."""
NEAR = 1e-3
"""Relative width at which the search ends."""
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
OTHERS = ("curve", "tuner", "inside")
"""What a start holds that the fit does not speak of."""

FitTable = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FittedRow:
    """Exposed communication of one run [s], and the scenario that predicts it."""

    name: str
    scenario: Scenario
    measured_s: float

    @property
    def of(self) -> str:
        """The link that it tells of."""
        several = self.scenario.gpus > (self.scenario.gpus_per_node or self.scenario.gpus)
        return "inter" if several else "intra"

    def at(self, path: Path) -> Scenario:
        """Return its scenario on the network of a file."""
        return self.scenario.model_copy(update={"net": str(path), "intra_net": None})


def marked(cases: Sequence[Case], rules: Sequence[MappingRule], group: str) -> list[Case]:
    """Return the cases of a source that calibrate its network."""
    return [
        case
        for case in cases
        if case.group == group
        and case.metric == EXPOSED
        and told_of(case, rules).reason.startswith(MARK)
    ]


def rows_of(
    cases: Sequence[Case], rules: Sequence[MappingRule], group: str, catalog: Catalog
) -> list[FittedRow]:
    """Return what calibrates the network of a source.

    Raises
    ------
    RequestError
        If no row does, or one of them cannot be asked.
    """
    singles = singles_of(cases, rules)
    found = [
        FittedRow(
            case.id, scenario_of(case, told_of(case, rules), rules, singles, catalog), case.value
        )
        for case in marked(cases, rules, group)
    ]
    if not found:
        raise RequestError("group", f"no case of {group!r} calibrates the network.")
    return found


def least(error: Callable[[float], float], low: float = LOW, high: float = HIGH) -> float:
    """Return where ``error`` is least between two limits, searched in the logarithm.

    The best of a grid, then a golden section between its neighbours.

    Examples
    --------
    >>> round(least(lambda rate: (1e9 / rate - 0.5) ** 2) / 1e9, 2)
    2.0
    """
    step = (high / low) ** (1.0 / (POINTS - 1))
    grid = [low * step**place for place in range(POINTS)]
    best = min(grid, key=error)
    low, high = math.log(max(low, best / step)), math.log(min(high, best * step))
    while high - low > NEAR:
        inner, outer = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        if error(math.exp(inner)) <= error(math.exp(outer)):
            high = outer
        else:
            low = inner
    return math.exp((low + high) / 2.0)


def fit(start: FitTable, rows: Sequence[FittedRow], source: str) -> FitTable:
    """Return the network of ``start`` with the rates that fit ``rows``.

    Parameters
    ----------
    start : a network file as TOML has it
    rows : what calibrates
    source : where the rows stand
    """
    found = {key: value for key, value in start.items() if key not in OTHERS}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{found['name']}.toml"
        for of in ("intra", "inter"):
            own = [row for row in rows if row.of == of]
            if own:
                found = _fitted(found, of, own, path, source)
    return found


def _fitted(
    table: FitTable, of: str, rows: Sequence[FittedRow], path: Path, source: str
) -> FitTable:
    def error(rate: float) -> float:
        _write(_with_rate(table, of, rate), path)
        return sum(abs(_exposed_s(predict(row.at(path))) - row.measured_s) for row in rows)

    rate = least(error)
    _write(_with_rate(table, of, rate), path)
    off = sorted(_off(row, predict(row.at(path))) for row in rows)
    sizes = sorted(size for row in rows for size in _sizes(row, path))
    ranks = [row.scenario.gpus for row in rows]
    names = ", ".join(row.name for row in rows)
    told = {
        "range": [f"{sizes[0]:.0f}B", f"{sizes[-1]:.0f}B"],
        "residual": f"{min(3.0, off[math.ceil(0.9 * len(off)) - 1]):.1%}",
        "source": f"exposed communication of {source}, rows {names}; least absolute"
        " deviations of the time predicted; residual: 90th percentile of |predicted - measured|"
        " over all communication",
    }
    fitted = _with_rate(table, of, rate)
    for link in fitted["link"]:
        if link["class"] == of:
            link["ranks"] = [min(ranks), max(ranks)]
            link["rate"] |= told | {"kind": "fitted"}
            told["source"] = f"in proportion to the ring's rate; {told['source']}"
            link["tree_rate"] |= told | {"kind": "derived"}
    return fitted


def _exposed_s(prediction: Prediction) -> float:
    return prediction.breakdown_s["communication_exposed"]


def _off(row: FittedRow, prediction: Prediction) -> float:
    """Return the error of a row over all of its communication, hidden or not."""
    return abs(_exposed_s(prediction) - row.measured_s) / prediction.communication["busy_s"]


def _sizes(row: FittedRow, path: Path) -> list[float]:
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


def _with_rate(table: FitTable, of: str, rate: float) -> FitTable:
    """Return the network with another rate of one class of link, its tree's in proportion."""
    return table | {
        "link": [_at(link, rate) if link["class"] == of else link for link in table["link"]]
    }


def _at(link: FitTable, rate: float) -> FitTable:
    ring: FitTable = link["rate"]
    tree: FitTable = link.get("tree_rate", ring)
    ratio = parse_rate(tree["value"], "tree_rate") / parse_rate(ring["value"], "rate")
    origin = {key: ring[key] for key in ("kind", "source")}
    return link | {
        "rate": {"value": f"{rate / 1e9:.4g}GB/s", **origin},
        "tree_rate": {"value": f"{ratio * rate / 1e9:.4g}GB/s", **origin},
    }


def _write(table: FitTable, path: Path) -> None:
    import tomli_w

    path.write_text(tomli_w.dumps(table), encoding="utf-8")


def main() -> None:
    """Fit a network and write its file."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("measurements", type=Path, required=True)
    parser.add_argument("group", required=True)
    parser.add_argument("start", type=Path, required=True)
    parser.add_argument("out", type=Path, required=True)
    given = parser.parse_args()
    catalog = Catalog()
    beside = catalog.beside("measurements", "", "map.toml")
    assert beside is not None
    cases = read_cases(given.measurements)
    rules = read_rules(beside)
    rows = rows_of(cases, rules, given.group, catalog)
    where = sorted({case.provenance for case in marked(cases, rules, given.group)})
    start = tomllib.loads(given.start.read_text(encoding="utf-8"))
    found = fit(start, rows, "; ".join(where))
    import tomli_w

    write_text(named_file(given.out, str(found["name"]), ".toml"), tomli_w.dumps(found))


if __name__ == "__main__":
    main()
