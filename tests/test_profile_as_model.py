"""A profile CSV given as the model: the same numbers as in a folder of profiles, and its errors."""

from __future__ import annotations

import csv
import io
import re
import shutil
from pathlib import Path

import pytest

from perfsim import Scenario
from perfsim.cli.main import code
from perfsim.compute.software import NEWEST
from perfsim.data.catalog import shipped
from perfsim.errors import DataError, RequestError
from perfsim.prediction import Prediction, predict
from perfsim.resolve import resolve
from perfsim.scenario_file import read_fields
from perfsim.session import Session
from support.commands import answer
from support.tiny_profile import GOOD
from support.what_ships import SHIPPED

MODELS = shipped() / "models"
RESNET = MODELS / "resnet50.v100.fp32.b32.csv"
NUMBERS = (
    "iteration_s",
    "iteration_s_interval",
    "samples_per_s",
    "breakdown_s",
    "communication",
    "memory_bytes",
    "bottleneck",
    "scaling_efficiency",
    "baseline",
)


def numbers(found: Prediction) -> list[object]:
    """Return what a prediction says in numbers."""
    return [found.to_dict()[name] for name in NUMBERS]


def test_a_network_of_ones_own_may_have_the_name_of_one_that_ships(tmp_path: Path) -> None:
    """Positions ship for ResNet-50: they are of other layers, and only K-FAC asks for them."""
    models = tmp_path / "own" / "models"
    models.mkdir(parents=True)
    name = "resnet50.v100.fp32.b32.csv"
    (models / name).write_text(GOOD.replace("model: tiny", "model: resnet50"))
    asked = Scenario(model="resnet50", gpus=8, gpu="v100", batch=32)
    found = predict(asked, Session(tmp_path / "own"))
    assert numbers(found) == numbers(
        predict(asked.model_copy(update={"model": str(models / name)}))
    )
    # One that lies beside the profile is meant for it.
    shutil.copy(MODELS / "resnet50.positions.csv", models)
    with pytest.raises(DataError, match="conv1' is no layer of the model"):
        predict(asked, Session(tmp_path / "own"))


@pytest.mark.parametrize("fields", [{}, {"gpu": "a100", "batch": 16, "method": "powersgd"}])
@pytest.mark.parametrize(
    "stem",
    [
        "resnet50.v100.fp32.b32",
        "vgg16-cifar.p102-100.fp32.b128",
        "bert-base.v100-pcie.fp32.b64",
        "gpt2.v100.fp32.b4",
        "vit-b16.rtx3090.amp-fp16.b192",
        "lstm-ptb.v100.fp32.b64",
    ],
)
def test_a_file_gives_the_numbers_of_a_folder_of_profiles(
    stem: str, fields: dict[str, object], tmp_path: Path
) -> None:
    models = tmp_path / "own" / "models"
    models.mkdir(parents=True)
    shutil.copy(MODELS / f"{stem}.csv", models)
    elsewhere = tmp_path / "any name.csv"
    shutil.copy(MODELS / f"{stem}.csv", elsewhere)
    asked = {"gpus": 16, "net": "25gbe", "gpu": stem.split(".")[1]} | fields
    by_name = predict(Scenario(model=stem.partition(".")[0], **asked), Session(tmp_path / "own"))
    by_file = predict(Scenario(model=elsewhere, **asked), SHIPPED)
    assert numbers(by_file) == numbers(by_name)


def test_what_is_not_asked_for_is_as_the_file_says() -> None:
    found = predict(Scenario(model=str(MODELS / "vit-l16.rtx3090.amp-fp16.b64.csv"), gpus=8))
    asked = found.scenario
    assert (asked.gpu, asked.batch, asked.precision) == ("rtx3090", 64, "amp-fp16")
    assert asked.profile == "vit-l16.rtx3090.amp-fp16.b64.csv"
    [gpu] = [note for note in found.notes if note.startswith("`gpu`")]
    assert gpu.startswith("`gpu` rtx3090, that of its profile")


def test_sources_name_the_file() -> None:
    found = predict(Scenario(model=RESNET, gpus=8, net="10gbe"))
    sources = {row["term"]: row["source"] for row in found.to_dict()["provenance"]}
    for term in ("single-GPU iteration", "forward", "backward", "update"):
        assert sources[term].startswith(f"{RESNET}: "), term
    moved = predict(Scenario(model=RESNET, gpus=8, net="10gbe", gpu="a100"))
    assert moved.to_dict()["provenance"][0]["source"].startswith(f"{RESNET}: ")


def test_a_changed_file_is_read_anew_in_one_session(tmp_path: Path) -> None:
    path, session = tmp_path / "mine.csv", Session()
    shutil.copy(RESNET, path)
    asked = Scenario(model=path, gpus=8, net="10gbe")
    before = predict(asked, session)
    path.write_text(path.read_text().replace("# model: resnet50", "# model: mine"))
    path.write_text(path.read_text().replace("# iteration_ms: ", "# iteration_ms: 1"))
    after = predict(asked, session)
    assert after.iteration_s > before.iteration_s + 0.5
    assert after.iteration_s == predict(asked, Session()).iteration_s


def test_positions_beside_the_file_count(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(RESNET.read_text().replace("# model: resnet50", "# model: mine"))
    asked = Scenario(model=path, gpus=8, net="10gbe", method="mpd_kfac")
    with pytest.raises(RequestError, match="positions"):
        predict(asked)
    text = (MODELS / "resnet50.positions.csv").read_text()
    (tmp_path / "mine.positions.csv").write_text(text.replace("# model: resnet50", "# model: mine"))
    assert predict(asked).iteration_s > 0
    (tmp_path / "mine.positions.csv").write_text("nothing")
    with pytest.raises(DataError, match=r"mine\.positions\.csv"):
        predict(asked)


def test_other_layers_under_a_shipped_name_do_without_its_positions(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    text = (MODELS / "gpt2.v100.fp32.b4.csv").read_text()
    path.write_text(text.replace("# model: gpt2", "# model: resnet50"))
    assert predict(Scenario(model=path, gpus=8, net="10gbe")).iteration_s > 0


@pytest.fixture
def of_cpu(tmp_path: Path) -> Path:
    """Return a profile of a model that only it knows, on a GPU that no device file describes."""
    path = tmp_path / "mynet.cpu.fp32.b32.csv"
    text = RESNET.read_text().replace("# gpu: v100", "# gpu: cpu")
    path.write_text(text.replace("# model: resnet50", "# model: mynet"))
    return path


@pytest.mark.parametrize(
    "command",
    [
        "predict",
        "predict --method auto",
        "compare --methods ssgd,topk",
        "explain",
        "tune",
        "sweep --vary gpus=2,4",
        "plan --dataset imagenet --epochs 1",
    ],
)
def test_a_profile_that_calibrate_wrote_of_a_cpu_is_predicted(
    command: str, of_cpu: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "own" / "models"
    folder.mkdir(parents=True)
    shutil.copy(of_cpu, folder)
    first, *rest = command.split()
    rest += ["--gpus", "4", "--net", "10gbe"] if "--vary" not in command else ["--net", "10gbe"]
    own = ("--profiles", str(folder.parent))
    for model in (["--model", str(of_cpu)], ["--model", "mynet", *own]):
        assert code([first, *rest, *model]) == 0, capsys.readouterr().err
    capsys.readouterr()


def test_commands_take_a_file_as_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(RESNET, tmp_path / "one.csv")
    shutil.copy(MODELS / "vgg16.v100.fp32.b32.csv", tmp_path / "two.csv")
    monkeypatch.chdir(tmp_path)
    swept = answer("sweep --gpus 8 --net 10gbe --vary model=one.csv,two.csv --json", capsys)
    assert [row["scenario"]["model"] for row in swept["rows"]] == ["one.csv", "two.csv"]
    one, two = (row["iteration_s"] for row in swept["rows"])
    assert one != two
    shown = answer("show model one.csv --json", capsys)
    assert shown["parameters"] == "25,557,032"
    planned = answer(
        "plan --model two.csv --dataset imagenet --epochs 1 --gpus 8 --net 10gbe --json", capsys
    )
    assert planned["schema"] == "perfsim/plan/1"


def test_a_file_beside_a_scenario_is_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "question"
    folder.mkdir()
    shutil.copy(RESNET, folder / "mine.csv")
    shutil.copy(shipped() / "networks" / "10gbe.toml", folder / "own10.toml")
    text = (folder / "own10.toml").read_text()
    (folder / "own10.toml").write_text(text.replace('name = "10gbe"', 'name = "own10"'))
    path = folder / "ask.toml"
    path.write_text(
        'schema = "perfsim/scenario/1"\n[scenario]\nmodel = "mine.csv"\ngpus = 8\n'
        'net = "own10.toml"\nnode = "none.toml"\n'
    )
    monkeypatch.chdir(tmp_path)
    fields = read_fields(path)
    assert Path(fields["model"]) == folder / "mine.csv"
    assert Path(fields["net"]) == folder / "own10.toml"
    assert fields["node"] == "none.toml"  # none there: as it stands
    del fields["node"]
    assert predict(Scenario(**fields)).scenario.net == str(folder / "own10.toml")


@pytest.mark.parametrize(
    ("change", "model", "said"),
    [
        ("", "mime.csv", "mime.csv: there is no such file (did you mean 'mine.csv'?)"),
        ("", "away/mine.csv", "away/mine.csv: there is no such file, nor a folder 'away'"),
        ("# schema: perfsim/profile/1\n", "mine.csv", "mine.csv: is no profile: it has no line"),
        ("# batch: 32\n", "mine.csv", "mine.csv: the header has no 'batch' line"),
        ("64x3x7x7", "mine.csv", "column 'shape': '' is not a shape such as 64x3x7x7"),
    ],
)
def test_a_file_that_is_missing_or_damaged_is_one_sentence(
    change: str,
    model: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = RESNET.read_text()
    assert change in text
    (tmp_path / "mine.csv").write_text(text.replace(change, "", 1) if change else text)
    monkeypatch.chdir(tmp_path)
    assert code(["predict", "--model", model, "--gpus", "8"]) == 3
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


def test_a_gpu_that_a_profile_alone_describes_goes_before_that_of_the_network(
    of_cpu: Path,
) -> None:
    found = predict(Scenario(model=of_cpu, gpus=8, net="azure-ndv4-a100"))
    assert found.scenario.gpu == "cpu"
    assert predict(Scenario(model=RESNET, gpus=8, net="azure-ndv4-a100")).scenario.gpu != "v100"


def test_an_unknown_gpu_says_nothing_of_others(of_cpu: Path) -> None:
    with pytest.raises(RequestError, match=r"was measured on cpu, .* it says nothing of a100"):
        predict(Scenario(model=of_cpu, gpus=8, gpu="a100"))


def own_resnet(folder: Path, kind: str, software: str = "") -> Path:
    """Write ResNet-50 as one's own machine runs it: in 50 ms, a total of some kind."""
    text = re.sub(r"# iteration_ms: .*", "# iteration_ms: 50", RESNET.read_text())
    text = re.sub("# optimizer_ms: .*", "# optimizer_ms: 0.06", text)
    text = text.replace("iteration_ms=published", f"iteration_ms={kind}")
    text = re.sub("# software: .*\n", software, text)
    head, *rows = text.partition("layer,kind")
    for column in (5, 6, 7):
        rows = [_tenth(row, column) for row in "".join(rows).splitlines()]
        rows = ["\n".join(rows) + "\n"]
    (folder / "models").mkdir(parents=True, exist_ok=True)
    path = folder / "models" / RESNET.name
    path.write_text(head + rows[0])
    return path


def _tenth(row: str, column: int) -> str:
    cells = row.split(",")
    if cells[column] and cells[0] != "layer":
        cells[column] = f"{float(cells[column]) / 10:.6f}"
    return ",".join(cells)


@pytest.mark.parametrize("kind", ["measured", "derived", "published"])
@pytest.mark.parametrize("software", ["", "# software: torch1.12\n"])
def test_what_ones_own_machine_takes_comes_before_what_others_measured(
    tmp_path: Path, kind: str, software: str
) -> None:
    """A trace of several ranks has a derived total: the waits for others are taken off."""
    path = own_resnet(tmp_path / "own", kind, software)
    asked = Scenario(model="resnet50", gpus=1, gpu="v100", batch=32)
    found = predict(asked, Session(tmp_path / "own"))
    assert found.iteration_s == pytest.approx(0.050)
    assert predict(asked.model_copy(update={"model": str(path)})).iteration_s == found.iteration_s
    larger = predict(asked.model_copy(update={"batch": 128}), Session(tmp_path / "own"))
    assert 3.5 * 0.050 < larger.iteration_s <= 4 * 0.050
    era = resolve(asked, Session(tmp_path / "own")).transferred.era
    assert era == ("torch1.12" if software else NEWEST)
    assert predict(asked).iteration_s == pytest.approx(0.1072, rel=1e-3)


def test_ones_own_iterations_count_beside_ones_own_profile(tmp_path: Path) -> None:
    own_resnet(tmp_path / "own", "measured")
    devices = tmp_path / "own" / "devices"
    devices.mkdir()
    shipped_rows = (shipped() / "devices" / "v100.anchors.csv").read_text()
    head = "".join(one for one in shipped_rows.splitlines(True) if one.startswith("#"))
    columns, *rows = [one for one in shipped_rows.splitlines() if not one.startswith("#")]
    names = columns.split(",")
    like = next(row for row in csv.reader(rows) if row[names.index("model")] == "resnet50")
    told = dict(zip(names, like, strict=True)) | {"batch": "64", "iteration_ms": "90"}
    told |= {"precision": "fp32", "software": "torch2", "covers": "iteration", "use": "level"}
    written = io.StringIO()
    csv.DictWriter(written, names, lineterminator="\n").writerow(told)
    (devices / "v100.anchors.csv").write_text(f"{head}{columns}\n{written.getvalue()}")
    asked = Scenario(model="resnet50", gpus=1, gpu="v100", batch=64)
    assert predict(asked, Session(tmp_path / "own")).iteration_s == pytest.approx(0.090, rel=0.01)


def test_a_copy_of_a_shipped_profile_changes_nothing(tmp_path: Path) -> None:
    models = tmp_path / "own" / "models"
    models.mkdir(parents=True)
    shutil.copy(RESNET, models)
    asked = Scenario(model="resnet50", gpus=8, gpu="v100", batch=64, net="10gbe")
    assert numbers(predict(asked, Session(tmp_path / "own"))) == numbers(predict(asked))


def test_another_network_of_a_known_name_shares_none_of_its_iterations(tmp_path: Path) -> None:
    """Of ResNet-50 there are V100 iterations at 16 and 64, which are not the tiny network's."""
    models = tmp_path / "own" / "models"
    models.mkdir(parents=True)
    (models / RESNET.name).write_text(GOOD.replace("model: tiny", "model: resnet50"))
    asked = Scenario(model="resnet50", gpus=1, gpu="v100", batch=64)
    assert predict(asked, Session(tmp_path / "own")).iteration_s < 2 * 0.012


def test_profiles_that_name_one_undescribed_gpu_do_not_mix(tmp_path: Path) -> None:
    """Both call their GPU mygpu, and one computes ten times as fast: each has its own rates."""
    paths = []
    fast = own_resnet(tmp_path / "own", "published", "# software: mxnet-2017\n")
    for name, shown in (("slow", RESNET), ("fast", fast)):
        paths.append(tmp_path / f"{name}.csv")
        paths[-1].write_text(re.sub("# gpu: .*", "# gpu: mygpu", shown.read_text()))
    asked = [Scenario(model=str(path), gpus=8, net="10gbe", batch=64) for path in paths]
    session = Session()
    together = [numbers(predict(one, session)) for one in (*asked, asked[0])]
    alone = [numbers(predict(one, Session())) for one in asked]
    assert together == [*alone, alone[0]]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"recompute": "mlp"}, "recompute: perfsim has no layers of tiny, .*none, selective, full"),
        ({"optimizer": "muon"}, "optimizer: multiplies the matrices .* no layers of tiny"),
    ],
)
def test_what_needs_the_layers_is_refused_where_they_are_not_known(
    tmp_path: Path, more: dict[str, str], words: str
) -> None:
    path = tmp_path / "tiny.csv"
    path.write_text(GOOD)
    with pytest.raises(RequestError, match=words):
        predict(Scenario(model=str(path), gpus=8, net="10gbe", **more))
    assert predict(Scenario(model=str(path), gpus=8, net="10gbe", recompute="full")).iteration_s > 0
