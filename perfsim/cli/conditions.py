"""Flags of what-ifs on conditions: slow GPUs, computation that varies, other traffic."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from perfsim.cli import complete

__all__ = ["Background", "Beside", "Jitter", "Seed", "Straggler"]

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
Beside: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SCENARIO",
        help="Another job that sends over the same links between nodes: its scenario file, or a"
        " shipped one. Says how much each slows down: bert.toml. May be repeated.",
        autocompletion=complete.scenarios,
    ),
]
Seed: TypeAlias = Annotated[
    str | None, typer.Option(metavar="N", help="Of the draws of --jitter.", show_default="0")
]
