"""Scenarios over several sites: what they say, what they cost, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfsim.errors import RequestError
from perfsim.methods import method_names
from perfsim.prediction import Prediction, predict
from perfsim.scenario import make_scenario
from perfsim.scenario_file import read_fields
from perfsim.session import Session

SESSION = Session()
WAN = "1Gbit/s,60ms"
BASE: dict[str, Any] = {"model": "resnet50", "gpu": "v100", "net": "10gbe", "gpus_per_node": 2}


def answer(**fields: Any) -> Prediction:
    return predict(make_scenario(BASE | fields), SESSION)


def plain(prediction: Prediction) -> dict[str, Any]:
    """Return the JSON without what names sites."""
    result = prediction.to_dict()
    for name in ("site", "wan"):
        result["scenario"].pop(name, None)
    for listed in ("notes", "warnings"):
        result[listed] = [note for note in result[listed] if "site" not in note]
    return result


@pytest.mark.parametrize("method", ["ssgd", "diloco", "hierarchical", "topk"])
def test_one_site_is_the_cluster_without_sites(method: str) -> None:
    alone = answer(method=method, gpus=8)
    one = answer(method=method, site=(8,), wan=WAN)
    assert json.dumps(plain(one)) == json.dumps(plain(alone))


def test_a_scenario_without_sites_says_nothing_of_them() -> None:
    assert not {"site", "wan"} & answer(gpus=8).to_dict()["scenario"].keys()


def test_gpus_are_counted_at_sites_and_both_fields_are_told() -> None:
    asked = answer(site=(4, 2, 6), wan=WAN).to_dict()["scenario"]
    assert asked["gpus"] == 12
    assert (asked["site"], asked["wan"]) == ([4, 2, 6], WAN)
    assert (asked["nodes"], asked["gpus_per_node"]) == (6, 2)


def test_a_file_says_the_same_as_fields(tmp_path: Path) -> None:
    path = tmp_path / "far.toml"
    path.write_text(
        'schema = "perfsim/scenario/1"\ntitle = "far"\n[scenario]\nmodel = "resnet50"\n'
        'gpu = "v100"\nnet = "10gbe"\ngpus_per_node = 2\nsite = [4, 4]\n'
        'wan = ["1Gbit/s,60ms", "200Mbit/s,20ms"]\n'
    )
    read = predict(make_scenario(read_fields(path)), SESSION)
    given = answer(site="4,4", wan="1Gbit/s,60ms;200Mbit/s,20ms")
    assert read.to_dict() == given.to_dict()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"site": (4, 4)}, "site: needs wan"),
        ({"wan": WAN}, "wan: needs site"),
        ({"wan": WAN, "gpus": 8}, "wan: needs site"),
        ({"site": (4, 4), "wan": WAN, "gpus": 9}, "site: 8 GPUs at 2 sites, gpus says 9"),
        ({"site": (4, 0), "wan": WAN}, "site without a GPU"),
        ({"site": (), "wan": WAN, "gpus": 1}, "site without a GPU"),
        ({"site": "4,x", "wan": WAN}, "not a list of GPUs at each site"),
        ({"site": [True, 4], "wan": WAN, "gpus": 5}, "a list of whole numbers"),
        ({"site": (1,) * 257, "wan": WAN}, "257 sites are not allowed"),
        ({"site": (4, 4, 4), "wan": f"{WAN};{WAN}"}, "2 links for 3 sites"),
        ({"site": (4, 4), "wan": "60"}, "a bare number has no unit"),
        ({"site": (4, 4), "wan": 60, "gpus": 8}, "wan"),
        ({"site": (4, 3), "wan": WAN}, "gpus_per_node: the 3 GPUs of site 2 do not divide by 2"),
        (
            {"site": (4, 4), "wan": WAN, "gpus_per_node": None, "placement": (3, 3, 2)},
            "placement: its nodes do not fill site 1 of 4 GPUs",
        ),
        (
            {"site": (4, 2), "wan": WAN, "method": "streaming_diloco"},
            "needs as many GPUs at every site, not 6 at 2 sites",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError) as refused:
        answer(**fields)
    assert words in str(refused.value)


def test_a_worker_of_diloco_is_a_site() -> None:
    """Two sites of two nodes exchange once; as nodes without sites four workers would."""
    far = answer(
        site=(4, 4), wan="1Gbit/s,5ms", method="diloco", options={"interval": 1}, fusion="whole"
    )
    # 2 (N-1)/N n between N = 2 sites of one sender each: n over 125 MB/s, where 4 nodes had 3/2 n.
    values = 25_557_032 * 4
    inside = answer(gpus=4, method="ssgd").iteration_s
    assert values / 125e6 < far.iteration_s < values / 125e6 + 2 * inside
    assert any("A site takes the place of a node" in note for note in far.notes)
    assert any("ping) is 10 ms" in note for note in far.notes)


def test_every_method_works_over_sites_or_says_why_not() -> None:
    refused = []
    for method in method_names():
        try:
            there = answer(site=(4, 4), wan="1Gbit/s,30ms", method=method)
        except RequestError as error:
            refused.append(f"{method}: {error}")
            continue
        assert there.iteration_s >= answer(gpus=8, method=method).iteration_s
    assert not refused


def test_tcp_is_told_where_it_holds_a_connection() -> None:
    lossy = answer(site=(4, 4), wan="1Gbit/s,60ms,loss=0.1%,flows=2")
    assert any("TCP holds a connection between two sites" in note for note in lossy.notes)
    quiet = answer(site=(4, 4), wan="100Mbit/s,1ms")
    assert not any("TCP holds" in note or "TCP flow" in note for note in quiet.notes)


@pytest.mark.parametrize("layout", ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"])
def test_a_divided_model_crosses_where_its_layout_says(layout: str) -> None:
    """Stages at two sites send activations over them, replicas at two sites gradients."""
    fields = {"model": "gpt2", "node": "dgx-h100", "site": (8, 8), "tp": 4, "pp": 2}
    fields |= {"accumulate": 8, "gpu": None, "gpus_per_node": None, "layout": layout}
    near = predict(make_scenario(fields | {"wan": "1Gbit/s,1ms"}), SESSION).iteration_s
    slow = predict(make_scenario(fields | {"wan": "500Mbit/s,1ms"}), SESSION).iteration_s
    far = predict(make_scenario(fields | {"wan": "1Gbit/s,50ms"}), SESSION).iteration_s
    assert slow > 1.2 * near
    assert far > near + 0.1
