"""What every result can do in a notebook: show itself as a card, draw itself, be a table of pandas.

Results inherit it; `perfsim.report.notebook` draws. That module is imported when a reader asks for
a picture, after everything is decided, so that no answer waits for it or depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas
    from plotly.graph_objects import Figure

__all__ = ["Displayed"]


class Displayed:
    """A result that a notebook shows as a card, that draws itself, and that is a table.

    Examples
    --------
    >>> from perfsim import Scenario, predict
    >>> predict(Scenario(model="resnet50", gpus=16, net="1gbe"))._repr_html_()[:28]
    '<div class="perfsim-result">'
    """

    __slots__ = ()

    def records(self) -> Iterable[Mapping[str, Any]]:
        """Return what it holds as flat records, with units in the names."""
        raise NotImplementedError

    def to_pandas(self) -> pandas.DataFrame:
        """Return its ``records`` as a pandas table, a row each; a column's name ends with its unit.

        Units are ``_s`` for seconds, ``_bytes``, ``_ratio`` for a fraction or a multiple,
        ``_per_s``; a column without a unit is a count, a word or whether something holds.

        Raises
        ------
        PerfsimError
            If pandas is not installed.
        """
        from perfsim.data.tables import to_frame

        return to_frame(list(self.records()))

    def _repr_html_(self) -> str:
        """Return question, answer, interval and warnings as a card that needs nothing else."""
        from perfsim.report.notebook import card_html

        return card_html(self)

    def _plotted(self, kind: str, over: str = "") -> Figure:
        """Return one of the result's figures, drawn by Plotly.

        Raises
        ------
        RequestError
            If Plotly is missing, or the result has no such figure.
        """
        from perfsim.report.notebook import plotted

        return plotted(self, kind, over)
