"""Every parser of perfsim as a function of a file, which reads it, checks it and writes it back."""

from __future__ import annotations

import math
import os
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tomli_w

from perfsim import interval
from perfsim.calibrate.formats import read_log as read_measured
from perfsim.calibrate.formats.csv_tables import write_own_csv
from perfsim.calibrate.traces.import_trace import import_trace
from perfsim.cli.scenario_flags import split_settings
from perfsim.compute.anchors import read_anchors
from perfsim.compute.device import read_device, read_kernels
from perfsim.compute.profile import read_positions, read_profile
from perfsim.compute.single_kernels import read_products
from perfsim.data.catalog import Catalog
from perfsim.errors import PerfsimError
from perfsim.methods.learning import read_evidence, read_statements
from perfsim.network.cluster import make_cluster
from perfsim.network.fabrics import graph_file
from perfsim.network.measured import CURVES_HEADER, merge, read_curves, write_curves
from perfsim.network.network_file import load_network, read_network
from perfsim.pipeline import predict_pipeline, read_pipeline
from perfsim.planning.capacity import read_prices
from perfsim.planning.grid import axes_of, parse_vary
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from perfsim.scenario_file import SCENARIO_SCHEMA, read_scenario
from perfsim.session import Session
from perfsim.validate.accuracy import read_accuracy
from perfsim.validate.cases import read_cases
from perfsim.validate.claims import claims_of
from perfsim.validate.mapping import read_rules
from perfsim.validate.measurements import read_limits
from scripts.fuzz import more_parsers as more

__all__ = ["PARSERS", "SEEDS", "UnsoundError", "sound"]

SEEDS = Path(__file__).parent / "seeds"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
ALL: Any = {"collective": "all_reduce", "ranks": 8, "nodes": 2}
GIVEN: Mapping[str, Any] = {"printed.csv": ALL, "pairs.csv": ALL, "param.txt": {"nodes": 2}}
"""What these files do not say themselves."""
FILES_PER_PREDICTION = 16
"""One in so many files that are read is predicted with."""


class UnsoundError(Exception):
    """Something that was read is unsound: not finite, a control character, changed by writing."""


def sound(value: Any, depth: int = 12) -> None:
    """Refuse numbers that are not finite and texts that would reach a terminal as commands."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise UnsoundError(f"{value!r} is not finite")
    elif isinstance(value, str):
        if CONTROL.search(value):
            raise UnsoundError(f"{value!r:.200} holds a control character")
    elif isinstance(value, Mapping):
        for key, one in value.items():
            sound(key, depth - 1)
            sound(one, depth - 1)
    elif isinstance(value, list | tuple | set | frozenset) and depth:
        for one in value:
            sound(one, depth - 1)
    elif is_dataclass(value) and depth:
        for field in fields(value):
            sound(getattr(value, field.name), depth - 1)


def _same(one: Any, other: Any, what: str) -> None:
    if one != other:
        raise UnsoundError(f"{what} differs after writing and reading: {one!r:.300} {other!r:.300}")


def _sampled(path: Path) -> bool:
    return zlib.crc32(path.read_bytes()) % FILES_PER_PREDICTION == 0


@cache
def _catalog() -> Session:
    return Session()


@cache
def _sound_flags() -> set[str]:
    return set((SEEDS / "flags" / "fields.txt").read_text(encoding="utf-8").split("\n"))


def _scenario(path: Path) -> None:
    data = read_scenario(path)
    asked = make_scenario(data["scenario"])
    sound(asked.model_dump())
    told = {name: value for name, value in asked.model_dump().items() if value is not None}
    back = path.with_name("back.toml")
    back.write_text(tomli_w.dumps({"schema": SCENARIO_SCHEMA, "scenario": told}), encoding="utf-8")
    _same(asked, make_scenario(read_scenario(back)["scenario"]), "a scenario")
    vary = data.get("sweep", {})
    sound([axis.values for axis in axes_of(vary)] if isinstance(vary, dict) else [])
    sound(claims_of(str(path), _catalog()))


def _flags(path: Path) -> None:
    """Read lines ``flag=value``: each damaged one with a model and GPUs; raise the last error."""
    wrong = None
    for line in os.fsdecode(path.read_bytes()).split("\n"):
        name, equals, value = line.partition("=")
        if not equals or line in _sound_flags():
            continue
        try:
            if name == "vary":
                axes_of(parse_vary([value]))
                continue
            told: dict[str, Any] = {"model": "resnet50", "gpus": "8"}
            if name == "set":
                told["options"], told["fusion_options"] = split_settings([value])
            else:
                told[name] = value
            asked = make_scenario(told)
            told = asked.model_dump()
            sound([one for one in told.values() if isinstance(one, int | float | tuple)])
            _same(asked, make_scenario(asked.model_dump(exclude_none=True)), "a scenario")
        except PerfsimError as error:
            wrong = error
    if wrong is not None:
        raise wrong


def _profile(path: Path) -> None:
    profile = read_profile(path)
    sound(profile)
    for layer in profile.layers:
        if not 0 <= layer.forward_s <= 1e9 or not 0 <= layer.backward_s <= 1e9:
            raise UnsoundError(f"{layer} takes no such time")
    if _sampled(path):
        (path.parent / "models").mkdir(exist_ok=True)
        place = path.parent / "models" / path.name
        place.write_bytes(path.read_bytes())
        for method in ("ssgd", "topk"):
            asked = make_scenario({"model": "hand", "gpus": 8, "net": "1gbe", "method": method})
            _predicted(predict(asked, Catalog(path.parent)).to_dict())


def _predicted(told: dict[str, Any]) -> None:
    sound({name: told[name] for name in ("iteration_s", "breakdown_s", "communication")})
    if not told["iteration_s"] > 0 or min(told["breakdown_s"].values()) < 0:
        raise UnsoundError(f"a prediction of {told['iteration_s']} s, {told['breakdown_s']}")


def _network(path: Path) -> None:
    network = read_network(path)
    sound([network.title, network.transport, network.notes, network.links, network.name])
    if "inter" in network.links:
        inside = network if "intra" in network.links else load_network("pcie3", _catalog(), "")
        cluster = make_cluster(16, None, None, network, inside)
    else:
        cluster = make_cluster(4, 4, None, load_network("1gbe", _catalog(), ""), network)
    for size in (8.0, 25e6):
        cost = cluster.cost("all_reduce", size)
        if not 0 < cost.seconds < math.inf:
            raise UnsoundError(f"an all-reduce of {size} B takes {cost.seconds} s")


def _curves(path: Path) -> None:
    curves = read_curves(path)
    sound(curves)
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    head = [line[1:].partition(":") for line in lines if line.startswith("#")]
    about = {key.strip(): value.strip() for key, _, value in head if key.strip() in CURVES_HEADER}
    back = path.parent / "back" / path.name
    back.parent.mkdir(exist_ok=True)
    write_curves(back, curves, about, "own")
    once = read_curves(back)
    # Rounded to 4 digits when it is written, and the same from then on.
    write_curves(back, once, about, "own")
    _same(once, read_curves(back), "a curve")
    before, after = ([time for one in found for time in one.seconds] for found in (curves, once))
    if not all(math.isclose(*pair, rel_tol=1e-3) for pair in zip(before, after, strict=True)):
        raise UnsoundError(f"{before} differ after writing: {after}")


def _measured(path: Path) -> None:
    skip_bad = path.stat().st_size % 2 == 1
    found = read_measured(path, skip_bad=skip_bad, **GIVEN.get(path.name, {}))
    sound(found)
    back = path.parent / "back.csv"
    write_own_csv(found.curves, back)
    _same(found.curves, tuple(merge(read_measured(back).curves)), "a curve")


def _trace(path: Path) -> None:
    made = import_trace(
        path, model="hand", batch=4, gpu="v100", nodes=2, folder=path.parent / "out", force=True
    )
    sound(made.to_dict())


def _graph(path: Path) -> None:
    hosts = ("a", "b", "c", "d") if path.suffix == ".csv" else ()
    made = graph_file._load.__wrapped__(str(path), hosts, 1e-6, None)
    sound([*made.nodes(data=True), *made.edges(data=True)])


def _prices(path: Path) -> None:
    found = read_prices(path)
    sound(found.prices)
    table = [
        {name: value for name, value in vars_of(one).items() if value != ""} for one in found.prices
    ]
    back = path.with_name("back.toml")
    told: dict[str, Any] = {"schema": "perfsim/prices/1", "currency": found.currency}
    back.write_text(tomli_w.dumps(told | ({"price": table} if table else {})), encoding="utf-8")
    _same((found.currency, found.prices), _without_path(read_prices(back)), "a price")


def _without_path(found: Any) -> tuple[str, Any]:
    return found.currency, found.prices


def vars_of(one: Any) -> dict[str, Any]:
    """Return a dataclass's fields by name."""
    return {field.name: getattr(one, field.name) for field in fields(one)}


def _plain(read: Callable[[Path], Any]) -> Callable[[Path], None]:
    def check(path: Path) -> None:
        found = read(path)
        sound(found)
        if _sampled(path):
            _same(found, read(path), "what was read")

    return check


def _positions(path: Path) -> dict[str, int]:
    return read_positions(path, ("conv1", "layer1.conv", "fc", "bn1"), ("conv1", "fc"))


PARSERS: Mapping[str, Callable[[Path], None]] = {
    "scenario": _scenario,
    "flags": _flags,
    "profile": _profile,
    "network": _network,
    "curves": _curves,
    "device": _plain(read_device),
    "nccl_text": _measured,
    "nccl_json": _measured,
    "nccl_csv": _measured,
    "own_csv": _measured,
    "param_text": _measured,
    "pytorch_csv": _measured,
    "kineto": _trace,
    "horovod": _trace,
    "cases": _plain(read_cases),
    "prices": _prices,
    "kernels": _plain(read_kernels),
    "anchors": _plain(read_anchors),
    "positions": _plain(_positions),
    "rules": _plain(read_rules),
    "pipeline": _plain(lambda path: predict_pipeline(read_pipeline(path)).to_dict()),
    "graph": _graph,
    "node": _plain(more.read_node),
    "config": _plain(more.read_config_file),
    "stated": _plain(more.read_stated_models),
    "training": _plain(read_cases),
    "evidence": _plain(read_evidence),
    "statements": _plain(read_statements),
    "uncertainty": _plain(interval._read),
    "accuracy": _plain(read_accuracy),
    "limits": _plain(read_limits),
    "products": _plain(read_products),
    "patterns": more.read_patterns,
    "journal": _plain(more.read_sweep_journal),
    "requests": more.read_app_request,
}
"""Parsers by name; each has its seeds in a folder of that name."""


@dataclass(frozen=True)
class Seed:
    """A sound file of one parser."""

    name: str
    data: bytes


def seeds(parser: str) -> list[Seed]:
    """Return the sound files that damage starts from."""
    if parser == "journal":
        return [Seed(name, data) for name, data in more.journal_seeds().items()]
    folder = SEEDS / parser
    return [Seed(path.name, path.read_bytes()) for path in sorted(folder.iterdir())]
