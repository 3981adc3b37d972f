"""The text of a small profile, and a fixture that reads what it has become."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perfsim.compute.profile import Profile, read_profile

__all__ = ["FIRST_ROW", "GOOD", "HEADER", "ROWS", "Read", "read"]

HEADER = """\
# schema: perfsim/profile/1
# model: tiny
# gpu: v100
# precision: fp32
# batch: 32
# iteration_ms: 12
# optimizer_ms: 1
# kind: forward_ms=measured; backward_ms=measured; ready_ms=derived; iteration_ms=measured; \
optimizer_ms=published
# source: made up for this test
"""
ROWS = """\
layer,kind,tensor,shape,elements,forward_ms,backward_ms,ready_ms
conv1,conv,conv1.weight,64x3x7x7,9408,2,4,7
conv1,conv,conv1.bias,64,64,,,7
fc,linear,fc.weight,10x64,640,1,3,2.5
fc,linear,fc.bias,10,10,,,0.5
"""
GOOD = HEADER + ROWS
FIRST_ROW = GOOD.count("\n") - 3
"""The line of conv1.weight."""

Read = Callable[[str | bytes], Profile]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return what writes a text as tiny.csv and reads it."""

    def write_and_read(content: str | bytes) -> Profile:
        path = tmp_path / "tiny.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_profile(path)

    return write_and_read
