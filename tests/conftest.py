"""What tests share: the same examples on every machine, and the machine's CPUs."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from support.installation import installed, wheel

__all__ = ["installed", "wheel"]

os.environ.pop("PERFSIM_PATH", None)
# Each worker has a CPU, and OpenBLAS's threads wait for theirs by spinning: fits take five times as
# long. It reads this as numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
settings.register_profile("perfsim", deadline=None, derandomize=True, max_examples=30)
settings.load_profile("perfsim")

gc.set_threshold(200_000, 20, 100)
"""Collecting the tests makes objects by the hundred thousand, and hardly any of it is garbage."""

BYTE_CODE = "PERFSIM_TESTS_BYTE_CODE"
"""Names the folder of byte code, outside the checkout, that workers and what they start share."""

if BYTE_CODE in os.environ and sys.dont_write_bytecode:
    sys.pycache_prefix, sys.dont_write_bytecode = os.environ[BYTE_CODE], False

MOST_WORKERS = 4
TOGETHER = {"tests/product/test_wheel.py": "wheel", "tests/product/test_cold_start.py": "wheel"}
"""Files that share what is expensive to make; hosts, too, are for one worker alone."""


collect_ignore = [
    "support/emulated",
    "scripts/adapters_in_fp32.py",
    "scripts/dispatched_calls.py",
    "scripts/dit_against_pytorch.py",
    "scripts/kbit_against_peft.py",
    "scripts/mistral_block.py",
    "scripts/passes_against_pytorch.py",
]
"""What imports PyTorch or transformers as it is read: there are no examples in it to test."""


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Let pytest-xdist run the whole suite on several CPUs; ``-n 0`` keeps it in one process."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    worker = hasattr(config, "workerinput") or "PYTEST_XDIST_WORKER" in os.environ
    if (
        whole
        and not worker
        and getattr(config.option, "numprocesses", 0) is None
        and not config.option.usepdb
    ):
        workers = min(MOST_WORKERS, len(os.sched_getaffinity(0)))
        config.option.numprocesses = workers if workers > 1 else 0
        config.option.dist = "loadscope"
        config.option.loadscopereorder = False  # hosts take longest, and come first
        if workers > 1:
            os.environ[BYTE_CODE] = tempfile.mkdtemp(prefix="perfsim-byte-code-")
            config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(BYTE_CODE)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a file in one worker, and those of emulated hosts, which are timed."""
    from xdist.scheduler import LoadScopeScheduling

    class Places(list[str]):
        """Tests by their place, each found at once; a list looks through those before."""

        def __init__(self, names: Iterable[str]) -> None:
            super().__init__(names)
            self.place = {name: place for place, name in enumerate(self)}

        def index(self, name: str, *_: Any) -> int:
            return self.place[name]

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "hosts" if "end_to_end" in file else TOGETHER.get(file, file)

        def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
            super().add_node_collection(node, collection)
            if node in self.registered_collections:  # not if it differs from another worker's
                self.registered_collections[node] = Places(collection)

        def _reschedule(self, node: Any) -> None:
            """Forget files that are done: what is left is counted after each test."""
            work = self.assigned_work[node]
            for file in [file for file, tests in work.items() if all(tests.values())]:
                del work[file]
            super()._reschedule(node)

    return Together(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path,
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for examples in a file of tests only if there are some, or other reasons to read it."""
    found = yield
    if file_path.name.startswith("test_") and b">>>" not in file_path.read_bytes():
        return [one for one in found if isinstance(one, pytest.Module)]
    return found


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over 11,000 tests, which live to the end, and run seldom.

    It would look through all that is kept every few tests, a quarter of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(1_000_000, 20, 100)


def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Look for garbage when all tests have run: a file that one left open fails the last."""
    if nextitem is None:
        gc.collect()


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """Spare pytest what tests have kept: it looks for garbage ten times at the end."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _children_compile_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let what tests start share its byte code, outside the checkout; many start the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        byte_code = os.environ.get(BYTE_CODE) or str(tmp_path_factory.mktemp("byte_code"))
        patch.setenv("PYTHONPYCACHEPREFIX", byte_code)
        yield


def pytest_runtest_setup() -> None:
    """Keep the folders of whoever runs the tests out of the search path."""
    os.environ.pop("PERFSIM_PATH", None)
