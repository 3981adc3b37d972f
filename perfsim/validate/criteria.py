"""Why a measured case is not judged: a closed list of criteria, none of which knows a prediction.

A criterion is about what a source says of a case (`said_criterion`, and the ``exclude`` of rules in
``map.toml``), or about measured values alone (`measured_criteria`). Each holds for every source.
What perfsim cannot model is no criterion: such a case is "missing", with what is missing in words.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from perfsim.validate.cases import Case

__all__ = [
    "CONTRADICTION",
    "EXCLUSION_CRITERIA",
    "INPUT_WAIT_SHARE",
    "NO_BATCH",
    "OWN_ROW",
    "RECALLED",
    "criterion_of",
    "measured_criteria",
    "said_criterion",
]

_GPU = "GPU not stated"
_MODEL = "model not stated"
_SERVERS = "number of servers not stated"
NO_BATCH = "batch not stated"
RECALLED = "recalled, never verified"
_DRAWN = "not measured"
_TOKENS = "tokens, not samples"
_NO_TIME = "no time of training"
_LONGER = "epoch or whole training"
_RATIO = "ratio to another run"
_MEANING = "metric of another meaning"
_ZERO = "value of zero"
_INPUT = "waits for input"
_CONTRADICTS = "values contradict each other"
OWN_ROW = "its row says so"

EXCLUSION_CRITERIA: Mapping[str, str] = {
    _GPU: "The source does not name the GPU.",
    _MODEL: "The source does not say which model was trained, or lets it be another.",
    _SERVERS: "The source does not say on how many servers the parameters lie.",
    NO_BATCH: "The source states neither the batch of a GPU nor the time of its computation.",
    RECALLED: "The value was recalled, and nobody found it in the source.",
    _DRAWN: "The source draws or computes the value, such as a line of linear scaling.",
    _TOKENS: "The batch is in tokens, and how many a sample has is not stated.",
    _NO_TIME: "The metric is no time of training, but of a collective or a kernel, or a count.",
    _LONGER: (
        "The metric is the time of an epoch or a whole training; how many iterations that is and "
        "what else it holds (validation, input) is not stated."
    ),
    _RATIO: "The value compares the run with one other than that of a single GPU.",
    _MEANING: "The metric has the name of one that perfsim states, and another meaning.",
    _ZERO: "The value is zero, of which no relative error can be taken.",
    _INPUT: (
        "Exposed communication grows with the batch at equal bytes, by more than a tenth of the "
        "iteration: no message explains it; the ranks wait, as for input, which no scenario states."
    ),
    _CONTRADICTS: "Two values of one configuration and metric are more than 1.5 times apart.",
    OWN_ROW: "The row has the role excluded and gives no reason.",
}
"""Criterion -> what it says. A reason is a criterion, or a criterion, a colon and details."""

INPUT_WAIT_SHARE = 0.1
"""Share of an iteration by which exposed communication grows with the batch where ranks wait.

99 % of the differences of two runs are smaller by scatter alone: 2.58 x sqrt(2) x 1.25 x 0.022, for
a normal distribution whose mean absolute deviation is `RUN_SPREAD` of
`perfsim.validate.calibration`."""

_INPUT_WAIT_BATCHES = 3
"""Fewest batches that show a growth, not one run that was slow. No source: chosen."""

CONTRADICTION = 1.5
"""Ratio of two values of one configuration from which they contradict each other.

No source: chosen; whole iterations of one configuration, of other days, differ by up to 1.43."""

_SAID = (
    ("seen_or_memory", r"^MEMORY$", RECALLED),
    (
        "metric",
        r"^(allreduce_s|encode_plus_decode_s|(iterations_ratio|setups_faster)_.+)$",
        _NO_TIME,
    ),
    ("metric", r"^(epoch_s|train_time_.+)$", _LONGER),
    ("metric", r"^speedup_vs_(?!1gpu$).+", _RATIO),
    ("notes", r"relative to (?!1 GPU)[0-9]+ GPUs", _RATIO),
    ("notes", r"per exchange, not amortised", _MEANING),
    ("gpu", r"^not stated.*", _GPU),
    ("batch_per_gpu", r"^.* tokens$", _TOKENS),
)
"""Columns, the words in them by which a criterion is met, and the criterion; the first counts."""

_EXPOSED, _ITERATION = "exposed_comm_s", "iteration_s"

_Configuration = tuple[str, ...]


def criterion_of(reason: str) -> str | None:
    """Return the criterion with which a reason begins, else None.

    Examples
    --------
    >>> criterion_of("GPU not stated: a local server")
    'GPU not stated'
    >>> criterion_of("35 % below WFBP") is None
    True
    """
    name = reason.partition(":")[0]
    return name if name in EXCLUSION_CRITERIA else None


def said_criterion(case: Case) -> str:
    """Return the criterion that a case's own words meet, with these; "" for none."""
    for column, pattern, criterion in _SAID:
        words = re.search(pattern, getattr(case, column))
        if words:
            return criterion if criterion == RECALLED else f"{criterion}: {words[0]}"
    return _ZERO if case.value == 0 else ""


def measured_criteria(cases: Sequence[Case]) -> dict[str, str]:
    """Return the cases that a criterion over measured values meets: id -> reason."""
    return {**_contradictions(cases), **_input_waits(cases)}


def _input_waits(cases: Sequence[Case]) -> dict[str, str]:
    """Return the runs that wait for their input: all batches but the least of such a configuration.

    A larger batch sends the same bytes behind a longer backward pass: less of it can be exposed.
    """
    configurations: dict[_Configuration, dict[int, dict[str, Case]]] = defaultdict(dict)
    for case in cases:
        batch = case.whole("batch_per_gpu")
        if batch and case.metric in (_EXPOSED, _ITERATION):
            key = (case.group, case.provenance, *_words(case))
            configurations[key].setdefault(batch, {})[case.metric] = case
    reasons: dict[str, str] = {}
    for runs in configurations.values():
        batches = sorted(batch for batch, run in runs.items() if len(run) == 2)
        if len(batches) < _INPUT_WAIT_BATCHES:
            continue
        least = runs[batches[0]][_EXPOSED].value
        waiting = {
            batch: runs[batch]
            for batch in batches
            if runs[batch][_EXPOSED].value - least
            > INPUT_WAIT_SHARE * runs[batch][_ITERATION].value
        }
        if batches[-1] not in waiting:
            continue
        for batch, run in waiting.items():
            grown = f"{least:.3g} s exposed at batch {batches[0]}"
            detail = f"{grown}, {run[_EXPOSED].value:.3g} s at batch {batch}"
            reasons |= {case.id: f"{_INPUT}: {detail}" for case in run.values()}
    return reasons


def _contradictions(cases: Sequence[Case]) -> dict[str, str]:
    """Return the values that other values of the same configuration and metric contradict.

    Where no batch is stated, two values may be of two configurations.
    """
    alike: dict[_Configuration, list[Case]] = defaultdict(list)
    for case in cases:
        if case.value > 0 and case.whole("batch_per_gpu"):
            alike[case.group, *_words(case), case.batch_per_gpu, case.metric].append(case)
    reasons: dict[str, str] = {}
    for same in alike.values():
        values = [case.value for case in same]
        if max(values) > CONTRADICTION * min(values):
            detail = f"{min(values):.3g} to {max(values):.3g}"
            reasons |= {case.id: f"{_CONTRADICTS}: {detail}" for case in same}
    return reasons


def _words(case: Case) -> _Configuration:
    """Return what a case says of its configuration, batch and metric apart."""
    network = case.network.lower().replace(" ", "").replace("gbps", "gb/s")
    return (
        *(case.system, case.model, case.gpu, case.gpus, case.gpus_per_node),
        *(network, case.fusion, case.rank_or_density, case.split),
    )
