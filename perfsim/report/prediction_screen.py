"""A prediction in a terminal: at most 24 lines of 80 columns, and all that is known below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from textwrap import wrap
from typing import TYPE_CHECKING

from perfsim.conditions.words import condition_words, contention_lines
from perfsim.errors import spelled
from perfsim.memory import UNFIT
from perfsim.methods import method_class
from perfsim.methods.base import FIDELITY_OPTIONS
from perfsim.note import briefs
from perfsim.report.plain import is_plain
from perfsim.report.task_names import part_words
from perfsim.report.terminal import (
    LABEL_COLUMNS,
    PAGE_COLUMNS,
    SHORT_PART_NAMES,
    batch_words,
    bucket_size_words,
    cluster_words,
    coloured,
    interval_words,
    labelled,
    outer_state_words,
    page_columns,
    print_lines,
    rate_words,
)
from perfsim.sums import SUM_ROUNDING, sum_in_order
from perfsim.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from perfsim.model_parallel import ParallelSummary
    from perfsim.prediction import Prediction
    from perfsim.quantity import Term
    from perfsim.resolve import ResolvedScenario
    from perfsim.throughput import Throughput

__all__ = ["SCREEN_LINES", "asked_words", "prediction_lines", "print_prediction", "question"]

SCREEN_LINES = 24
"""Lines of the screen: those of a terminal that nobody enlarged."""

_MIN_WARNING_LINES = 2
"""Lines that are kept for warnings, however long the rest is."""

_ALL_LINES = 10_000
_BAR_COLUMNS, _NUMBER_COLUMNS = 36, 20
_TWICE_AS_GOOD = {"bandwidth": "twice as much", "latency": "half of it"}
"""What would be twice as good of a cause, where that is not "twice as fast"."""

_USUAL_BUCKET = 25 * 2**20
"""DDP's bucket [bytes], which need not be said."""

_ALWAYS_SAID = (*FIDELITY_OPTIONS, "interval")
"""Options that are said whatever they are: how much a method sends, and how often."""


def print_prediction(prediction: Prediction, *, verbose: bool = False) -> None:
    """Print the first screen of a prediction and, if asked, all options, sources and notes."""
    for line in prediction_lines(prediction, page_columns(), None if verbose else SCREEN_LINES):
        print(coloured(line))
    if not verbose:
        return
    scenario = prediction.scenario
    options = ", ".join(f"{name} {value}" for name, value in scenario.options.items())
    parts = ", ".join(
        f"{part} {format_bytes(size, 3)}"
        for part, size in sorted(prediction.memory_bytes.items(), key=lambda item: -item[1])
        if size
    )
    bucket = scenario.bucket_bytes
    print_lines(
        [
            "",
            f"options         {options or 'none'}",
            f"fusion          {scenario.fusion}{f' {bucket_size_words(bucket)}' if bucket else ''}",
            f"collectives     all-reduce {scenario.algorithm}, protocol {scenario.protocol},"
            f" library {scenario.library}",
            f"software        {scenario.software}",
            *_work(prediction.throughput),
            f"memory          {parts}",
            "",
            "Sources",
        ],
        rest=" " * LABEL_COLUMNS,
    )
    for source, terms in groupby(prediction.terms, lambda term: term.quantity.source):
        values = "; ".join(f"{term.term} {term.quantity} [{_kind(term)}]" for term in terms)
        print_lines([f"{values}: {source}"], "  ", "      ")
    print_lines(["", "Notes"])
    print_lines(prediction.notes, "  - ", "    ")


def _work(throughput: Throughput) -> Iterator[str]:
    """Yield tokens and model FLOPs a second of a GPU, of a model over text."""
    tokens, flops = throughput.tokens_per_s, throughput.flops_per_gpu()
    if tokens is not None and flops is not None:
        each = rate_words(tokens / throughput.gpus)
        yield f"a GPU computes  {rate_words(flops / 1e12)} TFLOP/s, {each} tokens/s"


def _kind(term: Term) -> str:
    return f"{term.quantity.kind}, extrapolated" if term.extrapolated else term.quantity.kind


def prediction_lines(
    prediction: Prediction, columns: int = PAGE_COLUMNS, limit: int | None = SCREEN_LINES
) -> list[str]:
    """Return the first screen of a prediction.

    Warnings are left out, and counted, where they do not fit.

    Parameters
    ----------
    columns : columns of a line, 40 to 80
    limit : lines at most; None shows every warning
    """
    warnings = briefs(prediction.notes, "warning")
    unfit = [text for text in warnings if text.startswith(UNFIT)]
    taken = briefs(prediction.notes, "assumption")
    assumed = list(labelled("assumed", ", ".join(taken), columns)) if taken else []
    head, room = _head(prediction, unfit, columns), _ALL_LINES
    if limit is not None:
        left_lines = limit - len(assumed) - 1
        if left_lines - len(head) < _MIN_WARNING_LINES:
            head = _head(prediction, unfit, columns, short=True)
        room = max(left_lines - len(head), _MIN_WARNING_LINES)
    others = [text for text in warnings if text not in unfit]
    shown, left = _that_fit(others, room, columns)
    return [spelled(line) for line in (*head, *shown, *assumed, *_last(prediction, left, columns))]


def _head(
    prediction: Prediction, unfit: Sequence[str], columns: int, *, short: bool = False
) -> list[str]:
    """Return the screen down to the breakdown, with the warnings ``unfit``."""
    answer = _answer(prediction, short=short)
    return [
        *_folded(_question(prediction.scenario), columns),
        *_folded(_where(prediction.scenario), columns),
        *(_folded(prediction.parallel.words(), columns) if prediction.parallel else ()),
        *(line for text in unfit for line in labelled("warning", text, columns)),
        "",
        *(line for label, words in answer for line in labelled(label, words, columns)),
        "",
        *_breakdown(prediction, columns),
        "",
    ]


def _question(scenario: ResolvedScenario) -> str:
    """Say what trains: model and method, batch and precision, and options that are not usual."""
    cls = method_class(scenario.method)
    usual = cls().model_dump()
    options = ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in scenario.options.items()
        if name in _ALWAYS_SAID or value != usual.get(name, value)
    )
    bucket = scenario.bucket_bytes
    limit = f" {bucket_size_words(bucket)}" if bucket not in (None, _USUAL_BUCKET) else ""
    words = [
        f"{scenario.model}, {scenario.method}" + (f" ({options})" if options else ""),
        f"{batch_words(scenario)}, {scenario.precision}",
    ]
    if scenario.fusion != cls().default_fusion() or limit:
        words.append(f"fusion {scenario.fusion}{limit}")
    words += [] if scenario.overlap else ["no overlap"]
    words += [f"all-reduce {scenario.algorithm}"] if scenario.algorithm != "auto" else []
    return "; ".join(words)


def _where(scenario: ResolvedScenario) -> str:
    """Say on what it trains: GPUs, networks, and conditions that are not usual."""
    conditions = condition_words(scenario)
    return cluster_words(scenario) + (f"; {conditions}" if conditions else "")


def asked_words(scenario: ResolvedScenario) -> str:
    """Say what was asked on one line: what trains, how, and on what."""
    return spelled(f"{_question(scenario)}; {_where(scenario)}")


def question(prediction: Prediction) -> list[str]:
    """Say what was asked, a line what trains and a line on what; and that it does not fit."""
    unfit = next((note for note in prediction.notes[:1] if note.startswith(UNFIT)), "")
    return [
        _question(prediction.scenario),
        _where(prediction.scenario),
        *([prediction.parallel.words()] if prediction.parallel else []),
        *([f"WARNING: {unfit}"] if unfit else []),
    ]


def _answer(prediction: Prediction, *, short: bool) -> Iterator[tuple[str, str]]:
    """Yield the lines of the answer: a label and words; ``short`` leaves a line out if it can."""
    low, high = prediction.iteration_s_interval
    yield (
        "iteration",
        f"{format_seconds(prediction.iteration_s)}   90 % interval {interval_words(low, high)}",
    )
    yield "throughput", _throughput(prediction)
    yield from _against(prediction, short=short)
    cause = prediction.bottleneck
    better = _TWICE_AS_GOOD.get(cause, "twice as fast")
    words = part_words(cause, prediction.scenario.method)
    yield "held back by", f"{words}   ({better} would save {prediction.worth[cause]:.0%})"
    sent = prediction.communication
    hidden_s = sent["hidden_s"] if sent["hidden_s"] > SUM_ROUNDING * sent["busy_s"] else 0.0
    yield (
        "sent by a GPU",
        f"{format_bytes(sent['bytes_per_gpu'])} in {_calls(sent['calls'])};"
        f" {format_seconds(hidden_s, 3)} of {format_seconds(sent['busy_s'], 3)} hidden",
    )
    yield "memory of a GPU", _memory(prediction)
    if prediction.outer_state is not None:
        yield "outer state", "; ".join(outer_state_words(prediction.outer_state))
    if prediction.contention is not None:
        first, *rest = contention_lines(prediction.scenario, prediction.contention)
        yield "", first
        yield from (("", line) for line in rest)


def _calls(mean: float) -> str:
    """Say how many collectives an iteration has, and that it is a mean where it is no whole number.

    Examples
    --------
    >>> _calls(6467.0), _calls(39.59)
    ('6,467 calls', 'a mean of 39.59 calls')
    """
    if mean != round(mean):
        return f"a mean of {mean:,.4g} calls"
    return f"{mean:,.0f} call{'s' * (mean != 1)}"


def _against(prediction: Prediction, *, short: bool) -> Iterator[tuple[str, str]]:
    """Yield what the prediction is held against, and what of that could not run.

    With ``short`` it is one line, and only the notes say what efficiency is over.
    """
    baseline, over = prediction.baseline, prediction.efficiency_words()
    words = f"{prediction.speedup:.2f}x   (S-SGD {format_seconds(baseline.iteration_s)}"
    efficiency = f"efficiency {prediction.scaling_efficiency:.1%}"
    if baseline.fits and (short or not over):
        yield "against S-SGD", f"{words})   scaling {efficiency}"
    elif short:
        yield "against S-SGD", f"{words}, would not fit)   {efficiency}"
    else:
        yield "against S-SGD", f"{words}{baseline.unfit_words()})"
        yield "scaling", f"{efficiency}   ({over})" if over else efficiency


def _throughput(prediction: Prediction) -> str:
    words = f"{rate_words(prediction.samples_per_s)} samples/s"
    throughput = prediction.throughput
    if throughput.tokens_per_s is None:
        return words
    share = throughput.mfu()
    words += f"   {rate_words(throughput.tokens_per_s)} tokens/s"
    return f"{words}   MFU {share:.1%}" if share else words


def _memory(prediction: Prediction) -> str:
    """Say what a GPU holds of what it has."""
    parts = prediction.memory_bytes
    usable = prediction.memory_usable_bytes
    words = format_bytes(sum_in_order(parts.values()), 3)
    words += f" of {format_bytes(usable, 3)}" if usable is not None else ""
    if not parts["activations"] and not parts["step"]:
        words += " without activations"
    return words


def _breakdown(prediction: Prediction, columns: int) -> Iterator[str]:
    """Yield where the time goes, a part a line."""
    width = max(map(len, SHORT_PART_NAMES.values()))
    method = prediction.scenario.method
    bar = max(columns - width - _NUMBER_COLUMNS, 0)
    for name, seconds in prediction.breakdown_s.items():
        share = seconds / prediction.iteration_s
        if share <= SUM_ROUNDING:
            continue
        if is_plain():
            yield f"{part_words(name, method)}: {format_seconds(seconds, 3)}, {share:.1%}"
            continue
        line = f"{part_words(name, method):{width}} {format_seconds(seconds, 3):>9}{share:7.1%}"
        yield f"{line}  {'#' * round(min(bar, _BAR_COLUMNS) * share)}".rstrip()
        if prediction.parallel:
            for words, of_it_s in _parallel_waits(prediction.parallel, name).items():
                yield f"{f'  of it {words}':{width}} {format_seconds(of_it_s, 3):>9}"


def _parallel_waits(parallel: ParallelSummary, part: str) -> dict[str, float]:
    """Return what a part of an iteration is made of, where a model is divided [s]."""
    if part == "other":
        found = {"pipeline bubble": parallel.bubble_s}
    elif part == "communication_exposed":
        found = parallel.waits()
    else:
        found = {}
    return {words: seconds for words, seconds in found.items() if seconds > 0}


def _that_fit(warnings: Sequence[str], room: int, columns: int) -> tuple[list[str], int]:
    """Return the lines of the first warnings that fit, and how many warnings are left out."""
    lines: list[str] = []
    for number, text in enumerate(warnings):
        own = list(labelled("warning", text, columns))
        if len(lines) + len(own) > room:
            return lines, len(warnings) - number
        lines += own
    return lines, 0


def _last(prediction: Prediction, left: int, columns: int) -> Iterator[str]:
    """Yield what to type next, and how much more there is to read."""
    more = f"{left} more warning{'s' * (left > 1)}, " if left else ""
    sources = len({term.quantity.source for term in prediction.terms})
    words = f"compare, explain, tune; -v: {more}{sources} sources, {len(prediction.notes)} notes"
    return labelled("next", words, columns)


def _folded(text: str, columns: int) -> list[str]:
    if is_plain():
        return [text]
    return wrap(text, columns, subsequent_indent="  ", break_on_hyphens=False)
