"""What every test shares: example counts that are the same on every machine."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings
from installation import installed, wheel

__all__ = ["installed", "wheel"]

os.environ.pop("PERFSIM_PATH", None)
settings.register_profile("perfsim", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("perfsim")


@pytest.fixture(autouse=True)
def _no_profiles_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the folders of whoever runs the tests out of the search path."""
    monkeypatch.delenv("PERFSIM_PATH", raising=False)
