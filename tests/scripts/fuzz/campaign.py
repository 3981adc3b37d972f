"""Damaged files by the thousand: clean errors, accepted, failures; every case can be had again."""

from __future__ import annotations

import argparse
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from random import Random

from perfsim.errors import PerfsimError
from scripts.fuzz.damage import damaged
from scripts.fuzz.parsers import PARSERS, Seed, seeds

__all__ = ["Count", "case", "main", "run"]

SECONDS = 10
BYTES = 1 << 30
LONGEST_SENTENCE = 1500
MOST_TOLD = 20


class HangError(BaseException):
    """A parser took too long."""


@dataclass
class Count:
    """What became of the cases of one parser."""

    parser: str
    refused: int = 0
    accepted: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    failures: list[tuple[int, str]] = field(default_factory=list)

    @property
    def line(self) -> str:
        """One line of the table of results."""
        cases = self.refused + self.accepted + len(self.failures)
        return (
            f"{self.parser:12} {cases:>8,} {self.refused:>13,} {self.accepted:>9,}"
            f" {len(self.failures):>9,} {self.slowest_s:>9.2f}"
        )


HEAD = "parser          cases  clean errors  accepted  failures  slowest s"


def case(parser: str, seed: int, number: int, known: Sequence[Seed]) -> tuple[str, bytes]:
    """Return the name and content of one damaged file; the same for the same numbers."""
    random = Random(f"{parser} {seed} {number}")
    chosen = random.choice(known)
    return chosen.name, damaged(chosen.data, [one.data for one in known], random)


@contextmanager
def limits() -> Iterator[None]:
    """Allow a parser so much memory beyond what is in use now."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, before[1]))
    handler = signal.signal(signal.SIGPROF, _hangs)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def _hangs(signum: int, frame: object) -> None:
    raise HangError


def run(parser: str, numbers: Sequence[int], seed: int, folder: Path) -> Count:
    """Read damaged files one after the other."""
    count, known, began = Count(parser), seeds(parser), time.monotonic()
    read = PARSERS[parser]
    with limits():
        for number in numbers:
            name, data = case(parser, seed, number, known)
            path = folder / name
            path.write_bytes(data)
            start = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                read(path)
                count.accepted += 1
            except PerfsimError as error:
                wrong = _wrong(error)
                if wrong:
                    count.failures.append((number, wrong))
                else:
                    count.refused += 1
            except HangError:
                count.failures.append((number, f"takes more than {SECONDS} s"))
            except Exception as error:
                count.failures.append((number, _where(error)))
            signal.setitimer(signal.ITIMER_PROF, 0)
            count.slowest_s = max(count.slowest_s, time.process_time() - start)
    count.seconds = time.monotonic() - began
    return count


def _wrong(error: PerfsimError) -> str:
    """Return what is wrong with an error's sentence, "" where nothing is."""
    told = str(error)
    if error.exit_code not in (2, 3):
        return f"exit code {error.exit_code}: {told:.200}"
    if "\n" in told or not told.strip() or len(told) > LONGEST_SENTENCE:
        return f"is no sentence of one line ({len(told)} characters): {told[:200]!r}"
    return ""


def _where(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/perfsim/" in frame.filename] or list(frames)
    place = f"{Path(own[-1].filename).name}:{own[-1].lineno}"
    return f"{type(error).__name__} at {place}: {str(error)[:300]}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 where anything failed."""
    parse = argparse.ArgumentParser(prog="python tests/scripts/fuzz", description=__doc__)
    parse.add_argument("--mutations", type=int, default=1000, help="damaged files a parser")
    parse.add_argument("--only", action="append", choices=sorted(PARSERS), help="this parser")
    parse.add_argument("--seed", type=int, default=8, help="of the whole run")
    parse.add_argument("--case", type=int, help="this damaged file again, with its traceback")
    parse.add_argument("--options", action="store_true", help="wrong options in place of files")
    parse.add_argument("--out", type=Path, help="write the table of results here as well")
    asked = parse.parse_args(arguments)
    if asked.options:
        return _options()
    names = asked.only or list(PARSERS)
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=_fast()))
    try:
        if asked.case is not None:
            return _again(names[0], asked.seed, asked.case, folder)
        counts = []
        print(HEAD, flush=True)
        for name in names:
            counts.append(run(name, range(asked.mutations), asked.seed, folder))
            print(counts[-1].line, flush=True)
            _tell(counts[-1], asked.seed)
            if asked.out:
                _store(asked.out, counts, asked.seed)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return int(any(count.failures for count in counts))


def _options() -> int:
    """Ask every command with every option wrong."""
    from scripts.fuzz.options import wrong_options

    count, found = wrong_options()
    print("\n".join([*found, f"{count:,} wrong options, {len(found):,} failures"]))
    return int(bool(found))


def _fast() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _tell(count: Count, seed: int) -> None:
    """Print each kind of failure once, with how to have it again."""
    kinds = Counter(told.partition(": ")[0] for _, told in count.failures)
    for kind, often in kinds.most_common(MOST_TOLD):
        number, told = next(one for one in count.failures if one[1].startswith(kind))
        print(f"  {often:,} x {told}", file=sys.stderr)
        print(
            f"      python tests/scripts/fuzz --only {count.parser} --seed {seed} --case {number}",
            file=sys.stderr,
            flush=True,
        )


def _again(parser: str, seed: int, number: int, folder: Path) -> int:
    """Read one damaged file again: print it, and what becomes of it."""
    name, data = case(parser, seed, number, seeds(parser))
    path = folder / name
    path.write_bytes(data)
    print(data[:5000].decode("utf-8", "backslashreplace"), flush=True)
    try:
        with limits():
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            PARSERS[parser](path)
    except PerfsimError as error:
        print(f"refused, exit code {error.exit_code}: {error}")
    except (Exception, HangError):
        traceback.print_exc()
        return 1
    else:
        print("accepted")
    return 0


def _store(path: Path, counts: Sequence[Count], seed: int) -> None:
    lines = [
        f"python tests/scripts/fuzz, seed {seed}, {date.today().isoformat()}, Python"
        f" {sys.version.partition(' ')[0]}; limits {SECONDS} s and {BYTES >> 20} MiB a case",
        "",
        HEAD,
        *(count.line for count in counts),
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
