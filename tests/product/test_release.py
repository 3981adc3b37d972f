"""What goes with a release is true: version, licences, bill of materials, workflows, security."""

from __future__ import annotations

import ast
import hashlib
import importlib
import json
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from perfsim import __version__
from perfsim.app.security import MAX_REQUEST_BYTES
from perfsim.app.sharing import MAX_FILE_BYTES
from perfsim.data import files
from perfsim.models import config_file
from scripts.release import bill
from support.installation import run
from support.paths import PACKAGE, ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = ROOT / ".github" / "workflows"
SECURITY = (ROOT / ".github" / "SECURITY.md").read_text()
BILL = json.loads(bill.BILL.read_text())
MADE_BY_BUILD = {"PKG-INFO", "setup.cfg"}

BACKEND = """\
import sys, types
old = types.ModuleType("setuptools")
old.__version__ = "68.2.2"
sys.modules["setuptools"] = old
sys.path.insert(0, ".ci")
import build_backend
"""


def test_the_version_is_stated_once_and_told_by_all() -> None:
    assert "version" not in PYPROJECT["project"]
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {__version__}\n" in citation
    assert f"\nlicense: {PYPROJECT['project']['license']}\n" in citation


def test_an_old_setuptools_is_refused_in_one_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BACKEND], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == (
        "perfsim is built by setuptools 77 or newer, and 68.2.2 is here:"
        " run pip install 'setuptools>=77', or leave out --no-build-isolation.\n"
    )
    assert PYPROJECT["build-system"]["requires"] == ["setuptools>=77"]


@pytest.mark.slow
def test_the_sdist_holds_all_that_git_tracks(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: there are no tracked files")
    names = run("git", "ls-files", folder=ROOT).splitlines()
    for name in names:
        path = tmp_path / "checkout" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((ROOT / name).read_bytes())
    code = f"import build_backend; build_backend.build_sdist({str(tmp_path)!r})"
    words = (sys.executable, "-c", f"import sys; sys.path.insert(0, '.ci'); {code}")
    found = []
    for _ in range(2):
        run(*words, folder=tmp_path / "checkout")
        (archive,) = tmp_path.glob("*.tar.gz")
        found.append(hashlib.sha256(archive.read_bytes()).hexdigest())
    assert archive.name == f"perfsim-{__version__}.tar.gz" and found[0] == found[1]
    with tarfile.open(archive) as sources:
        held = {one.name.partition("/")[2] for one in sources.getmembers() if one.isfile()}
    held = {name for name in held if not name.startswith("perfsim.egg-info/")}
    assert held - MADE_BY_BUILD == set(names)


def test_the_bill_lists_what_pyproject_asks_for_with_licences() -> None:
    listed = {bill.normal(one["name"]): one for one in BILL["components"]}
    for name, parts in bill.requirements().items():
        told = [one["value"] for one in listed[name]["properties"]]
        assert told == parts, f"{name}: run python tests/scripts/release/bill.py"
    assert [name for name, one in listed.items() if not one.get("licenses")] == []
    assert len(listed) > len(bill.requirements())


def test_the_bill_holds_the_files_of_others() -> None:
    for one in bill.carried():
        assert one in BILL["components"]
        (digest,) = (hash_["content"] for hash_ in one["hashes"])
        notice = (ROOT / "NOTICE").read_text()
        assert digest in notice and f"{one['name']}" in notice and one["version"] in notice


def test_all_other_assets_are_our_own() -> None:
    assets = {
        str(path.relative_to(ROOT))
        for path in PACKAGE.rglob("*")
        if path.suffix in (".js", ".css", ".woff", ".woff2", ".ttf", ".svg", ".png")
    }
    own = {name for name in assets if len((ROOT / name).read_bytes()) < 50_000}
    assert assets - own == set(bill.VENDORED)
    for name in own:
        text = (ROOT / name).read_text()
        assert not re.search(r"licen[sc]e|copyright|@font-face", text, re.IGNORECASE), name


def test_workflows_run_what_is_there_on_every_python() -> None:
    ci, release = ((WORKFLOWS / f"{name}.yml").read_text() for name in ("ci", "release"))
    listed = PYPROJECT["project"]["classifiers"]
    versions = [one.rsplit(" ", 1)[1] for one in listed if ":: 3." in one]
    assert f"python: {json.dumps(versions)}" in ci
    assert re.findall(r"^ +(3\.\d+)$", release, re.MULTILINE) == versions
    assert versions[0] == PYPROJECT["project"]["requires-python"].removeprefix(">=")
    assert "- run: .ci/run" in ci and (ROOT / ".ci" / "run").stat().st_mode & 0o100
    assert (
        "tests/scripts/release --keep dist" in release
        and "publish" not in release.split("\n", 1)[1]
    )


def test_the_security_text_has_the_numbers_of_the_code() -> None:
    assert f"more than {files._MAX_BYTES >> 20} MiB is refused" in SECURITY
    assert f"a config.json of more than {config_file._MAX_BYTES >> 20} MiB" in SECURITY
    assert (
        f"at most {MAX_REQUEST_BYTES // 10**6} MB, an opened file {MAX_FILE_BYTES // 1000} kB"
        in SECURITY
    )


IMPORTS_BY_NAME = {"calibrate/measure/subject.py"}
"""Imports what the user names, as SECURITY.md says."""

UNPICKLES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}
CONNECTS = {"urllib.request", "http.client", "requests", "httpx", "ftplib", "smtplib"}


def test_no_data_file_is_run() -> None:
    imported: set[str] = set()
    by_name, unpickled = set(), set()
    for path in PACKAGE.rglob("*.py"):
        own = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {one.name for one in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module or "")
            elif isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called.endswith("import_module") and not _of_perfsim(node):
                    by_name.add(own)
                if called in ("eval", "exec", "torch.load") and own != "methods/describe.py":
                    unpickled.add(own)
    assert not imported & (UNPICKLES | CONNECTS)
    assert by_name == IMPORTS_BY_NAME
    assert unpickled == set()


def _of_perfsim(call: ast.Call) -> bool:
    """Say whether an import by name is of the package's own modules."""
    told = ast.unparse(call.args[0])
    return told.startswith(("f'{__name__}", "f'perfsim.", "HOME[")) or "package" in told


def test_only_shipped_methods_have_expressions_that_are_evaluated() -> None:
    describe = importlib.import_module("perfsim.methods.describe")
    code = Path(str(describe.__file__)).read_text()
    assert code.count("eval(") == 1 and '{"__builtins__": {}}' in code
