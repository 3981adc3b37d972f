"""Models, networks, node types, GPUs and methods are named in any case, with or without dashes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from perfsim.cli.main import code
from perfsim.errors import RequestError, plain_name
from perfsim.methods import method_names
from perfsim.models import MODELS, NAMED
from perfsim.prediction import predict
from perfsim.resolve import resolve
from perfsim.scenario import SCENARIO_FIELDS, make_scenario
from perfsim.session import Session
from support.what_ships import SHIPPED

ASKED = {"model": "resnet50", "gpus": 16, "net": "1gbe", "gpu": "v100", "method": "spd_kfac"}


@pytest.mark.parametrize(
    ("field", "written", "name"),
    [
        ("model", "ResNet50", "resnet50"),
        ("model", "RESNET-50", "resnet50"),
        ("model", "Llama3_8B", "llama3-8b"),
        ("net", "1GbE", "1gbe"),
        ("net", "DGX-H100", "dgx-h100"),
        ("intra_net", "NVLink-V100", "nvlink-v100"),
        ("node", "DGX A100", "dgx-a100"),
        ("gpu", "A100_40GB", "a100-40gb"),
        ("gpu", "RTX 4090", "rtx4090"),
        ("gpu", "A100-SXM4-80GB", "a100"),
        ("gpu", "NVIDIA H100 80GB HBM3", "h100"),
        ("precision", "AMP-FP16", "amp-fp16"),
        ("library", "Gloo", "gloo"),
        ("fusion", "MG-WFBP", "mgwfbp"),
        ("method", "SPD-KFAC", "spd_kfac"),
    ],
)
def test_however_a_name_is_written_the_answer_is_that_of_the_name(
    field: str, written: str, name: str
) -> None:
    asked = ASKED if field != "node" else {"model": "resnet50", "gpus": 16}
    asked = asked | {"gpu": "h100"} if name == "dgx-h100" else asked
    found, usual = (
        predict(make_scenario(asked | {field: text}), SHIPPED) for text in (written, name)
    )
    assert found.to_dict() == usual.to_dict()
    assert getattr(found.scenario, field, name) == name


@pytest.mark.parametrize(
    ("field", "written", "word"),
    [
        ("precision", "BF16", "amp-bf16"),
        ("precision", "amp fp16", "amp-fp16"),
        ("software", "Torch 1.8", "torch1.8"),
        ("library", "NCCL", "nccl"),
        ("algorithm", "Halving-Doubling", "halving_doubling"),
        ("protocol", "LL128", "ll128"),
        ("fusion", "MG-WFBP", "mgwfbp"),
        ("optimizer", "AdamW", "adamw"),
        ("recompute", "Full", "full"),
        ("reduce_dtype", "BF16", "bf16"),
        ("schedule", "ZB-H1", "zb-h1"),
        ("dispatcher", "DeepEP", "deepep"),
        ("cp_comm", "Ulysses", "ulysses"),
        ("input", "Storage", "storage"),
    ],
)
def test_a_word_of_choice_is_taken_in_any_case(field: str, written: str, word: str) -> None:
    assert getattr(make_scenario(ASKED | {field: written}), field) == word
    with pytest.raises(RequestError) as caught:
        make_scenario(ASKED | {field: f"{written}x"})
    assert (caught.value.field, caught.value.value) == (field, f"{written}x")
    assert f"no '{written}x'" in str(caught.value)


def test_every_field_whose_help_lists_words_takes_them_by_one_rule() -> None:
    """Those of one word; `metavar` WORD, NAME, ERA and POLICY say that a field is one."""
    of_words = {
        name
        for name, field in SCENARIO_FIELDS.items()
        if field.metavar in ("WORD", "NAME", "ERA", "POLICY") and field.complete != "models"
    }
    by_files = {"model", "gpu", "net", "intra_net", "node", "precision"}
    by_files |= {"software"}  # an era, and a kernel of attention behind it: `software_named`
    assert {name for name in of_words - by_files if SCENARIO_FIELDS[name].words is None} == set()


def test_no_two_names_that_ship_are_told_apart_by_case_or_dashes_alone() -> None:
    models = {name.split(".")[0] for name in SHIPPED.files("models")} | {*MODELS, *NAMED}
    networks = {*SHIPPED.files("networks"), *SHIPPED.files("nodes")}
    for names in (models, networks, SHIPPED.files("devices"), method_names()):
        assert Counter(map(plain_name, names)).most_common(1)[0][1] == 1


@pytest.mark.parametrize(
    "words",
    [
        "show model ResNet50",
        "show net 1GbE",
        "show node DGX-H100",
        "show gpu V100",
        "sweep --model ResNet50 --gpus 4 --vary net=1GbE,10GBE",
        "plan --model GPT2 --dataset 3e9tokens --epochs 1 --counts 8 --nets 10GbE",
    ],
)
def test_every_command_takes_them(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert code(words.split()) == 0
    assert "no '" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": "ResNet5O"}, "model: no 'ResNet5O'; did you mean 'resnet50'?"),
        ({"model": "./ResNet50"}, "model: no './ResNet50'; did you mean 'resnet50'?"),
        ({"model": "--"}, "model: no '--'"),
        ({"net": "1GbE.toml"}, "net: there is no file '1GbE.toml'"),
        ({"net": "1 Gbe/s"}, "net: '1 Gbe/s' is not a rate"),
    ],
)
def test_paths_and_links_are_read_as_they_are_written(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError) as refused:
        predict(make_scenario({"model": "resnet50", "gpus": 16} | fields), SHIPPED)
    assert str(refused.value).startswith(said)


def test_own_files_are_named_exactly_where_two_are_alike(tmp_path: Path) -> None:
    (tmp_path / "networks").mkdir()
    text = (Path(__file__).parent / "templates" / "mynet.toml").read_text()
    for name in ("Lab", "lab"):
        own = tmp_path / "networks" / f"{name}.toml"
        own.write_text(text.replace("mynet", name))
    session = Session(str(tmp_path))
    for name in ("Lab", "lab"):
        asked = make_scenario({"model": "resnet50", "gpus": 8, "net": name})
        assert resolve(asked, session).network.name == name
    with pytest.raises(RequestError, match="net: no 'LAB'"):
        resolve(make_scenario({"model": "resnet50", "gpus": 8, "net": "LAB"}), session)
