"""``perfsim predict``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfsim.cli import complete
from perfsim.cli.conditions import Background, Beside, Jitter, Seed, Straggler
from perfsim.cli.options import (
    Chakra,
    Html,
    Json,
    Out,
    Png,
    Profiles,
    Timeline,
    Trace,
    answer,
    naming,
    ranking_of,
    scenario_fields,
)
from perfsim.cli.outputs import Outputs
from perfsim.cli.reports import Reports

if TYPE_CHECKING:
    from perfsim.prediction import Prediction
    from perfsim.ranking import Ranking
    from perfsim.scenario import Scenario
    from perfsim.session import Session

__all__ = ["predict_command"]


def predict_command(
    model: Annotated[
        str | None,
        typer.Option(
            help="Model, such as resnet50 (`perfsim list models`).", autocompletion=complete.models
        ),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(metavar="N", help="GPUs in all.", show_default="those of --gpu, if counted"),
    ] = None,
    net: Annotated[
        str | None,
        typer.Option(
            help="Network between nodes: a name such as 1gbe, 10gbe, ib100 (`perfsim list"
            " networks`) or rate,latency such as 10Gbit/s,50us.",
            autocompletion=complete.networks,
            show_default="10gbe",
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="Training method (`perfsim list methods`); auto ranks all that apply.",
            autocompletion=complete.methods,
            show_default="ssgd",
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            help="GPU (`perfsim list gpus`); of several types in one job how many of each, whole"
            " nodes in that order: v100:16,p100:16.",
            autocompletion=complete.gpus,
            show_default="v100",
        ),
    ] = None,
    gpus_per_node: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="GPUs of a node; must divide --gpus.",
            show_default="what the network states, or 4",
        ),
    ] = None,
    placement: Annotated[
        str | None, typer.Option(help="GPUs on each node when nodes are uneven, such as 3,5.")
    ] = None,
    intra_net: Annotated[
        str | None,
        typer.Option(
            help="Network inside a node: pcie3, nvlink, ... or rate,latency.",
            autocompletion=complete.networks,
            show_default="the network's own, or pcie3",
        ),
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(metavar="N", help="Samples a GPU.", show_default="that of the profile"),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="fp32, tf32, amp-fp16 or amp-bf16.", show_default="that of the profile"),
    ] = None,
    single_gpu: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|RATE",
            help="Iteration on one GPU as you measured it, with a unit: 253ms, or 126samples/s.",
            show_default="what profile and measured iterations say",
        ),
    ] = None,
    single_gpu_kernels: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="What the method's kernels add to it on one GPU, as you measured it: 10ms.",
            show_default="what device files say",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Option of the method, such as density=0.01; fusion.NAME=VALUE for the fusion"
            " policy's. May be repeated.",
        ),
    ] = None,
    fusion: Annotated[
        str | None,
        typer.Option(
            help="How gradients are fused into messages (`perfsim list fusion`).",
            autocompletion=complete.fusions,
            show_default="the method's own, or size",
        ),
    ] = None,
    bucket: Annotated[
        str | None,
        typer.Option(
            help="Bucket size, such as 25MiB.",
            show_default="the policy's own; size: 25MiB after a first bucket of 1MiB",
        ),
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            help="All-reduce algorithm: auto, ring, tree, hierarchical, ... (`perfsim list"
            " collectives`).",
            show_default="auto",
        ),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="NCCL's protocol, as NCCL_PROTO fixes it: auto, ll, ll128, simple.",
            show_default="auto",
        ),
    ] = None,
    library: Annotated[
        str | None,
        typer.Option(
            help="Communication library: nccl, gloo, mpi.",
            show_default="the one that the network was measured with",
        ),
    ] = None,
    oversubscription: Annotated[
        float | None,
        typer.Option(
            metavar="RATIO",
            help="Uplinks this many times narrower than the NICs below them, every node a leaf of"
            " its own: the worst case of that ratio.",
        ),
    ] = None,
    straggler: Straggler = None,
    jitter: Jitter = None,
    background: Background = None,
    beside: Beside = None,
    seed: Seed = None,
    overlap: Annotated[
        bool | None,
        typer.Option(
            "--overlap/--no-overlap",
            help="Whether communication runs beside the backward pass.",
            show_default="overlap",
        ),
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(
            help="Scenario file (TOML) or shipped scenario; flags override it.",
            autocompletion=complete.scenarios,
        ),
    ] = None,
    profiles: Profiles = None,
    timeline: Timeline = False,
    trace: Trace = None,
    chakra: Chakra = None,
    html: Html = None,
    png: Png = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Predict one iteration: its time and interval, where it goes, what holds it back, and why."""
    from perfsim.scenario import make_scenario
    from perfsim.session import Session

    reports = Reports(timeline, Outputs(out=out, trace=trace, chakra=chakra, html=html, png=png))
    reports.check(json)
    catalog = Session(profiles)
    flags = {
        "model": model,
        "gpus": gpus,
        "net": net,
        "method": method,
        "gpu": gpu,
        "gpus_per_node": gpus_per_node,
        "placement": placement,
        "intra_net": intra_net,
        "batch": batch,
        "precision": precision,
        "single_gpu": single_gpu,
        "single_gpu_kernels": single_gpu_kernels,
        "fusion": fusion,
        "bucket": bucket,
        "algorithm": algorithm,
        "protocol": protocol,
        "library": library,
        "oversubscription": oversubscription,
        "straggler": straggler or None,
        "jitter": jitter,
        "background": background,
        "beside": beside or None,
        "seed": seed,
        "overlap": overlap,
    }
    fields, notes = scenario_fields(catalog, scenario, flags, set_ or [])
    with naming(scenario):
        asked = make_scenario(fields)
        prediction, ranking = _predicted(asked, catalog)
        if scenario is not None:
            _tell(prediction, notes, scenario, catalog, None if ranking else fields)
    reports.write(prediction, asked, catalog, ranking)
    answer((ranking or prediction).to_dict(), None, json, lambda: reports.show(prediction, ranking))


def _predicted(asked: Scenario, catalog: Session) -> tuple[Prediction, Ranking | None]:
    """Return the prediction; for method auto the fastest one's, and the ranking."""
    from perfsim.prediction import predict

    ranking = ranking_of(asked, catalog)
    return ranking.predictions[ranking.winner] if ranking else predict(asked, catalog), ranking


def _tell(
    prediction: Prediction,
    notes: list[str],
    scenario: str,
    catalog: Session,
    fields: dict[str, Any] | None,
) -> None:
    """Add what is to be said of a scenario file: its notes first, what is claimed of it last."""
    from perfsim.validate.claims import claim_notes

    prediction.notes[:0] = notes
    prediction.notes += claim_notes(scenario, catalog, fields)
