"""Emulated hosts for tests: made in milliseconds, or skipped with a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.emulated.hosts import Hosts, why_not

__all__ = ["bare_cluster", "cluster"]


@pytest.fixture(scope="session")
def _possible() -> None:
    """Skip tests that need hosts if none can be made here."""
    reason = why_not()
    if reason:
        pytest.skip(reason)


@pytest.fixture
def bare_cluster(_possible: None, tmp_path: Path) -> Iterator[Callable[..., Hosts]]:
    """Return what makes hosts with links of a rate; they are removed when the test ends."""
    with ExitStack() as stack:
        yield lambda count, rate="1gbit": stack.enter_context(Hosts(count, rate, tmp_path))


@pytest.fixture
def cluster(bare_cluster: Callable[..., Hosts]) -> Callable[..., Hosts]:
    """Return the same if PyTorch is there to run on the hosts."""
    if find_spec("torch") is None:
        pytest.skip("needs PyTorch (pip install 'perfsim[calibrate]')")
    return bare_cluster
