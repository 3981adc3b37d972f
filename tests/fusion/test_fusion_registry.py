"""Entering a fusion policy: what the decorator keeps of a function, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from perfsim import fusion
from perfsim.compute.profile import Gradient
from perfsim.errors import RequestError
from perfsim.fusion.buckets import Bucket, FusionContext, FusionPolicy


@pytest.fixture(autouse=True)
def _entered_for_a_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take what a test enters out again, here and in what was looked up meanwhile."""
    fusion.policy_names()
    monkeypatch.setattr(fusion, "_REGISTRY", dict(fusion._REGISTRY))
    fusion.policy_names.cache_clear()
    yield
    fusion.policy_names.cache_clear()


def function_in(module: str) -> FusionPolicy:
    """Return a policy that stands in a module."""

    def made_up(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
        return [Bucket.of(gradients)]

    made_up.__module__ = module
    return made_up


def test_what_is_said_of_a_policy_is_kept() -> None:
    fuse = function_in("perfsim.fusion.made_up")
    options = {"often": "how often"}
    enter = fusion.policy(
        "made_up", summary="for a test", options=options, limit_bytes=7.0, timed=True
    )
    assert enter(fuse) is fuse
    assert "made_up" in fusion.policy_names()
    found = fusion.load_policy("made_up")
    assert (found.name, found.summary) == ("made_up", "for a test")
    assert found.fuse is fuse
    assert found.options == options
    assert found.limit_bytes == 7.0
    assert found.timed is True


def test_a_policy_has_no_options_and_no_limit_unless_it_says_so() -> None:
    fusion.policy("made_up", summary="for a test")(function_in("perfsim.fusion.made_up"))
    found = fusion.load_policy("made_up")
    assert found.options == {}
    assert found.limit_bytes is None
    assert found.timed is False


def test_a_file_that_is_read_again_replaces_what_it_entered() -> None:
    for summary in ("before", "after"):
        fusion.policy("made_up", summary=summary)(function_in("perfsim.fusion.made_up"))
    assert fusion.load_policy("made_up").summary == "after"


def test_a_name_in_two_files_is_refused() -> None:
    enter = fusion.policy("size", summary="for a test")
    with pytest.raises(ValueError, match=r"^fusion size is in two files") as error:
        enter(function_in("perfsim.fusion.made_up"))
    assert str(error.value) == (
        "fusion size is in two files: perfsim.fusion.policies and perfsim.fusion.made_up"
    )


@pytest.mark.parametrize("module", ["elsewhere", "perfsim.fusion_of_mine", "__main__"])
def test_a_function_outside_the_folder_is_not_entered(module: str) -> None:
    fuse = function_in(module)
    assert fusion.policy("made_up", summary="for a test")(fuse) is fuse
    with pytest.raises(RequestError) as error:
        fusion.load_policy("made_up")
    assert error.value.value == "made_up"
