"""All-reduces in two levels: along the rows of a grid of ranks, and along its columns."""

from __future__ import annotations

from perfsim.methods.base import (
    JobStage,
    MethodContext,
    Send,
)

__all__ = ["in_rows_and_columns", "uneven_nodes"]


def uneven_nodes(world: MethodContext) -> str:
    """Return why the ranks form no grid of nodes and local ranks, or ""."""
    if world.ranks == world.nodes * world.gpus_per_node:
        return ""
    unit = world.node_word
    where = "at" if unit == "site" else "on"
    return (
        f"needs as many GPUs {where} every {unit}, not {world.ranks} {where} {world.nodes} {unit}s"
    )


def in_rows_and_columns(
    size_bytes: float, row: int, column: int, *, split: bool = False, algorithm: str = "auto"
) -> list[JobStage]:
    """Return the calls that all-reduce a buffer on a grid whose rows are neighbouring ranks.

    The buffer is reduce-scattered along the row, the part that is left is all-reduced along the
    column, and an all-gather follows along the row. With ``split`` the all-reduce is a
    reduce-scatter and an all-gather. A grid of one row or one column needs one all-reduce only.

    Examples
    --------
    >>> [(send.collective, send.size_bytes) for send in in_rows_and_columns(8.0, 4, 2)]
    [('reduce_scatter', 8.0), ('all_reduce', 2.0), ('all_gather', 8.0)]
    >>> [send.collective for send in in_rows_and_columns(8.0, 1, 8)]
    ['all_reduce']
    """
    if row == 1 or column == 1:
        return [Send("all_reduce", size_bytes)]
    part, down = size_bytes / row, (column, row)
    middle: list[JobStage] = [Send("all_reduce", part, group=down, algorithm=algorithm)]
    if split:
        middle = [Send("reduce_scatter", part, group=down), Send("all_gather", part, group=down)]
    return [
        Send("reduce_scatter", size_bytes, group=row),
        *middle,
        Send("all_gather", size_bytes, group=row),
    ]
