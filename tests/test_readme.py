"""README.md: its generated parts are what the code says now, and its commands run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import readme

from perfsim.cli.main import code
from perfsim.whatif import BOTTLENECKS

TEXT = readme.README.read_text(encoding="utf-8")
COMMANDS = [
    line.removeprefix("perfsim ")
    for part in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    for line in part.splitlines()
    if line.startswith("perfsim ")
]


def test_generated_parts_have_not_drifted() -> None:
    assert readme.generated() == TEXT, "run python tests/readme.py"


def test_there_are_commands_to_run() -> None:
    assert len(COMMANDS) >= 5


LOG = """\
# nccl-tests, {collective}, 4 GPUs on 2 nodes
#  Rank  0 Group  0 Pid  11 on  node-a device  0 [0x07] NVIDIA A100-SXM4-40GB
#  Rank  1 Group  0 Pid  12 on  node-a device  1 [0x0f] NVIDIA A100-SXM4-40GB
#  Rank  2 Group  0 Pid  13 on  node-b device  0 [0x07] NVIDIA A100-SXM4-40GB
#  Rank  3 Group  0 Pid  14 on  node-b device  1 [0x0f] NVIDIA A100-SXM4-40GB
NCCL version 2.18.3+cuda12.2
#       size         count      type   redop    root     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)
"""


def log_of_nccl_tests(collective: str, share: float) -> str:
    """Return a log of times 25 us + share n / (20 GB/s)."""
    lines = [LOG.format(collective=collective)]
    for power in range(10, 29, 2):
        size = 2**power
        time_us = 25.0 + share * size / 20e3
        rate = size / time_us / 1e3
        lines.append(
            f"{size} {size // 4} float sum -1 {time_us:.2f} {rate:.2f} {share * rate:.2f} 0\n"
        )
    return "".join(lines)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the logs that the README's commands read."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "all_reduce.log").write_text(log_of_nccl_tests("all_reduce_perf", 1.5))
    (folder / "all_gather.log").write_text(log_of_nccl_tests("all_gather_perf", 0.75))
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_runs(
    command: str,
    workplace: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(workplace)
    assert code(command.split()) == 0
    assert capsys.readouterr().out


def test_the_python_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    compares, predicts = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(compares, "README.md", "exec"), {})
    assert "is fastest" in capsys.readouterr().out
    exec(compile(predicts, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "'backward'" in printed
    assert printed.split()[1] in BOTTLENECKS
