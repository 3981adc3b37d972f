"""A sweep that breaks off says so in one sentence, and says what was kept."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import FrameType

from perfsim.calibrate.launch import Launch
from perfsim.calibrate.sweep.journal import Journal
from perfsim.calibrate.sweep.watch import Watch
from perfsim.calibrate.sweep.wire import Wire
from perfsim.errors import PerfsimError

__all__ = ["guard"]

PEER = re.compile(r"\[([0-9a-fA-F.:]+)\]:\d+")
"""How gloo names the other end in its errors: [198.18.0.3]:37600."""


class BrokenOffError(PerfsimError):
    """The job broke off while it measured."""


@contextmanager
def guard(
    launch: Launch, wire: Wire, hosts: Sequence[str], journal: Journal | None
) -> Iterator[None]:
    """Run a sweep under a watch for dead ranks; a broken collective or a signal is one sentence."""

    def kept() -> str:
        if journal is None:
            return " rank 0 says what was kept."
        return (
            f" {len(journal.points)} points are kept in {journal.path}, and the same command goes"
            " on from there."
        )

    def stopped(number: int, _: FrameType | None) -> None:
        name = signal.Signals(number).name
        raise BrokenOffError(f"calibrate network: stopped by {name};{kept()}")

    before = {number: signal.signal(number, stopped) for number in (signal.SIGTERM, signal.SIGINT)}
    store = wire.store()
    watch = (
        Watch(store, launch.rank, launch.world_size, hosts, kept)
        if store is not None
        else nullcontext()
    )
    try:
        with watch:
            yield
    except (PerfsimError, KeyboardInterrupt):
        raise
    except RuntimeError as error:
        raise BrokenOffError(f"calibrate network: {_why(error)};{kept()}") from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _why(error: RuntimeError) -> str:
    """Return what a communication library's error says, in a few words."""
    text = str(error)
    peer = PEER.search(text)
    if peer:
        return f"the connection to {peer[1]} broke, a rank there died or its network failed"
    first = (text.strip().splitlines() or ["no reason given"])[0]
    return f"the library broke off ({first[:200]})"
