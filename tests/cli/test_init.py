"""``perfsim init``: a first scenario of files, the machine and answers, which runs as written."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from perfsim import machine
from perfsim.cli import init
from perfsim.cli.main import code
from perfsim.data.catalog import shipped
from perfsim.first_scenario import file_kind
from support.workplace import CONFIG, furnish

PROFILE = shipped() / "models" / "resnet50.v100.fp32.b32.csv"
JOBS = ("SLURM_", "OMPI_", "PMI_", "MPI_", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with files of one's own, on a machine that says nothing of itself."""
    furnish(tmp_path)
    shutil.copy(PROFILE, tmp_path / "measured.csv")
    for kind, name in (("networks", "25gbe"), ("nodes", "p4d")):
        shutil.copy(shipped() / kind / f"{name}.toml", tmp_path)
    for name in [name for name in os.environ if name.startswith(JOBS)]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(machine, "DMI_FOLDER", tmp_path / "dmi")
    monkeypatch.setattr(machine.shutil, "which", lambda name: None)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ec2(product: str) -> None:
    """Let the machine be an EC2 instance."""
    Path("dmi").mkdir()
    Path("dmi/sys_vendor").write_text("Amazon EC2\n")
    Path("dmi/product_name").write_text(f"{product}\n")


def written(name: str = "my-scenario.toml") -> dict[str, Any]:
    """Return the fields that were written."""
    fields: dict[str, Any] = tomllib.loads(Path(name).read_text())["scenario"]
    return fields


def runs(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command of perfsim that succeeds; return what it printed."""
    left = code(shlex.split(command, comments=True)[1:])
    said = capsys.readouterr()
    assert left == 0, said.err
    return said.out


def test_flags_alone_make_a_scenario_that_runs(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--model resnet50 --gpus 16 --net 25gbe --batch 64"
    assert code(["init", *words.split()]) == 0
    said = capsys.readouterr()
    assert said.out == "perfsim predict my-scenario.toml\n"
    assert said.err == "wrote my-scenario.toml\n"
    assert written() == {
        "model": "resnet50",
        "gpus": 16,
        "net": "25gbe",
        "gpu": "v100",
        "batch": 64,
        "method": "ssgd",
    }
    assert "resnet50, ssgd; batch 64 a GPU" in runs(said.out, capsys)
    lines = Path("my-scenario.toml").read_text().splitlines()
    assert max(map(len, lines)) <= 100
    assert 'gpu = "v100"  # an assumption' in lines


FILES = {
    "all_reduce.log": ("log", {"net": "my-scenario-net.toml", "gpus": 4, "gpu": "a100-40gb"}),
    "config.json": ("config", {"model": "config.json"}),
    "trace.json.gz": ("trace", {"model": "resnet50.a100.fp32.b16.csv"}),
    "measured.csv": ("profile", {"model": "measured.csv", "gpu": "v100"}),
    "25gbe.toml": ("network", {"net": "25gbe.toml"}),
    "p4d.toml": ("node", {"node": "p4d.toml", "gpus": 8}),
}


@pytest.mark.parametrize("file", FILES)
def test_each_kind_of_file_is_told_by_what_is_in_it(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, expected = FILES[file]
    assert file_kind(Path(file)) == kind
    more = [] if kind in ("config", "profile") else ["--model", "resnet50"]
    more += ["--batch", "16", "--gpu", "a100"] if kind == "trace" else []
    more += [] if "gpus" in expected else ["--gpus", "8"]
    assert code(["init", file, *more]) == 0
    capsys.readouterr()
    assert expected.items() <= written().items()
    runs("perfsim predict my-scenario.toml", capsys)


def test_a_log_and_a_trace_make_a_network_and_a_profile_beside_the_scenario(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (workplace / "asked").mkdir()
    words = "all_reduce.log all_gather.log trace.json.gz --model ours --batch 16 --gpu a100"
    assert code(f"init {words} --out asked/q.toml --json".split()) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "perfsim/init/1"
    assert told["fields"]["net"] == {
        "value": "q-net.toml",
        "source": "fitted to all_reduce.log, all_gather.log",
    }
    assert sorted(path.name for path in Path("asked").iterdir()) == [
        "ours.a100.fp32.b16.csv",
        "q-net.curves.csv",
        "q-net.toml",
        "q.toml",
    ]
    assert sorted(told["files"]) == [
        "asked/ours.a100.fp32.b16.csv",
        "asked/q-net.curves.csv",
        "asked/q-net.toml",
    ]
    here = json.loads(runs("perfsim predict asked/q.toml --json", capsys))
    monkeypatch.chdir(workplace.parent)
    away = json.loads(runs(f"perfsim predict {workplace}/asked/q.toml --json", capsys))
    assert here["iteration_s"] == away["iteration_s"]
    assert (here["scenario"]["gpus"], here["scenario"]["gpus_per_node"]) == (4, 2)


def test_a_trace_of_a_cpu_stays_on_it_whatever_the_log_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ec2("p5.48xlarge")
    words = "init all_reduce.log trace.json.gz --model ours --batch 16"
    assert code(words.split()) == 0
    assert written()["gpu"] == "cpu" and "node" not in written()
    capsys.readouterr()
    assert "4 x cpu" in runs("perfsim predict my-scenario.toml", capsys)
    left = code(f"{words} --node p4d --out other.toml".split())
    err = capsys.readouterr().err
    assert left == 2 and "perfsim-init" not in err and not Path("other.toml").exists()


def test_files_elsewhere_are_written_as_the_scenario_finds_them(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "asked").mkdir()
    assert code(["init", "config.json", "25gbe.toml", "--gpus", "8", "--out", "asked/q.toml"]) == 0
    fields = written("asked/q.toml")
    assert (fields["model"], fields["net"]) == ("../config.json", "../25gbe.toml")
    capsys.readouterr()
    runs("perfsim predict asked/q.toml", capsys)
    # A folder of a model hub is taken too.
    (workplace / "hub").mkdir()
    shutil.move("config.json", "hub")
    assert code(["init", "hub", "--gpus", "8", "--out", "hub.toml"]) == 0
    assert written("hub.toml")["model"] == "hub/config.json"


@pytest.mark.parametrize(
    "words",
    [
        "--model resnet50 --gpus 16 --net 25gbe",
        "config.json --gpus 16 --node p4d --precision bf16",
        "--model llama3-8b --gpus 16 --node dgx-h100 --method fsdp",
        "measured.csv --gpus 1",
        "--model resnet50 --gpu v100:4,p100:4",
    ],
)
def test_all_that_a_scenario_offers_runs(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert code(["init", *words.split()]) == 0
    capsys.readouterr()
    text = Path("my-scenario.toml").read_text()
    offered = [line for line in text.splitlines() if line.startswith("# ") and " = " in line]
    assert len(offered) >= 3
    runs("perfsim predict my-scenario.toml", capsys)
    mixed = ":" in words
    for line in offered:
        name = line.split()[1]
        if mixed and name in ("single_gpu", "straggler"):
            raise AssertionError(f"{name} is offered to GPUs of several types")
        Path("one.toml").write_text(text.replace(line, line.removeprefix("# ")))
        assert name in written("one.toml"), line
        runs("perfsim predict one.toml", capsys)
    asked = [line for line in text.splitlines() if line.startswith("#   perfsim ")]
    assert asked[0] == "#   perfsim predict my-scenario.toml"
    for line in asked[1:]:
        if " --method " not in line:
            runs(line.removeprefix("#   "), capsys)


@pytest.mark.slow
@pytest.mark.parametrize("words", ["--gpus 16 --net 25gbe", "--gpus 8 --method auto"])
def test_all_methods_are_ranked_as_a_scenario_offers(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code(["init", "--model", "resnet50", *words.split()]) == 0
    capsys.readouterr()
    text = Path("my-scenario.toml").read_text()
    [line] = [line for line in text.splitlines() if line.startswith("#   ") and "--method" in line]
    runs(line.removeprefix("#   "), capsys)


def test_a_job_on_a_cloud_is_found(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ec2("p4d.24xlarge")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "4")
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "8")
    assert code(["init", "--model", "bert-large"]) == 0
    text = Path("my-scenario.toml").read_text()
    assert "gpus = 32  # SLURM_JOB_NUM_NODES x SLURM_GPUS_ON_NODE\n" in text
    assert 'node = "p4d"  # DMI: Amazon EC2 p4d.24xlarge\n' in text
    assert written().keys() == {"model", "gpus", "node", "method"}
    capsys.readouterr()
    assert "32 x a100-40gb (4 x 8 GPUs)" in runs("perfsim predict my-scenario.toml", capsys)
    # Half of each node, and a network of one's own in place of the machine's.
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "4")
    assert code(["init", "--model", "bert-large", "--force"]) == 0
    assert written()["gpus_per_node"] == 4
    assert code(["init", "--model", "bert-large", "--net", "25gbe", "--force"]) == 0
    assert written().keys() == {"model", "gpus", "net", "gpu", "gpus_per_node", "method"}


@pytest.mark.parametrize(
    ("gpus", "gpu", "network"),
    [
        ("16", "h100", '"dgx-h100"  # of nodes that h100 usually is in'),
        ("8", "h100", '"dgx-h100"  # of nodes that h100 usually is in'),
        ("8", "a100", '"dgx-a100"  # of nodes that a100 usually is in'),
        ("16", "rtx3090", '"10gbe"  # default'),
    ],
)
def test_the_network_that_is_written_is_the_one_that_none_means(
    gpus: str, gpu: str, network: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--model", "gpt2", "--gpus", gpus, "--gpu", gpu]
    assert code(["init", *asked]) == 0
    assert f"net = {network}\n" in Path("my-scenario.toml").read_text()
    capsys.readouterr()
    iterations = set()
    for words in (asked, ["my-scenario.toml"]):
        assert code(["predict", *words, "--json"]) == 0
        iterations.add(json.loads(capsys.readouterr().out)["iteration_s"])
    assert len(iterations) == 1


def test_what_the_machine_leaves_open_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    ec2("p4d.other")
    assert code(["init", "--model", "resnet50", "--gpus", "8"]) == 0
    said = capsys.readouterr()
    assert "the nearest is p4d" in said.err and said.out.startswith("perfsim predict")


@pytest.mark.parametrize(
    ("words", "left", "said"),
    [
        ("", 2, "--model is needed: a name"),
        ("--model resnet50", 2, "--gpus is needed: how many in all"),
        ("--model resnet51 --gpus 8", 2, "--model: no 'resnet51'; did you mean 'resnet50'?"),
        ("--model resnet50 --gpus 0", 2, "--gpus: '0' is not allowed: it must be 1 or more"),
        ("--model resnet50 --gpus 8 --net 10gb", 2, "--net: no '10gb'; did you mean '10gbe'?"),
        ("--model resnet50 --gpus 8 --method sgd", 2, "--method: no 'sgd'"),
        ("--model resnet50 --gpus 8 --out no/q.toml", 2, "its folder does not exist"),
        ("cases.csv", 2, "'cases.csv' is none of what is understood: an nccl-tests log"),
        ("my_curves", 2, "'my_curves' is none of what is understood"),
        ("nothing.log", 3, "nothing.log: there is no such file"),
        ("trace.json.gz", 2, "--model is needed for the profile of 'trace.json.gz'"),
        ("trace.json.gz --model a", 2, "--batch is needed for the profile"),
        ("trace.json.gz --model a --batch 0", 2, "--batch: '0' is not allowed"),
        ("config.json measured.csv", 2, "both state --model; give one"),
        ("config.json --model resnet50", 2, "--model: 'config.json' states it already"),
        ("all_reduce.log 25gbe.toml", 2, "both state --net; give one"),
        ("damaged.json --gpus 8", 3, "damaged.json: hidden_size"),
        ("asked.toml", 2, "'asked.toml' is a scenario already"),
        ("config --gpus 8", 2, "'config' needs a name that ends in .json"),
        ("cut.log --gpus 8 --model resnet50", 3, "cut.log"),
        (
            "cut.log --gpus 8 --model resnet50",
            3,
            " (`perfsim calibrate import --skip-bad` leaves such lines out)",
        ),
        ("unsaid.log --model resnet50", 3, "`perfsim calibrate import` takes both"),
    ],
)
def test_what_is_missing_or_wrong_is_one_sentence_and_nothing_is_written(
    words: str, left: int, said: str, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = {name: value for name, value in json.loads(CONFIG).items() if name != "hidden_size"}
    Path("damaged.json").write_text(json.dumps(damaged))
    Path("config").write_text(CONFIG)
    Path("asked.toml").write_text('schema = "perfsim/scenario/1"\n[scenario]\n')
    log = Path("all_reduce.log").read_text()
    Path("cut.log").write_text(log[: log.index("1024")] + "1024 256 float sum -1 25.")
    unsaid = [line for line in log.splitlines() if "Rank" not in line]
    Path("unsaid.log").write_text("\n".join(unsaid))
    before = sorted(path.name for path in workplace.iterdir())
    assert code(["init", *words.split()]) == left
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err
    assert sorted(path.name for path in workplace.iterdir()) == before


def test_nothing_is_replaced_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my-scenario.toml").write_text("mine")
    words = "init all_reduce.log --model resnet50"
    assert code(words.split()) == 2
    assert capsys.readouterr().err == (
        "perfsim: --out: 'my-scenario.toml' is there already; --force replaces it.\n"
    )
    Path("other-net.toml").write_text("mine")
    assert code(f"{words} --out other.toml".split()) == 2
    assert "'other-net.toml' is there already" in capsys.readouterr().err
    assert not Path("other.toml").exists() and Path("other-net.toml").read_text() == "mine"
    assert code(f"{words} --force".split()) == 0
    assert written()["net"] == "my-scenario-net.toml"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let somebody sit at a terminal and type these lines."""

    def typing(*lines: str) -> None:
        monkeypatch.setattr(init, "_on_terminal", lambda: True)
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))

    return typing


def test_a_terminal_is_asked_and_wrong_answers_are_asked_again(
    terminal: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal("resnet51", "resnet50", "many", "32", "dgx-h10", "none", "", "10gb", "25gbe", "", "64")
    assert code(["init"]) == 0
    said = capsys.readouterr()
    for error in (
        "no 'resnet51'; did you mean 'resnet50'?",
        "'many' is not allowed: it must be a whole number",
        "no 'dgx-h10'; did you mean 'dgx-h100'?",
        "no '10gb'; did you mean '10gbe'?",
    ):
        assert error in said.err
    assert said.err.count("GPUs in all") == 2 and said.err.count("Samples a GPU [32]") == 1
    assert said.out == "perfsim predict my-scenario.toml\n"
    assert written() == {
        "model": "resnet50",
        "gpus": 32,
        "net": "25gbe",
        "gpu": "v100",
        "batch": 64,
        "method": "ssgd",
    }


def test_a_terminal_is_offered_what_was_found(
    terminal: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ec2("p5.48xlarge")
    monkeypatch.setenv("WORLD_SIZE", "64")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    terminal("llama3-8b", "", "", "fsdp", "")
    assert code(["init"]) == 0
    asked = capsys.readouterr().err
    assert "gpus: 64   (WORLD_SIZE of torchrun)" in asked
    assert "GPUs in all [64]" in asked and "or none [p5]" in asked
    assert "Network" not in asked  # a node type says it
    text = Path("my-scenario.toml").read_text()
    assert 'node = "p5"  # DMI: Amazon EC2 p5.48xlarge' in text
    assert 'method = "fsdp"  # your answer' in text
    runs("perfsim predict my-scenario.toml", capsys)


def test_a_terminal_is_asked_what_a_trace_does_not_say(
    terminal: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal("ours", "16", "", "", "", "")
    assert code(["init", "trace.json.gz", "all_reduce.log", "--gpu", "a100"]) == 0
    asked = capsys.readouterr().err
    assert "trace.json.gz: name of the model" in asked and "trace.json.gz: samples a GPU" in asked
    assert written()["model"] == "ours.a100.fp32.b16.csv"


def test_who_leaves_writes_nothing(
    terminal: Any, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(workplace.iterdir())
    terminal("resnet50")  # and the input ends
    assert code(["init", "all_reduce.log"]) == 1
    assert capsys.readouterr().err.endswith("perfsim: stopped.\n")
    assert sorted(workplace.iterdir()) == before


def test_ctrl_c_at_a_question_writes_nothing_and_exits_with_130(
    terminal: Any,
    workplace: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Keyboard(io.StringIO):
        def readline(self, *_: Any) -> str:
            raise KeyboardInterrupt

    before = sorted(workplace.iterdir())
    terminal()
    monkeypatch.setattr("sys.stdin", Keyboard())
    assert code(["init", "all_reduce.log"]) == 130
    assert capsys.readouterr().err.endswith("perfsim: stopped.\n")
    assert sorted(workplace.iterdir()) == before


def test_yes_asks_nothing(terminal: Any, capsys: pytest.CaptureFixture[str]) -> None:
    terminal()
    assert code(["init", "--model", "resnet50", "--gpus", "8", "--yes"]) == 0
    assert capsys.readouterr().err == "wrote my-scenario.toml\n"


def test_a_scenario_is_named_before_the_flags_or_by_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert code(["init", "--model", "resnet50", "--gpus", "8"]) == 0
    for command in ("predict", "explain", "compare --methods ssgd"):
        first, *rest = command.split()
        words = " ".join(rest)
        capsys.readouterr()
        before = runs(f"perfsim {first} my-scenario.toml {words} --json", capsys)
        assert before == runs(f"perfsim {first} --scenario my-scenario.toml {words} --json", capsys)
    assert code(["predict", "my-scenario.toml", "--scenario", "my-scenario.toml"]) == 2
    assert "a scenario file is given already" in capsys.readouterr().err
    for model in ("resnet50", "llama3-8b", "config.json", "measured.csv"):
        assert code(["predict", model, "--gpus", "8"]) == 2
        err = capsys.readouterr().err
        assert err == f"perfsim: --scenario: {model!r} is a model; give it as --model {model}.\n"
