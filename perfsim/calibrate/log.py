"""What the lines around a table of nccl-tests say: the tool, the devices, NCCL's own settings."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from perfsim.calibrate.cells import collective_name

__all__ = ["Log", "clean", "held_word", "version_of"]

LABEL = re.compile(r"^\s*(\[\d+,\d+\](?:<\w+>)?:?|\[\d+\](?=\s)|\[[A-Z]+\]:|\d+:(?!\d))\s?")
INSIDE = re.compile(r"\[\d+,\d+\]<\w+>:?")
CHATTER = re.compile(
    r"[A-Za-z][\w.-]{0,63}+:\d{1,10}+:\d{1,10}+ \[\d{1,4}\] NCCL (?:INFO|WARN|TRACE).*$"
)
"""What NCCL logs, wherever it begins; a host's name has at most 64 letters (Linux HOST_NAME_MAX),
and without a limit a line that is one long word took minutes."""
DEVICE = re.compile(
    r"Rank\s+(\d{1,9})\s+(?:Group\s+(\d{1,9})\s+)?(?:Pid\s+\d+\s+)?"
    r"(?:on\s+(\S+)\s+device|uses device)\s+\d+\s+\[[^\]]*\]\s*(.*)"
)
TOOL = re.compile(r"(?:^|[\s/])([a-z_]+?)_perf(?:_mpi)?\b")
STARTING = re.compile(r"Collective test starting: (\w+)")
VERSION = re.compile(r"\bR?NCCL version (\d+(?:\.\d+)+)")
LIBRARY = re.compile(r"nccl-library=(\d{1,9})")
SETTING = re.compile(r"NCCL_(ALGO|PROTO)(?: set by environment to |=)[\"']?([\w:,;^]+)")
NETWORK = re.compile(r"NCCL INFO Using network (.+?)\s*$")
WORDS = {
    "collnetdirect": "collnet_direct",
    "collnetchain": "collnet_chain",
    "nvlstree": "nvls_tree",
}


def clean(line: str) -> tuple[str, str]:
    """Return what mpirun or srun put before a line, and the line without labels.

    Examples
    --------
    >>> clean("[1,0]<stdout>:#  Rank  0 ..."), clean("0:     1024   256  float")
    (('[1,0]<stdout>:', '#  Rank  0 ...'), ('0:', '    1024   256  float'))
    """
    line = line.rstrip("\r\n")
    found = LABEL.match(line)
    label, rest = (found[1], line[found.end() :]) if found else ("", line)
    return label, INSIDE.sub("", rest)


def held_word(text: str, collective: str = "") -> str:
    """Return the one algorithm or protocol that NCCL was held to, '' where it had a choice.

    Examples
    --------
    >>> held_word("Ring"), held_word("ring,tree"), held_word("allreduce:tree", "all_reduce")
    ('ring', '', 'tree')
    """
    of, colon, word = text.strip().lower().rpartition(":")
    if colon and collective_name(of) != collective:
        return ""
    return WORDS.get(word, word) if word.isalnum() else ""


def version_of(code: int) -> str:
    """Return NCCL's version number as text.

    Examples
    --------
    >>> version_of(22703), version_of(2804)
    ('2.27.3', '2.8.4')
    """
    thousand = 10000 if code >= 10000 else 1000
    return f"{code // thousand}.{code % thousand // 100}.{code % 100}"


@dataclass(slots=True)
class Log:
    """What has been said since the last table, and what holds for the file."""

    tool: str = ""
    starting: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    exported: dict[str, str] = field(default_factory=dict)
    version: str = ""
    network: str = ""
    devices: list[tuple[int, int, str, str]] = field(default_factory=list)

    def read(self, line: str) -> None:
        """Take in a line that is no row of a table."""
        device = DEVICE.search(line) if "Rank" in line else None
        if device:
            rank, group = int(device[1]), int(device[2] or 0)
            self.devices.append((rank, group, device[3] or "", device[4].strip()))
        starting = STARTING.search(line)
        tool = TOOL.search(line)
        if starting:
            self.starting = starting[1]
        elif tool and "concluded" not in line:
            self.tool = tool[1]
            self.settings = {}
        if "Using devices" in line:
            self.devices = []
        for what, value in SETTING.findall(line):
            (self.exported if "export " in line else self.settings)[what] = value
        version, library = VERSION.search(line), LIBRARY.search(line)
        if version:
            self.version = version[1]
        elif library and int(library[1]) > 0:
            self.version = version_of(int(library[1]))
        network = NETWORK.search(line)
        if network:
            self.network = network[1]

    def close(self) -> None:
        """Forget what belongs to one run only."""
        self.tool = self.starting = ""
        self.settings = {}

    def doubled(self) -> str:
        """Return what is wrong with the list of devices, '' where nothing is."""
        told = Counter(rank for rank, _, _, _ in self.devices)
        if told and max(told.values()) > 1:
            rank, times = told.most_common(1)[0]
            return (
                f"rank {rank} stands {times} times in the list of devices: nccl-tests was built"
                " without MPI=1, so that every process measured on its own"
            )
        return ""

    def place(self) -> dict[str, Any]:
        """Return ranks, nodes, GPUs a node and the GPU that the device lines say."""
        if not self.devices:
            return {}
        groups = Counter(group for _, group, _, _ in self.devices)
        group = max(groups, key=lambda one: (groups[one], -one))
        members = [device for device in self.devices if device[1] == group]
        hosts = Counter(host for _, _, host, _ in members)
        gpus = dict.fromkeys(gpu for *_, gpu in members if gpu)
        return {
            "ranks": len(members),
            "nodes": len(hosts),
            "gpus_per_node": max(hosts.values()),
            "gpu": ", ".join(gpus),
        }

    def held(self, collective: str) -> dict[str, str]:
        """Return the algorithm and protocol that NCCL was held to."""
        both = self.exported | self.settings
        return {
            "algorithm": held_word(both.get("ALGO", ""), collective),
            "protocol": held_word(both.get("PROTO", ""), collective),
        }
