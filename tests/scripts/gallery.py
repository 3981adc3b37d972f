"""Answers the questions of scenarios/, in one go: ``python tests/scripts/gallery.py``.

What each command prints is stored in scenarios/outputs/, and the gallery in scenarios/README.md is
written from what it found; a test fails on drift.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import fill
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from perfsim.cli.main import code
from perfsim.data.catalog import Catalog
from perfsim.report.terminal import command_lines
from perfsim.scenario_file import read_scenario
from perfsim.session import Session
from perfsim.validate.cases import Case, shipped_cases
from scripts import gallery_answers, gallery_pictures
from support.paths import ROOT

SCENARIOS = ROOT / "scenarios"
README = SCENARIOS / "README.md"
OUTPUTS = SCENARIOS / "outputs"
MARKS = ("<!-- begin: gallery -->\n", "<!-- end: gallery -->")

SECTIONS = {
    "Does compression pay, and which method?": (
        "which_method_1gbe",
        "what_if_dgc_1gbe",
        "when_does_topk_stop_paying",
        "what_if_powersgd_10gbe",
        "acpsgd_or_powersgd",
        "which_kfac_64",
    ),
    "Which cluster?": (
        "more_gpus_or_faster_network",
        "what_does_infiniband_buy",
        "what_if_gpu_twice_as_fast",
        "how_far_does_it_scale",
        "plan_imagenet_24h",
        "what_if_topk_alps_1024",
    ),
    "How to run it?": (
        "which_bucket_size",
        "mgwfbp_or_ddp",
        "what_if_overlap_is_off",
        "which_batch_size",
        "how_often_to_average",
        "ring_or_tree_1024",
    ),
    "And for language models?": (
        "how_far_does_llama3_scale",
        "accumulate_or_more_gpus",
        "which_batch_fits",
        "bf16_or_fp8",
        "all_in_bf16",
        "lora_70b",
        "qlora_70b",
        "gpt2_on_10gbe",
        "diloco_between_sites",
        "plan_our_model",
    ),
    "How to shard or split a language model?": (
        "fsdp_on_ethernet",
        "ddp_zero_or_fsdp",
        "does_hsdp_pay",
        "which_tp_70b",
        "is_my_scaling_normal",
    ),
    "What if the cluster is not as it should be?": (
        "what_if_one_gpu_is_slow",
        "what_if_a_stage_is_slow",
        "what_if_gpus_jitter_1024",
        "what_if_others_share_the_network",
        "what_if_oversubscribed_leaf_spine",
        "what_if_uneven_nodes",
        "what_if_two_gpu_types",
        "what_if_two_jobs_10gbe",
    ),
    "How far to trust it?": ("how_wrong_is_it",),
}


@dataclass(frozen=True)
class Asked:
    """A question: what it is, what its command printed, and what it found as data.

    ``found`` is the command's JSON object, or the rows of a sweep; ``measured`` is what was
    published of some of its rows.
    """

    name: str
    question: str
    command: str
    notes: str
    printed: str
    found: Any
    measured: dict[str, Case]


def questions() -> dict[str, dict[str, Any]]:
    """Return the scenario files that ask something, by name."""
    files = {name: read_scenario(path) for name, path in Catalog().scenarios().items()}
    return {name: file for name, file in files.items() if "question" in file}


@cache
def answered() -> dict[str, Asked]:
    """Return every question with its answer, asked in an empty folder, all in one session."""
    cases = {case.id: case for case in shipped_cases(Catalog())}
    found = {}
    with tempfile.TemporaryDirectory() as folder, chdir(folder), one_session():
        for name, file in questions().items():
            printed, data = run(file["command"], Path(folder))
            measured = {row: cases[one] for row, one in file.get("measured", {}).items()}
            told = file["question"], file["command"], file.get("notes", "")
            found[name] = Asked(name, *told, printed, data, measured)
    return found


@contextmanager
def one_session() -> Iterator[None]:
    """Let the commands read each file once; sessions that leave something out are their own."""
    kept, start = Session(), Session.__init__

    def alike(
        session: Session, profiles: str | Path | None = None, *left_out: Collection[str]
    ) -> None:
        assert profiles is None
        if any(left_out):
            start(session, profiles, *left_out)
        else:
            session.__dict__ = kept.__dict__

    with patch.object(Session, "__init__", alike):
        yield


def run(command: str, folder: Path) -> tuple[str, Any]:
    """Return what a command prints and what it writes with --out."""
    words = command.split()[1:]
    out = folder / ("rows.csv" if words[0] == "sweep" else "found.json")
    printed = io.StringIO()
    with redirect_stdout(printed):
        left = code([*words, "--out", str(out)])
    assert left == 0, f"{command} left with {left}"
    text = out.read_text(encoding="utf-8")
    lines = printed.getvalue().splitlines()
    data = json.loads(text) if out.suffix == ".json" else list(csv.DictReader(io.StringIO(text)))
    return "\n".join(line.rstrip() for line in lines) + "\n", data


def gallery() -> str:
    """Return the generated part of scenarios/README.md."""
    found = answered()
    lines = [*contents(), ""]
    for section, names in SECTIONS.items():
        lines += [f"## {section}", ""]
        for name in names:
            lines += entry(found[name])
    return "\n".join(lines)


def entry(asked: Asked) -> list[str]:
    """Return one question: its answer, command and picture."""
    answer = getattr(gallery_answers, asked.name)(asked)
    picture = getattr(gallery_pictures, asked.name, gallery_pictures.picture)(asked)
    return [
        f"### {asked.question}",
        "",
        prose(answer),
        "",
        "```sh",
        "\n".join(command_lines(asked.command)),
        "```",
        "",
        "```text",
        picture,
        "```",
        "",
        *([prose(asked.notes), ""] if asked.notes else []),
        f"All that it prints: [outputs/{asked.name}.txt](outputs/{asked.name}.txt); the scenario:"
        f" [{asked.name}.toml]({asked.name}.toml).",
        "",
    ]


def prose(text: str) -> str:
    """Return a paragraph in lines, every share with a space before its %, on one line with it."""
    spaced = re.sub(r"(\d) ?%", "\\1\u00a0%", text)
    return fill(spaced, 100, break_on_hyphens=False, break_long_words=False).replace("\u00a0", " ")


def contents() -> list[str]:
    """Return the questions as links to where they are answered."""
    lines = []
    for section, names in SECTIONS.items():
        lines += [f"- {section}"]
        for name in names:
            asked = answered()[name].question
            anchor = re.sub(r"[^\w -]", "", asked.lower()).replace(" ", "-")
            lines.append(f"  - [{asked}](#{anchor})")
    return lines


def generated() -> str:
    """Return scenarios/README.md with its generated part made anew."""
    text = README.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(MARKS[0])}.*?{re.escape(MARKS[1])}", re.DOTALL)
    assert pattern.search(text), "scenarios/README.md has no part gallery"
    return pattern.sub(lambda _: f"{MARKS[0]}{gallery()}{MARKS[1]}", text)


def write() -> None:
    """Store every output and write the gallery."""
    OUTPUTS.mkdir(exist_ok=True)
    for path in OUTPUTS.glob("*.txt"):
        if path.stem not in answered():
            path.unlink()
    for name, asked in answered().items():
        (OUTPUTS / f"{name}.txt").write_text(asked.printed, encoding="utf-8")
    README.write_text(generated(), encoding="utf-8")


def main(given: Sequence[str] | None = None) -> None:
    """Store and write, unless the arguments (default: the process's) ask for help."""
    argparse.ArgumentParser(description=write.__doc__).parse_args(given)
    write()


if __name__ == "__main__":
    main()
