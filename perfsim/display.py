"""What a notebook shows of a result: a card of HTML, and figures of Plotly.

Results inherit it; `perfsim.report.notebook` draws. That module is imported when a reader asks for
a picture, after everything is decided, so that no answer waits for it or depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["Displayed"]


class Displayed:
    """A result that a notebook shows as a card, and that draws itself.

    Examples
    --------
    >>> from perfsim import Scenario, predict
    >>> predict(Scenario(model="resnet50", gpus=16, net="1gbe"))._repr_html_()[:28]
    '<div class="perfsim-result">'
    """

    __slots__ = ()

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
