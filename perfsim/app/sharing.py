"""Share a scenario: as a TOML file, as a link, and which files a page may make perfsim read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from perfsim.app.controls import ControlTexts, fields_of
from perfsim.data.catalog import Catalog, shipped
from perfsim.errors import DataError, RequestError, shown
from perfsim.methods import method_class
from perfsim.methods.base import takes_text
from perfsim.models.specification import GENERIC, TRANSFORMER
from perfsim.scenario import OPTION_GROUPS, SCENARIO_FIELDS, Scenario, given_fields, make_scenario
from perfsim.scenario_file import SCENARIO_SCHEMA, read_fields

__all__ = [
    "MAX_FILE_BYTES",
    "Linked",
    "Readable",
    "files_in",
    "link_of",
    "read_link",
    "read_opened",
    "scenario_toml",
]

MAX_FILE_BYTES = 100_000
"""The largest scenario file that the page opens; those that ship have some 2 kB."""

_MAX_LINK_FIELDS = 200
_SECOND = "b."
"""What begins the name of a field of the second scenario in a link."""


class Linked(NamedTuple):
    """What a link holds: the texts of the first and the second scenario, and what is wrong."""

    first: dict[str, str]
    second: dict[str, str]
    wrong: str = ""


def scenario_toml(scenario: Scenario, title: str = "") -> str:
    """Return a scenario file, as ``perfsim predict --scenario FILE`` reads it.

    It holds the fields that were given, and options of the method as numbers where they are
    numbers.

    Examples
    --------
    >>> asked = Scenario(model="gpt2", gpus=8, method="topk", options={"density": "0.01"})
    >>> print(scenario_toml(asked).strip())
    schema = "perfsim/scenario/1"
    <BLANKLINE>
    [scenario]
    model = "gpt2"
    gpus = 8
    method = "topk"
    <BLANKLINE>
    [scenario.options]
    density = 0.01
    """
    import tomli_w

    fields: dict[str, Any] = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in given_fields(scenario).items()
    }
    if "options" in fields:
        fields["options"] = _plain_options(scenario)
    head = {"schema": SCENARIO_SCHEMA, **({"title": title} if title else {})}
    return tomli_w.dumps({**head, "scenario": fields})


def _plain_options(scenario: Scenario) -> dict[str, Any]:
    """Return the options of the method; all as they are where it is not known."""
    options = dict(scenario.options)
    try:
        method = method_class(scenario.method)
    except RequestError:
        return options
    return {
        name: value if takes_text(method, name, value) else _number(value)
        for name, value in options.items()
    }


def _number(value: Any) -> Any:
    """Return an option as a number where its text is one and says the same."""
    if not isinstance(value, str):
        return value
    for kind in (int, float):
        try:
            if str(kind(value)) == value:
                return kind(value)
        except ValueError:
            continue
    return value


def read_opened(name: str, text: str) -> dict[str, Any]:
    """Return the fields of a scenario file that a page was given as text.

    It is read as `perfsim predict` reads it, from a copy.

    Parameters
    ----------
    name : of the file, for messages

    Raises
    ------
    DataError
        If it is not TOML, or of another schema.
    RequestError
        If it is too large.
    """
    if len(text.encode(errors="surrogatepass")) > MAX_FILE_BYTES:
        why = f"is larger than {MAX_FILE_BYTES // 1000} kB, which no scenario file is."
        raise RequestError("", f"{shown(name)} {why}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scenario.toml"
        path.write_bytes(text.encode(errors="replace"))
        try:
            return read_fields(path)
        except DataError as error:
            raise DataError(str(error).replace(str(path), shown(Path(name).name))) from None


def link_of(first: ControlTexts, second: ControlTexts | None = None) -> str:
    """Return the query of a link to a scenario, or to two.

    Examples
    --------
    >>> link_of({"model": "gpt2", "batch": "", "options.density": "0.01"}, {"gpus": "8"})
    '?model=gpt2&options.density=0.01&b.gpus=8'
    """
    pairs = [(key, text) for key, text in first.items() if text.strip()]
    pairs += [(_SECOND + key, text) for key, text in (second or {}).items() if text.strip()]
    return "?" + urlencode(pairs, safe=":,/") if pairs else ""


def read_link(query: str) -> Linked:
    """Return the scenarios of a link's query, with every text as it stands there.

    What is no field is left out, and ``wrong`` says so in a sentence.

    Examples
    --------
    >>> read_link("?model=gpt2&b.gpus=8").second
    {'gpus': '8'}
    >>> read_link("?modle=gpt2").wrong[:49]
    "a scenario has no 'modle'; did you mean 'model'? "
    """
    try:
        pairs = parse_qsl(query.removeprefix("?"), max_num_fields=_MAX_LINK_FIELDS)
    except ValueError:
        return Linked({}, {}, f"The link has more than {_MAX_LINK_FIELDS} fields.")
    texts: tuple[dict[str, str], dict[str, str]] = {}, {}
    wrong = ""
    for key, text in pairs:
        name = key.removeprefix(_SECOND)
        group, dot, option = name.partition(".")
        known = option if dot and group in OPTION_GROUPS else name in SCENARIO_FIELDS
        if known and name not in OPTION_GROUPS and not _no_truth(name, text):
            texts[key.startswith(_SECOND)][name] = text
        elif not wrong:
            wrong = _refusal(name, text)
    return Linked(*texts, wrong)


def _no_truth(name: str, text: str) -> bool:
    """Say whether a switch is given what is neither true nor false, which no switch can show."""
    return name in SCENARIO_FIELDS and SCENARIO_FIELDS[name].switch and bool(_refusal(name, text))


def _refusal(name: str, text: str) -> str:
    """Return what is wrong with a field by itself, or ""."""
    try:
        make_scenario({"model": "any", "gpus": 1, name: text})
    except RequestError as error:
        return str(error)
    return ""


class Readable:
    """Which files of this computer a page may name: a scenario can name a model's or a network's.

    Files that ``perfsim app`` was started with are read. Where only this computer can reach the
    page, what is typed into a field may also name a file below the folder that it was started in.
    A link or an opened file may name only what was read before: whoever made it would otherwise
    choose which files are opened here.

    Parameters
    ----------
    folder : the folder that the app was started in; None where others can reach the page
    given : files that the command line named
    """

    def __init__(self, folder: Path | None, given: Iterable[str] = ()) -> None:
        self._folder = None if folder is None else folder.resolve()
        self._known = set(given)

    def check_typed(self, fields: Mapping[str, Any], catalog: Catalog) -> None:
        """Check the files that typed fields name, and remember those that may be read.

        Raises
        ------
        RequestError
            If a field names a file that the page may not make perfsim read.
        """
        for field, name in files_in(fields, catalog):
            if name in self._known:
                continue
            if self._folder is None:
                why = "is a file, and a page that others can reach reads none; give a name"
                raise RequestError(field, f"{shown(name)} {why} or numbers.", value=name)
            try:
                path = Path(name).resolve()
                inside = path.is_relative_to(self._folder)
            except (OSError, ValueError):
                inside = False
            if not inside:
                why = f"is not below {shown(str(self._folder))}; the page reads no other files."
                raise RequestError(field, f"{shown(name)} {why}", value=name)
            if os.path.exists(name) and not (os.path.isfile(name) or os.path.isdir(name)):
                raise RequestError(field, f"{shown(name)} is no regular file.", value=name)
            self._known.add(name)

    def shared(self, texts: ControlTexts, catalog: Catalog) -> tuple[dict[str, str], str]:
        """Return what a link or an opened file may fill in, and what is wrong with the rest.

        A field that names a file that was not read before is left out.
        """
        kept, wrong = dict(texts), ""
        for field, name in files_in(fields_of(texts), catalog):
            if name not in self._known:
                kept.pop(field, None)
                what = "is a file of this computer, which a link or an opened file may not name;"
                error = RequestError(field, f"{shown(name)} {what} type it in.", value=name)
                wrong = wrong or str(error)
        return kept, wrong


def files_in(fields: Mapping[str, Any], catalog: Catalog) -> list[tuple[str, str]]:
    """Return the fields that name files, and the files, such as a config.json for a model.

    Names of what ships, and models stated by their numbers, are no files.

    Examples
    --------
    >>> files_in({"model": "own/config.json", "net": "10Gbit/s,5us"}, Catalog())
    [('model', 'own/config.json')]
    """
    found = []
    for field in ("model", "net", "intra_net", "node"):
        name = fields.get(field)
        if isinstance(name, str) and _is_file(field, name):
            found.append((field, name))
    beside = fields.get("beside", ())
    others = beside if isinstance(beside, list | tuple) else [beside]
    found += [("beside", str(one)) for one in others if str(one) not in catalog.scenarios()]
    return found


def _is_file(field: str, name: str) -> bool:
    if field != "model":
        return name.endswith(".toml")
    if name.startswith((TRANSFORMER, GENERIC)):
        return False
    if "/" in name or os.sep in name or os.path.exists(name):
        return True
    return name.endswith(_SUFFIXES) and not (shipped("scenarios") / name).is_file()


_SUFFIXES = (".json", ".csv", ".toml")
"""Ends of names of files that a model can be read from."""
