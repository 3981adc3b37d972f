"""Say in a sentence how two scenarios differ, and which trains faster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perfsim.app.controls import label_of
from perfsim.prediction import Prediction
from perfsim.report.html.figure import Figure
from perfsim.report.html.prediction_figures import breakdown_figure
from perfsim.report.terminal import rate_words
from perfsim.units import format_bytes, format_seconds

__all__ = ["compared_figure", "compared_words", "differences"]

_MAX_NAMED = 4
"""Differences that the sentence names; more are counted."""

_DERIVED = ("nodes", "profile", "library", "input", "placement")
"""What follows from other fields, and is no difference by itself."""

_SAME = 1e-9
"""Numbers that differ by less than this share are the same."""


def compared_words(first: Prediction, second: Prediction) -> str:
    """Say which of two scenarios, A and B, trains faster, and in what they differ.

    Iterations are compared where both train as many samples in one, else samples a second.
    """
    rates = first.samples_per_s, second.samples_per_s
    samples = [one.samples_per_s * one.iteration_s for one in (first, second)]
    if abs(samples[0] - samples[1]) <= _SAME * samples[0]:
        words = [f"{format_seconds(one.iteration_s)}" for one in (first, second)]
        unit = "an iteration"
    else:
        words = [rate_words(rate) for rate in rates]
        unit = "samples/s"
    if abs(rates[0] - rates[1]) <= _SAME * rates[0]:
        verdict = f"A and B train as fast: {words[0]} {unit}."
    else:
        ahead, behind = (0, 1) if rates[0] > rates[1] else (1, 0)
        verdict = (
            f"{'AB'[ahead]} trains {rates[ahead] / rates[behind]:.3g} times as fast as"
            f" {'AB'[behind]}: {words[ahead]} {unit} against {words[behind]}."
        )
        if _overlap(first, second):
            verdict += " Too close to call: their 90 % intervals overlap."
    named = list(differences(first, second))
    if not named:
        return f"{verdict} A and B are the same scenario."
    left = len(named) - _MAX_NAMED
    more = f" and {left} more" if left > 0 else ""
    return f"{verdict} They differ in {', '.join(named[:_MAX_NAMED])}{more}."


def _overlap(first: Prediction, second: Prediction) -> bool:
    """Say whether the intervals of two throughputs overlap."""
    ends = []
    for one in (first, second):
        samples = one.samples_per_s * one.iteration_s
        low_s, high_s = one.iteration_s_interval
        ends.append((samples / high_s if high_s else 0.0, samples / low_s if low_s else 0.0))
    return ends[0][0] <= ends[1][1] and ends[1][0] <= ends[0][1]


def differences(first: Prediction, second: Prediction) -> Iterator[str]:
    """Yield the fields in which two resolved scenarios differ, each with both values."""
    one, other = first.scenario.to_dict(), second.scenario.to_dict()
    same_method = one["method"] == other["method"]
    for name in {**one, **other}:
        values = one.get(name), other.get(name)
        if values[0] == values[1] or name in _DERIVED:
            continue
        if name in ("options", "fusion_options"):
            if name == "options" and not same_method:
                continue  # those of another method are others
            options = [value or {} for value in values]
            for option in {**options[0], **options[1]}:
                pair = options[0].get(option), options[1].get(option)
                if pair[0] != pair[1]:
                    yield f"{label_of(f'options.{option}')} {_pair(*pair)}"
        elif name == "bucket_bytes":
            if one["fusion"] == other["fusion"]:  # else it follows from that
                sizes = ("none" if size is None else format_bytes(size) for size in values)
                yield f"{label_of('bucket')} {_pair(*sizes)}"
        else:
            yield f"{label_of(name)} {_pair(*values)}"


def _pair(first: Any, second: Any) -> str:
    return f"({_word(first)}, {_word(second)})"


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def compared_figure(first: Prediction, second: Prediction) -> Figure:
    """Return where the time of both goes, one bar above the other."""
    return breakdown_figure(
        {f"A: {first.scenario.method}": first, f"B: {second.scenario.method}": second}, {}
    )
