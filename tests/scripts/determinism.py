"""The same question, the same bytes: every command in processes that differ in all else.

    python tests/scripts/determinism.py [--full]

runs each command under several hash seeds, locales, time zones and working folders, and prints a
digest of each output and whether all agree; 1 where any differs. ``--full`` adds the slow ones.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.paths import ROOT

__all__ = ["COMMANDS", "SETTINGS", "digests", "main"]

ASKED = "--model resnet20-cifar --gpus 8 --net 10gbe"
COMMANDS = {
    "predict --json": f"predict {ASKED} --method topk --json",
    "predict": f"predict {ASKED} --method dgc",
    "predict --jitter": f"predict {ASKED} --jitter 5% --json",
    "compare": f"compare {ASKED} --methods ssgd,topk,dgc,powersgd --json",
    "sweep": f"sweep {ASKED} --vary gpus=8..64 --vary method=ssgd,topk",
    "sweep --full": f"sweep {ASKED} --vary gpus=8..16 --full --json",
    "tune": f"tune {ASKED} --method topk --over bucket --json",
    "explain": f"explain {ASKED} --method topk --json",
    "list": "list networks --json",
    "show": "show net 10gbe --json",
    "--trace": f"predict {ASKED} --method topk --trace FILE",
    "--html": f"predict {ASKED} --html FILE",
    "show --html": "show net abci-v100-ib100 --html FILE",
}
"""Name -> arguments; FILE is a file that the command writes, whose bytes count as well."""
SLOW = {
    "plan": "plan --model resnet50 --dataset imagenet --epochs 90 --deadline 24h --json",
    "sweep --workers": f"sweep {ASKED} --vary gpus=8..64 --vary method=ssgd,topk --workers 2",
    "auto": f"predict {ASKED} --method auto --json",
    "validate": "validate measurements --json",
    "validate --html": "validate measurements --html FILE",
    "list methods": "list methods --json",
    "show method": "show method dgc",
}
SETTINGS: Sequence[dict[str, str]] = (
    {"PYTHONHASHSEED": "0", "LC_ALL": "C", "TZ": "UTC"},
    {"PYTHONHASHSEED": "1", "LC_ALL": "C.UTF-8", "TZ": "Asia/Tokyo", "COLUMNS": "200"},
    {"PYTHONHASHSEED": "random", "LC_ALL": "de_DE.UTF-8", "TZ": "America/New_York"},
)
SAME = {"sweep --workers": "sweep"}
"""Outputs that must be those of another command."""


def here(names: Sequence[str]) -> None:
    """Run commands in this process and print a digest of what each printed and wrote."""
    from perfsim.cli.main import code

    for name in names:
        arguments = (COMMANDS | SLOW)[name].split()
        printed = io.StringIO()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "written"
            with redirect_stdout(printed):
                left = code([str(file) if one == "FILE" else one for one in arguments])
            written = file.read_bytes() if file.exists() else b""
        told = printed.getvalue().replace(folder, "").encode() + written
        # 4 is an answer of validate: a group outside its limit.
        kind = f"{len(told)} bytes" if left in (0, 4) else f"exit code {left}"
        print(f"{name}\t{hashlib.sha256(told).hexdigest()[:16]}\t{kind}")


def digests(names: Sequence[str], setting: dict[str, str], folder: str) -> dict[str, str]:
    """Return the digest of each command in a process of its own, of one setting and folder."""
    plain = {key: value for key, value in os.environ.items() if key not in ("LANG", "PERFSIM_PATH")}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), "--here=" + ";".join(names)],
        env=plain | {"PYTHONPATH": str(ROOT)} | setting,
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    rows = (line.split("\t") for line in done.stdout.splitlines())
    return {name: f"{digest} {kind}" for name, digest, kind in rows}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parse = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parse.add_argument("--full", action="store_true", help="also the slow commands")
    parse.add_argument("--here", help=argparse.SUPPRESS)
    asked = parse.parse_args(arguments)
    if asked.here is not None:
        here(asked.here.split(";"))
        return 0
    names = [*COMMANDS, *(SLOW if asked.full else ())]
    if find_spec("dask") is None and asked.full:
        names.remove("sweep --workers")
        print("sweep --workers    left out: needs dask")
    with tempfile.TemporaryDirectory() as folder:
        places = [folder, str(ROOT), "/"]
        found = [digests(names, *pair) for pair in zip(SETTINGS, places, strict=True)]
    differ = 0
    for name in names:
        told = {one[name] for one in found} | {found[0][SAME[name]] for _ in [0] if name in SAME}
        differ += len(told) > 1 or "exit code" in found[0][name]
        print(f"{name:18} {' / '.join(sorted(told))} {'DIFFERS' if len(told) > 1 else 'same'}")
    print(f"{len(names) - differ} of {len(names)} the same in {len(SETTINGS)} processes")
    return int(differ > 0)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
