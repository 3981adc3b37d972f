"""Answers of perfsim, compared with those that are stored: not one number may move.

It is for changes that must not change what perfsim answers: files that move, functions that are
renamed, sentences that are rewritten. Run it from anywhere:

    python tests/scripts/oracle.py                     compare all
    python tests/scripts/oracle.py --only 'explain/*'  compare some
    python tests/scripts/oracle.py --sentences         also print sentences that changed
    python tests/scripts/oracle.py --write             store the answers anew

``oracle_questions.py`` and ``oracle_commands.py`` hold the questions, ``oracle_answers.py`` asks
them, ``oracle_differences.py`` says what counts as a difference, and ``oracle/`` has the stored
answers (a file a group) and the files that questions read. It leaves with 0 where nothing differs,
1 where something does, and 2 for a wrong request.
"""

from __future__ import annotations

import argparse
import fnmatch
import gzip
import json
import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.oracle_answers import Answer, answer_all, questions_here
from scripts.oracle_differences import (
    MAX_RELATIVE,
    MAX_RELATIVE_FITTED,
    Comparison,
    compared,
)
from scripts.oracle_questions import GROUPS

STORE = Path(__file__).resolve().parent / "oracle"

MAX_LINES = 40
MAX_OF_A_QUESTION = 5
MAX_CHARACTERS = 240
"""Of a sentence that is printed."""

SAMPLE_SIZE = 36
SLOW_GROUPS = frozenset(["validate", "scenarios", "compared", "compare"])
"""Groups whose questions take up to seconds each: the sample leaves them out."""

FITTING_GROUPS = ("calibrate/",)
"""How the names of questions begin whose answers are fits."""


def stored_answers(groups: Iterable[str]) -> dict[str, Answer]:
    """Return the stored answers of some groups by the questions' names."""
    found: dict[str, Answer] = {}
    for group in groups:
        path = STORE / f"{group}.json.gz"
        if path.exists():
            found |= json.loads(gzip.decompress(path.read_bytes()))
    return found


def store(answers: Mapping[str, Answer], groups: Iterable[str]) -> None:
    """Write the answers of some groups, a file a group: the same bytes for the same answers."""
    for group in groups:
        of_group = {name: answers[name] for name in sorted(answers) if _group(name) == group}
        text = json.dumps(of_group, separators=(",", ":"), sort_keys=True)
        data = gzip.compress(text.encode(), compresslevel=9, mtime=0)
        (STORE / f"{group}.json.gz").write_bytes(data)


def _group(name: str) -> str:
    return name.partition("/")[0]


def sample(names: Iterable[str]) -> list[str]:
    """Return ``SAMPLE_SIZE`` names of quick questions: one a group, the rest spread evenly."""
    quick = sorted(name for name in names if _group(name) not in SLOW_GROUPS)
    by_group: dict[str, list[str]] = {}
    for name in quick:
        by_group.setdefault(_group(name), []).append(name)
    chosen = [of_group[len(of_group) // 2] for of_group in by_group.values()]
    others = [name for name in quick if name not in chosen]
    more = SAMPLE_SIZE - len(chosen)
    return chosen + [others[int((index + 0.5) * len(others) / more)] for index in range(more)]


def compare_all(old: Mapping[str, Answer], new: Mapping[str, Answer]) -> dict[str, Comparison]:
    """Return how each answer differs from the stored one, by name."""
    return {
        name: compared(
            old[name],
            new[name],
            MAX_RELATIVE_FITTED if name.startswith(FITTING_GROUPS) else MAX_RELATIVE,
        )
        for name in new
        if name in old
    }


def difference_lines(found: Mapping[str, Comparison]) -> list[str]:
    """Return the differences by question, no more of them than can be read."""
    differing = {name: one.differences for name, one in found.items() if one.differences}
    lines: list[str] = []
    shown = 0
    for name, differences in differing.items():
        some = differences[:MAX_OF_A_QUESTION]
        block = [name, *(f"    {one}" for one in some)]
        if len(differences) > len(some):
            block.append(f"    ... and {len(differences) - len(some)} more")
        if len(lines) + len(block) >= MAX_LINES:
            break
        lines += block
        shown += 1
    if shown < len(differing):
        lines.append(f"... and {len(differing) - shown} more answers that differ")
    return lines


def sentence_lines(found: Mapping[str, Comparison]) -> list[str]:
    """Return each sentence that changed once, old and new, with where it was first seen."""
    first: dict[tuple[str, str], str] = {}
    for name, one in found.items():
        for sentence in one.sentences:
            old, new = sentence.old.split("\n"), sentence.new.split("\n")
            gone = "\n".join(line for line in old if line not in new) or "(none)"
            come = "\n".join(line for line in new if line not in old) or "(none)"
            first.setdefault((gone, come), f"{name} {sentence.path}")
    return [
        line
        for (gone, come), where in first.items()
        for line in (where, *_marked("-", gone), *_marked("+", come))
    ]


def _marked(mark: str, text: str) -> list[str]:
    return [f"    {mark} {line[:MAX_CHARACTERS]}" for line in text.split("\n")]


def summary(found: Mapping[str, Comparison]) -> str:
    """Return the last line: how much was compared, what differs, how many sentences changed."""
    numbers, moved = (
        sum(getattr(one, field) for one in found.values()) for field in ("numbers", "numbers_moved")
    )
    differing = [len(one.differences) for one in found.values() if one.differences]
    sentences = [one for comparison in found.values() for one in comparison.sentences]
    others = sum(one.numbers_changed for one in sentences)
    return (
        f"{len(found):,} answers compared: {numbers:,} numbers, {moved:,} differ;"
        f" {sum(differing):,} differences in {len(differing):,} answers;"
        f" sentences changed: {len(sentences):,} ({others:,} with other numbers in them)"
    )


def missing_lines(asked: Iterable[str], old: Iterable[str]) -> list[str]:
    """Return what is said of questions without a stored answer, and of answers never asked for."""
    new, gone = sorted(set(asked) - set(old)), sorted(set(old) - set(asked))
    lines = [f"new, not stored: {name}" for name in new]
    lines += [f"stored, but not asked any more: {name}" for name in gone]
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], f"... and {len(lines) - MAX_LINES} more"]
    if lines:
        lines.append("Store them with --write once the other answers are seen to be the same.")
    return lines


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare perfsim's answers with the stored ones.")
    parser.add_argument("--write", action="store_true", help="store the answers anew")
    parser.add_argument("--only", metavar="GLOB", help="only questions of such a name")
    parser.add_argument("--sample", action="store_true", help="only what the test suite asks")
    parser.add_argument("--list", action="store_true", help="list the names of the questions")
    parser.add_argument("--sentences", action="store_true", help="print sentences that changed")
    parser.add_argument("--slowest", action="store_true", help="print the slowest questions")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="processes (2)")
    parser.add_argument("--shuffle", type=int, metavar="SEED", help="ask in another order")
    read = parser.parse_args(given)
    if read.workers < 1:
        parser.error("--workers: at least 1.")
    if read.sample and (read.write or read.only):
        parser.error("--sample: not with --write or --only.")
    return read


def main(given: Sequence[str] | None = None) -> int:
    """Ask, compare or store, say what was found, and return the exit code."""
    read = _arguments(given)
    questions = {question.name: question for question in questions_here()}
    if read.sample:
        questions = {name: questions[name] for name in sample(questions)}
    if read.only:
        chosen = [name for name in questions if fnmatch.fnmatchcase(name, read.only)]
        questions = {name: questions[name] for name in chosen}
        if not questions:
            print(f"oracle: --only {read.only}: no question has such a name (--list shows them).")
            return 2
    if read.list:
        print(*questions, sep="\n")
        return 0
    asked = list(questions.values())
    if read.shuffle is not None:
        random.Random(read.shuffle).shuffle(asked)
    answered = answer_all(asked, read.workers)
    new = {name: answer for name, answer, _ in answered}
    if read.slowest:
        for name, _, seconds in sorted(answered, key=lambda one: -one[2])[:20]:
            print(f"{seconds:6.2f} s  {name}")
    return _write(new, partly=bool(read.only)) if read.write else _report(new, read)


def _write(new: dict[str, Answer], *, partly: bool) -> int:
    """Store answers anew: all of a group, or those asked for among those stored."""
    groups = {_group(name) for name in new}
    if partly:
        new = stored_answers(groups) | new
    else:
        for path in STORE.glob("*.json.gz"):
            path.unlink()
    store(new, groups)
    print(f"{len(new):,} answers stored in {len(groups)} files.")
    return 0


def _report(new: Mapping[str, Answer], read: argparse.Namespace) -> int:
    """Print how the answers differ from the stored ones; return 1 where they do."""
    old = stored_answers(GROUPS)
    some = read.only or read.sample
    missing = missing_lines(new, [name for name in old if name in new] if some else old)
    found = compare_all(old, new)
    lines = difference_lines(found)
    if read.sentences:
        lines += sentence_lines(found)
    for line in [*lines, *missing, summary(found)]:
        print(line)
    return int(bool(missing) or any(one.differences for one in found.values()))


if __name__ == "__main__":
    sys.exit(main())
