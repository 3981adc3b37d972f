"""Answer what the page asks: a prediction at once, its figures after it, one session for all.

Requests come on several threads, and a session is for one. `Turns` lets one thread work at a time.
An answer goes before a figure, and a figure before what is prepared.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from perfsim.app.controls import ControlTexts, choices_of, fields_of, label_of, texts_of
from perfsim.app.sharing import Readable, scenario_toml
from perfsim.errors import PerfsimError, RequestError, spelling
from perfsim.methods import method_name
from perfsim.methods.fusion_settings import for_method
from perfsim.models.named import NAMED
from perfsim.network.node_type import load_node_type
from perfsim.planning.break_even import bandwidth_break_even
from perfsim.planning.gpu_counts import gpu_counts, thinned
from perfsim.planning.neighbours import report_context
from perfsim.prediction import Prediction, predict
from perfsim.report.html.figure import Figure
from perfsim.report.html.pages import prediction_page
from perfsim.report.html.planning_figures import crossing_figure
from perfsim.report.html.prediction_figures import scaling_figure, timeline_figure
from perfsim.report.notebook import Card, card_of
from perfsim.resolve import resolve
from perfsim.scenario import OPTION_GROUPS, SCENARIO_FIELDS, Scenario, make_scenario
from perfsim.session import Session
from perfsim.units import parse_rate

__all__ = ["Answer", "Desk", "Refusal", "Turns", "refusal", "taken_words"]

_BASELINE = "ssgd"
_BYTES_OF_GBIT = 1e9 / 8

_IDLE_S = 1.0
"""How long nobody has asked before something is prepared [s]."""

_MAX_WARMED_LAYERS = 40
"""Layers of a model that is prepared: it takes some 0.1 s."""


class Turns:
    """Let one thread work at a time: whoever answers first, then who draws, then who prepares."""

    ANSWER, DRAW, PREPARE = range(3)

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._busy = False
        self._waiting = [0, 0, 0]

    @contextmanager
    def take(self, rank: int) -> Iterator[None]:
        """Work once nobody works and nobody of a lower ``rank`` waits.

        Examples
        --------
        >>> turns = Turns()
        >>> with turns.take(Turns.ANSWER):
        ...     print("one at a time")
        one at a time
        """
        with self._free:
            self._waiting[rank] += 1
            while self._busy or any(self._waiting[:rank]):
                self._free.wait()
            self._waiting[rank] -= 1
            self._busy = True
        try:
            yield
        finally:
            with self._free:
                self._busy = False
                self._free.notify_all()


@dataclass(frozen=True)
class Refusal:
    """Why there is no answer: the control that it is about ("" for none), and a sentence."""

    field: str
    sentence: str


@dataclass(frozen=True)
class Answer:
    """The answer to one scenario.

    Parameters
    ----------
    prediction, card : what is predicted, and what its card says of it
    placed : where the sliders stand: ``batch`` and ``gpus`` in numbers, ``rate`` [Gbit/s] and
        ``latency`` [us] of the link between nodes (of a node type: its NICs' rate alone),
        ``density`` of the method; what has none is left out
    taken : what fields and options have that were left empty, in words
    """

    prediction: Prediction
    card: Card
    placed: Mapping[str, float]
    taken: Mapping[str, str]


class Desk:
    """Answers the questions of all pages.

    Parameters
    ----------
    readable : which files a page may name
    profiles : the folder of the user's own profiles

    Examples
    --------
    >>> desk = Desk(Readable(None))
    >>> answer = desk.answer({"model": "resnet50", "gpus": "16", "net": "1gbe"})
    >>> answer.prediction.scenario.gpus, answer.placed["latency"] > 0
    (16, True)
    >>> desk.answer({"model": "resnet5O", "gpus": "16"}).sentence[:48]
    "model: no 'resnet5O'; did you mean 'resnet50'? A"
    """

    def __init__(self, readable: Readable, profiles: str | None = None) -> None:
        self.session = Session(profiles)
        self.readable = readable
        self.turns = Turns()
        self._asked_s = time.monotonic()

    # What is asked

    def answer(self, texts: ControlTexts) -> Answer | Refusal:
        """Return the answer to a scenario, or why there is none."""
        self._asked_s = time.monotonic()
        with self.turns.take(Turns.ANSWER):
            try:
                scenario = self._scenario(texts)
                prediction = predict(scenario, self.session)
                placed = self._placed(scenario, prediction)
                return Answer(prediction, card_of(prediction), placed, taken_words(prediction))
            except PerfsimError as error:
                return refusal(error)

    def prediction(self, texts: ControlTexts) -> Prediction:
        """Return a prediction that a figure is drawn of.

        Raises
        ------
        PerfsimError
            If the scenario is wrong, or a file is damaged.
        """
        with self.turns.take(Turns.DRAW):
            return predict(self._scenario(texts), self.session)

    def timeline(self, texts: ControlTexts) -> Figure:
        """Return the timeline of the steady iteration."""
        return timeline_figure(self.prediction(texts))

    def scaling(self, texts: ControlTexts) -> dict[str, dict[int, Prediction]]:
        """Return the predictions by GPUs of S-SGD and of the method, as pages draw them."""
        with self.turns.take(Turns.DRAW):
            scenario = self._scenario(texts)
        asked = method_name(scenario.method)
        plain = scenario.model_copy(update={"options": {}, "single_gpu_kernels": None})
        others = {_BASELINE: for_method(plain, _BASELINE)[0]} if asked != _BASELINE else {}
        curves = {}
        for name, one in {**others, asked: scenario}.items():
            with self.turns.take(Turns.DRAW):
                known = predict(one, self.session)
            curves[name] = dict(self._curve(one, known))
        return curves

    def _curve(self, scenario: Scenario, known: Prediction) -> Iterator[tuple[int, Prediction]]:
        """Yield the predictions at other numbers of GPUs, each in a turn of its own."""
        own, each = known.scenario.gpus, known.scenario.gpus_per_node
        fixed = scenario.site is not None or (scenario.gpu or "").count(":") > 0
        for gpus in [own] if fixed else thinned(gpu_counts(own, each), known):
            if gpus == own:
                yield gpus, known
                continue
            changes = {"gpus": gpus, "gpus_per_node": min(gpus, each), "placement": None}
            try:
                with self.turns.take(Turns.DRAW):
                    one = predict(scenario.model_copy(update=changes), self.session)
            except RequestError:
                continue  # the method does not run on so many
            yield gpus, one

    def scaling_figure(self, texts: ControlTexts) -> Figure:
        """Return the throughput over GPUs, with the line without loss."""
        return scaling_figure(self.scaling(texts), None, "")

    def break_even(self, texts: ControlTexts) -> Figure | str:
        """Return where the method and S-SGD take as long over bandwidth, or why nowhere."""
        from perfsim.report.planning import break_even_words

        with self.turns.take(Turns.DRAW):
            scenario = self._scenario(texts)
            search = bandwidth_break_even(resolve(scenario, self.session))
        method = method_name(scenario.method)
        if search.why_not or method == _BASELINE:
            with spelling(label_of):
                return " ".join(break_even_words(search, method))
        return crossing_figure(search, method, 1.0)

    # What is taken along

    def rows(self, panes: Mapping[str, ControlTexts]) -> list[dict[str, Any]]:
        """Return what is predicted as flat records: each pane's scenario over numbers of GPUs.

        A column ``scenario`` says which pane it is of; all others are those of
        `perfsim.prediction.Prediction.records`.
        """
        return [
            {"scenario": pane, **record}
            for pane, texts in panes.items()
            for curve in self.scaling(texts).values()
            for prediction in curve.values()
            for record in prediction.records()
        ]

    def page(self, texts: ControlTexts) -> str:
        """Return the HTML page that ``perfsim predict --html`` writes."""
        with self.turns.take(Turns.DRAW):
            scenario = self._scenario(texts)
            prediction = predict(scenario, self.session)
            return prediction_page(prediction, report_context(scenario, prediction, self.session))

    def toml(self, texts: ControlTexts) -> str:
        """Return the scenario file that ``perfsim predict`` reads.

        Raises
        ------
        PerfsimError
            If the scenario is wrong.
        """
        return scenario_toml(self._scenario(texts))

    # How it is read

    def _scenario(self, texts: ControlTexts) -> Scenario:
        fields = fields_of(texts)
        self.readable.check_typed(fields, self.session)
        return make_scenario(fields)

    def _placed(self, scenario: Scenario, prediction: Prediction) -> dict[str, float]:
        """Return where the sliders stand."""
        found: dict[str, float] = {
            "batch": prediction.scenario.batch,
            "gpus": prediction.scenario.gpus,
        }
        density = prediction.scenario.options.get("density")
        if isinstance(density, float | int):
            found["density"] = density
        if scenario.node is not None and scenario.net == scenario.node:
            nic = parse_rate(scenario.nic, "nic") if scenario.nic else self._nic_rate(scenario.node)
            return found | {"rate": nic / _BYTES_OF_GBIT}
        link = resolve(scenario, self.session).network.links.get("inter")
        if link is not None:
            found["rate"] = link.rate.value / _BYTES_OF_GBIT
            found["latency"] = link.ring.at(0.0) * 1e6
        return found

    def _nic_rate(self, node: str) -> float:
        """Return the rate of each NIC of a node type [B/s]; 0 where it has none."""
        made = self.session.once(
            ("app", "node", node), lambda: load_node_type(node, self.session, "node")
        )
        return made.nics.rate if made.nics is not None else 0.0

    def warm(self, start: ControlTexts) -> None:
        """Predict models and methods once, so that the first question of each is as fast.

        It waits while somebody asks. Models of many layers, which would keep a question waiting,
        are left out.

        Parameters
        ----------
        start : the scenario that they are put into
        """
        models = choices_of("model", self.session)
        changes = [
            *({"model": name} for name in models if _layers(name) <= _MAX_WARMED_LAYERS),
            *({"method": name} for name in choices_of("method", self.session)),
        ]
        for change in changes:
            while (idle_s := time.monotonic() - self._asked_s) < _IDLE_S:
                time.sleep(_IDLE_S - idle_s)
            with self.turns.take(Turns.PREPARE):
                try:
                    fields = {**fields_of(start), "options": {}, "fusion_options": {}, **change}
                    predict(make_scenario(fields), self.session)
                except PerfsimError:
                    continue  # it says so when it is asked for


def _layers(model: str) -> int:
    """Return the layers of a named transformer; 0 of any other model."""
    return NAMED[model].layers if model in NAMED else 0


def taken_words(prediction: Prediction) -> dict[str, str]:
    """Return what each field and option of a prediction has, in words.

    Examples
    --------
    >>> asked = make_scenario({"model": "resnet50", "gpus": 16, "method": "topk"})
    >>> found = taken_words(predict(asked))
    >>> [found[name] for name in ("gpu", "gpus_per_node", "bucket", "options.density")]
    ['v100', '8', '25MiB', '0.001']
    """
    resolved = prediction.scenario.to_dict()
    keys = {field.resolved or name: name for name, field in SCENARIO_FIELDS.items()}
    texts = texts_of({keys[key]: value for key, value in resolved.items() if key in keys})
    bucket = prediction.scenario.bucket_bytes
    texts.pop("bucket", None)
    return texts if bucket is None else {**texts, "bucket": f"{bucket / 2**20:g}MiB"}


def refusal(error: PerfsimError) -> Refusal:
    """Return an error as the page shows it, with fields by their labels.

    Examples
    --------
    >>> refusal(RequestError("gpus_per_node", "3 does not divide `gpus`."))
    Refusal(field='gpus_per_node', sentence='GPUs a node: 3 does not divide GPUs.')
    """
    field = error.field if isinstance(error, RequestError) else ""
    if field in OPTION_GROUPS and isinstance(error, RequestError) and isinstance(error.value, str):
        field = f"{field}.{error.value}"
    with spelling(label_of):
        return Refusal(field if _has_control(field) else "", str(error).replace("`", ""))


def _has_control(field: str) -> bool:
    return field in SCENARIO_FIELDS or "." in field
