"""What every test shares: example counts that are the same on every machine."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from installation import installed, wheel

__all__ = ["installed", "wheel"]

os.environ.pop("PERFSIM_PATH", None)
settings.register_profile("perfsim", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("perfsim")


@pytest.fixture(autouse=True, scope="session")
def _children_compile_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let what tests start share its byte code, outside the checkout; many start the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("byte_code")))
        yield


@pytest.fixture(autouse=True)
def _no_profiles_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the folders of whoever runs the tests out of the search path."""
    monkeypatch.delenv("PERFSIM_PATH", raising=False)
