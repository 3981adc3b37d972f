"""A first scenario file: what files and the machine say, what is asked, and the text with comments.

A `Draft` holds the answers, each with where it comes from. Files are recognised by what is in them.
What is made of them (a network of logs, a profile of a trace) is made in a folder of its own and
goes beside the scenario with it: all files are written, or none.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os.path import relpath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from perfsim.compute.device import device_named
from perfsim.compute.profile import PROFILE_SCHEMA, own_profile
from perfsim.data.files import (
    check_writable,
    is_there,
    missing_file,
    read_bytes,
    reading,
    write_bytes,
)
from perfsim.errors import DataError, RequestError, shown, spelled
from perfsim.hardware.nodes import with_usual_network
from perfsim.machine import Found
from perfsim.methods import AUTO_METHOD
from perfsim.models import MODELS, NAMED
from perfsim.network.node_type import load_node_type
from perfsim.resolve import Setup, model_names, resolve, with_gpu
from perfsim.scenario import SCENARIO_FIELDS, Scenario, make_scenario
from perfsim.scenario_file import FILE_ENDINGS, SCENARIO_SCHEMA
from perfsim.session import Session

__all__ = ["ANSWERED", "INIT_SCHEMA", "Draft", "Written", "file_kind", "first_draft", "write_draft"]

INIT_SCHEMA = "perfsim/init/1"

_UNDERSTOOD = (
    "an nccl-tests log (or what `perfsim calibrate import` reads), a PyTorch profiler trace, a"
    " Hugging Face config.json (or its folder), a profile CSV, a network TOML, a node type TOML"
)
_MAX_BYTES = 2**20
"""Bytes of a file that are looked at, to tell what it is. No source: chosen."""
_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_DEFAULT = "default"
ANSWERED = "your answer"
"""Where a value comes from that the user gave."""
_NEEDED = {
    "model": "a name (`perfsim list models`), a profile CSV, a config.json, transformer:... or"
    " generic:...; or give such a file before the flags",
    "gpus": "how many in all; neither a job nor a GPU was found here",
}
"""Fields that have no default, and what to answer."""


# What a file is.


def file_kind(path: Path) -> str:
    """Tell what a file is by what is in it: log, trace, config, profile, network or node.

    Raises
    ------
    RequestError
        If it is none of these.
    DataError
        If it is not there or cannot be read.
    """
    from perfsim.calibrate.formats import holds_measurements
    from perfsim.calibrate.traces.chrome_json import is_trace

    if path.is_dir() and (path / "config.json").is_file():
        return "config"
    if path.is_dir():
        raise _none_of(path)
    if not path.exists():
        raise missing_file(path, (path.suffix or ".log",))
    if is_trace(path):
        return "trace"
    with reading(path) as file:
        head = file.read(_MAX_BYTES)
    text = head.decode("utf-8-sig", errors="replace").lstrip()
    schema = _schema(text)
    if schema.startswith(PROFILE_SCHEMA.rpartition("/")[0]):
        return "profile"
    for kind in ("network", "node"):
        if schema.startswith(f"perfsim/{kind}/"):
            return kind
    if schema.startswith(SCENARIO_SCHEMA.rpartition("/")[0]):
        why = f"{shown(str(path))} is a scenario already: `perfsim predict` takes it as it is."
        raise RequestError("files", why, value=str(path))
    if text.startswith("{") and '"model_type"' in text:
        return "config"
    if holds_measurements(path):
        return "log"
    if text.startswith("{") and path.suffix == ".json":
        from perfsim.models.config_file import json_table

        json_table(path)  # what is damaged is refused as that, not as another kind of file
    raise _none_of(path)


def _schema(text: str) -> str:
    """Return the schema that the first lines of a CSV or TOML file state, "" without one."""
    match = re.search(r"""^(?:#\s*schema\s*:\s*|schema\s*=\s*["'])(perfsim/[\w/-]+)""", text, re.M)
    return match[1] if match else ""


def _none_of(path: Path) -> RequestError:
    why = f"{shown(str(path))} is none of what is understood: {_UNDERSTOOD}."
    return RequestError("files", why, value=str(path))


# The answers.


@dataclass
class Draft:
    """The answers so far, and what was made of files.

    Parameters
    ----------
    out : the scenario file
    catalog : where data files are
    fields : the answers by the scenario's field, with where they come from
    files : what was made and goes beside the scenario: its name there -> where it is now
    defaults : what stands where nobody answers, with where that comes from
    remarks : sentences on what was found
    """

    out: Path
    catalog: Session
    fields: dict[str, Found] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)
    defaults: dict[str, Found] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def values(self) -> dict[str, Any]:
        """Return the answers as the fields of a scenario."""
        return {name: found.value for name, found in self.fields.items()}

    def check(self, **more: Any) -> Setup:
        """Return what the answers make, with some more; GPUs count as 1 until they are known.

        Raises
        ------
        PerfsimError
            If an answer is not allowed, or two contradict each other.
        """
        with _as_beside(self.files):
            return resolve(self.scenario(**more), self.catalog)

    def scenario(self, **more: Any) -> Scenario:
        """Return the answers as a scenario, with some more (see `check`)."""
        values = self.values() | more
        if str(values.get("method", "")).lower() == AUTO_METHOD:
            values["method"] = SCENARIO_FIELDS["method"].value
        counted = ":" in str(values.get("gpu", ""))
        return make_scenario(values if counted else {"gpus": 1} | values)

    def default(self, name: str) -> Found | None:
        """Return what a field is if nobody answers: what was found, else perfsim's own default.

        None where there is neither, and where nothing need be said: a GPU and a network besides a
        node type, a node type besides a network.

        Raises
        ------
        PerfsimError
            If the answers so far contradict each other.
        """
        found = self.defaults.get(name)
        if name in self.fields or found is not None:
            return None if name in self.fields else found
        if name == "gpus":
            found = self._one_node()
        elif name == "gpu" and "node" not in self.fields:
            asked, notes = with_gpu(self.scenario(), self.catalog)
            why = notes[0].partition(", ")[2].partition(";")[0] if notes else _DEFAULT
            found = Found(asked.gpu, why.removesuffix("."))
        elif name == "batch" and "model" in self.fields:
            profile = self.check().profile
            alone = profile.header.get("kernels") == "alone"
            found = Found(profile.batch, _DEFAULT if alone else "that of its profile")
        elif name == "net" and "node" not in self.fields:
            found = self._usual_network()
        elif name == "method":
            found = Found(SCENARIO_FIELDS[name].value, _DEFAULT)
        return found

    def _usual_network(self) -> Found:
        """Return the network that joins nodes where none is named, few or many."""
        setup = self.check()
        scenario = with_usual_network(setup.scenario, setup.device, self.catalog)
        if scenario.net == SCENARIO_FIELDS["net"].value:
            return Found(scenario.net, _DEFAULT)
        return Found(scenario.net, f"of nodes that {setup.device.name} usually is in")

    def _one_node(self) -> Found | None:
        """Return the GPUs of one node where its type is known; those counted by type."""
        if ":" in str(self.values().get("gpu", "")):
            return Found(self.scenario().gpus, "those of each type")
        node = self.fields.get("node") or self.defaults.get("node")
        if node is None:
            return None
        kind = load_node_type(str(node.value), self.catalog, "node")
        return Found(kind.gpus, f"one node of {kind.name}")

    def complete(self) -> None:
        """Answer what is left by what was found and by defaults.

        Raises
        ------
        RequestError
            If a field has neither.
        """
        for name in ("model", "gpus", "node", "gpu", "net", "method"):
            if name in self.fields:
                continue
            with _as_beside(self.files):
                found = self.default(name)
            if found is not None:
                self.fields[name] = found
            elif name in _NEEDED:
                raise RequestError(name, f"is needed: {_NEEDED[name]}.")
        each = self.defaults.get("gpus_per_node")
        if "gpus_per_node" in self.fields or each is None:
            return
        setup = self.check()
        stated = setup.network.gpus_per_node
        divides = setup.scenario.gpus % each.value == 0
        if divides and (stated is None or (each.value < stated and not setup.network.known)):
            self.fields["gpus_per_node"] = each


@contextmanager
def _as_beside(files: Mapping[str, Path]) -> Iterator[None]:
    """Name what was made by its name beside the scenario in a refusal, not by where it is now."""
    try:
        yield
    except RequestError as error:
        why, value = error.why, error.value
        for name, path in files.items():
            why = why.replace(str(path), name)
        raise RequestError(
            error.field, why, value=value, nearest=error.nearest, source=error.source
        ) from None


@contextmanager
def first_draft(
    files: Sequence[Path],
    given: Mapping[str, Any],
    found: Mapping[str, Found],
    out: Path,
    profiles: str | Path | None = None,
) -> Iterator[Draft]:
    """Give a draft with what flags, files and the machine say; what it made goes with it.

    Parameters
    ----------
    files : logs, a trace, a config.json, a profile, a network or a node type
    given : answers by field; None: not given
    found : what the machine says
    out : the scenario file that the draft is for

    Raises
    ------
    RequestError
        If a file is of no kind that is understood, two say the same, or a trace needs the name of
        its model or its batch.
    DataError
        If a file is missing or damaged.
    """
    with TemporaryDirectory(prefix="perfsim-init-") as stage:
        draft = Draft(out, Session(profiles))
        draft.defaults.update(found)
        flagged = {name: value for name, value in given.items() if value is not None}
        _take_files(draft, files, flagged, Path(stage))
        for name, value in flagged.items():
            draft.fields[name] = Found(value, ANSWERED)
        _settle_place(draft)
        yield draft


def _take_files(draft: Draft, files: Sequence[Path], flagged: dict[str, Any], stage: Path) -> None:
    """Read the files; a flag that is for one of them counts as answered."""
    kinds: dict[str, list[Path]] = {}
    for path in files:
        kinds.setdefault(file_kind(path), []).append(path)
    stating = {
        "model": ("trace", "config", "profile"),
        "net": ("log", "network"),
        "node": ("node",),
    }
    for name, ones in stating.items():
        named = [kind for kind in ones if kind in kinds]
        several = [path for kind in named for path in kinds[kind]]
        if len(several) > 1 and named != ["log"]:
            two = " and ".join(shown(str(path)) for path in several[:2])
            raise RequestError("files", f"{two} both state `{name}`; give one.")
        if named and name in flagged and named != ["trace"]:
            why = f"{shown(str(several[0]))} states it already; give one of the two."
            raise RequestError(name, why, value=flagged[name])
    for kind, name in (("config", "model"), ("profile", "model"), ("network", "net")):
        if kind in kinds:
            [path] = kinds[kind]
            _check_ending(path, kind)
            draft.fields[name] = Found(str(path), "the file given")
    if "node" in kinds:
        draft.fields["node"] = Found(str(kinds["node"][0]), "the file given")
    if "log" in kinds:
        _import_logs(draft, kinds["log"], flagged, stage)
    if "trace" in kinds:
        _import_trace(draft, kinds["trace"][0], flagged, stage)


_ENDINGS = {"config": ".json", "profile": ".csv", "network": ".toml"}


def _check_ending(path: Path, kind: str) -> None:
    """Refuse a file that a scenario would not take for what it is."""
    ending = _ENDINGS[kind]
    if path.is_file() and not path.name.endswith(ending):
        why = f"{shown(str(path))} needs a name that ends in {ending}: scenarios know it by that."
        raise RequestError("files", why, value=str(path))


def _import_logs(
    draft: Draft, logs: Sequence[Path], flagged: Mapping[str, Any], stage: Path
) -> None:
    """Fit a network to logs; its GPUs are the most that were measured."""
    from perfsim.calibrate.import_logs import import_files

    each = flagged.get("gpus_per_node")
    name = f"{_NAME.sub('-', draft.out.stem).strip('-')[:60] or 'my'}-net"
    words = ", ".join(path.name for path in logs)
    try:
        made = import_files(
            list(logs),
            name,
            folder=stage,
            gpus_per_node=_whole("gpus_per_node", each),
            node=flagged.get("node"),
            force=True,
            profiles=draft.catalog.given,
        )
    except DataError as error:
        importing, hint = "`perfsim calibrate import", spelled("`skip_bad` leaves")
        if hint in str(error):
            text = str(error).replace(hint, f"{importing} --skip-bad` leaves")
        elif "does not say" in str(error):
            text = f"{error}; {importing}` takes both and makes a network TOML to give"
        else:
            raise
        raise DataError(text) from None
    for file in (made.network, made.curves):
        draft.files[file.name] = file
    draft.remarks += [f"left out: {line}" for line in made.skipped]
    draft.fields["net"] = Found(str(made.network), f"fitted to {words}")
    most = max(made.fit.curves, key=lambda curve: curve.ranks)
    draft.defaults.setdefault("gpus", Found(most.ranks, f"the ranks of {words}"))
    if gpu := device_named(most.gpu, draft.catalog):
        draft.defaults["gpu"] = Found(gpu, f"{most.gpu}, as {words} says")


def _import_trace(draft: Draft, trace: Path, flagged: dict[str, Any], stage: Path) -> None:
    """Make a profile of a trace; flags of model, GPU, batch and precision are for it."""
    from perfsim.calibrate.traces.import_trace import import_trace

    for name in ("model", "batch"):
        if name not in flagged:
            what = "name" if name == "model" else "samples a GPU"
            why = f"is needed for the profile of {shown(trace.name)}: the model's {what}."
            raise RequestError(name, why.replace("the model's samples", "its samples"))
    made = import_trace(
        trace,
        model=str(flagged.pop("model")),
        batch=_whole("batch", flagged.pop("batch")),
        precision=str(flagged.pop("precision", "fp32")),
        gpu=flagged.pop("gpu", None),
        models=stage,
        force=True,
    )
    if made.profile is None:
        raise DataError("shows no training step, so there is no profile of it", path=trace)
    draft.files[made.profile.name] = made.profile
    draft.fields["model"] = Found(str(made.profile), f"made of {trace.name}")


def _whole(name: str, value: Any) -> int | None:
    """Return a whole number as the scenario checks it."""
    if value is None:
        return None
    asked = make_scenario({"model": "any", "gpus": 1} | {name: value})
    number: int = getattr(asked, name)
    return number


def _settle_place(draft: Draft) -> None:
    """Drop of what the machine says that which flags and files say otherwise.

    A node type of the machine counts where no network is stated: a measured network is more than a
    data sheet.
    """
    fields, defaults = draft.fields, draft.defaults
    if fields.keys() & {"node", "net", "gpu"}:
        defaults.pop("node", None)
    own = own_profile(str(fields["model"].value), draft.catalog) if "model" in fields else None
    if own is not None and own.gpu not in draft.catalog.files("devices"):
        defaults.pop("node", None)
        defaults.pop("gpu", None)
    elif own is not None and "net" not in fields:
        defaults.pop("gpu", None)
    if "node" in fields or "node" in defaults:
        defaults.pop("gpu", None)
    if "gpu" in fields and "gpus" not in fields and "," in str(fields["gpu"].value):
        defaults.pop("gpus", None)


# The text.


@dataclass(frozen=True)
class Written:
    """What was written: the scenario, the files beside it, its fields, and the next command."""

    scenario: Path
    files: tuple[Path, ...]
    fields: Mapping[str, Found]
    next: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, by the contract perfsim/init/1."""
        return {
            "schema": INIT_SCHEMA,
            "scenario": str(self.scenario),
            "files": [str(path) for path in self.files],
            "fields": {
                name: {"value": found.value, "source": found.source}
                for name, found in self.fields.items()
            },
            "next": self.next,
        }


def write_draft(draft: Draft, force: bool = False) -> Written:
    """Write the scenario of a draft with its comments, and the files that it names.

    Raises
    ------
    PerfsimError
        If the answers do not make a scenario that runs, or a file is there already; nothing is
        written then.
    """
    setup = draft.check()
    folder = draft.out.parent
    targets = [draft.out, *(folder / name for name in draft.files)]
    for path in targets:
        check_writable(path)
        if path.exists() and not force:
            raise RequestError("out", f"{str(path)!r} is there already; `force` replaces it.")
    fields = {
        name: found._replace(value=_as_written(draft, name, found.value))
        for name, found in draft.fields.items()
    }
    text = scenario_text(draft.out, fields, setup)
    contents = {folder / name: read_bytes(path) for name, path in draft.files.items()}
    for path, data in (contents | {draft.out: text.encode()}).items():
        write_bytes(path, data)
    command = _command("predict", draft.out)
    return Written(draft.out, tuple(contents), fields, command)


def _as_written(draft: Draft, name: str, value: Any) -> Any:
    """Return a value as the file has it: a file's path is counted from the scenario's folder."""
    if name in ("gpus", "gpus_per_node", "batch"):
        return getattr(draft.scenario(), name)
    endings = FILE_ENDINGS.get(name)
    if endings is None or not isinstance(value, str):
        return value
    path = Path(value)
    if draft.files.get(path.name) == path:
        return path.name
    if name == "model" and _is_folder_of_config(path, draft.catalog):
        path = path / "config.json"
    if not (path.name.endswith(endings) and is_there(str(path))):
        return value
    return Path(relpath(path, draft.out.parent)).as_posix()


def _is_folder_of_config(path: Path, catalog: Session) -> bool:
    """Tell whether a model is the folder of a config.json, and no name that perfsim knows."""
    known = (model_names(catalog.files("models")), MODELS, NAMED)
    return is_there(str(path / "config.json")) and not any(str(path) in names for names in known)


def _command(name: str, out: Path) -> str:
    from shlex import quote

    return f"perfsim {name} {quote(str(out))}"


_SAID = {
    "model": "The model: a name (`perfsim list models`), a profile CSV, a config.json,"
    " transformer:layers=.. or generic:params=..",
    "gpus": "GPUs in all.",
    "node": "Node type (`perfsim list nodes`): its GPU, GPUs a node, links and NICs.",
    "gpus_per_node": "GPUs of a node.",
    "net": "Network between nodes: a name (`perfsim list networks`), rate,latency such as"
    " 25Gbit/s,30us, or a file of `perfsim calibrate import`.",
    "gpu": "GPU (`perfsim list gpus`).",
    "batch": "Samples a GPU, of one micro-batch.",
    "precision": "fp32, tf32, fp16, bf16, fp8, nvfp4.",
    "method": "How gradients are exchanged (`perfsim list methods`): ssgd is plain data"
    " parallelism; fsdp, zero, powersgd, topk, diloco, ...; auto ranks all.",
}
"""What each field is, in the order of the file."""


def scenario_text(out: Path, fields: Mapping[str, Found], setup: Setup) -> str:
    """Return the text of a scenario file: a comment above each field, and what else pays to set.

    Parameters
    ----------
    fields : values as they are written, with where they come from
    setup : what they make
    """
    command = _command("predict", out)
    lines = [
        "# A question to perfsim. Change a value and ask again:",
        f"#   {command}",
        f'schema = "{SCENARIO_SCHEMA}"',
        "",
        "[scenario]",
    ]
    for name, said in _SAID.items():
        if name in fields:
            found = fields[name]
            lines += [*_comment(said), f"{_line(name, found.value)}  # {_plain(found.source)}", ""]
    lines.append("# More: take a # away to set one. These count now, or are examples.")
    for name, value, said in _further(fields, setup):
        lines += [f"# {_line(name, value)}  # {said}"]
    lines += ["", "# Ask further:"]
    lines += [f"#   {one}" for one in _questions(out, str(fields["method"].value), setup)]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Return where a value comes from without the backticks of fields."""
    return text.replace("`", "")


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, 90, initial_indent="# ", subsequent_indent="#   ")


def _line(name: str, value: Any) -> str:
    """Return one key of TOML."""
    import tomli_w

    return tomli_w.dumps({name: value}).strip()


def _further(fields: Mapping[str, Found], setup: Setup) -> Iterator[tuple[str, Any, str]]:
    """Yield fields that most often matter next, with a value that is allowed and what they are."""
    asked = setup.resolved_scenario()
    tokens = setup.profile.sequence
    if "gpus_per_node" not in fields and "node" not in fields:
        yield "gpus_per_node", setup.cluster.gpus_per_node, "GPUs of a node"
    if "batch" not in fields:
        yield "batch", asked.batch, "samples a GPU"
    if "precision" not in fields:
        yield "precision", asked.precision, "or fp32, tf32, fp16, bf16, fp8, as the GPU has it"
    if tokens is not None:
        yield "seq", tokens, "tokens a sample"
    yield "accumulate", 1, "micro-batches before an update"
    if tokens is not None and setup.profile.header.get("kernels") == "alone":
        yield "tp", 1, "tensor-parallel ranks, which divide each layer"
        yield "pp", 1, "stages of a pipeline"
    if setup.parts:  # these do not say of which type they are
        return
    iteration_ms = setup.transferred.profile.alone_s * 1e3
    yield "single_gpu", f"{iteration_ms:.4g}ms", "one iteration on one GPU as you measured it"
    yield "straggler", "1:1.2", "one GPU that computes 1.2 times as long"


def _questions(out: Path, method: str, setup: Setup) -> Iterator[str]:
    """Yield commands to try next."""
    gpus, each = setup.scenario.gpus, setup.cluster.gpus_per_node
    if method.lower() == AUTO_METHOD:
        yield f"{_command('compare', out)} --method ssgd   # all methods side by side"
        return
    yield f"{_command('explain', out)}   # what holds it back, what would help"
    yield f"{_command('predict', out)} --method auto   # the fastest method here"
    if not setup.parts:
        yield f"{_command('sweep', out)} --vary gpus={each}..{gpus * 4}   # how it scales"
    if method == SCENARIO_FIELDS["method"].value and setup.policy_name == "size" and gpus > 1:
        yield f"{_command('tune', out)} --over bucket   # the best bucket size"
