"""``perfsim plan``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfsim.cli.flags import PLURALS, EpochsOfFlag, GlobalBatchFlag, VerboseFlag
from perfsim.cli.output import Outputs, print_answer
from perfsim.cli.progress import progress
from perfsim.cli.scenario_flags import ScenarioFlags, scenario_command
from perfsim.errors import RequestError, shown

if TYPE_CHECKING:
    from perfsim.planning.capacity import Target

__all__ = ["plan_command"]

_PLAN_HELP = {
    "gpus": "GPUs in all: plan with so many only (--counts for several).",
    "method": "Training method: plan with it only (--methods for several).",
    "gpu": "GPU: plan with it only (--gpu-types for several).",
    "net": "Network between nodes: plan with it only (--nets for several).",
}
_DEFAULT_COUNTS = "8..256"


def _names(what: str) -> Any:
    """Return the option that lists the names of what is planned with."""
    return typer.Option(
        metavar="NAME,NAME,...", help=f"{what} to plan with.", show_default="the one given"
    )


@scenario_command(_PLAN_HELP)
def plan_command(
    asked: ScenarioFlags,
    out: Path | None,
    json: bool,
    dataset: Annotated[
        str,
        typer.Option(
            help="Training set: imagenet, cifar10, squad, or its size: 1281167samples, 3e9tokens."
        ),
    ],
    epochs: Annotated[
        str,
        typer.Option(
            metavar="N", help="Epochs that S-SGD needs; others by what is known of their learning."
        ),
    ],
    epochs_of: EpochsOfFlag = None,
    deadline: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Time that the training may take: 24h, 90min."),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="AMOUNT", help="What it may cost: 500usd; needs prices.")
    ] = None,
    counts: Annotated[
        str | None,
        typer.Option(
            metavar="A..B|A,B,...",
            help="GPUs in all to plan with; A..B doubles.",
            show_default=f"{_DEFAULT_COUNTS} where --gpus is not given",
        ),
    ] = None,
    gpu_types: Annotated[str | None, _names("GPUs")] = None,
    nets: Annotated[str | None, _names("Networks between nodes")] = None,
    methods: Annotated[str | None, _names("Methods")] = None,
    gpu_power: Annotated[
        str | None,
        typer.Option(metavar="POWER", help="Power of one GPU in training: 250W, for the energy."),
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Your prices (copy of profiles/prices.toml); all or none count.",
        ),
    ] = None,
    parallelism: Annotated[
        bool | None,
        typer.Option(
            "--parallelism/--no-parallelism",
            help="Search the fastest parallelism of each cluster that fits in memory: tp, pp, ...,"
            " micro-batch, recompute, sharding, each unless its flag is given.",
            show_default="where the state of the training fits nowhere otherwise",
        ),
    ] = None,
    global_batch: GlobalBatchFlag = None,
    ignore_memory: Annotated[
        bool,
        typer.Option("--ignore-memory", help="Also take what needs more memory than the GPU has."),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write a page that opens in any browser: time over cost, every choice.",
        ),
    ] = None,
    verbose: VerboseFlag = False,
) -> None:
    """Plan a training run: the cheapest and the fastest cluster and method that meet a target.

    Methods are compared by the time to S-SGD's accuracy. Those of which nothing is known for the
    model are listed apart, by iteration time only.
    """
    from perfsim.planning.capacity import find_prices, plan
    from perfsim.report.terminal import json_text
    from perfsim.session import Session

    outputs = Outputs(out=out, html=html)
    outputs.check()
    tokens = _tokens(asked) if dataset.rstrip().endswith("tokens") else None
    target = _target(dataset, epochs, epochs_of or [], deadline, budget, gpu_power, tokens)
    catalog = Session(asked.profiles)
    given = {"counts": counts, "gpu_types": gpu_types, "nets": nets, "methods": methods}
    for several, one in PLURALS.items():
        if given[several] is not None and asked.flags.get(one) is not None:
            raise RequestError(several, f"`{one}` is given too; give one of the two.")
    if counts is None and asked.flags.get("gpus") is None:
        given["counts"] = _DEFAULT_COUNTS
    scenarios = _scenarios(asked, given)
    with progress() as show_progress:
        best = plan(
            scenarios,
            target,
            find_prices(catalog, prices),
            catalog,
            show_progress,
            ignore_memory=ignore_memory,
            parallelism=parallelism,
            global_batch=global_batch,
        )

    def show() -> None:
        from perfsim.report.planning import print_plan

        print_plan(best, verbose=verbose)

    def page() -> str:
        from perfsim.report.html.pages import plan_page

        return plan_page(best)

    outputs.write(out=lambda: json_text(best.to_dict()) + "\n", html=page)
    print_answer(best.to_dict, None, json, show)


def _tokens(asked: ScenarioFlags) -> int | None:
    """Return the tokens a sample of the model that is asked for; None where it takes none."""
    from perfsim.compute.profile import own_profile
    from perfsim.data.catalog import Catalog
    from perfsim.models import is_defined, own_tokens, takes_tokens
    from perfsim.models.specification import canonical_model
    from perfsim.resolve import as_named

    catalog = Catalog(asked.profiles)
    fields, _ = asked.fields()
    named = as_named("model", str(fields.get("model", "")), catalog)
    own = own_profile(named, catalog)
    if own is not None:
        return int(fields["seq"]) if own.sequence and fields.get("seq") else own.sequence
    model = canonical_model(named)
    if not is_defined(model) or not takes_tokens(model):
        return None
    return int(fields["seq"]) if fields.get("seq") else own_tokens(model)


def _target(
    dataset: str,
    epochs: str,
    epochs_of: list[str],
    deadline: str | None,
    budget: str | None,
    gpu_power: str | None,
    tokens: int | None = None,
) -> Target:
    """Return what the plan has to reach, in SI units."""
    from perfsim.planning.capacity import (
        DATASETS,
        Target,
        parse_budget,
        parse_epochs,
        parse_power,
        parse_samples,
        parse_tokens,
    )
    from perfsim.units import parse_seconds

    every, single = parse_epochs(epochs, epochs_of)
    amount, currency = parse_budget(budget) if budget else (None, "")
    limit_s = parse_seconds(deadline, "deadline", "24h") if deadline else None
    if limit_s == 0.0:
        why = f"{shown(deadline)} is not allowed: it must be above 0."
        raise RequestError("deadline", why, value=deadline)
    power_w = parse_power(gpu_power) if gpu_power else None
    name = dataset.lower() if dataset.lower() in DATASETS else ""
    return Target(
        parse_samples(dataset, tokens),
        every,
        single,
        name,
        limit_s,
        amount,
        currency,
        power_w,
        parse_tokens(dataset),
        deadline or "",
    )


def _scenarios(asked: ScenarioFlags, given: dict[str, str | None]) -> list[Any]:
    """Return a scenario for each choice of GPUs, GPU, network and method.

    Of several methods each takes the options that are its own, as in `compare`.
    """
    from itertools import product

    from perfsim.planning.capacity import check_one_type
    from perfsim.planning.grid import values_of
    from perfsim.scenario import make_scenario

    varied = {}
    for flag, field in PLURALS.items():
        if given[flag] is None:
            continue
        try:
            varied[field] = values_of(field, str(given[flag]), whole=field == "gpus" or None)
        except RequestError as error:  # named after the flag of a sweep
            raise type(error)(flag, error.why, value=given[flag]) from None
    first = {field: values[0] for field, values in varied.items()}
    fields, _ = asked.fields()
    for gpu in (fields.get("gpu", ""), *varied.get("gpu", [])):
        check_one_type(str(gpu))
    options = fields.get("options") or {}
    own: dict[str, dict[str, Any]] = {}
    if options and "method" in varied:
        fields.pop("options")
        from perfsim.methods import method_name
        from perfsim.planning.compare import options_of_each

        names = [method_name(str(one), "methods") for one in varied["method"]]
        of_each = options_of_each(make_scenario(fields | first), None, names, options)
        own = {str(one): of_each[name] for one, name in zip(varied["method"], names, strict=True)}
    scenarios = []
    for values in product(*varied.values()):
        chosen = dict(zip(varied, values, strict=True))
        more = {"options": own[str(chosen["method"])]} if own else {}
        scenarios.append(make_scenario(fields | first | chosen | more))
    return scenarios
