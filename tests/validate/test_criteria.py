"""Criteria of exclusion: a closed list, none of which knows a prediction, alike for all sources."""

from __future__ import annotations

import ast
import inspect
import tomllib
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from perfsim.data.catalog import Catalog, shipped
from perfsim.errors import DataError
from perfsim.validate import criteria, mapping
from perfsim.validate.cases import Case, read_cases
from perfsim.validate.criteria import (
    CONTRADICTION,
    EXCLUSION_CRITERIA,
    INPUT_WAIT_SHARE,
    criterion_of,
    measured_criteria,
    said_criterion,
)
from perfsim.validate.mapping import MappingRule, SourceCases, read_rules
from support.collected import COLLECTED, needs_data

MAPS = sorted((shipped() / "measurements").glob("*map.toml"))
DDP = Case("t-1", "DDP", "resnet50", "v100", "8", "4", "wire", "64", "", "", "iteration_s", 0.5, "")

MEASURED = ("waits for input", "values contradict each other")
"""Criteria over measured values."""


@cache
def collected() -> list[Case]:
    """Return the collected cases."""
    return read_cases(COLLECTED / "measurements" / "cases.csv")


@cache
def rules() -> list[MappingRule]:
    """Return the rules that ship."""
    return [rule for path in MAPS for rule in read_rules(path)]


def run(batch: int, iteration_s: float, exposed_s: float, **cells: str) -> list[Case]:
    """Return the two cases of a run on several GPUs."""
    words: dict[str, Any] = {"batch_per_gpu": str(batch), "provenance": "a.csv", **cells}
    base = replace(DDP, **words)
    name = f"{base.group}-{base.gpus} GPUs, {base.model}, {batch}, {base.provenance}"
    return [
        replace(base, id=f"{name}, whole", metric="iteration_s", value=iteration_s),
        replace(base, id=f"{name}, exposed", metric="exposed_comm_s", value=exposed_s),
    ]


def test_a_criterion_sees_cases_and_nothing_else() -> None:
    """No prediction, no network file and no profile is at hand where a criterion is applied."""
    tree = ast.parse(Path(criteria.__file__).read_text(encoding="utf-8"))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
        elif isinstance(node, ast.Import):
            imported |= {name.name for name in node.names}
    assert {name for name in imported if name.startswith("perfsim")} == {"perfsim.validate.cases"}
    assert imported <= {"__future__", "re", "collections", "collections.abc"} | {
        "perfsim.validate.cases"
    }
    functions = inspect.getmembers(criteria, inspect.isfunction)
    own = [function for _, function in functions if function.__module__ == criteria.__name__]
    assert {said_criterion, measured_criteria, criterion_of} <= set(own)
    for function in own:
        taken = {
            parameter.annotation for parameter in inspect.signature(function).parameters.values()
        }
        assert taken <= {"Case", "Sequence[Case]", "str"}, function


@pytest.mark.parametrize("path", MAPS, ids=lambda path: path.name)
def test_every_exclusion_of_a_map_is_of_the_closed_list(path: Path) -> None:
    reasons = [
        rule["exclude"] for rule in tomllib.loads(path.read_text())["rule"] if rule.get("exclude")
    ]
    assert reasons or path.name != "map.toml"
    for reason in reasons:
        assert criterion_of(reason) in EXCLUSION_CRITERIA, reason
        assert criterion_of(reason) not in MEASURED, "measured values decide, not a rule"


def test_a_map_cannot_exclude_by_misfit(tmp_path: Path) -> None:
    path = tmp_path / "map.toml"
    head = 'schema = "perfsim/measurement-map/1"\n[[rule]]\nwhen = { id = "x-*" }\n'
    for reason in ("35 % below WFBP", "waits for inputs", "GPU not stated, and slow"):
        path.write_text(f'{head}exclude = "{reason}"\n')
        with pytest.raises(DataError, match="does not begin with a criterion; criteria: GPU not"):
            read_rules(path)
    path.write_text(f'{head}exclude = "GPU not stated: a server"\n')
    assert read_rules(path)[0].exclude == "GPU not stated: a server"


def test_every_criterion_says_what_it_means() -> None:
    for name, sentence in EXCLUSION_CRITERIA.items():
        assert ":" not in name and sentence.endswith(".") and len(sentence.split()) > 5
        assert criterion_of(name) == criterion_of(f"{name}: detail") == name
    assert criterion_of("") is None and criterion_of("GPU not stated. Or so") is None


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({}, ""),
        ({"seen_or_memory": "SEEN"}, ""),
        ({"seen_or_memory": "MEMORY"}, "recalled, never verified"),
        ({"gpu": "not stated (AWS)"}, "GPU not stated: not stated (AWS)"),
        ({"batch_per_gpu": "80 tokens"}, "tokens, not samples: 80 tokens"),
        ({"metric": "allreduce_s"}, "no time of training: allreduce_s"),
        ({"metric": "epoch_s"}, "epoch or whole training: epoch_s"),
        ({"metric": "train_time_min"}, "epoch or whole training: train_time_min"),
        ({"metric": "speedup_vs_NCCL"}, "ratio to another run: speedup_vs_NCCL"),
        ({"metric": "speedup_vs_1gpu"}, ""),
        ({"notes": "relative to 16 GPUs"}, "ratio to another run: relative to 16 GPUs"),
        ({"notes": "relative to 1 GPU"}, ""),
        (
            {"notes": "slow; per exchange, not amortised; and more"},
            "metric of another meaning: per exchange, not amortised",
        ),
        ({"value": 0.0}, "value of zero"),
        ({"metric": "comm_s"}, ""),
    ],
)
def test_what_a_source_says_meets_a_criterion(cells: dict[str, Any], reason: str) -> None:
    assert said_criterion(replace(DDP, **cells)) == reason
    # Whatever the source is called.
    assert said_criterion(replace(DDP, id="other-9", source="else", **cells)) == reason


def test_a_run_waits_where_exposed_time_grows_with_the_batch() -> None:
    runs = [*run(20, 0.2, 0.02), *run(40, 0.3, 0.04), *run(80, 0.6, 0.2)]
    found = measured_criteria(runs)
    assert found == {
        case.id: "waits for input: 0.02 s exposed at batch 20, 0.2 s at batch 80"
        for case in runs
        if case.batch_per_gpu == "80"
    }
    # Twice as fast a machine, another name, another order: the same rows.
    other = [
        replace(case, id=case.id.replace("t-", "else-"), value=case.value / 2)
        for case in reversed(runs)
    ]
    assert {name.replace("else-", "t-") for name in measured_criteria(other)} == set(found)


@pytest.mark.parametrize(
    "runs",
    [
        # It falls, as it should: the backward pass grows and the bytes do not.
        [run(20, 0.5, 0.3), run(40, 0.55, 0.2), run(80, 0.6, 0.02)],
        # It grows by less than the share.
        [
            run(20, 0.2, 0.02),
            run(40, 0.3, 0.03),
            run(80, 0.6, 0.02 + 0.99 * INPUT_WAIT_SHARE * 0.6),
        ],
        # One slow run between two that are not.
        [run(20, 0.2, 0.02), run(40, 0.5, 0.3), run(80, 0.6, 0.02)],
        # Two batches show no growth.
        [run(20, 0.2, 0.02), run(80, 0.6, 0.3)],
        # Runs of other configurations: more nodes, another file of the source, another model.
        [run(20, 0.2, 0.02), run(40, 0.3, 0.02), run(80, 0.6, 0.3, gpus="16")],
        [run(20, 0.2, 0.02), run(40, 0.3, 0.02), run(80, 0.6, 0.3, provenance="b.csv")],
        [run(20, 0.2, 0.02), run(40, 0.3, 0.02), run(80, 0.6, 0.3, model="vgg16")],
    ],
)
def test_other_runs_do_not_wait(runs: list[list[Case]]) -> None:
    assert measured_criteria([case for one in runs for case in one]) == {}


def test_values_of_one_configuration_contradict_each_other() -> None:
    one = replace(DDP, network="NVLink, 100Gbps TCP", value=0.2)
    other = replace(one, id="t-2", network="NVLink, 100 Gb/s TCP", provenance="elsewhere")
    apart = replace(other, value=0.2 * CONTRADICTION * 1.01)
    reason = "values contradict each other: 0.2 to 0.303"
    assert measured_criteria([one, apart]) == {"t-1": reason, "t-2": reason}
    assert measured_criteria([one, replace(other, value=0.2 * CONTRADICTION * 0.99)]) == {}
    unknown = [replace(case, batch_per_gpu="") for case in (one, apart)]
    assert measured_criteria(unknown) == {}, "they may be of two batches"
    for change in ({"batch_per_gpu": "32"}, {"gpus": "16"}, {"metric": "x"}, {"id": "u-2"}):
        assert measured_criteria([one, replace(apart, **change)]) == {}, change


def test_no_role_reads_a_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Roles and reasons are there although nothing can be predicted."""

    def forbidden(*_: object) -> None:
        raise AssertionError("a prediction was read")

    for name in ("predict_iteration", "resolve", "predicted_metric", "make_scenario"):
        monkeypatch.setattr(mapping, name, forbidden)
    cases = [DDP, *run(20, 0.2, 0.02), *run(40, 0.3, 0.04), *run(80, 0.6, 0.2)]
    if COLLECTED.is_dir():
        cases += collected()
    source = SourceCases(cases, rules(), Catalog())
    assert {role.role for role in source.roles.values()} <= {
        "test",
        "calibration",
        "excluded",
        "missing",
    }
    unfit = source.singles.unfit
    assert {criterion_of(reason) for reason in unfit.values()} <= set(MEASURED)
    for role in source.roles.values():
        if role.role == "excluded":
            assert criterion_of(role.reason) in EXCLUSION_CRITERIA, role.reason
        elif role.role == "missing":
            assert role.reason and criterion_of(role.reason) is None


@needs_data
def test_the_criterion_of_input_is_applied_to_all_clusters_alike() -> None:
    """AdaptDL ran on five clusters: exposed time grows on Azure, and on a DGX A100 at batch 163."""
    found = measured_criteria(collected())
    waiting = [name for name, reason in found.items() if reason.startswith("waits for input")]
    groups = Counter(name.rpartition("-")[0] for name in waiting)
    assert groups == {"adl-azure": 68, "adl-dgx-ext": 4}
    asked = {case.group for case in collected() if case.metric == "exposed_comm_s"}
    assert {"adl-aws", "adl-rtx", "adl-dgx-ext", "adl-quad", "adl-azure"} <= asked


@needs_data
def test_what_was_excluded_for_misfit_is_asked() -> None:
    source = SourceCases(collected(), rules(), Catalog())
    asked = {
        name
        for name, role in source.roles.items()
        if role.role == "test" and name not in source.singles.unfit
    }
    back = {
        "ByteScheduler": [case for case in collected() if "ByteScheduler-A2A" in case.system],
        "GoogLeNet": [
            case
            for case in collected()
            if case.model == "GoogLeNet" and case.gpus_per_node == "2" and case.gpus != "2"
        ],
        "KAISA's ResNet-18": [
            case for case in collected() if case.group == "kai" and case.model == "ResNet-18"
        ],
        "1 GbE": [
            case
            for case in collected()
            if case.group in ("gtk", "omg") and case.metric in ("throughput_per_gpu", "iteration_s")
        ],
        "8 K80": [
            case
            for case in collected()
            if case.group == "vin" and case.gpus == "8" and case.metric != "fwd_bwd_s"
        ],
    }
    counts = {name: len(cases) for name, cases in back.items()}
    assert counts == {
        "ByteScheduler": 16,
        "GoogLeNet": 9,
        "KAISA's ResNet-18": 8,
        "1 GbE": 40,
        "8 K80": 6,
    }
    for name, cases in back.items():
        assert {case.id for case in cases} <= asked, name


def test_the_readme_of_the_measurements_lists_every_criterion() -> None:
    text = (shipped() / "measurements" / "README.md").read_text(encoding="utf-8")
    table = text.partition("| criterion | a row |")[2].partition("\n\n")[0]
    listed = {
        name.strip()
        for line in table.splitlines()[2:]
        for name in line.strip("|").split("|")[0].split(", ")
    }
    assert all(set(name.split(", ")) <= listed for name in EXCLUSION_CRITERIA)
