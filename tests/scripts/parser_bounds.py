"""Time every parser on its worst inputs of 1 to 32 MiB, and state its peak of memory.

    python tests/scripts/parser_bounds.py --out tests/scripts/parser_bounds.txt

Each parser of the fuzz (``tests/scripts/fuzz/parsers.py``) reads texts of one piece over and over,
behind a sound file or alone. The pieces are tried at 1 MiB; those that take longest are then read
at all sizes, each in a process of its own. What takes the square of a text's length shows as a row
whose last figures grow fourfold.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from perfsim.errors import PerfsimError
from scripts.fuzz.parsers import PARSERS, Seed, seeds

__all__ = ["Found", "main", "measured", "texts"]

SIZES_MIB = (1, 2, 4, 8, 16, 32)
MAX_CASE_S = 120
PIECES = (
    *(b",", b"\n", b" ", b"x", b"9", b".", b'"', b"'", b"[", b"{", b"(", b"#", b"=", b"\\"),
    *(b"\t", b"-", b"\r", b"a,", b"1,", b"9 ", b"a\n", b"1\n", b",\n", b"a.", b"a=1\n", b"a=[\n"),
    *(b"# a: b\n", b"1.5,", b'{"a":', b"[1,", b'"a",', b"{},", b"[],", b'""\n', b"\x1b[0m"),
    *(b"<a>", b"<a/>", b"[[a]]\n", b"[a.b]\n", b"a.b.c.d.e.f.g.h.i.j.k.l=1\n", b'"\\u0041",'),
    *("\u00e9".encode(), "\u0663".encode(), b'{"ph":"X"},'),
)  # fmt: skip
KEYS = tuple(f"k{number}".encode() for number in range(4_000_000 // 8))
"""Names that all differ: a reader that looks through those before takes the square of them."""
FILES = tuple(parser for parser in PARSERS if parser not in ("flags", "patterns"))
"""Parsers of files. Flags are as long as a command line may be, and a file of patterns is the
fuzz's own: each of its lines is searched on the worst cells, up to 10 ms each."""
WORST = 2
"""Texts of a parser that are read at all sizes."""


class Found(NamedTuple):
    """How a parser took one text: CPU seconds, peak of memory [MiB], and its answer."""

    seconds: float
    peak_mib: float
    answer: str


def texts(parser: str, size: int) -> Iterator[tuple[str, str, bytes]]:
    """Yield a name, a file name and a text of ``size`` bytes for each worst input of a parser."""
    known = seeds(parser)
    for seed in known:
        for name, data in _of_seed(seed, size):
            yield name if len(known) == 1 else f"{seed.name}: {name}", seed.name, data
    for piece in PIECES:
        yield f"{piece.decode()!a} alone", known[0].name, _filled(piece, size)


def _of_seed(seed: Seed, size: int) -> Iterator[tuple[str, bytes]]:
    """Yield texts that begin as a sound file does."""
    lines = seed.data.splitlines(keepends=True)
    yield "last line again", seed.data + _filled(lines[-1].rstrip(b"\n") + b"\n", size)
    yield "itself again", seed.data + _filled(seed.data, size)
    half = b"".join(lines[: len(lines) // 2])
    for piece in PIECES:
        yield f"half, then {piece.decode()!a}", half + _filled(piece, size)
    for name, form in (
        ("keys", b"%s = 1\n"),
        ("tables", b"[%s]\na = 1\n"),
        ("parts", b'"%s": 1, '),
    ):
        numbered = b"".join(form % key for key in KEYS[: size // 8])
        yield f"then {name} that differ", seed.data + numbered[:size]


def _filled(piece: bytes, size: int) -> bytes:
    return (piece * (size // len(piece) + 1))[:size]


def measured(parser: str, name: str, data: bytes, folder: Path) -> Found:
    """Read a text in a process of its own."""
    path = folder / name
    path.write_bytes(data)
    told = folder / "answer"
    told.write_text("")
    child = os.fork()
    if child == 0:
        _read(parser, path, told)
    begun, ended = time.monotonic(), 0
    while not ended:
        ended, status, used = os.wait4(child, os.WNOHANG)
        if not ended and time.monotonic() - begun > MAX_CASE_S:
            os.kill(child, signal.SIGKILL)
        time.sleep(0 if ended else 0.002)
    answer, _, before = told.read_text().rpartition(" ")
    if status:
        answer = f"over {MAX_CASE_S} s" if status == signal.SIGKILL else f"ended by {status}"
    cpu_s, _, peak_before = before.partition("/")
    seconds = used.ru_utime + used.ru_stime - float(cpu_s or 0)
    return Found(seconds, (used.ru_maxrss - float(peak_before or 0)) / 1024, answer)


def _read(parser: str, path: Path, told: Path) -> None:
    """Read a file and tell how it went, in a process that then ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    used = resource.getrusage(resource.RUSAGE_SELF)
    before = f"{used.ru_utime + used.ru_stime}/{used.ru_maxrss}"
    try:
        PARSERS[parser](path)
        answer = "read"
    except PerfsimError:
        answer = "refused"
    except MemoryError:
        answer = "no memory"
    except Exception as error:
        answer = f"{type(error).__name__}"
    told.write_text(f"{answer} {before}")
    os._exit(0)


HEAD = (
    f"{'parser':11} {'text':38}"
    + "".join(f"{f'{size} MiB':>8}" for size in SIZES_MIB)
    + f"{'peak MiB':>10}  answer"
)


def rows(parser: str, folder: Path) -> Iterator[str]:
    """Yield a line for each of a parser's slowest texts: CPU seconds by size, then the peak."""
    tried = [
        (measured(parser, name, data, folder).seconds, label)
        for label, name, data in texts(parser, 2**20)
    ]
    slowest = [label for _, label in sorted(tried, reverse=True)[:WORST]]
    found: dict[str, list[Found]] = {label: [] for label in slowest}
    for size in SIZES_MIB:
        for label, name, data in texts(parser, size * 2**20):
            if label in found and not (found[label] and found[label][-1].seconds > MAX_CASE_S):
                found[label].append(measured(parser, name, data, folder))
    for label, many in found.items():
        times = "".join(f"{one.seconds:8.2f}" for one in many).ljust(8 * len(SIZES_MIB))
        peak = max(one.peak_mib for one in many)
        answers = "/".join(dict.fromkeys(one.answer for one in many))
        yield f"{parser:11} {label[:38]:38}{times}{peak:10.0f}  {answers}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parse = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parse.add_argument("--only", action="append", choices=FILES, help="this parser")
    parse.add_argument("--out", type=Path, help="write the table here as well")
    options = parse.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="bounds-", dir="/dev/shm"))
    lines = [
        "CPU seconds that each parser takes to read or refuse its worst texts, by size,",
        "and the most memory that it added (python tests/scripts/parser_bounds.py)",
        "",
        HEAD,
    ]
    print("\n".join(lines), flush=True)
    try:
        for parser in options.only or FILES:
            for line in rows(parser, folder):
                print(line, flush=True)
                lines.append(line)
                if options.out:
                    options.out.write_text("\n".join(lines) + "\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
