"""`perfsim calibrate kernels`: timing on a clock by hand, and whole runs of PyTorch on the CPU."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.calibrate.gpu_name import device_name
from perfsim.calibrate.kernels.bench import Bench, Size, scalars
from perfsim.calibrate.kernels.device_of import device_text, figures
from perfsim.calibrate.kernels.journal import Journal, Point, Stop
from perfsim.calibrate.kernels.points_file import other_rows, points_text
from perfsim.calibrate.kernels.report import lines
from perfsim.calibrate.kernels.running import run
from perfsim.calibrate.kernels.timing import Rule, measure
from perfsim.catalog import Catalog
from perfsim.cli.main import code
from perfsim.curve import read_kernels
from perfsim.device import load_device, read_device
from perfsim.errors import DataError, RequestError
from perfsim.kernel import Kernel, elementwise

SETTING = {"device": "a card", "software": "some version"}
ABOUT = {"gpu": "card", "software": "some version", "source": "here", "licence": "own", "date": "-"}


class HandClock:
    """A clock that only calls move on."""

    def __init__(self) -> None:
        self.now_s, self.waits = 0.0, 0

    def mark(self) -> float:
        """Return the hand's place."""
        return self.now_s

    def wait(self) -> None:
        """Count."""
        self.waits += 1

    def between(self, first: float, last: float) -> float:
        """Return the time between two marks."""
        return last - first

    def call(self, *seconds: float) -> Callable[[], None]:
        """Return a call that takes these times in turn, the last one for ever."""
        left = list(seconds)

        def run_once() -> None:
            self.now_s += left.pop(0) if len(left) > 1 else left[0]

        return run_once


class HandPlace:
    """A place without PyTorch, whose benches take what the test says."""

    device, gpu = "cpu", False

    def __init__(self) -> None:
        self.clock = HandClock()

    def empty(self) -> None:
        """Have nothing to give back."""


def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "card.kernels.jsonl", SETTING)


def quiet(done: int, total: int, words: str) -> None:
    pass


def bench(name: str, seconds: Callable[[Size], float], **more: Any) -> Bench:
    """Return a bench on a clock by hand; a call that "takes" infinity is out of memory."""

    def make(place: Any, size: Size) -> Callable[[], None]:
        if math.isinf(seconds(size)):
            raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")
        call: Callable[[], None] = place.clock.call(seconds(size))
        return call

    return Bench(name, "by hand", scalars, make, **more)


# timing, by hand


def test_warm_up_calls_do_not_count() -> None:
    clock = HandClock()
    call = clock.call(9.0, 3.0, 2.0, 1.0)
    assert measure(call, clock, Rule(), 60.0) == [1.0] * 5  # 5 equal repeats are settled


def test_a_loop_counts_as_so_many_calls_and_waits_once_a_repeat() -> None:
    clock = HandClock()
    seconds = measure(clock.call(1.0), clock, Rule(), 60.0, loop=10)
    assert seconds == [1.0] * 5
    assert clock.waits == 2 * (3 + 5)


def test_repeats_end_at_the_most_where_they_do_not_settle() -> None:
    clock = HandClock()
    times = [1.0, 2.0] * 200
    assert len(measure(clock.call(*times), clock, Rule(most=30), 60.0)) == 30


def test_a_call_longer_than_its_time_is_the_only_sample() -> None:
    clock = HandClock()
    assert measure(clock.call(30.0, 20.0, 10.0, 7.0), clock, Rule(), 5.0)[-1] == 7.0
    assert len(measure(clock.call(7.0), clock, Rule(), 5.0)) == 1


# the run, by hand


def test_a_kernel_stops_at_the_size_that_does_not_fit_and_others_go_on(tmp_path: Path) -> None:
    of = journal(tmp_path)
    large = bench("large", lambda size: math.inf if size.elements > 5000 else 1e-3)
    small = bench("small", lambda size: 1e-3)
    assert run([large, small], HandPlace(), 300_000, Rule(), of, quiet) == []  # type: ignore[arg-type]
    assert [point.elements for point in of.points if point.kernel == "large"] == [1024, 4096]
    assert [point.elements for point in of.points if point.kernel == "small"][-1] == 262144
    assert of.stops == [Stop("large", 16384, 0, "out of memory", True)]


def test_a_kernel_stops_before_a_size_that_its_time_does_not_hold(tmp_path: Path) -> None:
    of = journal(tmp_path)
    cubic = bench("cubic", lambda size: (size.elements / 1024) ** 1.5, growth=1.5)
    run([cubic], HandPlace(), 300_000, Rule(kernel_s=100.0), of, quiet)  # type: ignore[arg-type]
    # 1, 8, then 64 s a call, of which two do not fit.
    assert [point.elements for point in of.points] == [1024, 4096]
    assert not of.stops[0].final
    assert of.stops[0].why.startswith("no time in 100 s a kernel, about 64 s")


def test_a_run_goes_on_where_it_broke_off(tmp_path: Path) -> None:
    of = journal(tmp_path)
    one = bench("one", lambda size: math.inf if size.elements > 20_000 else 1e-3)
    run([one], HandPlace(), 5000, Rule(), of, quiet)  # type: ignore[arg-type]
    with of.path.open("a") as file:
        file.write('{"kernel": "one", "elem')  # killed as it wrote
    again = journal(tmp_path)
    assert again.points == of.points
    run([one], HandPlace(), 300_000, Rule(), again, quiet)  # type: ignore[arg-type]
    assert [point.elements for point in again.points] == [1024, 4096, 16384]
    third = journal(tmp_path)
    assert third.stopped("one", 262144, 0) and not third.stopped("one", 16384, 0)


def test_the_whole_time_spent_names_the_kernels_left(tmp_path: Path) -> None:
    of = journal(tmp_path)
    two = [bench(name, lambda size: 1e-3) for name in ("one", "two")]
    assert run(two, HandPlace(), 5000, Rule(budget_s=0.0), of, quiet) == ["one", "two"]  # type: ignore[arg-type]
    assert of.points == []


def test_what_ran_out_of_time_is_tried_again_and_what_ran_out_of_memory_is_not(
    tmp_path: Path,
) -> None:
    of = journal(tmp_path)
    of.add(Stop("eigh", 4096, 0, "no time", final=False))
    of.add(Stop("qr", 64, 2, "out of memory", final=True))
    assert journal(tmp_path).stops == [Stop("qr", 64, 2, "out of memory", final=True)]


def test_a_journal_of_another_machine_is_refused(tmp_path: Path) -> None:
    of = journal(tmp_path)
    with pytest.raises(RequestError, match="was begun with software some version, now it is new"):
        Journal(of.path, {**SETTING, "software": "new"})
    Journal(of.path, {**SETTING, "software": "new"}, fresh=True)
    of.path.write_text("not json\n")
    with pytest.raises(DataError, match="--fresh begins anew"):
        journal(tmp_path)


# files, by hand


@given(
    st.lists(
        st.tuples(st.integers(1, 10**9), st.floats(1e-7, 10)), min_size=1, unique_by=lambda x: x[0]
    )
)
def test_points_read_back_as_the_device_reads_them(
    tmp_path_factory: pytest.TempPathFactory, found: list[tuple[int, float]]
) -> None:
    folder = tmp_path_factory.mktemp("points")
    of = journal(folder)
    for elements, seconds in found:
        of.add(Point("scale", elements, 0, (seconds,) * 5))
    path = folder / "card.kernels.csv"
    path.write_text(points_text([bench("scale", lambda size: 1.0)], of, ABOUT))
    (curve,) = read_kernels(path)["scale"]
    assert curve.sizes == tuple(sorted(elements for elements, _ in found))
    assert set(curve.kinds) == {"measured"}
    highest = 0.0  # a larger size never costs less, as perfsim reads points
    for (_, seconds), read_s in zip(sorted(found), curve.times_s, strict=True):
        highest = max(highest, seconds)
        assert math.isclose(read_s, highest, rel_tol=1e-3)


def test_rows_of_kernels_not_measured_stay(tmp_path: Path) -> None:
    shipped = Catalog().beside("devices", "a100", ".kernels.csv")
    of = journal(tmp_path)
    of.add(Point("eigh", 4096, 0, (1e-3,) * 5))
    path = tmp_path / "a100.kernels.csv"
    text = points_text([bench("eigh", lambda size: 1.0)], of, {**ABOUT, "gpu": "a100"})
    path.write_text(text + other_rows(shipped, {"eigh"}))
    assert shipped is not None
    before, after = read_kernels(shipped), read_kernels(path)
    assert after["dietgpu_encode"] == before["dietgpu_encode"]
    assert math.isclose(after["eigh"][0].times_s[0], 1e-3)
    assert after["eigh"][0].kinds == ("measured",)


def test_a_device_file_says_what_was_measured(tmp_path: Path) -> None:
    of = journal(tmp_path)
    of.add(Point("stream_add", 10**8, 0, (1.2e-3,) * 5))  # 12 bytes a value: 1 TB/s
    of.add(Point("stream_copy", 10**8, 0, (1.6e-3,) * 5))  # 8 bytes a value: 500 GB/s
    of.add(Point("stream_scale", 10**6, 0, (1e-7,) * 5))  # in a cache
    of.add(Point("stream_scale", 10**8, 0, (1e-3,) * 5))  # 800 GB/s
    of.add(Point("launch_queued", 1024, 0, (4e-6,) * 5))
    of.add(Point("matrix_fp32", 10**6, 0, (1e-3,) * 5))  # 2e9 operations
    of.add(Point("matrix_fp32", 4 * 10**6, 0, (4e-3,) * 5))  # 16e9
    path = tmp_path / "card.toml"
    text = device_text("card", "A card", 16e9, figures(of), "here")
    assert text is not None
    path.write_text(text)
    device = read_device(path)
    assert device.memory_bandwidth.value == 800e9
    assert device.launch_s.value == 4e-6
    assert device.matrix_rate("fp32").value == 4e12
    origins = (device.memory_bandwidth, device.launch_s, device.matrix_rate("fp32"))
    assert {quantity.kind for quantity in origins} == {"measured"}
    assert device.memory_bytes == 16e9


def test_a_device_file_of_a_busy_machine_reads_back(tmp_path: Path) -> None:
    of = journal(tmp_path)
    for kernel, time_s in (("stream_add", 1e-3), ("stream_copy", 1e-2), ("stream_scale", 1.0)):
        of.add(Point(kernel, 10**8, 0, (time_s,) * 5))
    of.add(Point("launch_queued", 1024, 0, (4e-6,) * 5))
    of.add(Point("matrix_fp32", 10**6, 0, (1e-3,) * 5))
    (tmp_path / "card.toml").write_text(
        device_text("card", "A card", 16e9, figures(of), "here") or ""
    )
    assert read_device(tmp_path / "card.toml").memory_bandwidth.spread == 3.0  # 300 %, the most


def test_no_device_file_without_bandwidth_launch_and_rate(tmp_path: Path) -> None:
    of = journal(tmp_path)
    of.add(Point("stream_add", 10**8, 0, (1.2e-3,) * 5))
    assert device_text("card", "A card", 16e9, figures(of), "here") is None


def test_the_table_counts_by_bytes_and_launches_with_points_put_aside(tmp_path: Path) -> None:
    of = journal(tmp_path)
    of.add(Point("scale", 1024, 0, (1e-3,) * 5))
    v100 = load_device("v100", Catalog())
    counted = bench("scale", lambda size: 1.0, counted=lambda size: [elementwise(1024, 2)])
    (line,) = lines([counted], of, v100)
    whole_s = 8 * 1024 / v100.memory_bandwidth.value + v100.launch_s.value
    assert line.counted_s is not None and math.isclose(line.counted_s, whole_s)
    assert line.over is not None and math.isclose(line.over, 1e-3 / whole_s)


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),  # no such file: another board than the SXM one
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla V100-PCIE-32GB", "v100-pcie"),
        ("NVIDIA GeForce RTX 2080 Ti", "rtx2080ti"),
        ("NVIDIA GeForce RTX 3090 Ti", "rtx-3090-ti"),
        ("cpu", "cpu"),
    ],
)
def test_a_driver_s_word_becomes_a_name(word: str, name: str) -> None:
    assert device_name(word, Catalog().files("devices")) == name


# PyTorch on the CPU


def calibrate(folder: Path, *more: str) -> int:
    short = ["--kernel-budget", "0.2s", "--tolerance", "50%", "--device", "cpu", "--gpu", "here"]
    return code(["calibrate", "kernels", "--out", str(folder), *short, *more])


@pytest.mark.torch
def test_every_bench_runs_at_its_smallest_size() -> None:
    pytest.importorskip("torch")
    from perfsim.calibrate.kernels.benches import everything
    from perfsim.calibrate.kernels.place import Place

    place = Place("cpu")
    for one in everything(place):
        for width in dict.fromkeys(size.width for size in one.sizes(2**18)):
            size = next(size for size in one.sizes(2**18) if size.width == width)
            call = one.make(place, size)
            call()
            call()  # and leaves its inputs fit for another call


@pytest.mark.torch
def test_selections_find_as_many_as_they_are_to() -> None:
    pytest.importorskip("torch")
    from perfsim.calibrate.kernels.place import Place
    from perfsim.calibrate.kernels.selecting import SELECTING

    place, size = Place("cpu"), Size(2**18, 1, (2**18,))
    asked = {one.name: one.make(place, size) for one in SELECTING}
    for name, share in (("dgc_encode", 0.01), ("gaussiank_encode", 0.001), ("mask_compact", 1e-3)):
        for _ in range(2):
            found = asked[name]()
            found = found[0] if isinstance(found, tuple) else found
            assert share / 2 < len(found) / size.elements < share * 2, name


@pytest.mark.torch
def test_signs_come_back_as_they_were_packed() -> None:
    torch = pytest.importorskip("torch")
    from perfsim.calibrate.kernels import quantising
    from perfsim.calibrate.kernels.place import Place

    place = Place("cpu")
    bits, flags = quantising._bits(place), place.normal(2048) > 0
    packed = quantising._packed(place, flags, bits)
    assert packed.shape == (256,)
    assert torch.equal(quantising._flags(packed, bits), flags)


@pytest.mark.torch
def test_gram_schmidt_makes_columns_orthonormal() -> None:
    torch = pytest.importorskip("torch")
    from perfsim.calibrate.kernels.decomposing import DECOMPOSING
    from perfsim.calibrate.kernels.place import Place

    one = next(one for one in DECOMPOSING if one.name == "gram_schmidt")
    columns = one.make(Place("cpu"), Size(256, 8, (256, 8)))()
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
    assert code(["predict", *asked, *given_]) == 0
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
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--kernels", "topk_now"], "--kernels: no 'topk_now'; did you mean 'topk_new'?"),
        (["--gpu", "no name"], "--gpu: 'no name' is no name"),
        (["--device", "tpu"], "--device: no 'tpu'"),
        (["--max", "0"], "--max: 0 is too few"),
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
