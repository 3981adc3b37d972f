"""Links of the Markdown files: what they name in the checkout is there; the others are well-formed.

Nothing is fetched.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.paths import ROOT

BUILT = ROOT / "build"
"""What ``pip install .`` leaves in a checkout: copies of what ships."""

FILES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not re.search(r"/[._]", str(path)) and not path.is_relative_to(BUILT)
)
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"^(?: {4}|\t).*$", re.MULTILINE)
CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]*)\)")
BARE = re.compile(r"https?://[^\s)>\]`]+")
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)+\.(?:py|md|csv|toml|txt|json)|[\w.-]+(?:/[\w.-]+)*/")

FOLDERS = ("perfsim", "profiles", "scenarios", "tests")
KNOWN = [
    f"/{path.relative_to(ROOT)}{'/' * path.is_dir()}"
    for folder in FOLDERS
    for path in (ROOT / folder, *(ROOT / folder).rglob("*"))
    if path.suffix != ".pyc"
]
MADE: set[str] = set()
"""Files that perfsim makes and documents name."""


def prose(path: Path) -> str:
    """Return a file's text without its blocks of code."""
    return INDENTED.sub("", FENCED.sub("", path.read_text(encoding="utf-8")))


def anchors(path: Path) -> set[str]:
    """Return the anchors of a file's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.+?) *$", prose(path), re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")
        count = sum(one == words or re.fullmatch(f"{words}-\\d+", one) is not None for one in found)
        found.add(f"{words}-{count}" if count else words)
    return found


def wrong(target: str, at: Path) -> str:
    """Return what is wrong with a link of a file, or ''."""
    if re.match(r"[a-z]+:", target):
        parts = urlsplit(target)
        host = parts.hostname or ""
        well = parts.scheme == "https" and re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", host)
        return "" if well else "not https://host/..."
    name, _, anchor = target.partition("#")
    to = (at.parent / name).resolve() if name else at
    if not to.exists():
        return "there is no such file"
    if not to.is_relative_to(ROOT):
        return "outside the checkout"
    return f"no heading makes #{anchor}" if anchor and anchor not in anchors(to) else ""


def test_all_documents_are_looked_at() -> None:
    assert {"README.md", "CHANGELOG.md"} <= {str(path.relative_to(ROOT)) for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    text = CODE.sub("", prose(path))
    targets = LINK.findall(text) + BARE.findall(LINK.sub("", text))
    assert {one: wrong(one, path) for one in targets if wrong(one, path)} == {}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_folders_named_as_code_are_there(path: Path) -> None:
    codes = {code.strip("`") for code in CODE.findall(prose(path))}
    named = {code for code in codes if PATH.fullmatch(code)} - MADE
    assert [one for one in named if not any(f"/{one}" in known for known in KNOWN)] == []


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("profiles/README.md#networks", ""),
        ("profiles/README.md#network", "no heading makes #network"),
        ("profiles/READ.md", "there is no such file"),
        ("../..", "outside the checkout"),
        ("https://arxiv.org/abs/2005.13247", ""),
        ("http://arxiv.org/abs/2005.13247", "not https://host/..."),
        ("https:/arxiv.org", "not https://host/..."),
    ],
)
def test_a_wrong_link_is_told(target: str, said: str) -> None:
    assert wrong(target, ROOT / "README.md") == said


def test_the_list_of_build_scripts_is_that_of_the_folder() -> None:
    folder = ROOT / "profiles" / "build"
    named = re.findall(r"`(\w+\.py)`", (folder / "README.md").read_text(encoding="utf-8"))
    assert set(named) == {path.name for path in folder.glob("*.py")}
