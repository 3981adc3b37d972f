"""Writes the generated parts of README.md: ``python tests/readme.py``; a test fails on drift."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import leave_one_out
import published
from bars import bar, parts_of

from perfsim.calibrate.sources import read_clusters
from perfsim.catalog import Catalog, shipped
from perfsim.cluster import carried as growth_errors
from perfsim.inventory import rows
from perfsim.prediction import predict
from perfsim.report.claims import claim_rows
from perfsim.scenario import make_scenario
from perfsim.table import read_table
from perfsim.validate.claims import validate_claims
from perfsim.validate.measurements.stored import SCHEMA as STORED

README = Path(__file__).parents[1] / "README.md"
MAIN = "predict --model resnet50 --gpus 64 --net 1gbe --method dgc"
SHOWN = ("ssgd", "signsgd", "topk", "dgc", "powersgd", "acpsgd")
NETWORKS = ("1gbe", "10gbe", "ib100")
BAR = 40
FORMS = ("{:.1%}", "{:.1%}", "{:+.1%}", "{:.0%}")
"""Of median, p90, bias and coverage."""


def picture() -> str:
    """Return bars of the iteration time of some methods on three networks."""
    lines = ["ResNet-50, 64 V100, 4 a node: one iteration, # computation, + compression,"]
    lines += ["- exposed communication (each network has its own scale)", ""]
    catalog = Catalog()
    for net in NETWORKS:
        found = {
            method: predict(
                make_scenario({"model": "resnet50", "gpus": 64, "net": net, "method": method}),
                catalog,
            )
            for method in SHOWN
        }
        longest = max(one.iteration_s for one in found.values())
        for method, one in found.items():
            drawn = bar(parts_of(one.breakdown_s), longest, BAR)
            lines.append(f"{net:6} {method:9}{one.iteration_s * 1e3:8.0f} ms  {drawn}")
        lines.append("")
    return block("\n".join(lines).rstrip())


def screen() -> str:
    """Return the main command and its output."""
    result = subprocess.run(
        [sys.executable, "-m", "perfsim", *MAIN.split()],
        capture_output=True,
        text=True,
        check=True,
        cwd=README.parent,
    )
    text = "\n".join(line.rstrip() for line in result.stdout.splitlines())
    return block(f"$ perfsim {MAIN}\n{text}")


def accuracy() -> str:
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


def table_of(found: list[dict[str, Any]], columns: tuple[str, ...]) -> str:
    """Return some columns of rows as a table."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(row[column]) for column in columns) + " |" for row in found]
    return "\n".join(lines)


def validation() -> str:
    """Return the errors of published iterations by source, from the stored summary of all rows."""
    path = shipped() / "measurements" / "summary.csv"
    lines = [
        "| source | rows | median | p90 | bias | in the 90 % interval |",
        "|---|---|---|---|---|---|",
    ]
    for _, cells in read_table(path, STORED, ("by", "name", "rows", "median", "p90")):
        if cells["by"] not in ("all", "source"):
            continue
        name = "all whole iterations" if cells["by"] == "all" else cells["name"]
        shares = [float(cells[one]) for one in ("median", "p90", "bias", "coverage")]
        told = [form.format(one) for form, one in zip(FORMS, shares, strict=True)]
        lines.append(f"| {name} | {cells['rows']} | {' | '.join(told)} |")
    return "\n".join(lines)


def presets() -> str:
    """Return the networks that are no single measured cluster: what a user names by its speed."""
    measured = read_clusters(shipped() / "networks" / "clusters.csv")
    columns = ("network", "link", "rate", "kind", "ranks", "title")
    found = [row for row in rows("networks", Catalog()) if row["network"] not in measured]
    return table_of(found, columns)


def collectives() -> str:
    """Return how wrong carried collectives are, from the recorded validation."""
    path = shipped() / growth_errors.FILE
    names = {
        "in_range": "between two measured sizes",
        "other_collective": "all_gather, reduce_scatter from all_reduce",
        "scale_2x": "up to 2 times the nodes",
        "scale_4x": "up to 4 times the nodes",
        "scale_beyond": "beyond",
    }
    lines = ["| carried to | rows | median, 90th percentile | plain alpha-beta ring fit |"]
    lines.append("|---|---|---|---|")
    for _, cells in read_table(path, growth_errors.SCHEMA, growth_errors.COLUMNS):
        own, plain = (
            f"{float(cells[f'{of}median']):.1%}, {float(cells[f'{of}p90']):.0%}"
            for of in ("", "plain_")
        )
        lines.append(f"| {names[cells['question']]} | {cells['count']} | {own} | {plain} |")
    return "\n".join(lines)


def block(text: str) -> str:
    """Return ``text`` as a block of code."""
    return f"```text\n{text}\n```"


def generated() -> str:
    """Return README.md with its generated parts made anew."""
    parts = {
        "picture": picture(),
        "screen": screen(),
        "published": accuracy(),
        "validation": validation(),
        "carried": block(leave_one_out.summary(leave_one_out.errors())),
        "collectives": collectives(),
        "methods": table_of(
            rows("methods", Catalog()), ("method", "family", "what", "paper", "needs", "record")
        ),
        "claims": table_of(
            claim_rows(validate_claims()), ("claim", "paper", "perfsim", "lands", "note", "why")
        ),
        "networks": presets(),
    }
    text = README.read_text(encoding="utf-8")
    for name, part in parts.items():
        marks = (f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->")
        pattern = re.compile(f"{re.escape(marks[0])}.*?{re.escape(marks[1])}", re.DOTALL)
        assert pattern.search(text), f"README.md has no part {name}"
        text = pattern.sub(lambda _, p=part, m=marks: f"{m[0]}{p}\n{m[1]}", text)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    README.write_text(generated(), encoding="utf-8")
