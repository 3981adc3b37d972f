"""What each method says of both levels, inside a node and across nodes, beside what it sends."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import pytest

from perfsim.errors import RequestError
from perfsim.inventory import describe_thing
from perfsim.methods import load_method, method_class, method_names
from perfsim.methods.base import ONE_GROUP, Group, MethodContext, Send
from support.builders import bucket, profile
from support.what_ships import SHIPPED

NODES, EACH = 2, 4


def groups(name: str, options: dict[str, Any]) -> set[Group]:
    """Return who takes part in a method's collectives of matrices and vectors on two nodes of four.

    They are large enough that no method sends them as they are.
    """
    method = load_method(name, options)
    made = profile([(1024, 512), 1024, (512, 1024)], [0.010, 0.020, 0.030])
    world = MethodContext(NODES * EACH, NODES, EACH, profile=made)
    buckets = [bucket(one) for one in made.gradients]
    return {
        stage.group
        for rounds in method.rounds()
        for iteration in rounds.iterations
        for job in method.jobs(buckets, world, iteration)
        for stage in job.stages
        if isinstance(stage, Send)
    }


def other_values(name: str) -> list[tuple[str, Any]]:
    """Return each option with each of its choices that is not its default."""
    found: list[tuple[str, Any]] = []
    for option, field in method_class(name).model_fields.items():
        choices: tuple[Any, ...] = (False, True) if field.annotation is bool else ()
        if get_origin(field.annotation) is Literal:
            choices = get_args(field.annotation)
        found += [(option, value) for value in choices if value != field.default]
    return found


@pytest.mark.parametrize("name", method_names())
def test_a_method_says_what_it_does_inside_a_node_and_across_nodes(name: str) -> None:
    said, found = method_class(name).levels, groups(name, {})
    assert found
    assert said.startswith(ONE_GROUP) == (found == {"all"}), (said, found)
    assert "inside" in said and "across" in said
    assert said[-1].isalpha(), "a sentence without its full stop"
    if load_method(name, {}).sites_are_nodes:
        assert "site" in said


@pytest.mark.parametrize("name", method_names())
def test_options_that_change_it_are_named(name: str) -> None:
    said, usual = method_class(name).levels, groups(name, {})
    for option, value in other_values(name):
        try:
            found = groups(name, {option: value})
        except RequestError:
            continue  # an option that others must go with
        if (found == {"all"}) != (usual == {"all"}):
            assert option in said, f"{name} with {option}={value} sends among {found}: {said}"
        if load_method(name, {option: value}).sites_are_nodes:
            assert "site" in said


def test_the_page_of_a_method_shows_it() -> None:
    shown = describe_thing("method", "diloco", SHIPPED).to_dict()["levels"]
    assert shown == method_class("diloco").levels
