"""What a machine and the job on it say of themselves: GPUs, GPUs a node, GPU, node type.

Everything is read from the environment, from files of Linux and from ``nvidia-smi``: no network is
asked, so that nothing waits, and nothing is written.

References
----------
- sbatch(1) and srun(1) of Slurm: SLURM_JOB_NUM_NODES, SLURM_GPUS_ON_NODE, SLURM_GPUS_PER_NODE,
  SLURM_NTASKS_PER_NODE, SLURM_GPUS, SLURM_NTASKS.
- PyTorch, torchrun, "Environment Variables": WORLD_SIZE, LOCAL_WORLD_SIZE.
- Open MPI, MPICH and Intel MPI: `perfsim.calibrate.measure.launch`, `LAUNCHERS`.
- EC2: aws/aws-ofi-nccl@008a28b4 src/platform-aws.c reads the instance type from the product name of
  DMI; its vendor is "Amazon EC2" (AWS, "Identify EC2 instances").
- Google: the product name is "Google Compute Engine" for every machine type.
- Azure: the asset tag of the chassis is one number on every machine (canonical/cloud-init,
  cloudinit/sources/azure/identity.py; MicrosoftDocs/azure-docs, "Dmidecode check").
- NVIDIA DGX: the product name begins with the model, such as "DGXA100 920-23687-2531-001".
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from perfsim.calibrate.measure.launch import LAUNCHERS
from perfsim.compute.device import device_named, nearest_gpu
from perfsim.data.catalog import Catalog
from perfsim.data.files import printable
from perfsim.errors import nearest
from perfsim.network.node_type import NodeType, load_node_type

__all__ = ["DMI_FOLDER", "Found", "Machine", "look_around"]

DMI_FOLDER = Path("/sys/class/dmi/id")
"""Where Linux shows what the firmware says of the machine."""
MAX_DRIVER_S = 10.0
"""How long ``nvidia-smi`` may take [s]. No source: chosen; it takes 1 to 3 s where the driver was
asleep."""

_MAX_CHARACTERS = 256
_AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"
_COUNT = re.compile(r"(?:([^,]*):)?([1-9]\d{0,6})")
"""A number of GPUs of one type as Slurm writes it: 8, or a100:8."""


class Found(NamedTuple):
    """A value, and where it was found."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class Machine:
    """What was found, by the field of a scenario, and remarks on what could not be told.

    Parameters
    ----------
    fields : gpus, gpus_per_node, gpu, node; those that were found
    remarks : sentences
    """

    fields: dict[str, Found] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def look_around(
    catalog: Catalog,
    environment: Mapping[str, str] | None = None,
    dmi: Path | None = None,
) -> Machine:
    """Read what this machine and its job say of themselves.

    Parameters
    ----------
    catalog : has the GPUs and node types that perfsim knows
    environment : variables; None: those of this process
    dmi : the folder of what the firmware says; None: Linux's

    Examples
    --------
    >>> job = {"SLURM_JOB_NUM_NODES": "2", "SLURM_GPUS_ON_NODE": "8"}
    >>> look_around(Catalog(), job, Path("nowhere")).fields["gpus"]
    Found(value=16, source='SLURM_JOB_NUM_NODES x SLURM_GPUS_ON_NODE')
    """
    environment = os.environ if environment is None else environment
    machine = Machine()
    names = _driver_names(machine)
    gpu = _gpu(names, catalog, machine)
    if gpu:
        machine.fields["gpu"] = Found(gpu, f"nvidia-smi: {names[0]}")
    for name, found in _job(environment, catalog):
        machine.fields.setdefault(name, found)
    here = len(names)
    if here and "gpus_per_node" not in machine.fields:
        machine.fields["gpus_per_node"] = Found(here, "the GPUs that nvidia-smi lists")
    if here and "gpus" not in machine.fields:
        machine.fields["gpus"] = Found(here, "the GPUs of this machine, by nvidia-smi")
    node = _node(dmi or DMI_FOLDER, gpu, here, catalog, machine)
    if node is not None:
        machine.fields["node"] = node
    return machine


def _job(environment: Mapping[str, str], catalog: Catalog) -> Iterator[tuple[str, Found]]:
    """Yield the GPUs in all, a node's and their type, as launchers state them; the surest first."""

    def count(name: str) -> int | None:
        match = _COUNT.fullmatch(environment.get(name, "").strip())
        return int(match[2]) if match else None

    for launcher in ("torchrun", "mpirun", "mpiexec"):
        _, world_name, _, local_name = LAUNCHERS[launcher]
        world, local = count(world_name), count(local_name)
        tasks = "" if launcher == "torchrun" else ", one GPU a task"
        if world and local:
            yield "gpus", Found(world, f"{world_name} of {launcher}{tasks}")
            yield "gpus_per_node", Found(local, f"{local_name} of {launcher}{tasks}")
    nodes_named = next((name for name in _SLURM_NODES if count(name)), "")
    each_named = next((name for name in _SLURM_EACH if count(name)), "")
    nodes, each = count(nodes_named), count(each_named)
    tasks = ", one GPU a task" if each_named.startswith("SLURM_NTASKS") else ""
    if each:
        yield "gpus_per_node", Found(each, f"{each_named}{tasks}")
    if nodes and each:
        yield "gpus", Found(nodes * each, f"{nodes_named} x {each_named}{tasks}")
    for name, tasks in (("SLURM_GPUS", ""), ("SLURM_NTASKS", ", one GPU a task")):
        total = count(name)
        if not total:
            continue
        yield "gpus", Found(total, f"{name}{tasks}")
        if nodes and not each and total % nodes == 0:
            each = total // nodes
            yield "gpus_per_node", Found(each, f"{name} / {nodes_named}{tasks}")
        break
    world = count("WORLD_SIZE")
    if world:
        yield "gpus", Found(world, "WORLD_SIZE")
    for name in ("SLURM_GPUS_PER_NODE", "SLURM_GPUS"):
        match = _COUNT.fullmatch(environment.get(name, "").strip())
        words = match[1] if match else None
        gpu = device_named(words, catalog) if words else None
        if gpu:
            yield "gpu", Found(gpu, name)


_SLURM_NODES = ("SLURM_JOB_NUM_NODES", "SLURM_NNODES")
_SLURM_EACH = ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "SLURM_NTASKS_PER_NODE")


def _driver_names(machine: Machine) -> list[str]:
    """Return the names of this machine's GPUs as NVIDIA's driver says them; [] without any."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    asked = [command, "--query-gpu=name", "--format=csv,noheader"]
    try:
        told = subprocess.run(
            asked, capture_output=True, text=True, timeout=MAX_DRIVER_S, check=False
        )
    except subprocess.TimeoutExpired:
        machine.remarks.append(f"nvidia-smi did not answer within {MAX_DRIVER_S:.0f} s.")
        return []
    except (OSError, ValueError):  # it may not be run; it prints no text
        return []
    if told.returncode:
        return []  # a login node: the program is there and no driver
    return [printable(line).strip()[:_MAX_CHARACTERS] for line in told.stdout.split("\n") if line]


def _gpu(names: list[str], catalog: Catalog, machine: Machine) -> str:
    """Return perfsim's name of the GPU, "" where it has none or there are several."""
    kinds = list(dict.fromkeys(names))
    if not kinds:
        return ""
    if len(kinds) > 1:
        machine.remarks.append(f"this machine has GPUs of several kinds: {', '.join(kinds)}.")
        return ""
    if name := device_named(kinds[0], catalog):
        return name
    alike = nearest_gpu(kinds[0], catalog)
    hint = f"; the nearest that has is {alike}" if alike else ""
    machine.remarks.append(f"{kinds[0]} has no file in perfsim{hint} (`perfsim list gpus`).")
    return ""


def _node(dmi: Path, gpu: str, here: int, catalog: Catalog, machine: Machine) -> Found | None:
    """Return the node type of this machine by what its firmware says; None where it does not."""
    vendor, product, tag = (
        _line(dmi / name) for name in ("sys_vendor", "product_name", "chassis_asset_tag")
    )
    if vendor == "Amazon EC2" and product:
        return _ec2_node(product, catalog, machine)
    if product == "Google Compute Engine" or vendor == "Google":
        return _cloud_node("GCP", gpu, here, catalog, machine)
    if tag == _AZURE_TAG:
        return _cloud_node("Azure", gpu, here, catalog, machine)
    if "nvidia" in vendor.lower() and product:
        return _dgx_node(product, gpu, catalog)
    return None


def _line(path: Path) -> str:
    """Return the first line of a small file; "" where it cannot be read."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return printable(file.readline(_MAX_CHARACTERS)).strip()
    except OSError:
        return ""


def _nodes(catalog: Catalog) -> dict[str, NodeType]:
    """Return the node types that perfsim knows."""
    return {name: load_node_type(name, catalog, "node") for name in catalog.files("nodes")}


def _ec2_node(product: str, catalog: Catalog, machine: Machine) -> Found | None:
    nodes = _nodes(catalog)
    for name, node in nodes.items():
        if node.title.startswith(f"AWS {product}:"):
            return Found(name, f"DMI: Amazon EC2 {product}")
    alike = nearest(product, [name for name, node in nodes.items() if node.title.startswith("AWS")])
    hint = f"; the nearest is {alike}" if alike else ""
    machine.remarks.append(
        f"this is an EC2 {product}, which is no node type of perfsim{hint} (`perfsim list nodes`)."
    )
    return None


def _cloud_node(
    cloud: str, gpu: str, here: int, catalog: Catalog, machine: Machine
) -> Found | None:
    """Return the one node type of a cloud that has this GPU so many times."""
    if not gpu:
        return None
    alike = [
        name
        for name, node in _nodes(catalog).items()
        if node.title.startswith(f"{cloud} ") and node.gpu == gpu and node.gpus == here
    ]
    if len(alike) == 1:
        return Found(alike[0], f"DMI: {cloud}, whose only node type with {here} {gpu} it is")
    if alike:
        machine.remarks.append(
            f"this is a machine of {cloud} with {here} {gpu}: {' or '.join(alike)}; name it."
        )
    return None


def _dgx_node(product: str, gpu: str, catalog: Catalog) -> Found | None:
    """Return the DGX that the product's name begins with; of several memories by the GPU."""
    plain = re.sub(r"[^a-z0-9]", "", product.lower()).removeprefix("nvidia")
    alike = [
        name
        for name in catalog.files("nodes")
        if name.startswith("dgx")
        and plain.startswith(re.sub(r"-\d+gb$", "", name).replace("-", ""))
        and gpu in ("", load_node_type(name, catalog, "node").gpu)
    ]
    return Found(alike[0], f"DMI: {product}") if len(alike) == 1 else None
