"""Give every option of every command wrong values: exit 2 or 3, and one sentence."""

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

__all__ = ["BASES", "wrong_answer", "wrong_options", "wrong_values"]

TRAINING = "--model resnet20-cifar --gpus 8 --net 10gbe"
BASES = {
    "predict": TRAINING,
    "compare": f"{TRAINING} --methods ssgd,topk",
    "sweep": f"{TRAINING} --vary gpus=2,4",
    "tune": f"{TRAINING} --method topk --over density",
    "explain": f"{TRAINING} --method topk",
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
    "app": "no-such-scenario",
    "init": "--yes --model resnet20-cifar --gpus 8 --out no/such/folder/x",
    "doctor": "",
}
"""The other arguments of each command; commands that measure find nothing to do."""
VALUES = (
    "x", "5", "-1", "0", "1e30", "1e400", "nan", "", " ", "\u00fc\U0001f4a3", "\x1b[31m",
    "9" * 400, "9" * 5000, "a,b", "../..", "=1", "\udcff", "%s{0}", "5s", "5GB", "0%", "1:2",
    "x" * 300, "true", "[1]", "1..2", "\u202e", "-",
)  # fmt: skip
FILES = ("", ".", "no/such/folder/x", "x" * 300, "/dev/full", "\udcff", "\u202e")
"""Of options that name a file to write, any plain word would be one, and so are the last two."""
WRITTEN = ("--out", "--html", "--png", "--trace", "--csv", "--report")
SLOWEST_S = 60


def wrong_values() -> Iterator[tuple[str, str, str]]:
    """Yield every command, option and wrong value."""
    root = typer.main.get_command(application())
    for command in BASES:
        command_node: Any = root
        for word in command.split():
            command_node = command_node.commands[word]
        for option in command_node.params:
            name = option.opts[0]
            if name == "--dask":  # it waits for a scheduler at that address
                continue
            for value in ("=x",) if getattr(option, "is_flag", False) else VALUES:
                if name not in WRITTEN:
                    yield command, name, value
            if name in WRITTEN:
                yield from ((command, name, value) for value in FILES)


def wrong_answer(command: str, option: str, value: str) -> str:
    """Return what is wrong with the answer to a wrong option, "" if nothing is."""
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
    return next((what for what, true in wrong.items() if true), "")


def wrong_options(every: int = 1, first: int = 0) -> tuple[int, list[str]]:
    """Run with every wrong value, or with one in ``every``; return how many, and what was wrong."""
    count, failures = 0, []
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for index, (command, option, value) in enumerate(wrong_values()):
            if index % every != first:
                continue
            count += 1
            wrong = wrong_answer(command, option, value)
            if wrong:
                failures.append(f"perfsim {command} {option} {value[:60]!r}: {wrong}")
            for path in Path().iterdir():
                if path.is_file():
                    path.unlink()
    return count, failures
