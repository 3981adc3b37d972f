"""``perfsim calibrate kernels``: every bench and whole runs of PyTorch on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perfsim.calibrate.measure.kernel_benches import Bench, Size
from perfsim.cli.main import code
from perfsim.compute.device import load_device, read_kernels
from perfsim.compute.kernel import Kernel
from perfsim.data.catalog import Catalog


def calibrate(folder: Path, *more: str) -> int:
    short = ["--kernel-budget", "0.2s", "--tolerance", "50%", "--device", "cpu", "--gpu", "here"]
    return code(["calibrate", "kernels", "--out", str(folder), *short, *more])


@pytest.mark.torch
def test_every_bench_runs_at_its_smallest_size() -> None:
    pytest.importorskip("torch")
    from perfsim.calibrate.measure.device import KernelDevice
    from perfsim.calibrate.measure.kernel_benches import all_benches

    place = KernelDevice("cpu")
    for one in all_benches(place):
        for width in dict.fromkeys(size.width for size in one.sizes(2**18)):
            size = next(size for size in one.sizes(2**18) if size.width == width)
            call = one.make(place, size)
            call()
            call()  # and leaves its inputs fit for another call


@pytest.mark.torch
def test_selections_find_as_many_as_they_are_to() -> None:
    pytest.importorskip("torch")
    from perfsim.calibrate.measure.device import KernelDevice
    from perfsim.calibrate.measure.kernel_benches import SELECTION_BENCHES

    place, size = KernelDevice("cpu"), Size(2**18, 1, (2**18,))
    asked = {one.name: one.make(place, size) for one in SELECTION_BENCHES}
    for name, share in (("dgc_encode", 0.01), ("gaussiank_encode", 0.001), ("mask_compact", 1e-3)):
        for _ in range(2):
            found = asked[name]()
            found = found[0] if isinstance(found, tuple) else found
            assert share / 2 < len(found) / size.elements < share * 2, name


@pytest.mark.torch
def test_signs_come_back_as_they_were_packed() -> None:
    torch = pytest.importorskip("torch")
    from perfsim.calibrate.measure import kernel_benches
    from perfsim.calibrate.measure.device import KernelDevice

    place = KernelDevice("cpu")
    bits, flags = kernel_benches._bits(place), place.normal(2048) > 0
    packed = kernel_benches._packed(place, flags, bits)
    assert packed.shape == (256,)
    assert torch.equal(kernel_benches._flags(packed, bits), flags)


@pytest.mark.torch
def test_gram_schmidt_makes_columns_orthonormal() -> None:
    torch = pytest.importorskip("torch")
    from perfsim.calibrate.measure.device import KernelDevice
    from perfsim.calibrate.measure.kernel_benches import DECOMPOSITION_BENCHES

    one = next(one for one in DECOMPOSITION_BENCHES if one.name == "gram_schmidt")
    columns = one.make(KernelDevice("cpu"), Size(256, 8, (256, 8)))()
    assert torch.allclose(columns.t() @ columns, torch.eye(8), atol=1e-4)


@pytest.mark.torch
def test_a_run_writes_a_device_that_predictions_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    names = "stream_add,launch_queued,matrix_fp32,topk_new,fp16_cast"
    assert calibrate(tmp_path, "--max", "300000", "--kernels", names, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "perfsim/calibrate-kernels/1" and told["out_of_time"] == []
    device = load_device("here", Catalog(tmp_path))
    cost = device.cost(Kernel("fp16_cast", 2**14, 6.0 * 2**14))
    assert cost.terms[0].quantity.kind == "measured"
    assert "perfsim calibrate kernels on cpu" in cost.terms[0].quantity.source
    assert not list((tmp_path / "devices").glob("*.jsonl"))
    asked = ["--model", "resnet50", "--gpus", "8", "--net", "10gbe", "--single-gpu", "253ms"]
    given_ = ["--gpu", "here", "--profiles", str(tmp_path), "--batch", "64", "--method", "fp16"]
    assert code(["predict", *asked, *given_, "-v"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "kernel fp16_cast at" in said and "perfsim calibrate kernels on cpu" in said


@pytest.mark.torch
def test_points_that_are_there_are_not_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    assert calibrate(tmp_path, "--max", "2000", "--kernels", "fp16_cast") == 0
    assert "must be measured too" in capsys.readouterr().out
    assert calibrate(tmp_path, "--max", "2000", "--kernels", "topk_new") == 2
    assert "is there already; --force" in capsys.readouterr().err
    assert calibrate(tmp_path, "--max", "2000", "--kernels", "topk_new", "--force") == 0
    points = read_kernels(tmp_path / "devices" / "here.kernels.csv")
    assert set(points) == {"topk_new", "fp16_cast"}


@pytest.mark.torch
def test_points_that_a_run_without_time_left_are_not_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor where the next run measures others: what the journal has stays there or in the file."""
    pytest.importorskip("torch")
    from perfsim.calibrate.measure import kernel_runs

    run_benches = kernel_runs.run_benches

    def out_of_time(benches: Sequence[Bench], *more: Any) -> list[str]:
        run_benches(benches[:1], *more)
        return [one.name for one in benches[1:]]

    def cut_short(*more: str) -> int:
        with monkeypatch.context() as patch:
            patch.setattr(kernel_runs, "run_benches", out_of_time)
            return calibrate(tmp_path, *more)

    both = ("--max", "2000", "--kernels", "fp16_cast,fp16_uncast")
    assert cut_short(*both) == 0
    assert "out of time: fp16_uncast" in capsys.readouterr().out
    file, journal = (tmp_path / "devices" / f"here.kernels.{end}" for end in ("csv", "jsonl"))
    assert set(read_kernels(file)) == {"fp16_cast"} and journal.exists()
    assert calibrate(tmp_path, "--max", "2000", "--kernels", "stream_copy", "--force") == 0
    assert set(read_kernels(file)) == {"fp16_cast", "stream_copy"} and not journal.exists()
    # What a run that was stopped has not written yet stays in its journal.
    assert cut_short(*both, "--force") == 0
    file.unlink()
    assert calibrate(tmp_path, "--max", "2000", "--kernels", "stream_copy") == 0
    assert set(read_kernels(file)) == {"stream_copy"} and journal.exists()
    assert calibrate(tmp_path, *both) == 0
    assert set(read_kernels(file)) == {"fp16_cast", "fp16_uncast", "stream_copy"}
    assert not journal.exists()


@pytest.mark.torch
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--kernels", "topk_now"], "--kernels: no 'topk_now'; did you mean 'topk_new'?"),
        (["--gpu", "no name"], "--gpu: 'no name' is no name"),
        (["--device", "tpu"], "--device: no 'tpu'"),
        (["--max", "0"], "--max: 0 is not allowed"),
        (["--max", "5"], "no kernel could be measured"),
        (
            ["--out", "/dev/null/x", "--max", "2000"],
            "--out: '/dev/null/x/devices': Not a directory",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    pytest.importorskip("torch")
    assert calibrate(tmp_path, *more) == 2
    assert said in capsys.readouterr().err
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_without_a_job_beside_says_how_to_start_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert code(["calibrate", "kernels", "--beside"]) == 2
    assert "torchrun --nproc-per-node 2" in capsys.readouterr().err


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.skipif("PERFSIM_LONG" not in os.environ, reason="takes minutes: PERFSIM_LONG=1")
def test_computation_beside_all_reduces_on_two_ranks() -> None:
    pytest.importorskip("torch")
    job = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    asked = ["-m", "perfsim", "calibrate", "kernels", "--beside", "--device", "cpu", "--json"]
    done = subprocess.run(
        [*job, *asked],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["ranks"] == 2 and told["backend"] == "gloo"
    assert len(told["computations"]) == 3
    assert all(one["alone_s"] > 0 and one["beside_s"] > 0 for one in told["computations"])
