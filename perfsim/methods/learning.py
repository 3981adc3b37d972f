"""What is known of how methods learn: a table of published and logged training runs.

perfsim predicts how long an iteration takes. How many iterations a method needs for the same model
is known from measurements only: `profiles/learning/evidence.csv` has them with their sources.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from perfsim.data.tables import cell_number, check_kind, check_word, read_table
from perfsim.errors import DataError
from perfsim.quantity import Kind

if TYPE_CHECKING:
    from perfsim.data.catalog import Catalog

__all__ = [
    "LEARNING_FILE",
    "STATEMENTS_FILE",
    "TASKS",
    "Evidence",
    "Measure",
    "Statement",
    "known_evidence",
    "read_evidence",
    "read_statements",
    "same_update",
    "summaries",
]

LEARNING_FILE = "evidence.csv"
STATEMENTS_FILE = "statements.csv"
_SCHEMA = "perfsim/learning/1"
_STATEMENTS_SCHEMA = "perfsim/learning_statements/1"
_NEVER = "never"

Measure = Literal["epochs_to_quality", "final_accuracy", "final_loss", "final_perplexity"]
"""What was measured: the epochs until the model is as good, or how good it is in the end."""

_UNITS: dict[str, str] = {
    "epochs_to_quality": "epochs",
    "final_accuracy": "percent",
    "final_loss": "nats",
    "final_perplexity": "perplexity",
}

TASKS = (
    "image classification",
    "language model pretraining",
    "masked language model",
    "fine-tuning",
    "speech recognition",
    "machine translation",
    "recommendation",
    "other",
)


_SAME_UPDATE = {
    "mpd_kfac": "d_kfac",
    "spd_kfac": "d_kfac",
    "kaisa": "d_kfac",
    "dgc_k": "dgc",
    "trimmed_topk": "redsync",
}
"""Methods that make the update of another by other messages: what is known of one is of both.
K-FAC's factors and inverses are the same wherever they are computed (Shi et al. 2021, SPD-KFAC;
Pauloski et al. 2021, KAISA); two codes of one algorithm (hclhkbu/GaussianK-SGD)."""


def same_update(method: str) -> str:
    """Return the method whose update a method makes: itself, or that of another (``_SAME_UPDATE``).

    Examples
    --------
    >>> same_update("kaisa"), same_update("topk")
    ('d_kfac', 'topk')
    """
    return _SAME_UPDATE.get(method, method)


class Evidence(NamedTuple):
    """One run, or several alike, with a method and without.

    ``value`` is that with the method in ``unit``, None where the quality was never reached;
    ``baseline`` says what ``baseline_value`` was measured with. ``comparable`` ("yes" or "no")
    says whether that is synchronous training, measured at the same quality or over as many samples,
    drawn from the same data by all, and whether the method can be set as the run was.
    ``options`` are those of the setting that the method has too, as ``name=value; name=value``.
    ``tokens`` are those a language model was trained on. ``trained_ratio`` is how long the run was,
    over its baseline; None: as long.
    """

    method: str
    setting: str
    options: str
    task: str
    model: str
    data: str
    tokens: float | None
    workers: int | None
    measure: Measure
    unit: str
    comparable: str
    baseline: str
    baseline_value: float
    value: float | None
    trained_ratio: float | None
    spread: str
    runs: int | None
    kind: Kind
    source: str
    locator: str
    licence: str
    date: str
    notes: str


def known_evidence(catalog: Catalog) -> list[Evidence]:
    """Return what is known of how methods learn, read once by a session.

    Raises
    ------
    DataError
        As `read_evidence`.
    """
    path = catalog.beside("learning", "", LEARNING_FILE)
    if path is None:
        return []
    return catalog.once(("learning", LEARNING_FILE), lambda: read_evidence(path))


def read_evidence(path: Path) -> list[Evidence]:
    """Read the table of what is known of learning.

    Raises
    ------
    DataError
        If the file cannot be read, or a cell is not what its column needs.
    """
    return [
        _evidence(path, row, cells) for row, cells in read_table(path, _SCHEMA, Evidence._fields)
    ]


def _evidence(path: Path, row: int, cells: dict[str, str]) -> Evidence:
    measure = cells["measure"]
    check_word(measure, tuple(_UNITS), "measure", path, row)
    check_word(cells["unit"], (_UNITS[measure],), "unit", path, row)
    check_word(cells["comparable"], ("yes", "no"), "comparable", path, row)
    check_word(cells["task"], TASKS, "task", path, row)
    for column in ("method", "setting", "model", "data", "baseline", "source", "locator"):
        if not cells[column]:
            raise DataError("is empty", path=path, row=row, column=column)

    def number(column: str) -> float:
        return cell_number(cells[column], column, path, row, positive=True)

    def count(column: str) -> int | None:
        if not cells[column]:
            return None
        return int(cell_number(cells[column], column, path, row, positive=True, whole=True))

    never = cells["value"] == _NEVER and measure == "epochs_to_quality"
    read: dict[str, Any] = {
        "measure": measure,
        "kind": check_kind(cells["kind"], path, row),
        "baseline_value": number("baseline_value"),
        "value": None if never else number("value"),
        "trained_ratio": number("trained_ratio") if cells["trained_ratio"] else None,
        "tokens": number("tokens") if cells["tokens"] else None,
        "workers": count("workers"),
        "runs": count("runs"),
    }
    return Evidence(**{name: cells[name] for name in Evidence._fields} | read)


class Statement(NamedTuple):
    """What authors or their documentation say of a method's learning, without a figure.

    ``words`` are ours; ``verdict`` is "as good" or "worse" than without the method.
    """

    method: str
    verdict: str
    task: str
    data: str
    words: str
    source: str
    locator: str
    licence: str
    date: str


def read_statements(path: Path) -> list[Statement]:
    """Read the table of what is said of learning without a figure.

    Raises
    ------
    DataError
        If the file cannot be read, or a cell is not what its column needs.
    """
    statements = []
    for row, cells in read_table(path, _STATEMENTS_SCHEMA, Statement._fields):
        check_word(cells["verdict"], ("as good", "worse"), "verdict", path, row)
        check_word(cells["task"], TASKS, "task", path, row)
        for column in ("method", "words", "source", "locator"):
            if not cells[column]:
                raise DataError("is empty", path=path, row=row, column=column)
        statements.append(Statement(*(cells[column] for column in Statement._fields)))
    return statements


def summaries(evidence: list[Evidence]) -> list[str]:
    """Say in a sentence for each source, measure and baseline how a method does beside it.

    Examples
    --------
    >>> one = Evidence("dgc", "0.1 %", "density=0.001", "image classification", "ResNet-50",
    ...     "ImageNet", None, 8, "final_accuracy", "percent", "yes", "dense", 76.2, 76.6, None,
    ...     "", None, "published", "a", "b", "MIT", "2020", "")
    >>> summaries([one, one._replace(value=75.9)])
    ['final accuracy -0.3 to +0.4 points against dense (2 settings; ResNet-50 on ImageNet): a']
    """
    groups: dict[tuple[str, Measure, str], list[Evidence]] = {}
    for one in evidence:
        groups.setdefault((one.source, one.measure, one.baseline), []).append(one)
    return [f"{_range(rows)}: {source}" for (source, *_), rows in groups.items()]


def _range(rows: list[Evidence]) -> str:
    """Say how far from their baselines several values of one measure are."""
    measure = rows[0].measure
    reached = [(one.value, one.baseline_value) for one in rows if one.value is not None]
    if measure == "epochs_to_quality":
        found = [f"{value / base:.2f}" for value, base in reached]
        what, unit = "epochs to its quality", "times those of"
    elif measure == "final_accuracy":
        found = [f"{value - base:+.1f}" for value, base in reached]
        what, unit = "final accuracy", "points against"
    else:
        found = [f"{100 * (value / base - 1):+.1f}" for value, base in reached]
        what, unit = measure.replace("_", " "), "% against"
    found = sorted(set(found), key=float)
    between = " to ".join(dict.fromkeys([*found[:1], *found[-1:]]))
    words = [f"{what} {between} {unit} {rows[0].baseline}"] if found else [rows[0].baseline]
    if len(reached) < len(rows):
        words.append(f"never reached in {len(rows) - len(reached)}")
    models = list(dict.fromkeys(f"{one.model} on {one.data}" for one in rows))
    where = models[0] if len(models) == 1 else f"{models[0]} and {len(models) - 1} more"
    settings = f"{len(rows)} setting{'s' if len(rows) > 1 else ''}"
    return f"{', '.join(words)} ({settings}; {where})"
