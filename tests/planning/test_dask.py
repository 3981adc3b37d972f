"""A sweep over Dask: how it is divided, what is told of workers that are lost or not alike."""

from __future__ import annotations

import signal
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim import __version__
from perfsim.errors import PerfsimError, RequestError
from perfsim.planning import dask as spread
from perfsim.planning.dask import DaskEngine, predicted
from perfsim.planning.grid import SweepGrid, axes_of
from perfsim.planning.sweep import Sweep, serial

ADDRESS = "tcp://10.0.0.1:8786"


@given(
    sizes=st.lists(st.integers(1, 500), min_size=1, max_size=9),
    threads=st.integers(1, 64),
)
def test_parts_are_the_chunks_in_order_small_enough_for_every_thread(
    sizes: list[int], threads: int
) -> None:
    ends = [sum(sizes[: place + 1]) for place in range(len(sizes))]
    chunks = list(zip([0, *ends], ends, strict=False))
    parts = spread._divided(chunks, threads)
    rows = [row for start, stop in parts for row in range(start, stop)]
    assert rows == list(range(ends[-1]))
    most = max(spread.MIN_TASK_ROWS, -(-ends[-1] // (threads * spread.CHUNKS_A_THREAD)))
    assert all(0 < stop - start <= most for start, stop in parts)
    assert {start for start, _ in chunks} <= {start for start, _ in parts}


def test_a_worker_gives_the_rows_of_one_process_whatever_sweep_it_had_before() -> None:
    one = Sweep(SweepGrid({"model": "alexnet"}, axes_of({"gpus": "2..16:2", "net": "10gbe"})))
    other = Sweep(SweepGrid({"model": "alexnet"}, axes_of({"gpus": "2..16:2", "net": "1gbe"})))
    want = {id(asked): next(iter(serial(asked, [(0, 8)]))) for asked in (one, other)}
    assert want[id(one)] != want[id(other)]
    for asked in (one, other, one):
        assert predicted(asked, (0, 4)) == want[id(asked)][:4]
        assert predicted(asked, (4, 8)) == want[id(asked)][4:]


@pytest.mark.parametrize(
    ("engine", "flag"), [({"workers": 2}, "workers"), ({"address": ADDRESS}, "dask")]
)
def test_without_dask_the_flag_and_the_remedy_are_named(
    monkeypatch: pytest.MonkeyPatch, engine: dict[str, Any], flag: str
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(RequestError) as caught:
        DaskEngine(**engine)
    said = f"{flag}: needs dask.distributed: pip install 'perfsim[dask]'."
    assert str(caught.value) == said


class Workers:
    """A client whose workers answer with their versions."""

    def __init__(self, *versions: object) -> None:
        self.versions = versions

    def run(self, function: object, on_error: str) -> dict[str, object]:
        """Answer as Dask does: by worker, an exception where the call failed there."""
        assert on_error == "return"
        return {f"tcp://{place}": version for place, version in enumerate(self.versions)}


def test_workers_of_this_version_are_taken_and_others_named() -> None:
    spread._check_versions(Workers(__version__, __version__))
    for version, said in (("0.0.1", "perfsim 0.0.1"), (ModuleNotFoundError("x"), "no perfsim")):
        with pytest.raises(RequestError) as caught:
            spread._check_versions(Workers(__version__, version))
        assert str(caught.value) == f"dask: worker tcp://1 has {said}; here is {__version__}."


def test_what_is_pressed_while_processes_start_counts_afterwards() -> None:
    pressed = []
    before = signal.signal(signal.SIGINT, lambda *_: pressed.append(True))
    try:
        with spread._without_interrupts():
            signal.raise_signal(signal.SIGINT)
            assert not pressed
        assert pressed == [True]
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_system_without_signal_masks_starts_them_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(signal, "pthread_sigmask", raising=False)
    with spread._without_interrupts():
        entered = True
    assert entered


class Lost:
    """A future, and a client with so many threads in turn, whose answers are errors."""

    def __init__(self, *threads: int, error: Exception | None = None) -> None:
        self.threads, self.error = list(threads), error

    def nthreads(self) -> dict[str, int]:
        """Return the threads of the only worker; none where there is none."""
        count = self.threads.pop(0)
        return {"tcp://w": count} if count else {}

    def result(self) -> list[int]:
        """Return rows, or fail."""
        if self.error:
            raise self.error
        return [1, 2]


@pytest.fixture
def distributed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return dask.distributed, in which a wait never waits but runs out of time."""
    module = pytest.importorskip("distributed", reason="needs perfsim[dask]")

    def runs_out(futures: list[Lost], timeout: int) -> None:
        if futures[0].threads:
            raise TimeoutError

    monkeypatch.setattr(module, "wait", runs_out)
    return module


def test_rows_that_take_long_are_waited_for_while_a_worker_is_there(distributed: Any) -> None:
    # 5 x 10 s alone are not 60 s in a row.
    busy = Lost(*[1] * 100, *[0] * 5, 1, *[0] * 5, 1)
    assert spread._result(busy, (0, 2), busy) == [1, 2]


def test_after_a_minute_without_any_worker_the_rest_is_given_up(distributed: Any) -> None:
    gone = Lost(1, *[0] * 7)
    with pytest.raises(PerfsimError, match="there has been no worker for 60 s; with out, what is"):
        spread._result(gone, (0, 2), gone)
    assert gone.threads == [0]


def test_rows_that_kill_every_worker_and_a_lost_scheduler_are_named(distributed: Any) -> None:
    killed = Lost(error=distributed.KilledWorker("task", None, 3))
    with pytest.raises(PerfsimError, match="rows 16 to 31: every worker that took them died; with"):
        spread._result(killed, (16, 32), killed)
    for error in (OSError("closed"), distributed.CancelledError("task")):
        lost = Lost(error=error)
        with pytest.raises(PerfsimError, match="the Dask scheduler is lost; with out, what is"):
            spread._result(lost, (0, 2), lost)
