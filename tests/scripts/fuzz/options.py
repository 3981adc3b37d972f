"""Every option of every command with what it cannot mean: exit 2 or 3, and one sentence."""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import typer

from perfsim.cli.main import application, code
from scripts.fuzz.parsers import CONTROL, SEEDS

__all__ = ["BASES", "asked", "told", "wrong_options"]

ASKED = "--model resnet20-cifar --gpus 8 --net 10gbe"
BASES = {
    "predict": ASKED,
    "compare": f"{ASKED} --methods ssgd,topk",
    "sweep": f"{ASKED} --vary gpus=2,4",
    "tune": f"{ASKED} --method topk --over density",
    "explain": f"{ASKED} --method topk",
    "plan": "--model resnet50 --dataset imagenet --epochs 1 --deadline 24h --counts 8"
    " --gpu-types v100 --nets 10gbe --methods ssgd",
    "list": "models",
    "show": "model resnet20-cifar",
    "pipeline": str(SEEDS / "pipeline" / "two-sites.toml"),
    "calibrate import": f"{SEEDS / 'nccl_text' / 'today.log'} --name fuzz --out nets --force",
    "calibrate network": "--out no/such/folder/x",
    "calibrate compute": "--model torchvision:resnet18 --batch 1 --device nowhere",
    "calibrate kernels": "--device nowhere",
    "validate measurements": f"--measurements {SEEDS / 'cases' / 'dgc.csv'}",
    "validate nccl": "--data no-such-folder",
    "validate claims": "--profiles no-such-folder",
}
"""What each command is asked beside the wrong option; those that measure find nothing to do."""
VALUES = (
    "x", "5", "-1", "0", "1e30", "1e400", "nan", "", " ", "\u00fc\U0001f4a3", "\x1b[31m",
    "9" * 400, "9" * 5000, "a,b", "../..", "=1", "\udcff", "%s{0}", "5s", "5GB", "0%", "1:2",
    "x" * 300, "true", "[1]", "1..2", "\u202e", "-",
)  # fmt: skip
FILES = ("", ".", "no/such/folder/x", "x" * 300, "/dev/full", "\udcff", "\u202e")
"""Of options that name a file to write, any plain word would be one, and so are the last two."""
WRITTEN = ("--out", "--html", "--png", "--trace", "--csv", "--report")
SLOWEST_S = 60


def asked() -> Iterator[tuple[str, str, str]]:
    """Give every command, option and wrong value."""
    root = typer.main.get_command(application())
    for command in BASES:
        found: Any = root
        for word in command.split():
            found = found.commands[word]
        for option in found.params:
            name = option.opts[0]
            if name == "--dask":  # it waits for a scheduler at that address
                continue
            for value in ("=x",) if getattr(option, "is_flag", False) else VALUES:
                if name not in WRITTEN:
                    yield command, name, value
            if name in WRITTEN:
                yield from ((command, name, value) for value in FILES)


def told(command: str, option: str, value: str) -> str:
    """Return what is wrong with the answer to a wrong option, "" where nothing is."""
    words = [*command.split(), *BASES[command].split()]
    if not option.startswith("-"):
        words = [*command.split(), value]
    elif value.startswith("=") and value == "=x":
        words.append(f"{option}{value}")
    else:
        words += [option, value]
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    start = time.monotonic()
    with redirect_stdout(out), redirect_stderr(err):
        left = code(words)
    out.flush()
    printed, said = out.buffer.getvalue().decode(), err.getvalue()  # type: ignore[attr-defined]
    took_s = time.monotonic() - start
    sentence = said.count("\n") == 1 and said.startswith("perfsim: ") and len(said) < 1500
    wrong = {
        "a control character reaches the terminal": CONTROL.search(printed + said),
        f"takes {took_s:.0f} s": took_s > SLOWEST_S,
        f"exit code {left}: {said[:300]!r}": left not in (0, 2, 3),
        f"prints {printed[:200]!r} beside {said[:200]!r}": left and printed,
        f"is no sentence of one line ({len(said)}): {said[:300]!r}": left and not sentence,
    }
    return next((told for told, so in wrong.items() if so), "")


def wrong_options(every: int = 1, first: int = 0) -> tuple[int, list[str]]:
    """Ask with every wrong value, or with one in ``every``: how many were asked, what was wrong."""
    count, found = 0, []
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for place, (command, option, value) in enumerate(asked()):
            if place % every != first:
                continue
            count += 1
            wrong = told(command, option, value)
            if wrong:
                found.append(f"perfsim {command} {option} {value[:60]!r}: {wrong}")
            for path in Path().iterdir():
                if path.is_file():
                    path.unlink()
    return count, found
