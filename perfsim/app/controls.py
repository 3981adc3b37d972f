"""The controls of a scenario: which fields the page shows, and texts to a scenario and back.

The page holds a scenario as texts: what stands in each control, by the field's name. Options of
the method and of the fusion policy are ``options.NAME`` and ``fusion_options.NAME``. A control
that is empty takes the field's default. All checks are those of `perfsim.scenario`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from perfsim import fusion
from perfsim.compute.host_offload import NOTHING, OFFLOADED
from perfsim.compute.profile import PRECISIONS
from perfsim.compute.recompute import MODULES, RECOMPUTE
from perfsim.compute.software import ERAS
from perfsim.data.catalog import Catalog
from perfsim.data.files import as_written
from perfsim.errors import PerfsimError
from perfsim.methods import load_method, method_names
from perfsim.methods.base import FIDELITY_OPTIONS
from perfsim.methods.describe import describe_method
from perfsim.models import all_models
from perfsim.scenario import OPTION_GROUPS, SCENARIO_FIELDS, ScenarioField

__all__ = [
    "FIDELITY",
    "FIRST_SCENARIO",
    "MAIN_FIELDS",
    "MORE_FIELDS",
    "OPTION_SLIDER",
    "SLIDERS",
    "ControlTexts",
    "OptionControl",
    "Slider",
    "choices_of",
    "default_words",
    "fields_of",
    "first_texts",
    "label_of",
    "option_controls",
    "texts_of",
]

ControlTexts = Mapping[str, str]
"""What stands in the controls, by field."""

FIRST_SCENARIO = "what_if_dgc_1gbe"
"""The shipped scenario that the page shows first: a question whose answer is not obvious."""

MAIN_FIELDS: Mapping[str, tuple[str, ...]] = {
    "Training": ("model", "batch", "precision"),
    "Cluster": ("node", "gpu", "gpus", "gpus_per_node", "net"),
    "Method": ("method", "fusion", "bucket", "overlap"),
}
"""The fields that are always in sight, by group."""

MORE_FIELDS = tuple(
    name
    for name in SCENARIO_FIELDS
    if name not in OPTION_GROUPS and not any(name in group for group in MAIN_FIELDS.values())
)
"""All others."""

_LABELS = {
    "gpus": "GPUs",
    "gpu": "GPU",
    "gpus_per_node": "GPUs a node",
    "node": "node type",
    "net": "network between nodes",
    "intra_net": "network inside a node",
    "nics_per_node": "NICs a node",
    "nic": "rate of a NIC",
    "batch": "batch a GPU",
    "seq": "tokens a sample",
    "document_tokens": "tokens a document",
    "tp": "tensor parallel (tp)",
    "pp": "pipeline stages (pp)",
    "cp": "context parallel (cp)",
    "ep": "expert parallel (ep)",
    "etp": "ranks of an expert (etp)",
    "options": "options",
    "fusion_options": "fusion options",
}
"""Labels of fields whose name is no word; all others are the name with spaces."""


class Slider(NamedTuple):
    """A slider on a logarithmic scale, and the text that it writes.

    Parameters
    ----------
    short, label : what is seen beside it (nothing just below its own field), and what it is
    low, high : the powers at its ends
    step : its step, in powers
    base : of the powers: 2 for counts, 10 for quantities
    """

    short: str
    label: str
    low: float
    high: float
    step: float
    base: int


SLIDERS: Mapping[str, Slider] = {
    "batch": Slider("", "batch a GPU", 0, 12, 1, 2),
    "gpus": Slider("", "GPUs", 0, 13, 1, 2),
    "rate": Slider("bandwidth", "between nodes [Gbit/s]", -1, 3.5, 0.05, 10),
    "latency": Slider("latency", "between nodes [us]", 0, 5, 0.05, 10),
}
"""The sliders of every scenario; ``rate`` and ``latency`` write the network together."""

FIDELITY = (*FIDELITY_OPTIONS, "interval", "stage", "shard")
"""Options that say how much a method sends and how often, or what it divides: always in sight."""

OPTION_SLIDER = Slider("", "density", -4, 0, 0.05, 10)
"""The slider of a method's density."""


class OptionControl(NamedTuple):
    """A control of an option of the method or of the fusion policy.

    Parameters
    ----------
    key : ``options.density``
    label : the option's name
    default : its default, in words
    help : what it is, and what is allowed
    """

    key: str
    label: str
    default: str
    help: str


def label_of(field: str) -> str:
    """Return how the page writes a field or an option, also in the sentence of a refusal.

    Examples
    --------
    >>> [label_of(name) for name in ("gpus_per_node", "options.density", "reduce_dtype")]
    ['GPUs a node', 'density', 'reduce dtype']
    """
    group, dot, option = field.partition(".")
    if dot and group in OPTION_GROUPS:
        return option.replace("_", " ")
    return _LABELS.get(field, field.replace("_", " "))


def fields_of(texts: ControlTexts) -> dict[str, Any]:
    """Return the fields of a scenario from the texts of controls; empty ones are left out.

    Nothing is checked here: `perfsim.scenario.make_scenario` does.

    Examples
    --------
    >>> fields_of({"model": " gpt2 ", "batch": "", "options.density": "0.01", "beside": "a; b"})
    {'model': 'gpt2', 'options': {'density': '0.01'}, 'beside': ['a', 'b']}
    """
    fields: dict[str, Any] = {}
    for key, text in texts.items():
        value = text.strip()
        if not value:
            continue
        group, dot, option = key.partition(".")
        if dot and group in OPTION_GROUPS:
            options = fields.setdefault(group, {})
            if isinstance(options, dict):  # no text of its own, which a scenario refuses
                options[option] = value
        elif key in SCENARIO_FIELDS and SCENARIO_FIELDS[key].repeated:
            fields[key] = [part for one in value.split(";") if (part := one.strip())]
        else:
            fields[key] = value
    return fields


def first_texts() -> ControlTexts:
    """Return the texts that a page begins with where nobody asked for others."""
    from perfsim.scenario_file import read_fields

    return texts_of(read_fields(Catalog().scenario(FIRST_SCENARIO)))


def texts_of(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts of controls from the fields of a scenario, as a file or Python gives them.

    Examples
    --------
    >>> texts_of({"gpus": 8, "overlap": False, "placement": [3, 5], "options": {"density": 0.01}})
    {'gpus': '8', 'overlap': 'false', 'placement': '3,5', 'options.density': '0.01'}
    """
    texts: dict[str, str] = {}
    for name, value in fields.items():
        if value is None:
            continue
        if name in OPTION_GROUPS and isinstance(value, Mapping):
            texts |= {f"{name}.{option}": as_written(one) for option, one in value.items()}
        elif isinstance(value, list | tuple):
            apart = name in SCENARIO_FIELDS and SCENARIO_FIELDS[name].repeated
            texts[name] = (";" if apart else ",").join(map(as_written, value))
        else:
            texts[name] = as_written(value)
    return {key: text for key, text in texts.items() if text}


def default_words(name: str) -> str:
    """Return the default of a field in words, for an empty control."""
    field: ScenarioField = SCENARIO_FIELDS[name]
    if field.default:
        return field.default.replace("`", "")
    return "" if field.value in (None, (), {}) else as_written(field.value)


def choices_of(name: str, catalog: Catalog) -> tuple[str, ...]:
    """Return the names that a control offers; one that offers none takes what is typed.

    A network between nodes may also be typed as rate,latency, a model as its numbers.
    """
    field = SCENARIO_FIELDS[name]
    found: Iterable[str] = ("true", "false") if field.switch else _WORDS.get(name, ())
    if field.words is not None:
        found = field.words()
    elif field.complete == "models":
        found = all_models(catalog.files("models"))
    elif field.complete == "methods":
        found = method_names()
    elif field.complete == "scenarios":
        found = catalog.scenarios()
    elif field.complete in _FILES:
        found = catalog.files(_FILES[field.complete])
    return tuple(found)


_FILES = {"gpus": "devices", "networks": "networks", "nodes": "nodes"}
"""Where the names are that complete a field."""

_WORDS: Mapping[str, Collection[str]] = {
    "precision": PRECISIONS,
    "software": ERAS,
    "recompute": (*RECOMPUTE, *MODULES),
    "offload": (NOTHING, *OFFLOADED),
}
"""Words of fields that also take others, or several of them."""


def option_controls(texts: ControlTexts, catalog: Catalog) -> list[OptionControl]:
    """Return the controls of the options of the method and the fusion policy that are typed.

    Options of the policy that the method takes by itself are there where one is given. What is
    given and no option of theirs has a control too, so that it is refused and not passed over.
    """
    method, policy = (texts.get(name, "").strip() for name in ("method", "fusion"))
    parts = {key: key.partition(".") for key in texts}
    given = [key for key, (group, _, name) in parts.items() if group in OPTION_GROUPS and name]
    found: list[OptionControl] = []
    try:
        found += catalog.once(("app", "method", method), lambda: _of_method(method, catalog))
        if not policy and any(key.startswith("fusion_options.") for key in given):
            policy = load_method(method or SCENARIO_FIELDS["method"].value, {}).default_fusion()
        if policy:
            found += [
                OptionControl(f"fusion_options.{name}", label_of(f"options.{name}"), "", what)
                for name, what in fusion.load_policy(policy).options.items()
            ]
    except PerfsimError:
        pass
    known = {one.key for one in found}
    strange = "no option of the method or the fusion policy"
    found += [OptionControl(key, label_of(key), "", strange) for key in given if key not in known]
    return found


def _of_method(method: str, catalog: Catalog) -> list[OptionControl]:
    described = describe_method(method or SCENARIO_FIELDS["method"].value, catalog)
    return [
        OptionControl(
            f"options.{one['option']}",
            label_of(f"options.{one['option']}"),
            "" if one["default"] is None else as_written(one["default"]),
            f"{one['what']}: {one['allowed']}"
            + (f"; only with {one['only_with']}" if one["only_with"] else ""),
        )
        for one in described["options"]
    ]
