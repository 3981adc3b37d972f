"""Placement: how GPUs are spread over nodes, and what does not fit."""

from __future__ import annotations

import pytest

from perfsim.errors import RequestError
from perfsim.network.cluster import place


def test_placement_by_hand() -> None:
    assert place(8, 4, None) == (4, 4)
    assert place(6, None, None) == (3, 3)  # 4, cut to a divisor of 6
    assert place(16, None, None, 8) == (8, 8)  # what the network file states
    assert place(8, None, (3, 5), 4) == (3, 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, None, None), "--gpus: 0 is not a number of GPUs; at least 1."),
        ((8, 0, None), "--gpus-per-node: 0 is not a number of GPUs; at least 1."),
        (
            (10, 4, None),
            "--gpus-per-node: 10 GPUs do not divide by 4; allowed for 10: 1, 2, 5, 10, or"
            " --placement for uneven nodes.",
        ),
        (
            (8, None, (3, 4)),
            "--placement: '3,4' places 7 GPUs, --gpus says 8; the two must agree.",
        ),
        (
            (8, None, (8, 0)),
            "--placement: '8,0' has a node without a GPU; give at least 1 for every node.",
        ),
        (
            (8, 4, (3, 5)),
            "--gpus-per-node: 4 contradicts --placement '3,5'; give one of the two.",
        ),
    ],
)
def test_placement_that_does_not_fit(
    arguments: tuple[int, int | None, tuple[int, ...] | None], message: str
) -> None:
    with pytest.raises(RequestError) as error:
        place(*arguments)
    assert str(error.value) == message
