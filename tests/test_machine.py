"""What a machine says of itself: jobs, DMI of clouds, the driver's names of GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsim import machine as module
from perfsim.machine import look_around
from support.what_ships import SHIPPED

AZURE = "7783-7084-3265-9085-8269-3286-77"


def firmware(folder: Path, vendor: str, product: str, tag: str = "") -> Path:
    """Write what the firmware says, and return its folder."""
    dmi = folder / "dmi"
    dmi.mkdir()
    (dmi / "sys_vendor").write_text(f"{vendor}\n")
    (dmi / "product_name").write_text(f"{product}\n")
    if tag:
        (dmi / "chassis_asset_tag").write_text(f"{tag}\n")
    return dmi


def driver(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put an nvidia-smi on the path that does this."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def gpus(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, count: int) -> None:
    """Put a driver on the path that lists GPUs."""
    driver(folder, monkeypatch, "\n".join([f'echo "{name}"'] * count))


@pytest.fixture(autouse=True)
def no_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.parametrize(
    ("job", "total", "each", "source"),
    [
        (
            {"SLURM_JOB_NUM_NODES": "4", "SLURM_GPUS_ON_NODE": "8", "SLURM_NTASKS": "4"},
            32,
            8,
            "SLURM_JOB_NUM_NODES x SLURM_GPUS_ON_NODE",
        ),
        (
            {"SLURM_NNODES": "2", "SLURM_GPUS_PER_NODE": "a100:4"},
            8,
            4,
            "SLURM_NNODES x SLURM_GPUS_PER_NODE",
        ),
        (
            {"SLURM_NNODES": "2", "SLURM_NTASKS_PER_NODE": "8"},
            16,
            8,
            "SLURM_NNODES x SLURM_NTASKS_PER_NODE, one GPU a task",
        ),
        ({"SLURM_GPUS": "h100:16", "SLURM_NNODES": "2"}, 16, 8, "SLURM_GPUS"),
        ({"SLURM_GPUS": "15", "SLURM_NNODES": "2"}, 15, None, "SLURM_GPUS"),
        ({"SLURM_NTASKS": "2", "SLURM_NNODES": "2"}, 2, 1, "SLURM_NTASKS, one GPU a task"),
        ({"SLURM_NTASKS": "24"}, 24, None, "SLURM_NTASKS, one GPU a task"),
        (
            {"WORLD_SIZE": "64", "LOCAL_WORLD_SIZE": "8", "SLURM_NNODES": "2"},
            64,
            8,
            "WORLD_SIZE of torchrun",
        ),
        (
            {
                "OMPI_COMM_WORLD_SIZE": "16",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "8",
                "SLURM_JOB_NUM_NODES": "2",
                "SLURM_NTASKS": "2",
            },
            16,
            8,
            "OMPI_COMM_WORLD_SIZE of mpirun, one GPU a task",
        ),
        (
            {"PMI_SIZE": "8", "MPI_LOCALNRANKS": "4"},
            8,
            4,
            "PMI_SIZE of mpiexec, one GPU a task",
        ),
        ({"PMI_SIZE": "2", "SLURM_NTASKS": "4"}, 4, None, "SLURM_NTASKS, one GPU a task"),
        ({"WORLD_SIZE": "6"}, 6, None, "WORLD_SIZE"),
        ({"WORLD_SIZE": "many", "SLURM_NNODES": "-1", "SLURM_GPUS_ON_NODE": ""}, None, None, ""),
        ({}, None, None, ""),
    ],
)
def test_a_job_says_how_many_gpus_it_has(
    job: dict[str, str], total: int | None, each: int | None, source: str, tmp_path: Path
) -> None:
    found = look_around(SHIPPED, job, tmp_path / "none").fields
    assert (found["gpus"].value if total else found.get("gpus")) == total
    assert (found["gpus_per_node"].value if each else found.get("gpus_per_node")) == each
    if total:
        assert found["gpus"].source == source


@pytest.mark.parametrize(
    ("job", "gpu"),
    [
        ({"SLURM_GPUS": "h100:16", "SLURM_NNODES": "2"}, ("h100", "SLURM_GPUS")),
        ({"SLURM_GPUS_PER_NODE": "a100:4"}, ("a100", "SLURM_GPUS_PER_NODE")),
        ({"SLURM_GPUS_PER_NODE": "nvidia_h200:8"}, ("h200", "SLURM_GPUS_PER_NODE")),
        ({"SLURM_GPUS_PER_NODE": "big:4"}, None),
        ({"SLURM_GPUS_PER_NODE": "a100:4,v100:2"}, None),
        ({"SLURM_GPUS": "16"}, None),
    ],
)
def test_slurm_names_the_gpu_before_their_number(
    job: dict[str, str], gpu: tuple[str, str] | None, tmp_path: Path
) -> None:
    assert look_around(SHIPPED, job, tmp_path / "none").fields.get("gpu") == gpu


@pytest.mark.parametrize(
    ("product", "node"),
    [
        ("p4d.24xlarge", "p4d"),
        ("p4de.24xlarge", "p4de"),
        ("p5.48xlarge", "p5"),
        ("p5en.48xlarge", "p5en"),
        ("p3dn.24xlarge", "p3dn"),
        ("p3.16xlarge", "p3"),
        ("g5.48xlarge", "g5"),
        ("g6e.48xlarge", "g6e"),
        ("p6-b200.48xlarge", "p6-b200"),
    ],
)
def test_ec2_names_its_instance_type(product: str, node: str, tmp_path: Path) -> None:
    found = look_around(SHIPPED, {}, firmware(tmp_path, "Amazon EC2", product)).fields["node"]
    assert found == (node, f"DMI: Amazon EC2 {product}")


def test_an_ec2_type_without_a_file_is_said_with_the_nearest(tmp_path: Path) -> None:
    found = look_around(SHIPPED, {}, firmware(tmp_path, "Amazon EC2", "p4d.other"))
    assert "node" not in found.fields
    [remark] = found.remarks
    assert "EC2 p4d.other, which is no node type of perfsim; the nearest is p4d" in remark


@pytest.mark.parametrize(
    ("firm", "driver_name", "node", "remark"),
    [
        (("Google", "Google Compute Engine"), "NVIDIA H200", "a3-ultra", ""),
        (("Google", "Google Compute Engine"), "NVIDIA H100 80GB HBM3", "", "a3-high or a3-mega"),
        (("Google", "Google Compute Engine"), "Tesla T4", "", ""),
        (("Microsoft Corporation", "Virtual Machine", AZURE), "NVIDIA A100-SXM4-40GB", "ndv4", ""),
        (("Microsoft Corporation", "Virtual Machine"), "NVIDIA A100-SXM4-40GB", "", ""),
        (("NVIDIA", "DGXA100 920-23687-2531-001"), "NVIDIA A100-SXM4-80GB", "dgx-a100", ""),
        (("NVIDIA", "DGXA100 920-23687-2531-001"), "NVIDIA A100-SXM4-40GB", "dgx-a100-40gb", ""),
        (("Dell Inc.", "PowerEdge XE9680"), "NVIDIA H100 80GB HBM3", "", ""),
    ],
)
def test_clouds_that_name_no_type_are_known_by_their_gpus(
    firm: tuple[str, ...],
    driver_name: str,
    node: str,
    remark: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpus(tmp_path, monkeypatch, driver_name, 8)
    found = look_around(SHIPPED, {}, firmware(tmp_path, *firm))
    assert (found.fields["node"].value if node else found.fields.get("node", "")) == node
    assert remark in " ".join(found.remarks)
    assert bool(remark) == bool(found.remarks)
    assert found.fields["gpus"].value == found.fields["gpus_per_node"].value == 8


def test_a_dgx_of_two_memories_is_none_without_its_gpu(tmp_path: Path) -> None:
    dmi = firmware(tmp_path, "NVIDIA", "DGXA100 920-23687-2531-001")
    assert "node" not in look_around(SHIPPED, {}, dmi).fields


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
    ],
)
def test_the_driver_names_the_gpu(
    name: str, gpu: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(tmp_path, monkeypatch, name, 2)
    found = look_around(SHIPPED, {"WORLD_SIZE": "16"}, tmp_path / "none").fields
    assert found["gpu"] == (gpu, f"nvidia-smi: {name}")
    assert (found["gpus"].value, found["gpus_per_node"].value) == (16, 2)


def test_a_gpu_without_a_file_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(tmp_path, monkeypatch, "NVIDIA GeForce RTX 4090 Ti", 1)
    found = look_around(SHIPPED, {}, tmp_path / "none")
    assert "gpu" not in found.fields
    assert found.remarks == [
        "NVIDIA GeForce RTX 4090 Ti has no file in perfsim; the nearest that has is rtx4090"
        " (`perfsim list gpus`)."
    ]


@pytest.mark.parametrize(
    ("script", "remark"),
    [
        ("exit 9", ""),
        ("echo 'Tesla T4'; echo 'Tesla K80'", "GPUs of several kinds: Tesla T4, Tesla K80."),
        ("exec sleep 60", "nvidia-smi did not answer within"),
        ("printf '\\377\\n'", ""),
    ],
)
def test_a_driver_that_fails_or_hangs_stops_nothing(
    script: str, remark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_DRIVER_S", 0.3)
    driver(tmp_path, monkeypatch, script)
    found = look_around(SHIPPED, {}, tmp_path / "none")
    assert "gpu" not in found.fields
    assert remark in " ".join(found.remarks)
    assert bool(remark) == bool(found.remarks)
