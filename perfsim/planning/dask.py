"""Run a sweep on a Dask cluster: ``dask.distributed`` schedules, moves and repeats the work.

A chunk is a task. Results come back in the grid's order and are equal to those of one process to
the last bit. The tasks of a lost worker run elsewhere.
"""

from __future__ import annotations

import logging
import signal
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from perfsim import __version__
from perfsim.errors import PerfsimError, RequestError, spelled
from perfsim.planning.sweep import Chunk, Sweep, SweepRows, collecting_seldom

__all__ = ["DaskEngine"]

CHUNKS_A_THREAD = 4
"""Chunks that are submitted for each thread: enough that none waits for the next."""

MIN_TASK_ROWS = 16
"""Rows of a task: sending fewer takes longer than predicting them."""

_ANSWER_S = 10
"""How long a scheduler and its first worker may take to answer [s]."""

_PATIENCE_S = 60
"""How long a sweep waits while there is no worker at all, as one may come back [s]."""

_KEPT = "with `out`, what is done is kept, and the same command goes on from there."

_worker_rows: list[tuple[Sweep, SweepRows]] = []
"""In a worker: the sweep that it works on, and what its chunks share."""


def predicted(sweep: Sweep, chunk: Chunk) -> list[Any]:
    """Predict a chunk, in a worker; what the sweep's chunks share is computed once."""
    if not _worker_rows or _worker_rows[0][0] != sweep:
        _worker_rows[:] = [(sweep, SweepRows(sweep))]
    with collecting_seldom():
        return _worker_rows[0][1].chunk(*chunk)


class DaskEngine:
    """An engine for ``sweep``: processes of this machine, or a cluster at an address.

    Parameters
    ----------
    workers : processes to start here, one thread each
    address : of a running Dask scheduler, such as ``tcp://10.0.0.1:8786``; its workers need the
        same version of perfsim and the same profiles

    Raises
    ------
    RequestError
        If Dask is not installed, or no scheduler answers there.
    PerfsimError
        If the scheduler or all workers are lost during the sweep.
    """

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        self.workers, self.address = workers, address
        self.field = "workers" if address is None else "dask"
        try:
            import distributed  # noqa: F401
        except ImportError:
            raise RequestError(
                self.field, "needs dask.distributed: pip install 'perfsim[dask]'."
            ) from None

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
            why = str(error).splitlines()[0] if str(error) else "it does not answer"
            raise RequestError(
                "dask", f"{self.address!r} cannot be used: {why}.", value=self.address
            ) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask's log off standard error: an error is one sentence."""
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
    """Start threads and processes that ignore Ctrl-C, as this process stops them.

    Ctrl-C that is pressed meanwhile takes effect afterwards.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    # If it started later, it would unblock the signal in the thread that starts it.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _result(client: Any, part: Chunk, future: Any) -> list[Any]:
    """Return the rows of a chunk, however long they take; give up if there is no worker."""
    from distributed import CancelledError, KilledWorker, wait

    without_worker_s = 0
    while True:
        try:
            wait([future], timeout=_ANSWER_S)
            rows: list[Any] = future.result()
            return rows
        except TimeoutError:
            without_worker_s = 0 if client.nthreads() else without_worker_s + _ANSWER_S
            if without_worker_s >= _PATIENCE_S:
                why = f"there has been no worker for {_PATIENCE_S} s; {_KEPT}"
                raise PerfsimError(spelled(why)) from None
        except KilledWorker:
            why = f"rows {part[0]} to {part[1] - 1}: every worker that took them died; {_KEPT}"
            raise PerfsimError(spelled(why)) from None
        except (CancelledError, OSError):
            raise PerfsimError(spelled(f"the Dask scheduler is lost; {_KEPT}")) from None


def _divided(chunks: list[Chunk], threads: int) -> list[Chunk]:
    """Cut chunks into enough parts for all threads."""
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
    """Check that every worker has this version of perfsim.

    Raises
    ------
    RequestError
        If one does not; names the first.
    """
    for worker, version in client.run(_version, on_error="return").items():
        if version != __version__:
            other = f"perfsim {version}" if isinstance(version, str) else "no perfsim"
            raise RequestError("dask", f"worker {worker} has {other}; here is {__version__}.")
