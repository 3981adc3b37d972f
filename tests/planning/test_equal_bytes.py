"""Equal bytes: what each compressor is set to, and what cannot be set."""

from __future__ import annotations

import pytest

from perfsim.errors import RequestError
from perfsim.methods import method_class, method_names
from perfsim.methods.base import COMPRESSING
from perfsim.planning.compare import Comparison, compare
from perfsim.planning.equal_bytes import MAX_OFF
from perfsim.scenario import make_scenario

FIELDS = {"model": "resnet50", "gpus": 16, "net": "10gbe"}


def compared(measure: str, methods: str, **options: object) -> Comparison:
    return compare(make_scenario(FIELDS), methods, options=options, equal_bytes=measure)


def sent(found: Comparison) -> dict[str, float]:
    return {
        name: one.communication["bytes_per_gpu"] for name, one in found.ranking.predictions.items()
    }


# By hand


def test_top_k_sends_a_hundredth_of_ssgd_at_a_density_by_hand() -> None:
    found = compared("100", "ssgd,topk")
    # 2 x 15/16 x 4 n / 100 bytes are 15 x 8 k: k / n is 1/1600.
    density = found.ranking.predictions["topk"].scenario.options["density"]
    assert density == pytest.approx(1 / 1600, rel=0.02)


def test_what_does_not_compress_is_named_with_what_it_sends() -> None:
    note = compared("dgc", "ssgd,dgc,topk,localsgd").notes[1]
    assert getattr(note, "grade", "") == "warning"
    assert "sets compressors of gradients alone: localsgd 24 MB." in note
    assert not any(
        "compressors of gradients alone" in one for one in compared("dgc", "ssgd,dgc,topk").notes
    )
    measure = compared("local-SGD", "ssgd,localsgd,topk")  # it sets the bytes itself
    assert not any("compressors of gradients alone" in one for one in measure.notes)


# By law


@pytest.mark.parametrize("measure", ["dgc", "20", "100"])
def test_compressors_send_about_as_much_and_others_are_as_they_were(measure: str) -> None:
    methods = "ssgd,topk,dgc,sidco,randk,powersgd,acpsgd,wfbp"
    found, free = sent(compared(measure, methods)), sent(compare(make_scenario(FIELDS), methods))
    target = free["dgc"] if measure == "dgc" else free["ssgd"] / float(measure)
    for name, bytes_sent in found.items():
        if method_class(name).family in COMPRESSING:
            assert target / MAX_OFF <= bytes_sent <= target * MAX_OFF, name
            if name in ("topk", "sidco", "randk"):
                assert bytes_sent == pytest.approx(target, rel=0.02)
        else:
            assert bytes_sent == free[name]


@pytest.mark.parametrize("ratio", [4, 8, 100])
def test_no_compressor_is_ranked_at_other_bytes(ratio: int) -> None:
    """Of intsgd there are 8 and 32 bits, and dgc_k keeps 1 % at most: near, or left out."""
    names = [name for name in method_names() if method_class(name).family in COMPRESSING]
    found = compared(str(ratio), ",".join(["ssgd", *names]))
    target = sent(found)["ssgd"] / ratio
    for name in names:
        if name not in found.ranking.refused:
            assert target / MAX_OFF <= sent(found)[name] <= target * MAX_OFF, name
    assert ("intsgd" in found.ranking.refused) is (ratio != 4)
    assert ("dgc_k" in found.ranking.refused) is (ratio == 4)


def test_the_note_names_what_each_sends_and_rows_show_what_was_set() -> None:
    found = compared("dgc", "ssgd,topk,dgc,powersgd")
    assert any("what dgc sends" in note and "powersgd" in note for note in found.notes)
    settings = {one.method: one.compression for one in found.standings()}
    assert settings["dgc"] == "0.1%" and settings["ssgd"] == ""
    assert settings["powersgd"].startswith("rank ") and settings["topk"].endswith("%")


# Bad input


def test_a_method_that_cannot_send_as_much_is_left_out_with_the_reason() -> None:
    found = compared("100", "ssgd,topk,qsgd,signsgd")
    assert set(found.ranking.predictions) == {"ssgd", "topk"}
    assert "bits 2" in found.ranking.refused["qsgd"]
    assert found.ranking.refused["signsgd"] == "has no density, rank or bits to set"


@pytest.mark.parametrize(
    ("measure", "options", "words"),
    [
        ("dcg", {}, "did you mean 'dgc'"),
        ("powersgd", {}, "not among the methods compared"),
        ("0", {}, "1 to 1,000,000"),
        ("nan", {}, "1 to 1,000,000"),
        ("100", {"density": 0.01}, "leave options density out"),
    ],
)
def test_a_measure_that_is_none_is_one_clear_sentence(
    measure: str, options: dict[str, float], words: str
) -> None:
    with pytest.raises(RequestError, match="equal_bytes") as caught:
        compared(measure, "ssgd,topk,dgc", **options)
    assert words in str(caught.value)
