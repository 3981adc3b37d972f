"""Traces of training: PyTorch profiles and Horovod timelines to profiles and collectives.

``data/ddp_gloo_2_ranks.pt.trace.json.gz`` is our own: rank 0 of two under DistributedDataParallel
on gloo over loopback (PyTorch 2.13, CPU; three convolutions, a batch norm and a dense layer;
record_shapes and with_stack), spans that perfsim does not read taken out.
"""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.calibrate import trace_file
from perfsim.calibrate.importing_traces import import_trace
from perfsim.calibrate.known_layers import as_known
from perfsim.calibrate.reading import read_file
from perfsim.calibrate.trace_file import EVENTS, entries, is_trace
from perfsim.calibrate.traced import Seen, Step, TracedLayer
from perfsim.calibrate.traces import read_trace
from perfsim.cli.main import code
from perfsim.errors import DataError, RequestError
from perfsim.models import build
from perfsim.profile import Profile
from perfsim.profile_file import read_profile

OWN = Path(__file__).parent / "data" / "ddp_gloo_2_ranks.pt.trace.json.gz"
MAIN, BACK = 1, 2
US = 1e-6


def host(name: str, start: float, end: float, thread: int = MAIN, **args: Any) -> dict[str, Any]:
    noted = name.startswith(("ProfilerStep", "Optimizer", "nccl:", "gloo:"))
    return {
        "ph": "X",
        "cat": "user_annotation" if noted else "cpu_op",
        "name": name,
        "pid": 9,
        "tid": thread,
        "ts": start,
        "dur": end - start,
        "args": args,
    }


def op(name: str, start: float, end: float, number: int, thread: int = MAIN) -> dict[str, Any]:
    return host(name, start, end, thread, **{"Sequence number": number})


def grad(start: float, end: float, shape: list[int] | None, thread: int = BACK) -> dict[str, Any]:
    args = {"Input Dims": [shape]} if shape is not None else {}
    return host("torch::autograd::AccumulateGrad", start, end, thread, **args)


def kernel(
    launched: float, start: float, end: float, thread: int, name: str = "gemm", **args: Any
) -> list[dict[str, Any]]:
    number = int(launched * 10)
    launch = host("cudaLaunchKernel", launched, launched + 1, thread, correlation=number)
    work = host(name, start, end, 7, correlation=number, **args)
    return [launch | {"cat": "cuda_runtime"}, work | {"cat": "kernel", "pid": 0}]


def step(at: float = 0.0, shapes: bool = True, gpu: bool = True, back: int = BACK) -> list[Any]:
    """One step of 1000 us: a convolution, a dense layer and a loss, by hand."""
    node = "autograd::engine::evaluate_function: "
    events = [
        host(f"ProfilerStep#{int(at)}", at, at + 1000),
        op("aten::conv2d", at + 100, at + 110, 5),
        op("aten::convolution", at + 101, at + 109, 5),
        op("aten::linear", at + 120, at + 140, 6),
        op("aten::t", at + 121, at + 123, 6),
        op("aten::addmm", at + 124, at + 138, 7),
        op("aten::nll_loss", at + 150, at + 156, 8),
        op(f"{node}NllLossBackward0", at + 200, at + 210, 8, back),
        op(f"{node}AddmmBackward0", at + 212, at + 231, 7, back),
        grad(at + 232, at + 233, [10] if shapes else None, back),
        op(f"{node}TBackward0", at + 235, at + 238, 6, back),
        grad(at + 240, at + 241, [10, 8] if shapes else None, back),
        op(f"{node}ConvolutionBackward0", at + 245, at + 260, 5, back),
        grad(at + 262, at + 263, [8, 3, 3, 3] if shapes else None, back),
        host("Optimizer.step#SGD.step", at + 300, at + 320),
    ]
    if gpu:
        call = {"Collective name": "allreduce", "In msg nelems": 306, "dtype": "Float"}
        call |= {"Out msg nelems": 306, "Group size": 2}
        for launched, start, end, thread in (
            (105, 200, 300, MAIN),
            (130, 300, 350, MAIN),
            (152, 350, 360, MAIN),
            (205, 370, 380, BACK),
            (215, 380, 420, BACK),
            (220, 420, 440, BACK),
            (250, 440, 540, BACK),
            (310, 700, 730, MAIN),
        ):
            events += kernel(at + launched, at + start, at + end, thread)
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        events += kernel(at + 265, at + 540, at + 700, BACK, name, **call)
    return events


def saved(folder: Path, events: list[Any], name: str = "t.json", **settings: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps({"schemaVersion": 1, **settings, "traceEvents": events}))
    return path


def imported(folder: Path, file: Path, **more: Any) -> Profile:
    asked = {"model": "small", "batch": 4, "gpu": "v100", "folder": folder / "out"} | more
    made = import_trace(file, **asked)
    assert made.profile is not None
    return read_profile(made.profile)


def test_kernels_give_the_moments_of_a_gpu(tmp_path: Path) -> None:
    file = saved(tmp_path, step() + step(1000.0))
    profile = imported(tmp_path, file)
    layers = [(one.name, one.kind, one.forward_s, one.backward_s) for one in profile.layers]
    # conv: kernels from 200 to 300, linear with the loss to 360; gradients at 440 and 540 of 370.
    assert layers == [
        ("conv2d_0", "conv", pytest.approx(100 * US), pytest.approx(100 * US)),
        ("linear_0", "linear", pytest.approx(60 * US), pytest.approx(70 * US)),
    ]
    ready = {one.name: (one.shape, one.ready_s) for one in profile.gradients}
    assert ready == {
        "conv2d_0.weight": ((8, 3, 3, 3), pytest.approx(170 * US)),
        "linear_0.weight": ((10, 8), pytest.approx(70 * US)),
        "linear_0.bias": ((10,), pytest.approx(70 * US)),
    }
    assert profile.optimizer_s == pytest.approx(30 * US)
    # Of the 1000 us, 160 are the all-reduce alone.
    assert profile.iteration_s == pytest.approx(840 * US)
    assert profile.kinds["iteration_ms"] == "derived"


def test_nccl_kernels_are_calls_with_bytes_ranks_and_seconds(tmp_path: Path) -> None:
    seen = read_trace(saved(tmp_path, step())).seen
    assert seen == (Seen("all_reduce", 1224, 2, pytest.approx(160 * US)),)


def test_kernels_without_words_take_those_of_the_call_that_launched_them(tmp_path: Path) -> None:
    events = step()
    for event in events:
        if event["name"].startswith("nccl"):
            told, event["args"] = event["args"], {"correlation": event["args"]["correlation"]}
    events += [host("record_param_comms", 264, 270, BACK, **told)]
    assert read_trace(saved(tmp_path, events)).seen[0].size_bytes == 1224
    events[-1] = host("nccl:all_reduce", 264, 270, BACK, **{"Input Dims": [[306]]})
    events[-1]["args"]["Input type"] = ["c10::Half"]
    one = read_trace(saved(tmp_path, events, distributedInfo={"world_size": 8})).seen[0]
    assert (one.size_bytes, one.ranks) == (612, 8)


def test_a_cpu_trace_takes_the_times_of_its_threads(tmp_path: Path) -> None:
    profile = imported(tmp_path, saved(tmp_path, step(gpu=False, back=MAIN)))
    layers = [(one.forward_s, one.backward_s) for one in profile.layers]
    # conv from 100, linear from 120, loss to 156; backward from 200: 241 and 263.
    assert layers == [
        (pytest.approx(20 * US), pytest.approx(22 * US)),
        (pytest.approx(36 * US), pytest.approx(41 * US)),
    ]
    assert profile.iteration_s == pytest.approx(1000 * US)
    assert profile.kinds["iteration_ms"] == "measured"


def test_modules_name_the_layers(tmp_path: Path) -> None:
    events = step(gpu=False, back=MAIN)
    for name, start, end in (("Net_0", 90, 145), ("Conv2d_7", 98, 112), ("Head_0", 115, 142)):
        events.append(host(f"nn.Module: {name}", start, end) | {"cat": "python_function"})
    profile = imported(tmp_path, saved(tmp_path, events))
    assert [(one.name, one.kind) for one in profile.layers] == [
        ("Conv2d_7", "conv"),
        ("Head_0", "parameter"),
    ]


def test_our_own_trace_of_two_ranks_on_gloo(tmp_path: Path) -> None:
    traced = read_trace(OWN)
    assert traced.step is not None and traced.device == "cpu"
    assert (traced.library, traced.world, traced.step.count) == ("gloo", 2, 2)
    assert [(one.name, one.gradients[0][1]) for one in traced.step.layers] == [
        ("Conv2d_0", (16, 3, 3, 3)),
        ("BatchNorm2d_0", (16,)),
        ("Conv2d_1", (16, 16, 3, 3)),
        ("Conv2d_2", (32, 16, 3, 3)),
        ("Linear_0", (10, 8192)),
    ]
    # Two buckets: the dense layer's 81 930 elements, then the other 7 424.
    sizes = {one.size_bytes for one in traced.seen if one.collective == "all_reduce"}
    assert sizes == {4 * 81930, 4 * 7424}
    profile = imported(tmp_path, OWN, gpu=None)
    assert profile.elements == 81930 + 7424
    assert profile.gpu == "cpu"
    first = [one.name for one in profile.in_ready_order()]
    assert first[0].startswith("Linear_0") and first[-1] == "Conv2d_0.weight"
    passes_s = profile.forward_s + profile.backward_s + profile.optimizer_s
    assert passes_s <= profile.iteration_s <= traced.step.whole_s


def test_without_steps_of_the_profiler_those_of_the_optimizer_count(tmp_path: Path) -> None:
    events = [one for one in step() + step(1000.0) if "ProfilerStep" not in one["name"]]
    found = read_trace(saved(tmp_path, events)).step
    assert found is not None and found.count == 2
    assert found.forward_s == pytest.approx(160 * US)


def test_names_and_shapes_of_a_known_model_fill_a_trace_without_shapes() -> None:
    defined = [layer for layer in build("alexnet") if layer.tensors]
    layers = tuple(
        TracedLayer(f"l{at}", layer.kind, tuple((f"l{at}.{i}", None) for i in range(2)))
        for at, layer in enumerate(defined)
    )
    begun = {f"l{at}": float(at) for at in range(8)}
    ready = {f"l{at}.{i}": 10.0 * at + i for at in range(8) for i in range(2)}
    traced = Step(layers, begun, ready, 9.0, 80.0, 1.0, 90.0, 0.0, 1.0, 1)
    known = as_known(traced, "alexnet")
    assert known is not None
    assert known.layers[0].gradients[0] == ("features.0.weight", (64, 3, 11, 11))
    assert known.begun_s["classifier.6"] == 7.0
    # Of a dense layer the bias is accumulated first.
    assert known.ready_s["classifier.6.bias"] == 70.0
    assert as_known(traced, "resnet50") is None
    assert as_known(traced, "no-such-model") is None


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([host("ProfilerStep#1", 0, 9), op("aten::conv2d", 1, 2, 5)], "inference only"),
        ([one for one in step() if "Step#" not in one["name"] and "step#" not in one["name"]],
         "holds no training step"),
        (step(shapes=False), "does not say the shapes of its gradients"),
        ([one for one in step() if "conv" not in one["name"] and one["cat"] != "kernel"
          and "aten" not in one["name"]], "holds no whole training step"),
        ([one for one in step() if one["cat"] != "cuda_runtime"], "no launches of them"),
        ([one | {"args": {k: v for k, v in one["args"].items() if k != "Sequence number"}}
          for one in step()], "has no 'Sequence number'"),
        ([*step(), op("aten::conv2d", 400, 410, 5)], "several backward passes in one step"),
        ([*step(), {"ph": "X", "cat": "kernel", "name": "k"}], "'ts' is None, not a number"),
        ([*step(), op("aten::add", 1, 2, 3) | {"ts": 1e999}], "not finite"),
        ([*step(), 7], "event 34 is no object"),
        ([], "inference only"),
    ],
)  # fmt: skip
def test_a_trace_that_shows_no_training_is_one_sentence(
    tmp_path: Path, events: list[Any], said: str
) -> None:
    file = saved(tmp_path, events)
    with pytest.raises(DataError, match=said) as caught:
        imported(tmp_path, file)
    assert str(file) in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_damaged_file_says_where(tmp_path: Path) -> None:
    whole = saved(tmp_path, step()).read_text()
    cut = tmp_path / "cut.json"
    cut.write_text(whole[:500])
    with pytest.raises(DataError, match=r"is a damaged trace: at character \d+ "):
        read_trace(cut)
    cut.write_bytes(gzip.compress(whole.encode())[:200])
    with pytest.raises(DataError, match="damaged gzip file"):
        read_trace(cut)
    cut.write_text('{"traceEvents": ' + "[" * 100_000)
    with pytest.raises(DataError, match="damaged"):
        read_trace(cut)
    cut.write_text('{"schemaVersion": 1, "traceEvents": [{"ph": "M"} {"ph": "M"}]}')
    with pytest.raises(DataError, match="where ']' is needed"):
        read_trace(cut)
    cut.write_text('{"rows": [1, 2]}')
    with pytest.raises(DataError, match="no trace in a form that is known"):
        read_trace(cut)


@given(at=st.integers(0, 140_000), put=st.binary(max_size=3), end=st.booleans())
def test_no_damage_gives_anything_but_a_data_error(
    tmp_path_factory: pytest.TempPathFactory, at: int, put: bytes, end: bool
) -> None:
    whole = gzip.decompress(OWN.read_bytes())
    path = tmp_path_factory.mktemp("damage") / "t.json"
    path.write_bytes(whole[:at] + put + (b"" if end else whole[at + len(put) :]))
    try:
        read_trace(path)
    except DataError as error:
        assert "\n" not in str(error)


JUNK: list[Any] = [None, True, -5, 1e300, "x", "\ud800\n", [], [[]], [[0]], {}, {"a": 1}, 10**400]


@given(
    at=st.lists(st.integers(0, 32), min_size=1, max_size=4),
    key=st.sampled_from(["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"]),
    inner=st.sampled_from(["", "Sequence number", "Input Dims", "correlation", "In msg nelems"]),
    junk=st.sampled_from(JUNK),
)
def test_no_odd_event_gives_anything_but_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, at: list[int], key: str, inner: str, junk: Any
) -> None:
    folder = tmp_path_factory.mktemp("odd")
    events = step()
    for place in at:
        if inner:
            events[place] |= {"args": events[place]["args"] | {inner: junk}}
        else:
            events[place] |= {key: junk}
    odd = {"deviceProperties": [{"id": 0, "name": junk}], "distributedInfo": {"world_size": junk}}
    file = saved(folder, events, **odd)
    try:
        imported(folder, file, nodes=1)
    except (DataError, RequestError) as error:
        assert "\n" not in str(error)
        assert str(file) in str(error) or str(error).startswith("--")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(VALUES, st.lists(VALUES, max_size=5), st.integers(1, 9), st.booleans())
def test_entries_are_those_of_the_whole_json(
    tmp_path_factory: pytest.TempPathFactory,
    setting: Any,
    events: list[Any],
    chunk: int,
    packed: bool,
) -> None:
    path = tmp_path_factory.mktemp("json") / "t.json"
    text = json.dumps({"a": setting, EVENTS: events, "b": 12}, ensure_ascii=False, indent=1)
    data = text.encode("utf-8", errors="surrogatepass")
    path.write_bytes(gzip.compress(data) if packed else data)
    whole = json.loads(data.decode("utf-8", errors="replace"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_file, "CHUNK", chunk)
        found = list(entries(path))
        path.write_text(json.dumps(events))
        alone = list(entries(path))
    assert found == [("a", whole["a"]), *((EVENTS, one) for one in whole[EVENTS]), ("b", 12)]
    assert alone == [(EVENTS, one) for one in json.loads(json.dumps(events))]


def test_memory_stays_below_the_size_of_the_file(tmp_path: Path) -> None:
    filler = [
        host(f"aten::empty{at % 7}", at, at + 1, **{"Input Dims": [[at, 7], []], "Ev Idx": at})
        for at in range(30_000)
    ]
    file = saved(tmp_path, step() + filler)
    del filler
    tracemalloc.start()
    read_trace(file)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2 * file.stat().st_size


HOROVOD = """[
{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros":5}},
{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grad.fc"}},
{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 100, "pid": 1},
{"ph": "X", "name": "0", "ts": 101, "pid": 1, "dur": 0},
{"ph": "X", "name": "3", "ts": 150, "pid": 1, "dur": 0},
{"ph": "E", "ts": 160, "pid": 1},
{"name": "process_name", "ph": "M", "pid": 2, "args": {"name": "grad.conv"}},
{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 140, "pid": 2},
{"ph": "E", "ts": 161, "pid": 2},
{"ph": "B", "name": "ALLREDUCE", "ts": 170, "pid": 1},
{"ph": "B", "name": "ALLREDUCE", "ts": 171, "pid": 2},
{"ph": "B", "name": "NCCL_ALLREDUCE", "ts": 200, "pid": 1},
{"ph": "B", "name": "NCCL_ALLREDUCE", "ts": 201, "pid": 2},
{"ph": "E", "ts": 701, "pid": 1},
{"ph": "E", "ts": 703, "pid": 2},
{"ph": "E", "ts": 710, "pid": 1, "args": {"dtype": "float32", "shape": "[10, 8]"}},
{"ph": "E", "ts": 711, "pid": 2, "args": {"dtype": "float32", "shape": "[20]"}},
{"ph": "B", "name": "BROADCAST", "ts": 800, "pid": 2},
{"ph": "B", "name": "MPI_BCAST", "ts": 810, "pid": 2},
{"ph": "E", "ts": 830, "pid": 2},
{"ph": "E", "ts": 840, "pid": 2, "args": {"dtype": "float16", "shape": "[20]"}}"""


@pytest.mark.parametrize("end", ["]", ",\n", ""])
def test_a_horovod_timeline_gives_its_messages(tmp_path: Path, end: str) -> None:
    file = tmp_path / "timeline.json"
    file.write_text(HOROVOD + end)
    traced = read_trace(file)
    assert traced.step is None and traced.world == 4
    assert traced.seen == (
        # 80 and 20 floats in one message.
        Seen("all_reduce", 400, 4, pytest.approx(500 * US)),
        Seen("broadcast", 40, 4, pytest.approx(20 * US)),
    )
    assert traced.ready_s == {"grad.fc": 0.0, "grad.conv": pytest.approx(40 * US)}


def test_the_command_tells_traces_from_logs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    trace = [str(OWN), "--model", "small", "--batch", "16", "--gpu", "v100", "--out", str(out)]
    assert code(["calibrate", "import", *trace, "--nodes", "2", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["schema"] == "perfsim/calibrate-import-trace/1"
    assert said["step"]["gradients"] == 9
    assert code(["calibrate", "import", *trace]) == 2
    assert "is there already; --force replaces it" in capsys.readouterr().err
    assert code(["calibrate", "import", *trace, "--force"]) == 0
    assert "with --nodes N the collectives are written too" in capsys.readouterr().out

    curves = read_file(Path(said["collectives_file"])).curves
    assert {(one.collective, one.ranks, one.library) for one in curves} == {
        ("all_reduce", 2, "gloo"),
        ("broadcast", 2, "gloo"),
    }
    asked = ["--model", "small", "--gpus", "4", "--net", "1gbe"]
    assert code(["predict", *asked, "--profiles", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "perfsim/prediction/1"

    timeline = tmp_path / "timeline.json"
    timeline.write_text(HOROVOD + "]")
    assert code(["calibrate", "import", str(timeline), "--out", str(out), "--nodes", "4"]) == 0
    assert (out / "timeline.collectives.csv").is_file()
    assert "so there is no profile" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ((), "--model: is needed"),
        (("--model", "a"), "--batch: is needed"),
        (("--model", "a.b", "--batch", "1"), "--model: 'a.b' is no name"),
        (("--model", "a", "--batch", "0"), "--batch: must be at least 1"),
        (("--model", "a", "--batch", "1", "--precision", "fp8"), "--precision: no 'fp8'"),
        (("--model", "a", "--batch", "1", "--nodes", "3"), "2 ranks do not fit on 3 nodes"),
        (("--model", "a", "--batch", "1", str(OWN)), "a trace is imported alone"),
    ],
)
def test_requests_that_cannot_be_met(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], said: str
) -> None:
    out = tmp_path / "out"
    assert code(["calibrate", "import", str(OWN), *more, "--out", str(out)]) == 2
    assert said in capsys.readouterr().err
    assert not out.exists()


def test_a_log_without_a_name_is_refused_as_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "a.log"
    log.write_text("nothing")
    assert code(["calibrate", "import", str(log)]) == 2
    assert "--name" in capsys.readouterr().err
    assert not is_trace(log)


def test_a_gpu_that_the_trace_does_not_name_is_asked_for(tmp_path: Path) -> None:
    file = saved(tmp_path, step())
    with pytest.raises(RequestError, match="--gpu: the trace does not name its GPU"):
        imported(tmp_path, file, gpu=None)
    told = [{"id": 0, "name": "Tesla V100-SXM2-32GB"}]
    assert (
        imported(tmp_path, saved(tmp_path, step(), deviceProperties=told), gpu=None).gpu == "v100"
    )


@pytest.mark.torch
def test_a_profile_made_here_has_the_models_gradients_in_the_order_of_its_hooks(
    tmp_path: Path,
) -> None:
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile, schedule

    made = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 5)
    )
    update = torch.optim.SGD(made.parameters(), lr=0.1)
    order: list[tuple[int, ...]] = []
    for parameter in made.parameters():
        parameter.register_post_accumulate_grad_hook(lambda of: order.append(tuple(of.shape)))
    file = tmp_path / "t.json"
    with profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        schedule=schedule(wait=0, warmup=1, active=2, repeat=1),
        on_trace_ready=lambda of: of.export_chrome_trace(str(file)),
    ) as run:
        for _ in range(3):
            update.zero_grad()
            made(torch.randn(2, 3, 8, 8)).sum().backward()
            update.step()
            run.step()
    found = imported(tmp_path, file, gpu=None)
    assert [one.shape for one in found.in_ready_order()] == order[-4:]
    assert [one.kind for one in found.layers] == ["conv", "linear"]
