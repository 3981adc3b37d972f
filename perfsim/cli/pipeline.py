"""``perfsim pipeline``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfsim.cli.flags import JsonFlag, OutFlag
from perfsim.cli.output import print_answer

__all__ = ["pipeline_command"]


def pipeline_command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Pipeline file (TOML, schema perfsim/pipeline/1): stages, the links between them,"
            " micro-batches.",
        ),
    ],
    out: OutFlag = None,
    json: JsonFlag = False,
) -> None:
    """Predict an iteration of a pipeline over slow links, with dense or Top-k messages.

    FILE holds schema = "perfsim/pipeline/1", micro_batches and reduction, a [[stage]] table for
    each stage (forward, backward) and a [[link]] table from each stage to the next (rate, latency,
    activation), all with units.
    """
    from perfsim.pipeline import predict_pipeline, read_pipeline

    answer = predict_pipeline(read_pipeline(file))
    print_answer(answer.to_dict, out, json, lambda: typer.echo(answer.text()))
