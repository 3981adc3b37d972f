"""``perfsim calibrate import`` of a trace: what it writes, and what it asks for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfsim.calibrate.formats import read_log
from perfsim.calibrate.traces.chrome_json import is_trace
from perfsim.cli.main import code
from perfsim.errors import RequestError
from support.training_traces import HOROVOD, OWN, imported, saved, step


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

    curves = read_log(Path(said["collectives_file"])).curves
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
        ((), "--model is needed"),
        (("--model", "a"), "--batch is needed"),
        (("--model", "a.b", "--batch", "1"), "--model: 'a.b' is no name"),
        (("--model", "a", "--batch", "0"), "--batch: 0 is not allowed: it must be 1 or more"),
        (("--model", "a", "--batch", "1", "--precision", "fp6"), "--precision: no 'fp6'"),
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
    with pytest.raises(RequestError, match="gpu: the trace does not name its GPU"):
        imported(tmp_path, file, gpu=None)
    told = [{"id": 0, "name": "Tesla V100-SXM2-32GB"}]
    assert (
        imported(tmp_path, saved(tmp_path, step(), deviceProperties=told), gpu=None).gpu == "v100"
    )
