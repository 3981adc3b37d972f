"""Change collectives/ and fusion/ one operator, number or word at a time: do the tests notice?

    python -m pip install mutmut
    python tests/scripts/mutation/run.py --out tests/scripts/mutation/results.txt
    python tests/scripts/mutation/run.py --only 'perfsim.fusion.*'

mutmut makes the changes in a copy of the checkout, in a temporary folder, and runs for each the
tests that pass through the changed function, until one fails. What survives is listed with what
changed and, where ``survivors.toml`` knows the line, why that is no fault of the tests.
"""

from __future__ import annotations

import argparse
import ast
import collections
import importlib.metadata
import shutil
import subprocess
import sys
import tempfile
import tomllib
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.paths import ROOT

HERE = Path(__file__).parent
MUTATED = ("perfsim/collectives", "perfsim/fusion")
KILLERS = (
    "tests/collectives/test_collectives.py",
    "tests/collectives/test_collectives_by_hand.py",
    "tests/collectives/test_collectives_laws.py",
    "tests/collectives/test_collectives_registry.py",
    "tests/fusion/test_buckets.py",
    "tests/fusion/test_policies.py",
    "tests/fusion/test_cost_based.py",
    "tests/fusion/test_policies_threshold.py",
    "tests/fusion/test_fusion_registry.py",
    "tests/calibrate/measure/test_repeats.py",
    *MUTATED,
)
COPIED = ("perfsim", "profiles", "scenarios", "tests", "pyproject.toml", "README.md", "cli.py")
CONFIGURATION = f"""
[tool.mutmut]
source_paths = ["perfsim"]
only_mutate = {[f"{folder}/*" for folder in MUTATED]}
also_copy = ["profiles", "scenarios", "README.md", "cli.py"]
pytest_add_cli_args_test_selection = {[one for one in KILLERS if (ROOT / one).exists()]}
pytest_add_cli_args = ["-p", "no:cacheprovider", "-k", "not mutmut"]
"""
"""``-k``: a changed copy of a function carries its docstring along, which is no example."""
# One counterexample is enough: hypothesis need not look for the smallest.
NO_SHRINKING = """
from hypothesis import Phase

settings.register_profile(
    "mutation", settings.get_profile("perfsim"), phases=[Phase.explicit, Phase.generate]
)
settings.load_profile("mutation")
"""


def main() -> None:
    """Run mutmut and print, or write, what survived."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--only", default="", help="mutants to try, such as 'perfsim.fusion.*'")
    parser.add_argument("--out", type=Path, help="a file for the results (default: print them)")
    parser.add_argument("--processes", type=int, default=1, help="tests at the same time")
    parser.add_argument("--folder", type=Path, help="keep the copy there, and go on with it")
    given = parser.parse_args()
    if not shutil.which("mutmut"):
        sys.exit("mutmut is not installed: python -m pip install mutmut")
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        copy(folder)
        asked = ["--max-children", str(given.processes), *given.only.split()]
        subprocess.run(["mutmut", "run", *asked], cwd=folder, check=True, stdout=sys.stderr)
        text = report(folder)
    if given.out:
        given.out.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


def copy(folder: Path) -> None:
    """Copy the checkout, with what mutmut is to know."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / name, ignore=ignored, dirs_exist_ok=True)
        else:
            shutil.copy(source, folder / name)
    for name in MUTATED:
        for path in (folder / name).glob("*.py"):
            path.write_text(undecorated(path.read_text(encoding="utf-8")), encoding="utf-8")
    with (folder / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write(CONFIGURATION)
    with (folder / "tests" / "conftest.py").open("a", encoding="utf-8") as file:
        file.write(NO_SHRINKING)


def undecorated(source: str) -> str:
    """Return a module whose formulas and policies are entered by a call after their definition.

    mutmut leaves decorated functions as they are.
    """
    lines = source.split("\n")
    for node in reversed(ast.parse(source).body):
        if not isinstance(node, ast.FunctionDef) or len(node.decorator_list) != 1:
            continue
        (decorator,) = node.decorator_list
        called = decorator.func if isinstance(decorator, ast.Call) else None
        if isinstance(called, ast.Name) and called.id in ("algorithm", "policy"):
            assert node.end_lineno is not None
            lines.insert(node.end_lineno, f"\n{ast.unparse(decorator)}({node.name})")
            del lines[decorator.lineno - 1 : node.lineno - 1]
    return "\n".join(lines)


def mutmut(folder: Path, *words: str) -> str:
    """Return what mutmut prints."""
    command = ["mutmut", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def report(folder: Path) -> str:
    """Return date, counts by file and every survivor with its change."""
    status = dict(
        line.strip().split(": ") for line in mutmut(folder, "results", "--all", "true").splitlines()
    )
    tried = {name: word for name, word in status.items() if word != "not checked"}
    alive = sorted(name for name, word in tried.items() if word in ("survived", "no tests"))
    changes = [changed(mutmut(folder, "show", name)) for name in alive]
    reasons = tomllib.loads((HERE / "survivors.toml").read_text("utf-8"))["survivor"]
    equivalent = sum(bool(reason(change, reasons)) for change in changes)
    killed = len(tried) - len(alive)
    by_file = collections.Counter(name.split(".x")[0] for name in tried)
    alive_by_file = collections.Counter(name.split(".x")[0] for name in alive)
    return "\n".join(
        [
            f"date: {date.today()}",
            f"mutmut: {importlib.metadata.version('mutmut')}",
            f"mutants: {len(tried)}",
            f"killed: {killed} ({killed / max(1, len(tried)):.1%}), of which"
            f" {list(tried.values()).count('timeout')} by taking too long",
            f"survived: {len(alive)}, of which {equivalent} change no answer",
            "",
            *(f"{n - alive_by_file[name]:5} of {n:4}  {name}" for name, n in by_file.items()),
            "",
            *(shown(change, reason(change, reasons)) for change in changes),
        ]
    )


def changed(diff: str) -> tuple[str, str, str]:
    """Return the file of a diff, the lines that it takes out and those it puts in."""
    lines = diff.splitlines()
    file = next(line[4:] for line in lines if line.startswith("--- "))
    out, into = (
        " ".join(line[1:].strip() for line in lines if line[:1] == sign and line[:3] != 3 * sign)
        for sign in "-+"
    )
    return file, out, into


def reason(change: tuple[str, str, str], reasons: list[dict[str, str]]) -> str:
    """Return why a change alters no answer, or "" where nobody has said so."""
    for known in reasons:
        if (known["file"], known["out"], known["into"]) == change:
            return known["why"]
    return ""


def shown(change: tuple[str, str, str], why: str) -> str:
    """Return a survivor as it is listed."""
    file, out, into = change
    return f"{file}\n  - {out}\n  + {into}\n  {why or 'NOT EXPLAINED: a test is missing'}\n"


if __name__ == "__main__":
    main()
