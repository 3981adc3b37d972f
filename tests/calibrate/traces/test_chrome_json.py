"""Files of traces: a damaged or odd one is refused in a sentence, a sound one read in pieces."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.calibrate.traces import chrome_json as trace_file
from perfsim.calibrate.traces import read_trace
from perfsim.calibrate.traces.chrome_json import EVENTS, trace_entries
from perfsim.errors import DataError, RequestError
from support.training_traces import OWN, host, imported, op, saved, step


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
        ([], "is an empty trace: it has no events"),
        ([{"ph": "X", "ts": "x", "dur": 1, "name": "a"}], "none of its 1 events is an operator"),
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
        patch.setattr(trace_file, "CHUNK_CHARACTERS", chunk)
        found = list(trace_entries(path))
        path.write_text(json.dumps(events))
        alone = list(trace_entries(path))
    assert found == [("a", whole["a"]), *((EVENTS, one) for one in whole[EVENTS]), ("b", 12)]
    assert alone == [(EVENTS, one) for one in json.loads(json.dumps(events))]


@pytest.mark.parametrize("number", ["12.5", "-3e-7", "1E+2", "0.0", "120"])
@pytest.mark.parametrize("chunk", [1, 2, 3, 4, 5])
def test_a_number_at_the_edge_of_a_chunk_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str, chunk: int
) -> None:
    path = tmp_path / "t.json"
    path.write_text(f'{{"a": {number}, "traceEvents": [{number}]}}')
    monkeypatch.setattr(trace_file, "CHUNK_CHARACTERS", chunk)
    assert list(trace_entries(path)) == [("a", float(number)), (EVENTS, float(number))]


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
