"""``perfsim predict``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from perfsim.cli.options import (
    BackgroundFlag,
    BesideFlag,
    ChakraFlag,
    HtmlFlag,
    JitterFlag,
    JsonFlag,
    OutFlag,
    PngFlag,
    ProfilesFlag,
    SeedFlag,
    StragglerFlag,
    TimelineFlag,
    TraceFlag,
    answer,
    complete_fusions,
    complete_gpus,
    complete_methods,
    complete_models,
    complete_networks,
    complete_scenarios,
    naming,
    progress,
    ranking_of,
    scenario_fields,
)
from perfsim.cli.output import Outputs
from perfsim.errors import RequestError

if TYPE_CHECKING:
    from perfsim.data.catalog import Catalog
    from perfsim.prediction import Prediction
    from perfsim.ranking import Ranking
    from perfsim.scenario import Scenario
    from perfsim.session import Session

__all__ = [
    "Reports",
    "ScenarioFlags",
    "predict_command",
    "scenario_command",
    "timeline_png",
    "trace",
]

SHOWN = 5
"""Methods of a ranking that its page shows, beside the baseline."""


class Reports:
    """The reports that are asked for."""

    def __init__(self, timeline: bool, outputs: Outputs) -> None:
        self.timeline, self.outputs = timeline, outputs

    def check(self, json: bool) -> None:
        """Refuse what cannot be, before anything is predicted.

        Raises
        ------
        RequestError
            If ``--timeline`` comes with ``--json``, or a file could not be written.
        """
        if self.timeline and json:
            raise RequestError(
                "--timeline: it is text for a terminal; leave out --json, or take --trace FILE."
            )
        self.outputs.check()

    def write(
        self,
        prediction: Prediction,
        scenario: Scenario,
        catalog: Catalog,
        ranking: Ranking | None = None,
    ) -> None:
        """Write the files; ``scenario`` is what was asked, a ranking where that was for all."""

        def page() -> str:
            return _page(prediction, scenario, catalog, ranking)

        def out() -> str:
            from perfsim.report.terminal import json_text

            return json_text((ranking or prediction).to_dict()) + "\n"

        self.outputs.write(
            trace=lambda: trace(prediction),
            chakra=lambda: chakra(prediction),
            png=lambda: timeline_png(prediction),
            html=page,
            out=out,
        )

    def show(self, prediction: Prediction, ranking: Ranking | None = None) -> None:
        """Print the answer, and the text timeline if that is asked for."""
        from perfsim.report.terminal import print_lines, print_prediction

        if ranking is not None:
            from perfsim.report.planning import print_ranking

            print_ranking(ranking)
        print_prediction(prediction)
        if self.timeline:
            from perfsim.report.timeline import text_timeline

            print()
            key, *lines = text_timeline(prediction)
            print_lines([key], most=80)
            print("\n".join(lines))


def trace(prediction: Prediction) -> str:
    """Return a prediction's trace as text."""
    from perfsim.report.chrome_trace import trace_of, trace_text

    return trace_text(trace_of(prediction))


def chakra(prediction: Prediction) -> str:
    """Return a prediction's Chakra trace as text."""
    from perfsim.report.chakra import chakra_text

    return chakra_text(prediction)


def timeline_png(prediction: Prediction) -> bytes:
    """Return a prediction's timeline as a PNG."""
    from perfsim.report.html.figure import figure_label, png_of
    from perfsim.report.html.pages import title_of
    from perfsim.report.html.prediction_figures import timeline_figure
    from perfsim.units import format_seconds

    words = f"{title_of(prediction)}: {format_seconds(prediction.iteration_s)} an iteration"
    return png_of(timeline_figure(prediction), figure_label(words))


def _page(
    prediction: Prediction, scenario: Scenario, catalog: Catalog, ranking: Ranking | None
) -> str:
    from perfsim.methods.describe import for_method
    from perfsim.planning.neighbours import report_context
    from perfsim.report.html.pages import prediction_page

    names = None
    notes: list[str] = []
    if ranking is not None:
        scenario = for_method(scenario, ranking.winner)[0]
        names = list(ranking.predictions)[:SHOWN]
        notes = [ranking.verdict()]
    with progress() as tell:
        near = report_context(scenario, prediction, catalog, names, tell)
    return prediction_page(prediction, near, notes)


def predict_command(
    model: Annotated[
        str | None,
        typer.Option(
            help="Model, such as resnet50 (`perfsim list models`).", autocompletion=complete_models
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
            autocompletion=complete_networks,
            show_default="10gbe",
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="Training method (`perfsim list methods`); auto ranks all that apply.",
            autocompletion=complete_methods,
            show_default="ssgd",
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            help="GPU (`perfsim list gpus`); of several types in one job how many of each, whole"
            " nodes in that order: v100:16,p100:16.",
            autocompletion=complete_gpus,
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
            autocompletion=complete_networks,
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
            autocompletion=complete_fusions,
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
    straggler: StragglerFlag = None,
    jitter: JitterFlag = None,
    background: BackgroundFlag = None,
    beside: BesideFlag = None,
    seed: SeedFlag = None,
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
            autocompletion=complete_scenarios,
        ),
    ] = None,
    profiles: ProfilesFlag = None,
    timeline: TimelineFlag = False,
    trace: TraceFlag = None,
    chakra: ChakraFlag = None,
    html: HtmlFlag = None,
    png: PngFlag = None,
    out: OutFlag = None,
    json: JsonFlag = False,
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


SHARED = ("set_", "scenario", "profiles", "out", "json")
"""What such a command takes of ``predict`` besides the flags that are fields of a scenario."""

NOT_SHARED = ("timeline", "trace", "chakra", "html", "png")
"""Flags of ``predict`` that are no fields of a scenario and that not every command has."""


@dataclass(frozen=True)
class ScenarioFlags:
    """The flags of a scenario as they were given."""

    flags: dict[str, Any]
    pairs: list[str]
    scenario: str | None
    profiles: str | None

    def fields(self, **defaults: Any) -> tuple[dict[str, Any], list[str]]:
        """Return the scenario's fields, flags over file over ``defaults``, and notes on that."""
        from perfsim.data.catalog import Catalog

        found, notes = scenario_fields(
            Catalog(self.profiles), self.scenario, self.flags, self.pairs
        )
        return defaults | found, notes


def scenario_command(
    command: Callable[..., None], words: Mapping[str, str] | None = None
) -> Callable[..., None]:
    """Return a command with the flags of ``predict``; it is called with ``ScenarioFlags`` and the rest.

    The rest are ``out`` and ``json``, and the parameters that ``command`` has of its own. ``words``
    is the help of flags that mean something else here than in ``predict``.
    """
    own = inspect.signature(command, eval_str=True).parameters
    base = inspect.signature(predict_command, eval_str=True).parameters
    # The fields are not read off Scenario: pydantic would be loaded for every --help.
    flags = [name for name in base if name not in SHARED + NOT_SHARED]
    taken = [base[name] for name in base if name in flags or name in SHARED]
    taken = [_reworded(one, (words or {}).get(one.name)) for one in taken]
    added = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, one in own.items()
        if name not in ("asked", *flags, *SHARED)
    ]
    place = next(at for at, one in enumerate(taken) if one.name == "profiles")
    # All by keyword, as Typer calls it.
    parameters = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for one in (*taken[:place], *added, *taken[place:])
    ]

    def wrapped(**given: Any) -> None:
        asked = ScenarioFlags(
            # A flag that may be repeated and is not given is an empty list.
            {name: None if (value := given.pop(name)) == [] else value for name in flags},
            given.pop("set_") or [],
            given.pop("scenario"),
            given.pop("profiles"),
        )
        command(asked, **given)

    wrapped.__doc__ = command.__doc__
    wrapped.__name__ = command.__name__
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {one.name: one.annotation for one in parameters}
    return wrapped


def _reworded(parameter: inspect.Parameter, help_: str | None) -> inspect.Parameter:
    """Return a flag with another help, which tells its default too."""
    if help_ is None:
        return parameter
    kind, option = get_args(parameter.annotation)
    option = copy(option)
    option.help, option.show_default = help_, False
    return parameter.replace(annotation=Annotated[kind, option])
