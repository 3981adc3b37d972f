"""Writes the generated parts of README.md and of the documents that it links to.

``python tests/scripts/readme.py``; a test fails on drift.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "profiles" / "build"))

from build_networks import read_clusters
from perfsim.cli.main import code
from perfsim.data.catalog import shipped
from perfsim.data.tables import read_table
from perfsim.interval import NO_METHOD, uncertainties
from perfsim.inventory import list_rows
from perfsim.methods import method_class, method_names
from perfsim.methods.base import ONE_GROUP
from perfsim.models.model_types import MODEL_TYPES, UNPRICED
from perfsim.network import known as growth_errors
from perfsim.network import node_law
from perfsim.report.validation import claim_rows
from perfsim.scenario import SCENARIO_FIELDS
from perfsim.session import Session
from perfsim.validate.claims import validate_claims
from perfsim.validate.mapping import WAYS
from perfsim.validate.record import RECORD_COLUMNS, RECORD_FILE, RECORD_SCHEMA, SUMMARY_FILE
from scripts import leave_one_out, published
from support.paths import ROOT

README = ROOT / "README.md"
SESSION = Session()
ANSWERS = {
    "predict": ("--model resnet50 --gpus 64 --net 1gbe --method dgc", {0: 2, 1: 6, 2: 5, 3: 6}),
    "compare": (
        "--model bert-large --gpus 32 --net 10gbe --methods ssgd,onebit_adam,diloco,topk",
        {1: 4, 2: 6},
    ),
    "explain": ("--model resnet50 --gpus 64 --net 10gbe --method topk", {1: 2}),
    "tune": ("--model resnet50 --gpus 64 --net 10gbe --over bucket", {1: 2}),
    "plan": (
        "--model resnet50 --dataset imagenet --epochs 90 --deadline 24h --nets 10gbe,ib100",
        {1: 2},
    ),
}
"""Commands that answer a question, and which paragraphs of what they print, so many lines each."""


def answer(command: str) -> str:
    """Return a command and the paragraphs of its output that answer the question, as code."""
    return block("\n".join(printed(command)))


def others() -> str:
    """Return the first lines of the answers of explain, tune and plan, as one block of code."""
    answers = [printed(command) for command in ("explain", "tune", "plan")]
    first = (line for lines in answers for line in lines if line != "...")
    return block("\n".join(first))


def printed(command: str) -> list[str]:
    """Return a command of `ANSWERS`, and the lines of its output that answer the question.

    `...` stands for lines that are left out.
    """
    flags, wanted = ANSWERS[command]
    output = StringIO()
    with redirect_stdout(output), patch.dict(os.environ, {"COLUMNS": "80"}):
        assert code([command, *flags.split()]) == 0
    paragraphs = [part.splitlines() for part in output.getvalue().split("\n\n")]
    lines: list[str] = []
    whole, last = True, -1
    for number, count in wanted.items():
        if last >= 0:
            lines += [] if whole and number == last + 1 else ["..."]
            lines.append("")
        lines += paragraphs[number][:count]
        whole, last = count >= len(paragraphs[number]), number
    lines += [] if whole and last == len(paragraphs) - 1 else ["..."]
    return [f"$ perfsim {command} {flags}", *(line.rstrip() for line in lines)]


def accuracy() -> str:
    """Return how wrong perfsim is, a line a kind of prediction."""
    matters = next(name for by, name, _ in stored() if by == "communication" and "matters" in name)
    asked = {
        "a published training iteration, by names alone (blind)": ("way", "blind", "blind"),
        "the same, given the source's time on one GPU (rated)": ("way", "rated", "rated"),
        "the same, given the cluster's own measurements (calibrated)": (
            "way",
            "calibrated",
            "calibrated",
        ),
        "of these where communication matters, rated": ("communication", matters, "rated"),
    }
    found = [
        (said, *_numbers(stored()[key]), "measurements")
        for said, key in asked.items()
        if key in stored()
    ]
    words = {
        "in_range": "a collective between two measured sizes",
        "scale_4x": "a collective on up to 4 times the nodes",
    }
    carried = growth_rows()
    found += [(said, *_numbers(carried[which]), "networks") for which, said in words.items()]
    whole = node_errors()[node_law.ALL, node_law.ALL]
    found.append(("a collective by the data sheet of nodes alone", *_numbers(whole), "nodes"))
    spread = leave_one_out.spread(leave_one_out.errors())
    found += [("a model on a GPU it was never measured on", *spread, "devices")]
    lines = ["| predicted | how many | median error | 90th percentile |", "|---|---|---|---|"]
    lines += [
        f"| [{said}](profiles/{where}/README.md#how-right) | {count} | {middle:.1%} | {ninth:.0%} |"
        for said, count, middle, ninth, where in found
    ]
    return "\n".join(lines)


def _numbers(cells: dict[str, str]) -> tuple[int, float, float]:
    count = cells.get("rows") or cells["count"]
    return int(count), float(cells["median"]), float(cells["p90"])


def held_out() -> str:
    """Return the table of held-out published rows."""
    lines = ["| scenario | measured samples/s | predicted | error of the time | why |"]
    lines.append("|---|---|---|---|---|")
    for scenario, row in published.held_out():
        predicted, off = published.error(scenario, row)
        reason = published.REASONS.get(scenario, "")
        lines.append(
            f"| `{scenario}` | {row.value:,.0f} +-{published.deviation(row):.0f} |"
            f" {predicted:,.0f} | {off:+.1%} | {reason} |"
        )
    return "\n".join(lines)


def fields() -> str:
    """Return the fields of a scenario: how each is written, its default and its limits."""
    lines = ["| field | value | default | limits | what it is |", "|---|---|---|---|---|"]
    for name, field in SCENARIO_FIELDS.items():
        value = "true or false" if field.switch else field.metavar.replace("|", " or ")
        value += "" if field.flag or name == "fusion_options" else "; no flag"
        default = field.default or ("" if field.value in (None, (), {}) else str(field.value))
        default = "needed" if name == "model" else default
        limits = "" if field.min is None else f"from {field.min:,}"
        limits += "" if field.max is None else f" to {field.max:,}"
        cells = (f"`{name}`", value, default.replace("True", "true"), limits, field.help)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def table_of(found: list[dict[str, Any]], columns: tuple[str, ...]) -> str:
    """Return some columns of rows as a table."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(row[column]) for column in columns) + " |" for row in found]
    return "\n".join(lines)


Recorded = dict[tuple[str, str, str], dict[str, str]]
"""Stored errors by what cases are grouped by, the group's name and the way of asking."""


@cache
def stored(name: str = SUMMARY_FILE) -> Recorded:
    """Return stored errors: of all collected rows, or of what ships."""
    path = shipped() / "measurements" / name
    read = read_table(path, RECORD_SCHEMA, RECORD_COLUMNS)
    return {(cells["by"], cells["name"], cells["way"]): cells for _, cells in read}


def ways() -> str:
    """Return the errors of what ships, as `perfsim validate` prints them, and of all rows."""
    lines = (shipped() / "measurements" / SUMMARY_FILE).read_text(encoding="utf-8").splitlines()
    date = next(line for line in lines if line.startswith("# date:")).partition(":")[2].strip()
    fit = uncertainties(SESSION)[NO_METHOD]
    return (
        f"State of {date}; the interval is fitted on"
        f" {fit.rows:,} asked rows of {fit.sources} sources.\n\n"
        f"What ships, which `perfsim validate` predicts:\n\n{_ways_table(RECORD_FILE)}\n\n"
        f"All collected rows, which it shows as stored:\n\n{_ways_table(SUMMARY_FILE)}"
    )


def _ways_table(name: str) -> str:
    """Return the errors of published iterations by way of asking, rows and sources alike."""
    lines = [
        "| asked | rows | sources | median | p90 | bias | in the 90 % interval | half width |"
        " rank of width and error | alike: median | p90 | bias | in the interval | ranked right |",
        "|" + "---|" * 14,
    ]
    for (by, way, _), cells in stored(name).items():
        if by != "way":
            continue
        own = _shares(cells, ("median", "p90", "bias", "coverage", "half_width"))
        alike = _shares(cells, ("alike_median", "alike_p90", "alike_bias", "alike_coverage"))
        ranked = f"{cells['ranked_right']} of {cells['pairs']}"
        rank = f"{float(cells['width_rank']):.2f}"
        figures = [way, cells["rows"], cells["sources"], *own, rank, *alike, ranked]
        lines.append(f"| {' | '.join(figures)} |")
    return "\n".join(lines)


def groups() -> str:
    """Return the errors by groups of cases: median, p90, bias and coverage in each way."""
    return "\n\n".join(
        _group_table(by, title)
        for by, title in (
            ("communication", "communication"),
            ("scale", "scale"),
            ("generation", "generation of the GPU"),
            ("evidence", "what a prediction rests on"),
            ("preset", "the network's preset"),
        )
    )


def validation() -> str:
    """Return the errors of published iterations by source."""
    return _group_table("source", "source")


def _group_table(by: str, title: str) -> str:
    names = dict.fromkeys(name for group, name, _ in stored() if group == by)
    head = [f"{way}: rows, median, p90, bias, in 90 %" for way in WAYS]
    lines = [f"| {title} | {' | '.join(head)} |", "|---|" + "---|" * len(WAYS)]
    for name in names:
        told = [_told(stored().get((by, name, way))) for way in WAYS]
        lines.append(f"| {name} | {' | '.join(told)} |")
    return "\n".join(lines)


def _told(cells: dict[str, str] | None) -> str:
    if cells is None:
        return "-"
    return ", ".join([cells["rows"], *_shares(cells, ("median", "p90", "bias", "coverage"))])


def _shares(cells: dict[str, str], columns: tuple[str, ...]) -> list[str]:
    """Return figures of a record as shares, a bias with its sign."""
    forms = {"bias": "{:+.1%}", "alike_bias": "{:+.1%}"}
    return [
        forms.get(column, "{:.1%}").format(float(cells[column])) if cells[column] else "-"
        for column in columns
    ]


def claims() -> str:
    """Return the papers' headline claims beside ours."""
    columns = ("claim", "paper", "perfsim", "lands", "setting", "not in the paper", "software")
    return table_of(claim_rows(validate_claims(SESSION)), (*columns, "note", "why"))


def carried() -> str:
    """Return how wrong a profile carried to another GPU has been."""
    return block(leave_one_out.told())


def methods() -> str:
    """Return every method: what it is, what it needs, how right it has been."""
    columns = ("method", "family", "what", "paper", "needs", "record")
    return table_of([row.to_dict() for row in list_rows("methods", SESSION)], columns)


def levels() -> str:
    """Return what methods exchange inside a node and across nodes, where not as one group alone."""
    return "\n".join(
        f"- `{name}`: {said.replace(ONE_GROUP, 'one group')}."
        for name in method_names()
        if (said := method_class(name).levels) != ONE_GROUP
    )


def presets() -> str:
    """Return the networks that are no single measured cluster: what a user names by its speed."""
    measured = read_clusters(shipped() / "networks" / "clusters.csv")
    columns = ("network", "link", "rate", "kind", "ranks", "title")
    found = [row.to_dict() for row in list_rows("networks", SESSION)]
    return table_of([row for row in found if row["network"] not in measured], columns)


def growth_rows() -> dict[str, dict[str, str]]:
    """Return the recorded errors of carried collectives of all sizes by question."""
    path = shipped() / growth_errors.GROWTH_ERRORS_FILE
    read = read_table(path, growth_errors.GROWTH_ERRORS_SCHEMA, growth_errors.GROWTH_ERRORS_COLUMNS)
    return {cells["question"]: cells for _, cells in read if cells["band"] == "all"}


def collectives() -> str:
    """Return how wrong carried collectives are, from the recorded validation."""
    names = {
        "in_range": "between two measured sizes",
        "other_collective": "all_gather, reduce_scatter from all_reduce",
        "scale_2x": "up to 2 times the nodes",
        "scale_4x": "up to 4 times the nodes",
        "scale_beyond": "beyond",
    }
    lines = ["| carried to | rows | median, 90th percentile | interval holds | plain ring fit |"]
    lines.append("|---|---|---|---|---|")
    for question, cells in growth_rows().items():
        own, plain = (
            f"{float(cells[f'{of}median']):.1%}, {float(cells[f'{of}p90']):.0%}"
            for of in ("", "plain_")
        )
        held = f"{float(cells['coverage']):.0%}"
        lines.append(f"| {names[question]} | {cells['count']} | {own} | {held} | {plain} |")
    return "\n".join(lines)


def nodes() -> str:
    """Return every node type: its GPUs, the links inside and its NICs."""
    columns = ("node", "gpu", "gpus", "inside", "nics", "transport", "title")
    return table_of([row.to_dict() for row in list_rows("nodes", SESSION)], columns)


@cache
def node_errors() -> dict[tuple[str, str], dict[str, str]]:
    """Return the recorded errors of collectives by data sheets, by class and band of sizes."""
    read = read_table(
        shipped() / node_law.ERRORS_FILE, node_law.ERRORS_SCHEMA, node_law.ERRORS_COLUMNS
    )
    return {(cells["class"], cells["band"]): cells for _, cells in read}


def data_sheets() -> str:
    """Return how wrong collectives by data sheets are, clusters left out."""
    bands = {"small": "up to 64 KiB", "middle": "to 4 MiB", "large": "above", node_law.ALL: "all"}
    lines = [f"| network | times | {' | '.join(bands.values())} |", "|---|" + "---|" * 5]
    for kind in dict.fromkeys(kind for kind, _ in node_errors()):
        cells = [node_errors()[kind, band] for band in bands]
        told = [f"{float(one['median']):.1%}, {float(one['p90']):.0%}" for one in cells]
        lines.append(f"| {kind} | {cells[-1]['count']} | {' | '.join(told)} |")
    return "\n".join(lines)


def kinds() -> str:
    """Return the kinds of a config.json that perfsim knows."""
    return f"{', '.join(f'`{kind}`' for kind in sorted(MODEL_TYPES))}."


def unpriced() -> str:
    """Return the kinds of a config.json that perfsim refuses, by what their layers are."""
    of = {why: [kind for kind, one in UNPRICED.items() if one == why] for why in UNPRICED.values()}
    return "\n".join(f"- {why}: {', '.join(f'`{one}`' for one in of[why])}" for why in of)


def block(text: str) -> str:
    """Return ``text`` as a block of code."""
    return f"```text\n{text}\n```"


DOCUMENTS: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {
        "predict": lambda: answer("predict"),
        "compare": lambda: answer("compare"),
        "others": others,
        "accuracy": accuracy,
    },
    "perfsim/methods/README.md": {"methods": methods, "levels": levels},
    "profiles/measurements/README.md": {
        "published": held_out,
        "ways": ways,
        "groups": groups,
        "validation": validation,
        "claims": claims,
    },
    "profiles/README.md": {"kinds": kinds, "unpriced": unpriced},
    "profiles/networks/README.md": {"collectives": collectives, "networks": presets},
    "profiles/nodes/README.md": {"nodes": nodes, "data_sheets": data_sheets},
    "profiles/devices/README.md": {"carried": carried},
    "scenarios/README.md": {"fields": fields},
}
"""The generated parts of each document."""


def generated(document: str) -> str:
    """Return a document with its generated parts made anew."""
    text = (ROOT / document).read_text(encoding="utf-8")
    for name, make in DOCUMENTS[document].items():
        marks = (f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->")
        pattern = re.compile(f"{re.escape(marks[0])}.*?{re.escape(marks[1])}", re.DOTALL)
        assert pattern.search(text), f"{document} has no part {name}"
        part = make()
        text = pattern.sub(lambda _, p=part, m=marks: f"{m[0]}{p}\n{m[1]}", text)  # type: ignore[misc]
    return text


def main(given: Sequence[str] | None = None) -> None:
    """Write the generated parts of all documents anew."""
    argparse.ArgumentParser(description=main.__doc__).parse_args(given)
    for one in DOCUMENTS:
        (ROOT / one).write_text(generated(one), encoding="utf-8")


if __name__ == "__main__":
    main()
