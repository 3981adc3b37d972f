"""Fit the networks of clusters on their own calibrating rows, and show what the prior rests on.

    python profiles/build/calibrate_clusters.py --measurements FILE [FILE ..] \
        --out profiles/measurements/clusters.csv --date DATE
    python profiles/build/calibrate_clusters.py --widths
    python profiles/build/calibrate_clusters.py --verdicts

The first command stores two factors a cluster (see `perfsim.validate.calibration`): on all of its
rows (``none`` left out, what a user of that cluster gets), and for each model that is judged there
on the rows of the other models. With ``--networks DIR`` it also rewrites the network files whose
verdict in ``hardware.csv`` is ``corrected``: the links of the presets, their rates scaled.

``--widths`` prints how far measured clusters lie from the preset of their hardware, by transport,
and the scatter of runs. ``--verdicts`` prints each link that was fitted on training runs beside the
microbenchmark of its hardware.
"""

from __future__ import annotations

import argparse
import math
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import tomli_w

from perfsim.data.catalog import Catalog, shipped
from perfsim.data.files import write_text
from perfsim.data.tables import to_csv
from perfsim.errors import PerfsimError, RequestError
from perfsim.network.network_file import load_network
from perfsim.prediction import predict
from perfsim.session import Session
from perfsim.units import format_rate, parse_rate
from perfsim.validate.calibration import (
    FACTORS_SCHEMA,
    MAX_WIDTHS,
    NO_MODEL,
    PRIOR_WIDTHS,
    CalibratedNetwork,
    CalibratingRow,
    ClusterKey,
    HardwareRow,
    calibrate_network,
    calibrating_rows,
    cluster_key,
    read_hardware,
    rows_of,
    without,
)
from perfsim.validate.cases import Case, read_cases
from perfsim.validate.mapping import (
    EXPOSED_METRIC,
    RULES_FILE,
    MappingRule,
    SourceCases,
    map_case,
    read_rules,
)

__all__ = [
    "clusters_text",
    "corrected_network",
    "corrected_networks",
    "fitted_clusters",
    "main",
    "run_spread",
    "shipped_rules",
    "verdicts_text",
    "width_of",
    "widths_text",
]

_NETWORK_MARK = "calibrates the network"
"""How the role of a case begins that a network is fitted on."""
_RUNS_TABLE = "pollux.csv"
"""The shipped table with most runs of the same computation on other nodes."""
_MAX_RESIDUAL = 3.0
"""Most that a network file may state as a residual."""
_NOTE = (
    "Rates are those of the nearest microbenchmarks, corrected by training runs of one model"
    " (ResNet-50) within a prior; nothing tells how far they hold for others."
)
"""What a network file that the prior corrects says of itself."""
_FEWEST_RUNS = 3
"""Runs of a batch from which their median tells what one of them is off by."""


# What the prior rests on


def width_of(transport: str, rows: Iterable[HardwareRow], catalog: Catalog) -> float:
    """Return how far measured clusters lie from their presets: root mean square of ln(ratio).

    Sources weigh alike; clusters that a preset was made of take no part.
    """
    squares = defaultdict(list)
    for row in rows:
        if row.transport == transport and row.basis == "microbenchmark":
            squares[row.source_id].append(row.log_ratio(catalog) ** 2)
    return math.sqrt(mean(mean(values) for values in squares.values()))


def run_spread(cases: Sequence[Case]) -> tuple[float, int]:
    """Return the scatter of iterations less exposed communication, and the number of runs.

    The scatter is the mean absolute deviation of the logarithm from the median of the same batch.
    """
    runs: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    for case in cases:
        if case.metric in ("iteration_s", EXPOSED_METRIC) and case.gpus != "1":
            run = (case.group, case.model, case.gpu, case.batch_per_gpu)
            runs[(*run, case.gpus, case.notes)][case.metric] = case.value
    alike = defaultdict(list)
    for key, values in runs.items():
        if len(values) == 2 and values["iteration_s"] > values[EXPOSED_METRIC]:
            alike[key[:4]].append(values["iteration_s"] - values[EXPOSED_METRIC])
    deviations = [
        abs(math.log(seconds / median(batch)))
        for batch in alike.values()
        if len(batch) >= _FEWEST_RUNS
        for seconds in batch
    ]
    return mean(deviations), len(deviations)


def widths_text(catalog: Catalog) -> str:
    """Return the width of each prior, the clusters behind it, and the scatter of runs."""
    rows, lines = read_hardware(catalog), []
    for transport in PRIOR_WIDTHS:
        own = [row for row in rows if row.transport == transport and row.basis == "microbenchmark"]
        sources = {row.source_id for row in own}
        ratios = [math.exp(row.log_ratio(catalog)) for row in own]
        lines.append(
            f"{transport}: {width_of(transport, rows, catalog):.3f} ({len(own)} clusters of"
            f" {len(sources)} sources, {min(ratios):.2f} to {max(ratios):.2f} times the preset)"
        )
    spread, count = run_spread(read_cases(shipped() / "measurements" / _RUNS_TABLE))
    return "\n".join([*lines, f"runs: {spread:.3f} ({count} of {_RUNS_TABLE})"])


def verdicts_text(catalog: Catalog) -> str:
    """Return a table of the links fitted on training runs, each beside that of its hardware."""
    lines = [
        "| network | link | fitted | microbenchmark | ratio | widths | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in read_hardware(catalog):
        if row.basis == "training":
            log_ratio, rate = row.log_ratio(catalog), _preset_rate(row, catalog)
            widths = abs(log_ratio) / PRIOR_WIDTHS[row.transport]
            lines.append(
                f"| {row.network} | {row.link} | {format_rate(rate * math.exp(log_ratio))}"
                f" | {row.preset}, {format_rate(rate)} | {math.exp(log_ratio):.2g}"
                f" | {widths:.1f} | {row.verdict} |"
            )
    return "\n".join(lines)


def _preset_rate(row: HardwareRow, catalog: Catalog) -> float:
    return load_network(row.preset, catalog, "net").link(row.link, "net").rate.value


# The factors of clusters


def shipped_rules(catalog: Catalog) -> list[MappingRule]:
    """Return the rules that ship."""
    path = catalog.beside("measurements", "", RULES_FILE)
    if path is None:
        raise RequestError("measurements", f"no measurements/{RULES_FILE} in any folder.")
    return read_rules(path)


def fitted_clusters(
    cases: Sequence[Case], rules: Sequence[MappingRule], session: Session
) -> dict[tuple[ClusterKey, str], CalibratedNetwork]:
    """Return the networks of all clusters of some cases, by cluster and model left out."""
    source = SourceCases(cases, rules, session)
    rows = calibrating_rows(source)
    judged: dict[ClusterKey, set[str]] = defaultdict(set)
    for row in rows:
        if row.model:
            judged[row.cluster].add(row.model)
    for case in cases:
        mapped = map_case(case, source)
        if mapped.scenario is not None:
            cluster = cluster_key(case, mapped.scenario, session)
            judged[cluster].add(mapped.scenario.model)
    networks: dict[tuple[ClusterKey, str], CalibratedNetwork] = {}
    for cluster, models in sorted(judged.items()):
        for model in (NO_MODEL, *sorted(models)):
            kept = rows if model == NO_MODEL else without(rows, model)
            network = _calibrated(kept, cluster, session)
            if network is not None:
                networks[cluster, model] = network
    return networks


def _calibrated(
    rows: Sequence[CalibratingRow], cluster: ClusterKey, session: Session
) -> CalibratedNetwork | None:
    try:
        return calibrate_network(rows, cluster, session)
    except RequestError:  # a cluster of several GPU types or of links without a rate of their own
        return None


def clusters_text(
    networks: Mapping[tuple[ClusterKey, str], CalibratedNetwork],
    sources: Sequence[str],
    date: str,
) -> str:
    """Return the table of factors, as `perfsim.validate.calibration.read_clusters` reads it."""
    lines = [
        f"# schema: {FACTORS_SCHEMA}",
        "# title: Rates of clusters by their own calibrating rows, as factors on presets",
        f"# source: {', '.join(sources)}; profiles/build/calibrate_clusters.py",
        f"# date: {date}",
        "# notes: left_out_model none: fitted on all rows. Widths are those of the priors in ln f;"
        f" no factor leaves {MAX_WIDTHS:g} of them or reaches 10",
    ]
    records = [
        {
            "cluster": cluster.group,
            "gpu": cluster.gpu,
            "left_out_model": model,
            "net": cluster.net,
            "intra_net": cluster.intra_net,
            "factor_inter": f"{network.factor_inter:.4g}",
            "factor_intra": f"{network.factor_intra:.4g}",
            "rows": " ".join(network.rows),
            "models": " ".join(network.models),
            "width_inter": f"{network.width_inter:g}",
            "width_intra": f"{network.width_intra:g}",
        }
        for (cluster, model), network in networks.items()
    ]
    return "\n".join(lines) + "\n" + to_csv(records)


# Network files that the prior corrects


def corrected_network(
    start: dict[str, Any],
    network: CalibratedNetwork,
    presets: Mapping[str, dict[str, Any]],
    shown: Mapping[str, tuple[list[int], float]],
) -> dict[str, Any]:
    """Return a network file with the links of presets, their rates scaled.

    Parameters
    ----------
    start : the file as TOML has it; its links give way
    network : the factors
    presets : the files of the presets by class of link
    shown : fewest and most GPUs of the rows by class of link, and the residual of the rate
    """
    factors = {"inter": network.factor_inter, "intra": network.factor_intra}
    links = []
    for link_class, preset in presets.items():
        ranks, residual = shown[link_class]
        width = getattr(network, f"width_{link_class}")
        note = (
            f"{preset['name']}'s rate x {factors[link_class]:.3g}, fitted on exposed communication"
            f" with a prior on the log of that factor of width {width:g}"
            f" (profiles/build/calibrate_clusters.py), rows {', '.join(network.rows)}; residual:"
            " 90th percentile of |predicted - measured| over all communication;"
            f" {preset['name']}: "
        )
        link = next(one for one in preset["link"] if one["class"] == link_class)
        links.append(
            _scaled_link(link, factors[link_class], residual, preset["name"], note)
            | {"ranks": ranks}
        )
    head = {key: value for key, value in start.items() if key != "link"}
    notes = [note for note in head.get("notes", []) if note != _NOTE]
    return head | {"notes": [*notes, _NOTE], "link": links}


def _scaled_link(
    link: dict[str, Any], factor: float, residual: float, preset: str, note: str
) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    for key in ("rate", "tree_rate"):
        rate = link.get(key, link["rate"])
        value = parse_rate(rate["value"], key) * factor
        origin = {"kind": "fitted", "residual": f"{residual:.1%}", "source": note + rate["source"]}
        kept = {name: item for name, item in rate.items() if name != "error"}
        changed[key] = kept | {"value": f"{value / 1e9:.4g}GB/s"} | origin
    if "segments" in link:
        changed["segments"] = [
            one | {"kind": "derived", "source": f"taken over from {preset}: {one['source']}"}
            for one in link["segments"]
        ]
    return link | changed


def _shown(rows: Sequence[CalibratingRow], session: Session) -> tuple[list[int], float]:
    """Return fewest and most GPUs of some rows, and the residual of what they predict."""
    errors = []
    for row in rows:
        prediction = predict(row.scenario, session)
        exposed_s = prediction.breakdown_s["communication_exposed"]
        errors.append(abs(exposed_s - row.measured_s) / prediction.communication["busy_s"])
    gpus = [row.scenario.gpus for row in rows]
    residual = sorted(errors)[math.ceil(0.9 * len(errors)) - 1]
    return [min(gpus), max(gpus)], min(_MAX_RESIDUAL, residual)


def corrected_networks(
    cases: Sequence[Case], rules: Sequence[MappingRule], folder: Path, session: Session
) -> dict[str, dict[str, Any]]:
    """Return the network files of a folder that the prior corrects, by name.

    They are fitted on the rows that the rules mark as calibrating the network, and on no others.
    """
    source = SourceCases(cases, rules, session)
    rows = [
        row
        for row in calibrating_rows(source)
        if source.roles[row.case.id].reason.startswith(_NETWORK_MARK)
    ]
    links: dict[str, dict[str, HardwareRow]] = defaultdict(dict)
    for link in read_hardware(session):
        if link.verdict == "corrected":
            links[link.network][link.link] = link
    corrected = {}
    for name, by_class in links.items():
        group = by_class["inter"].source_id
        cluster = next((row.cluster for row in rows if row.cluster.group == group), None)
        network = cluster and calibrate_network(rows, cluster, session)
        if network is not None:
            presets = {
                link_class: _toml(session.path("networks", link.preset, "net", "networks"))
                for link_class, link in by_class.items()
            }
            fitted = network.session(session)
            own = rows_of(rows, network.cluster)
            shown = {
                link_class: _shown([row for row in own if row.link_class == link_class], fitted)
                for link_class in by_class
            }
            start = _toml(folder / f"{name}.toml")
            corrected[name] = corrected_network(start, network, presets, shown)
    return corrected


def _toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Store the factors of clusters, or print what the prior rests on."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--measurements", type=Path, nargs="+", help="tables of cases")
    parser.add_argument("--out", type=Path, help="file to write the factors to")
    parser.add_argument("--date", help="date that the file states")
    parser.add_argument("--networks", type=Path, help="folder of network files to correct")
    parser.add_argument("--widths", action="store_true", help="print the widths of the prior")
    parser.add_argument("--verdicts", action="store_true", help="print fitted against measured")
    given = parser.parse_args(arguments)
    session = Session()
    if given.widths:
        print(widths_text(session))
    if given.verdicts:
        print(verdicts_text(session))
    if given.widths or given.verdicts:
        return 0
    if not (given.measurements and given.out and given.date):
        parser.error("--measurements, --out and --date are needed")
    try:
        rules = shipped_rules(session)
        cases = [case for path in given.measurements for case in read_cases(path)]
        cases = list({case.id: case for case in cases}.values())
        networks = fitted_clusters(cases, rules, session)
        sources = [path.name for path in given.measurements]
        write_text(given.out, clusters_text(networks, sources, given.date))
        if given.networks:
            for name, table in corrected_networks(cases, rules, given.networks, session).items():
                write_text(given.networks / f"{name}.toml", tomli_w.dumps(table))
    except PerfsimError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
