"""Read damaged files by the thousand and count clean errors, accepted files and failures.

Every case can be repeated by its parser, seed and number.
"""

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

MAX_CASE_S = 10
MAX_CASE_BYTES = 1 << 30
MAX_SENTENCE_CHARACTERS = 1500
MAX_FAILURE_KINDS = 20


class HangError(BaseException):
    """A parser took too long."""


@dataclass
class Count:
    """The results of one parser's cases."""

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


TABLE_HEAD = "parser          cases  clean errors  accepted  failures  slowest s"


def case(parser: str, seed: int, number: int, known: Sequence[Seed]) -> tuple[str, bytes]:
    """Return the name and content of one damaged file; the same for the same arguments."""
    random = Random(f"{parser} {seed} {number}")
    chosen = random.choice(known)
    return chosen.name, damaged(chosen.data, [file.data for file in known], random)


@contextmanager
def limits() -> Iterator[None]:
    """Limit a parser's memory to `MAX_CASE_BYTES` beyond what is in use now, and its time."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MAX_CASE_BYTES, before[1]))
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
            path.unlink(missing_ok=True)  # ext4 waits for the disk where a file is overwritten
            path.write_bytes(data)
            start = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, MAX_CASE_S)
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
                count.failures.append((number, f"takes more than {MAX_CASE_S} s"))
            except Exception as error:
                count.failures.append((number, _where(error)))
            signal.setitimer(signal.ITIMER_PROF, 0)
            count.slowest_s = max(count.slowest_s, time.process_time() - start)
    count.seconds = time.monotonic() - began
    return count


def _wrong(error: PerfsimError) -> str:
    """Return what is wrong with an error's sentence, "" if nothing is."""
    sentence = str(error)
    if error.exit_code not in (2, 3):
        return f"exit code {error.exit_code}: {sentence:.200}"
    if "\n" in sentence or not sentence.strip() or len(sentence) > MAX_SENTENCE_CHARACTERS:
        return f"is no sentence of one line ({len(sentence)} characters): {sentence[:200]!r}"
    return ""


def _where(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/perfsim/" in frame.filename] or list(frames)
    place = f"{Path(own[-1].filename).name}:{own[-1].lineno}"
    return f"{type(error).__name__} at {place}: {str(error)[:300]}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 1 if anything failed."""
    parse = argparse.ArgumentParser(prog="python tests/scripts/fuzz", description=__doc__)
    parse.add_argument("--mutations", type=int, default=1000, help="damaged files a parser")
    parse.add_argument("--only", action="append", choices=sorted(PARSERS), help="this parser")
    parse.add_argument("--seed", type=int, default=8, help="of the whole run")
    parse.add_argument("--case", type=int, help="this damaged file again, with its traceback")
    parse.add_argument("--options", action="store_true", help="wrong options in place of files")
    parse.add_argument("--out", type=Path, help="write the table of results here as well")
    options = parse.parse_args(arguments)
    if options.options:
        return _options()
    names = options.only or list(PARSERS)
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=_fast()))
    try:
        if options.case is not None:
            return _repeat(names[0], options.seed, options.case, folder)
        counts = []
        print(TABLE_HEAD, flush=True)
        for name in names:
            counts.append(run(name, range(options.mutations), options.seed, folder))
            print(counts[-1].line, flush=True)
            _print_failures(counts[-1], options.seed)
            if options.out:
                _store(options.out, counts, options.seed)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return int(any(count.failures for count in counts))


def _options() -> int:
    """Run every command with every option wrong."""
    from scripts.fuzz.options import wrong_options

    count, failures = wrong_options()
    print("\n".join([*failures, f"{count:,} wrong options, {len(failures):,} failures"]))
    return int(bool(failures))


def _fast() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _print_failures(count: Count, seed: int) -> None:
    """Print each kind of failure once, with the command that repeats it."""
    kinds = Counter(what.partition(": ")[0] for _, what in count.failures)
    for kind, often in kinds.most_common(MAX_FAILURE_KINDS):
        number, what = next(failure for failure in count.failures if failure[1].startswith(kind))
        print(f"  {often:,} x {what}", file=sys.stderr)
        print(
            f"      python tests/scripts/fuzz --only {count.parser} --seed {seed} --case {number}",
            file=sys.stderr,
            flush=True,
        )


def _repeat(parser: str, seed: int, number: int, folder: Path) -> int:
    """Read one damaged file again; print it, and whether it is refused or accepted."""
    name, data = case(parser, seed, number, seeds(parser))
    path = folder / name
    path.write_bytes(data)
    print(data[:5000].decode("utf-8", "backslashreplace"), flush=True)
    try:
        with limits():
            signal.setitimer(signal.ITIMER_PROF, MAX_CASE_S)
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
        f" {sys.version.partition(' ')[0]}; limits {MAX_CASE_S} s and"
        f" {MAX_CASE_BYTES >> 20} MiB a case",
        "",
        TABLE_HEAD,
        *(count.line for count in counts),
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
