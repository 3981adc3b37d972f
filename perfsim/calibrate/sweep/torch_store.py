"""The key-value store at rank 0 that PyTorch's ranks meet at, and the groups' waiting for all."""

from __future__ import annotations

import os
import socket
import time
from datetime import timedelta
from typing import Any

from perfsim.calibrate.launch import Launch
from perfsim.errors import RequestError

__all__ = ["FIRST_LOOK_S", "LONGEST_LOOK_S", "all_come", "open_store"]

FIRST_LOOK_S = 0.002
LONGEST_LOOK_S = 0.2
"""Pauses between looks grow from the first to the longest: who waits must not load its host."""


def open_store(dist: Any, launch: Launch, patience_s: float) -> Any:
    """Return a connection to the job's store, which rank 0 serves, or torchrun's agent.

    Parameters
    ----------
    dist : torch.distributed
    launch : who this process is
    patience_s : how long rank 0 may take to come [s]

    Raises
    ------
    RequestError
        If there is no address, nobody serves there, or the port is taken.
    """
    address, port = launch.meeting_place()
    serves = launch.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        store = dist.TCPStore(
            address,
            port,
            is_master=serves,
            timeout=timedelta(seconds=patience_s),
            wait_for_workers=False,
        )
    except RuntimeError:
        done = "cannot be served" if serves else "cannot be reached"
        raise RequestError(
            f"MASTER_ADDR: {address}, port {port}, {done} from {socket.gethostname()}; is rank 0"
            " there, and is the port free?"
        ) from None
    # torchrun's store outlives its workers: a second attempt must not find the words of the first.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"perfsim/{attempt}", store)


def all_come(store: Any, key: str, world_size: int, patience_s: float = float("inf")) -> bool:
    """Say at the store that this rank has come, and wait for all; False if time is up before.

    Unlike a barrier of the library it has no time-out of its own and leaves the CPU alone.
    """
    store.add(key, 1)
    end, pause_s = time.monotonic() + patience_s, FIRST_LOOK_S
    while store.add(key, 0) < world_size:
        if time.monotonic() > end:
            return False
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_LOOK_S)
    return True
