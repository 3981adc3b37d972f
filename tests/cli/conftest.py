"""Commands that run one after the other in this process share what they read of what ships."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from perfsim.data.catalog import Catalog
from perfsim.data.files import stamp
from perfsim.session import Session

SHARED: dict[object, Session] = {}
"""One session for all working folders without ./profiles, and one for the checkout."""


@pytest.fixture(autouse=True)
def _commands_share_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a session of nothing but what ships be that of the command before, refreshed."""
    start = Session.__init__

    def alike(
        session: Session, profiles: str | Path | None = None, *left_out: Collection[str]
    ) -> None:
        if profiles is not None or any(left_out) or len(Catalog().folders) > 1:
            start(session, profiles, *left_out)
            return
        where = stamp("profiles")
        if where not in SHARED:
            SHARED[where] = object.__new__(Session)
            start(SHARED[where])
        SHARED[where].refresh()
        session.__dict__ = SHARED[where].__dict__

    monkeypatch.setattr(Session, "__init__", alike)
