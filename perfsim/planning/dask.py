"""A sweep spread over a Dask cluster: ``dask.distributed`` schedules, moves and repeats the work.

A chunk is a task. Results come back in the grid's order, and are those of one process to the last
bit; the tasks of a worker that is lost run elsewhere.
"""

from __future__ import annotations

import logging
import signal
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from perfsim import __version__
from perfsim.errors import PerfsimError, RequestError
from perfsim.planning.sweep import Chunk, Sweep, SweepRows

__all__ = ["DaskEngine"]

CHUNKS_A_THREAD = 4
"""Chunks a thread has in hand: enough that none waits for the next."""

MIN_TASK_ROWS = 16
"""Rows of a task: sending fewer costs more than predicting them."""

_ANSWER_S = 10
"""How long a scheduler and its first worker may take to answer [s]."""

_PATIENCE_S = 60
"""How long no worker at all may be there before the rest is given up [s]; one may come back."""

_KEPT = "with `out`, what is done is kept, and the same command goes on from there."
_MISSING = "needs dask.distributed: pip install 'perfsim[dask]'."

_kept: list[tuple[Sweep, SweepRows]] = []


def predicted(sweep: Sweep, chunk: Chunk) -> list[Any]:
    """Return the rows of a chunk, in a worker, which keeps what the sweep's chunks share."""
    if not _kept or _kept[0][0] != sweep:
        _kept[:] = [(sweep, SweepRows(sweep))]
    return _kept[0][1].chunk(*chunk)


class DaskEngine:
    """An engine for ``sweep``: processes of this machine, or a cluster at an address.

    Parameters
    ----------
    workers : processes to start here, one thread each
    address : of a Dask scheduler that runs, such as ``tcp://10.0.0.1:8786``; its workers need
        perfsim of the same version and the same profiles

    Raises
    ------
    RequestError
        If Dask is not installed, or no scheduler answers there.
    PerfsimError
        If the scheduler or all workers are lost meanwhile.
    """

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        self.workers, self.address = workers, address
        self.flag = "workers" if address is None else "dask"
        try:
            import distributed  # noqa: F401
        except ImportError:
            raise RequestError(f"{self.flag}: {_MISSING}") from None

    def __call__(self, sweep: Sweep, chunks: list[Chunk]) -> Iterator[list[Any]]:
        """Yield the rows of chunks, in order."""
        with _quiet(), self._client() as client:
            threads = max(1, sum(client.nthreads().values()))
            waiting: deque[tuple[Chunk, Any]] = deque()
            for part in _divided(chunks, threads):
                waiting.append((part, client.submit(predicted, sweep, part, pure=False)))
                if len(waiting) >= CHUNKS_A_THREAD * threads:
                    yield _result(client, *waiting.popleft())
            while waiting:
                yield _result(client, *waiting.popleft())

    @contextmanager
    def _client(self) -> Iterator[Any]:
        from distributed import Client, LocalCluster

        if self.address is None:
            with _without_interrupts():
                cluster = LocalCluster(
                    n_workers=self.workers,
                    threads_per_worker=1,
                    processes=True,
                    dashboard_address=None,
                    silence_logs=logging.CRITICAL,
                )
            with cluster, Client(cluster) as client:
                yield client
            return
        try:
            client = Client(self.address, timeout=_ANSWER_S)
            with client:
                client.wait_for_workers(1, timeout=_ANSWER_S)
                _check_versions(client)
                yield client
        except (OSError, ValueError, TimeoutError) as error:
            told = str(error).splitlines()[0] if str(error) else "it does not answer"
            raise RequestError("dask", f"{self.address!r} cannot be used: {told}.") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask's log off standard error: what goes wrong is told in a sentence."""
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Let threads and processes that start meanwhile not hear Ctrl-C: this one stops them.

    What is pressed meanwhile counts afterwards.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    # Its own start would let the thread that starts it, and those after it, hear signals again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _result(client: Any, part: Chunk, future: Any) -> list[Any]:
    """Return the rows of a part, however long they take; refuse to wait for nobody."""
    from distributed import CancelledError, KilledWorker, wait

    alone_s = 0
    while True:
        try:
            wait([future], timeout=_ANSWER_S)
            rows: list[Any] = future.result()
            return rows
        except TimeoutError:
            alone_s = 0 if client.nthreads() else alone_s + _ANSWER_S
            if alone_s >= _PATIENCE_S:
                raise PerfsimError(f"no worker is left since {_PATIENCE_S} s; {_KEPT}") from None
        except KilledWorker:
            rows_of = f"rows {part[0]} to {part[1] - 1}"
            raise PerfsimError(f"{rows_of}: every worker that took them died; {_KEPT}") from None
        except (CancelledError, OSError):
            raise PerfsimError(f"the Dask scheduler is lost; {_KEPT}") from None


def _divided(chunks: list[Chunk], threads: int) -> list[Chunk]:
    """Return chunks cut into enough parts that every thread has some."""
    total = sum(stop - start for start, stop in chunks)
    most = max(MIN_TASK_ROWS, -(-total // (threads * CHUNKS_A_THREAD)))
    return [
        (first, min(first + most, stop))
        for start, stop in chunks
        for first in range(start, stop, most)
    ]


def _version() -> str:
    return __version__


def _check_versions(client: Any) -> None:
    """Refuse workers whose perfsim is missing or another one.

    Raises
    ------
    RequestError
        If there are such; names the first.
    """
    for worker, found in client.run(_version, on_error="return").items():
        if found != __version__:
            said = f"perfsim {found}" if isinstance(found, str) else "no perfsim"
            raise RequestError("dask", f"worker {worker} has {said}; here is {__version__}.")
