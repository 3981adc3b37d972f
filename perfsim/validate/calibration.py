"""The network of a cluster from its own calibrating rows: a preset with its rates scaled.

A source that trains on a cluster seldom measures its network, but some of its rows show it:

- ``exposed``: communication that backward does not hide, of dense S-SGD at the smallest batch;
- ``one_buffer``: an iteration that sends one buffer after backward, beside the time of one GPU;
- ``all_reduce``: an all-reduce alone.

`calibrate_network` scales the rates of the preset that a newcomer would name: one factor between
nodes, one inside them. Each factor f minimises ::

    sum over rows |predicted - measured| / (RUN_SPREAD x iteration)  +  (ln f / width)^2 / 2

The sum is robust, since one disturbed run does not pull it. The last term is the prior: f is near 1
as far as microbenchmarks of such hardware are near their preset (`PRIOR_WIDTHS`). No factor leaves
``MAX_WIDTHS`` widths, nor reaches ten: a fit on training may correct what microbenchmarks show of
the hardware, never contradict it.

`without` leaves out the model that is judged, so that a calibrated prediction is out of sample.
``profiles/measurements/clusters.csv`` stores the factors; ``profiles/build/calibrate_clusters.py``
writes it.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

from perfsim.conditions.ranks import shown_draws
from perfsim.data.catalog import Catalog
from perfsim.data.tables import cell_number, check_word, read_table
from perfsim.errors import DataError, RequestError
from perfsim.hardware.networks import intra_network_of_gpus
from perfsim.network.link import Link
from perfsim.network.network_file import Network
from perfsim.network.node_network import load_any_network
from perfsim.prediction import spent
from perfsim.quantity import Quantity
from perfsim.resolve import resolve
from perfsim.scenario import DEFAULT_GPU, Scenario, make_scenario
from perfsim.schedule.rounds import build_rounds
from perfsim.schedule.run import mean_s, run_all
from perfsim.session import Session, SessionWithNetworks
from perfsim.simulate.timeline import Timeline
from perfsim.sums import sum_in_order
from perfsim.units import parse_rate
from perfsim.validate.cases import Case, nested_fields
from perfsim.validate.mapping import (
    EXPOSED_METRIC,
    CaseRole,
    SourceCases,
    rated_scenario,
    several_nodes,
)

__all__ = [
    "CLUSTER_COLUMNS",
    "FACTORS_FILE",
    "FACTORS_SCHEMA",
    "HARDWARE_FILE",
    "MAX_WIDTHS",
    "NO_MODEL",
    "PRIOR_WIDTHS",
    "RUN_SPREAD",
    "CalibratedNetwork",
    "CalibratingRow",
    "ClusterKey",
    "HardwareRow",
    "best_factor",
    "calibrate_network",
    "calibrated_session",
    "calibrating_rows",
    "cluster_key",
    "max_log_factor",
    "network_of",
    "on_preset",
    "prior_width",
    "read_clusters",
    "read_hardware",
    "rows_of",
    "without",
]

PRIOR_WIDTHS = {"nvlink": 0.056, "pcie": 1.17, "tcp": 0.785, "rdma": 0.571}
"""Widths of the prior by transport: how far clusters lie from the preset of their hardware.

Each is the root mean square of ln(measured rate / preset's rate), sources weighing alike, over the
rows of ``profiles/networks/hardware.csv`` whose basis is a microbenchmark. Clusters that the preset
was itself made of are left out, since they lie on it by construction. ::

    $ python profiles/build/calibrate_clusters.py --widths
    nvlink: 0.056 (4 clusters of 4 sources, 0.94 to 1.09 times the preset)
    pcie: 1.172 (6 clusters of 5 sources, 0.16 to 0.95 times the preset)
    tcp: 0.785 (9 clusters of 5 sources, 0.31 to 1.22 times the preset)
    rdma: 0.571 (15 clusters of 9 sources, 0.32 to 1.84 times the preset)
    runs: 0.022 (86 of pollux.csv)

It is taken about 0, not about the mean of the ratios: the prior's centre is the preset.
"""

RUN_SPREAD = 0.022
"""Relative scatter of an iteration from run to run: the scale of the fit's deviations.

Mean absolute deviation of ln(iteration - exposed communication) from the median of its batch, over
the 86 runs of ``profiles/measurements/pollux.csv`` on 2 to 64 GPUs: the same computation on other
nodes. ``python profiles/build/calibrate_clusters.py --widths`` prints it too."""

MAX_WIDTHS = 2.0
"""Widths that a factor may reach: 95 % of a normal distribution."""
_ORDER_OF_MAGNITUDE = math.log(10.0)
"""No factor reaches ten, however wide the prior."""

_PCIE_5_RATE = 64e9
"""What PCIe 5.0 x16 carries [B/s]; a faster link inside a node is NVLink.

32 GT/s x 16 lanes, PCI Express Base Specification 5.0."""

_TRANSPORTS = {
    "nvlink": "nvlink",
    "pcie": "pcie",
    "tcp": "tcp",
    "ib": "rdma",
    "infiniband": "rdma",
    "roce": "rdma",
    "efa": "rdma",
    "slingshot": "rdma",
}
"""Transport as network files state it -> class of the prior."""

RowKind = Literal["exposed", "one_buffer", "all_reduce"]
_DENSE = ("ssgd", "horovod", "wfbp", "bsp")
"""Methods that send dense gradients and decide nothing by the network's own figures."""
_ONE_BUFFER = "bsp"
_ALL_REDUCE_METRIC = "allreduce_s"
_ALL_REDUCE_SYSTEM = "all-reduce"
_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) (bytes|kB|MB)")
"""Size of an all-reduce as the words of a case state it."""
_BYTES = {"bytes": 1.0, "kB": 1e3, "MB": 1e6}


_GRID = 7
"""Factors at which rows are predicted, evenly in the logarithm, 1 among them; and as many again
between the neighbours of the best."""
_MAX_ROWS = 12
"""Rows of one class of link that the fit predicts, spread evenly over their numbers of GPUs: enough
for a median, and half a second."""
_TOLERANCE = 2e-3
"""Width of ln f at which the search ends."""


# The hardware of networks: which preset a link belongs to


HARDWARE_FILE = "hardware.csv"
"""Beside the networks: each measured or fitted link, and the preset of its hardware."""
_HARDWARE_SCHEMA = "perfsim/network-hardware/1"
_HARDWARE_COLUMNS = (
    *("network", "link", "transport", "preset", "basis", "rate", "source_id", "verdict"),
    "evidence",
)
_BASES = ("microbenchmark", "preset", "training")
_VERDICTS = ("", "kept", "corrected", "dropped")


@dataclass(frozen=True, slots=True)
class HardwareRow:
    """One link of a network beside the preset, or microbenchmark, of the same hardware.

    Parameters
    ----------
    network, link, transport : a network's name, inter or intra, a key of `PRIOR_WIDTHS`
    preset : the network whose link of this class it is compared with
    basis : ``microbenchmark``; ``preset`` where the preset was made of it; ``training`` where its
        rate was fitted on training runs
    rate : of one NIC between nodes [B/s]; None takes the rate of the network's file
    source_id : who measured it
    verdict : on a link fitted on training: kept, corrected by the prior, or dropped
    evidence : why the preset is that of its hardware
    """

    network: str
    link: str
    transport: str
    preset: str
    basis: str
    rate: float | None
    source_id: str
    verdict: str
    evidence: str

    def log_ratio(self, catalog: Catalog) -> float:
        """Return ln(rate / preset's rate)."""
        rate = self.rate or _link(self.network, self.link, catalog).rate.value
        return math.log(rate / _link(self.preset, self.link, catalog).rate.value)


def _link(network: str, link_class: str, catalog: Catalog) -> Link:
    return _network(network, catalog).link(link_class, "net")


def _network(name: str, catalog: Catalog) -> Network:
    return catalog.once(("network", "net", name), lambda: load_any_network(name, catalog, "net"))


def read_hardware(catalog: Catalog) -> list[HardwareRow]:
    """Return the hardware of networks, as the catalog finds it; none where there is no file.

    Raises
    ------
    DataError
        If the file is damaged.
    """
    return catalog.once(("hardware", HARDWARE_FILE), lambda: _hardware_of(catalog))


def _hardware_of(catalog: Catalog) -> list[HardwareRow]:
    path, rows = catalog.beside("networks", "", HARDWARE_FILE), []
    if path is None:
        return []
    for row, cells in read_table(path, _HARDWARE_SCHEMA, _HARDWARE_COLUMNS):
        check_word(cells["link"], ("inter", "intra"), "link", path, row)
        check_word(cells["transport"], tuple(PRIOR_WIDTHS), "transport", path, row)
        check_word(cells["basis"], _BASES, "basis", path, row)
        check_word(cells["verdict"], _VERDICTS, "verdict", path, row)
        try:
            rate = parse_rate(cells["rate"], "rate") if cells["rate"] else None
        except RequestError as error:
            raise DataError(error.why, path=path, row=row, column="rate") from None
        rows.append(HardwareRow(**{**{c: cells[c] for c in _HARDWARE_COLUMNS}, "rate": rate}))  # type: ignore[arg-type]
    return rows


def prior_width(network: Network, link_class: str, catalog: Catalog) -> float:
    """Return the width of the prior of a network's link: that of its transport.

    Where the file leaves the transport open, a link between nodes is TCP, and one inside them is
    NVLink if it is faster than PCIe.
    """
    for row in read_hardware(catalog):
        if (row.network, row.link) == (network.name, link_class):
            return PRIOR_WIDTHS[row.transport]
    transport = _TRANSPORTS.get(network.transport)
    if link_class == "intra" and ("inter" in network.links or transport is None):
        fast = network.link("intra", "intra_net").rate.value > _PCIE_5_RATE
        transport = "nvlink" if fast else "pcie"
    return PRIOR_WIDTHS[transport or "tcp"]


def max_log_factor(width: float) -> float:
    """Return how far ln f may be from 0 under a prior of some width.

    Examples
    --------
    >>> max_log_factor(0.1), round(max_log_factor(1.5), 3)
    (0.2, 2.303)
    """
    return min(MAX_WIDTHS * width, _ORDER_OF_MAGNITUDE)


def on_preset(scenario: Scenario, catalog: Catalog) -> Scenario:
    """Return a scenario on presets: a network fitted on training runs gives way to its hardware's.

    The networks inside and between nodes are then named in full.
    """
    net, intra = _preset_names(scenario.net, scenario.intra_net, scenario.gpu, catalog)
    return scenario.model_copy(update={"net": net, "intra_net": intra})


def _preset_names(
    net: str, intra: str | None, gpu: str | None, catalog: Catalog
) -> tuple[str, str | None]:
    """Return the presets between and inside nodes; None inside where ``net`` has its own link."""
    presets = {
        (row.network, row.link): row.preset
        for row in read_hardware(catalog)
        if row.basis == "training"
    }
    if intra is None and (net, "intra") in presets:
        intra = net
    elif intra is None and (net, "inter") not in presets:
        network = _network(net, catalog)
        if "intra" not in network.links:
            intra = network.inside or intra_network_of_gpus(gpu, catalog)[0]
    between = presets.get((net, "inter"), net)
    inside = presets.get((intra or "", "intra"), intra)
    if inside is None and between != net:
        inside, _ = intra_network_of_gpus(gpu, catalog)
    return between, inside


# The rows that calibrate


class ClusterKey(NamedTuple):
    """A cluster as one source used it: its group, GPU, and the presets it is predicted with."""

    group: str
    gpu: str
    net: str
    intra_net: str

    @property
    def name(self) -> str:
        """The source and its GPU, such as ``ddlb v100-pcie``."""
        return f"{self.group} {self.gpu}".strip()


def cluster_key(case: Case, scenario: Scenario, catalog: Catalog) -> ClusterKey:
    """Return the cluster that a case was measured on."""
    preset = on_preset(scenario, catalog)
    gpu = scenario.gpu or DEFAULT_GPU
    return ClusterKey(case.group, gpu, preset.net, preset.intra_net or preset.net)


@dataclass(frozen=True, slots=True)
class CalibratingRow:
    """A measured row that shows a cluster's network.

    Parameters
    ----------
    case, scenario, kind : the row, its scenario on presets, and what it measured
    cluster : where it was measured
    measured_s : communication exposed, or the whole iteration of one buffer, or the all-reduce [s]
    iteration_s : of the run, which its scatter is relative to [s]
    size_bytes : of an all-reduce
    """

    case: Case
    scenario: Scenario
    kind: RowKind
    cluster: ClusterKey
    measured_s: float
    iteration_s: float
    size_bytes: float = 0.0

    @property
    def model(self) -> str:
        """The model that was trained; "" of an all-reduce alone."""
        return "" if self.kind == "all_reduce" else self.scenario.model

    @property
    def link_class(self) -> str:
        """The class of link that it shows: inter of several nodes, else intra."""
        return "inter" if several_nodes(self.scenario) else "intra"

    def predicted_s(self, catalog: Session) -> float:
        """Return what is predicted of it on a catalog's networks [s]."""
        setup = resolve(self.scenario, catalog)
        if self.kind == "all_reduce":
            return setup.cluster.seconds("all_reduce", self.size_bytes)
        # As `predict` does, without the baseline and the what-ifs, which take most of its time.
        rounds = build_rounds(setup, catalog.jobs)
        timelines, _, _ = run_all(rounds)
        if self.kind == "one_buffer":
            return mean_s(rounds, timelines)
        draws = [shown_draws(timeline) for timeline in timelines]
        return spent(rounds, timelines, draws, Timeline.breakdown)["communication_exposed"]


def calibrating_rows(source: SourceCases) -> list[CalibratingRow]:
    """Return the rows that show a network, by what they are, whatever their role in a judgement.

    A row that is itself judged takes no part where it is judged: `without` leaves out its model.
    """
    rows, catalog = [], source.catalog
    for case in source.cases:
        kind, role = _kind(case), source.roles[case.id]
        if kind is None:
            continue
        if role.role == "excluded" and kind != "all_reduce":  # which is no time of training
            continue
        try:
            if kind == "all_reduce":
                scenario = _all_reduce_scenario(case, role.fields, catalog)
            else:
                if not _may_show(kind, role):
                    continue
                fields = _on_presets(role.fields, catalog)
                scenario = rated_scenario(case, role._replace(fields=fields), source)
            row = _row(case, on_preset(scenario, catalog), kind, catalog)
        except RequestError:  # what cannot be asked shows nothing
            continue
        if row is not None:
            rows.append(row)
    return _smallest_batches(rows)


def _on_presets(fields: dict[str, Any], catalog: Catalog) -> dict[str, Any]:
    """Return fields that name presets only: a network that no longer ships cannot be loaded."""
    if "net" not in fields:
        return fields
    named = fields["net"], fields.get("intra_net"), fields.get("gpu")
    net, intra = _preset_names(*named, catalog)
    return fields | {"net": net} | ({} if intra is None else {"intra_net": intra})


def _kind(case: Case) -> RowKind | None:
    """Return what a case may show of its network, by its metric alone."""
    if case.metric == _ALL_REDUCE_METRIC and _ALL_REDUCE_SYSTEM in case.system.lower():
        return "all_reduce"
    if case.gpus == "1" or case.value <= 0:
        return None
    if case.metric == EXPOSED_METRIC:
        return "exposed"
    return "one_buffer" if case.metric in ("iteration_s", "throughput") else None


def _may_show(kind: RowKind, role: CaseRole) -> bool:
    """Tell whether the method that a role names is one whose time shows the network so."""
    named = {fields.get("method") for fields in (role.fields, role.rated)}
    return not named.isdisjoint(_DENSE if kind == "exposed" else [_ONE_BUFFER])


def _row(case: Case, scenario: Scenario, kind: RowKind, catalog: Catalog) -> CalibratingRow | None:
    """Return a row if it is one of the kinds that calibrate, on a network without own curves."""
    size_bytes = _size_bytes(case) if kind == "all_reduce" else 0.0
    tells = {
        "all_reduce": size_bytes > 0,
        "one_buffer": scenario.method == _ONE_BUFFER and scenario.single_gpu is not None,
        "exposed": scenario.method in _DENSE,
    }
    if not tells[kind]:
        return None
    setup = resolve(scenario, catalog)
    if setup.cluster.known is not None:
        return None
    measured_s = iteration_s = case.value
    if kind == "one_buffer" and case.metric == "throughput":
        measured_s = iteration_s = setup.samples * setup.replicas / case.value
    elif kind == "exposed":
        iteration_s = setup.alone_s + case.value
    cluster = cluster_key(case, scenario, catalog)
    if kind == "all_reduce":
        cluster = cluster._replace(gpu="")
    return CalibratingRow(case, scenario, kind, cluster, measured_s, iteration_s, size_bytes)


def _all_reduce_scenario(case: Case, fields: Mapping[str, Any], catalog: Catalog) -> Scenario:
    gpus, each = case.whole("gpus"), case.whole("gpus_per_node")
    kept = {name: fields[name] for name in ("net", "intra_net") if name in fields}
    if gpus is None or "net" not in kept:
        raise RequestError("", f"no rule for network {case.network!r}")
    shape = {"gpus": gpus, "gpus_per_node": min(each or gpus, gpus)}
    return make_scenario(
        nested_fields({"model": _any_model(catalog), **kept, **shape}, catalog), case.id
    )


def _any_model(catalog: Catalog) -> str:
    """Return the model of the scenario of an all-reduce alone: its network alone is read."""
    return min(catalog.files("models")).partition(".")[0]


def _size_bytes(case: Case) -> float:
    match = _SIZE.search(f"{case.rank_or_density} {case.system}")
    return float(match[1]) * _BYTES[match[2]] if match else 0.0


def _smallest_batches(rows: Sequence[CalibratingRow]) -> list[CalibratingRow]:
    """Return the rows without exposed communication at other batches than a run's smallest.

    At larger batches backward hides more, and waiting for other ranks outweighs what is left.
    """
    smallest: dict[Hashable, float] = defaultdict(lambda: math.inf)

    def run(row: CalibratingRow) -> Hashable:
        return row.cluster, row.model, row.scenario.method

    for row in rows:
        if row.kind == "exposed":
            smallest[run(row)] = min(smallest[run(row)], row.scenario.batch or math.inf)
    return [
        row
        for row in rows
        if row.kind != "exposed" or (row.scenario.batch or math.inf) == smallest[run(row)]
    ]


def rows_of(rows: Iterable[CalibratingRow], cluster: ClusterKey) -> list[CalibratingRow]:
    """Return the rows that show a cluster.

    Those of one node show the link inside it, whatever lies between the nodes; an all-reduce alone
    shows the network of every GPU of its source.
    """

    def shows(row: CalibratingRow) -> bool:
        own = row.cluster
        gpu = row.kind == "all_reduce" or own.gpu == cluster.gpu
        net = row.link_class == "intra" or own.net == cluster.net
        return own.group == cluster.group and gpu and net and own.intra_net == cluster.intra_net

    return [row for row in rows if shows(row)]


def without(rows: Iterable[CalibratingRow], model: str) -> list[CalibratingRow]:
    """Return the rows of other models than the one that is judged; ``model`` is perfsim's name.

    All-reduces alone stay: no model took part.
    """
    return [row for row in rows if row.model != model]


# The fit


@dataclass(frozen=True, slots=True)
class CalibratedNetwork:
    """A cluster's network: presets with their rates scaled.

    Parameters
    ----------
    cluster : whose it is
    factor_inter, factor_intra : of the rates between and inside nodes; 1 where no row shows them
    rows, models : the rows that the factors were fitted on, and the models that they trained
    width_inter, width_intra : of the priors, in ln f; 0 where no row shows that link
    """

    cluster: ClusterKey
    factor_inter: float
    factor_intra: float
    rows: tuple[str, ...]
    models: tuple[str, ...]
    width_inter: float
    width_intra: float

    def shows(self, scenario: Scenario) -> bool:
        """Tell whether a row shows the link that a scenario depends on: between nodes, if any."""
        return (self.width_inter if several_nodes(scenario) else self.width_intra) > 0

    def session(self, session: Session) -> SessionWithNetworks:
        """Return a session in which the presets are this cluster's network."""
        note = f"calibrated on {len(self.rows)} rows of {self.cluster.name}"
        shown = (
            ("inter", self.factor_inter, self.width_inter),
            ("intra", self.factor_intra, self.width_intra),
        )
        factors = {link_class: factor for link_class, factor, width in shown if width > 0}
        return calibrated_session(session, self.cluster, factors, note)


def calibrate_network(
    rows: Sequence[CalibratingRow], cluster: ClusterKey, catalog: Session
) -> CalibratedNetwork | None:
    """Fit the network of a cluster on its own rows; None where no row shows it.

    The rate inside a node is fitted first, on the rows of one node, then the rate between nodes.

    Parameters
    ----------
    rows : calibrating rows, of any cluster: those of this one are taken
    cluster : as `cluster_key` says
    catalog : where the presets are
    """
    own = rows_of(rows, cluster)
    if not own:
        return None
    widths, factors = {"inter": 0.0, "intra": 0.0}, {"inter": 1.0, "intra": 1.0}
    for link_class, name in (("intra", cluster.intra_net), ("inter", cluster.net)):
        shown = [row for row in own if row.link_class == link_class]
        if shown:
            width = prior_width(_network(name, catalog), link_class, catalog)
            widths[link_class] = width
            factors[link_class] = _fitted(shown, cluster, factors, link_class, width, catalog)
    return CalibratedNetwork(
        cluster,
        factors["inter"],
        factors["intra"],
        tuple(row.case.id for row in own),
        tuple(sorted({row.model for row in own if row.model})),
        widths["inter"],
        widths["intra"],
    )


def _fitted(
    rows: Sequence[CalibratingRow],
    cluster: ClusterKey,
    factors: Mapping[str, float],
    link_class: str,
    width: float,
    catalog: Session,
) -> float:
    """Return the factor of one class of link that fits the rows that show it.

    Rows are predicted at a grid of factors, then at a finer one around its best.
    """
    spread = sorted(rows, key=lambda row: row.scenario.gpus)
    step = max(1.0, len(spread) / _MAX_ROWS)
    used = [spread[int(index * step)] for index in range(min(len(spread), _MAX_ROWS))]

    def predicted(log_factor: float) -> list[float]:
        scaled = {**factors, link_class: math.exp(log_factor)}
        session = calibrated_session(catalog, cluster, scaled)
        return [row.predicted_s(session) for row in used]

    limit = max_log_factor(width)
    known = {log_factor: predicted(log_factor) for log_factor in _grid(-limit, limit)}
    best = math.log(best_factor(_loss(used, known), width, sorted(known)))
    low = max(one for one in known if one < best)
    high = min(one for one in known if one > best)
    known |= {log_factor: predicted(log_factor) for log_factor in _grid(low, high)[1:-1]}
    return best_factor(_loss(used, known), width, sorted(known))


def _grid(low: float, high: float) -> list[float]:
    """Return numbers from ``low`` to ``high``, evenly, both ends among them."""
    return [low + index * (high - low) / (_GRID - 1) for index in range(_GRID)]


def _loss(
    rows: Sequence[CalibratingRow], known: Mapping[float, Sequence[float]]
) -> Callable[[float], float]:
    """Return the deviations of rows, in scatters of a run, by the factor of one class of link.

    ``known`` has what is predicted of each row by ln f. Between those a prediction is a straight
    line in 1 / f: messages take time in proportion to 1 / f, and an iteration is the longest of
    sums of tasks.
    """
    from numpy import interp

    falling = sorted(known, reverse=True)
    inverse = [math.exp(-log_factor) for log_factor in falling]
    columns = list(zip(*(known[log_factor] for log_factor in falling), strict=True))

    def loss(factor: float) -> float:
        return sum_in_order(
            abs(float(interp(1 / factor, inverse, column)) - row.measured_s)
            / (RUN_SPREAD * row.iteration_s)
            for row, column in zip(rows, columns, strict=True)
        )

    return loss


def best_factor(loss: Callable[[float], float], width: float, edges: Sequence[float]) -> float:
    """Return the factor that minimises a loss and the prior of some width.

    Scipy's bounded search runs between each two neighbours of ``edges``, rising ln f, and the best
    result counts.

    Examples
    --------
    >>> round(best_factor(lambda factor: 100 * abs(factor - 0.5), 1.0, [-2, -1, 0, 1, 2]), 2)
    0.5
    >>> round(best_factor(lambda factor: 100 * abs(factor - 0.01), 0.1, [-0.2, 0.0, 0.2]), 2)
    0.82
    """
    from scipy.optimize import minimize_scalar

    def objective(log_factor: float) -> float:
        return loss(math.exp(log_factor)) + (log_factor / width) ** 2 / 2

    results = [
        minimize_scalar(objective, bounds=pair, method="bounded", options={"xatol": _TOLERANCE})
        for pair in pairwise(edges)
    ]
    best = min(results, key=lambda result: float(result.fun))
    return 1.0 if objective(0.0) <= best.fun else math.exp(float(best.x))


def calibrated_session(
    session: Session,
    cluster: ClusterKey,
    factors: Mapping[str, float],
    note: str = "calibrated",
) -> SessionWithNetworks:
    """Return a view of a session in which the two presets of a cluster have other rates.

    ``factors`` are those of the rates, by class of link.
    """
    presets = {"inter": cluster.net, "intra": cluster.intra_net}

    def network(_: str, name: str) -> Network | None:
        if name not in presets.values():
            return None
        preset = _network(name, session)
        links = {
            link_class: _scaled(link, factors[link_class], note)
            for link_class, link in preset.links.items()
            if presets.get(link_class) == name and link_class in factors
        }
        return preset._replace(links={**preset.links, **links})

    return SessionWithNetworks(session, network)


def _scaled(link: Link, factor: float, note: str) -> Link:
    """Return a link with its rates scaled; latencies, and what was held to a protocol, stay."""

    def scaled(rate: Quantity) -> Quantity:
        source = f"{rate.source}; x {factor:.3g}, {note} (perfsim.validate.calibration)"
        return rate._replace(value=rate.value * factor, kind="fitted", source=source)

    return replace(link, rate=scaled(link.rate), tree_rate=scaled(link.tree_rate), grade="carried")


# The stored factors


FACTORS_FILE = "clusters.csv"
FACTORS_SCHEMA = "perfsim/cluster-factors/1"
NO_MODEL = "none"
"""``left_out_model`` of the fit on all rows: what a user of that cluster gets."""
CLUSTER_COLUMNS = (
    *("cluster", "gpu", "left_out_model", "net", "intra_net", "factor_inter", "factor_intra"),
    *("rows", "models", "width_inter", "width_intra"),
)


def read_clusters(path: Path) -> dict[tuple[ClusterKey, str], CalibratedNetwork]:
    """Return the stored networks by cluster and model left out (`NO_MODEL`: none).

    A cluster and model without a row has no calibrating rows of other models.

    Raises
    ------
    DataError
        If the file cannot be read or breaks the format, or a key stands twice.
    """
    networks: dict[tuple[ClusterKey, str], CalibratedNetwork] = {}
    for row, cells in read_table(path, FACTORS_SCHEMA, CLUSTER_COLUMNS):
        cluster = ClusterKey(cells["cluster"], cells["gpu"], cells["net"], cells["intra_net"])
        key = (cluster, cells["left_out_model"])
        if key in networks:
            raise DataError("stands twice", path=path, row=row, column="left_out_model")
        inter, intra = (
            cell_number(cells[name], name, path, row, positive=True)
            for name in ("factor_inter", "factor_intra")
        )
        widths = [cell_number(cells[name], name, path, row) for name in CLUSTER_COLUMNS[-2:]]
        rows, models = tuple(cells["rows"].split()), tuple(cells["models"].split())
        networks[key] = CalibratedNetwork(cluster, inter, intra, rows, models, *widths)
    return networks


def network_of(
    case: Case,
    scenario: Scenario,
    rows: Sequence[CalibratingRow],
    session: Session,
    stored: Mapping[tuple[ClusterKey, str], CalibratedNetwork],
) -> CalibratedNetwork | None:
    """Return the network that a case is predicted on in the calibrated way; None: it has none.

    It is fitted without the case's model, and shows the link that the case depends on. Predict
    ``on_preset(scenario, session)`` with its `CalibratedNetwork.session`.

    Parameters
    ----------
    case, scenario : what is judged
    rows : what `calibrating_rows` finds in the table of the case
    session : where the presets are
    stored : what `read_clusters` has; a cluster that is not there is fitted now
    """
    cluster = cluster_key(case, scenario, session)
    whole = stored.get((cluster, NO_MODEL))
    network = stored.get((cluster, scenario.model))
    if whole is None:
        network = calibrate_network(without(rows, scenario.model), cluster, session)
    elif network is None and scenario.model not in whole.models:
        network = whole
    return network if network is not None and network.shows(scenario) else None
