"""Flags of what-ifs on conditions: slow GPUs, computation that varies, other traffic."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

__all__ = ["Background", "Jitter", "Seed", "Straggler"]

Straggler: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="GPUS:FACTOR",
        help="So many GPUs that compute this many times slower: 1:1.5. May be repeated.",
    ),
]
Jitter: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="SHARE",
        help="Standard deviation of each GPU's computation from iteration to iteration, relative:"
        " 5%.",
    ),
]
Background: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="SHARE", help="Share of the network between nodes that other traffic takes: 30%."
    ),
]
Seed: TypeAlias = Annotated[
    str | None, typer.Option(metavar="N", help="Of the draws of --jitter.", show_default="0")
]
