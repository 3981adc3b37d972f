"""What it would be worth if one cause were twice as fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsim.report.page.figure import COLOURS, Figure, axis

if TYPE_CHECKING:
    from perfsim.prediction import Prediction

__all__ = ["worth"]

CAUSES = {
    "compute": "GPU twice as fast",
    "bandwidth": "bandwidth doubled",
    "latency": "latency halved",
    "compression": "compression kernels twice as fast",
    "second_order": "second-order kernels twice as fast",
}


def worth(prediction: Prediction) -> Figure:
    """Return the figure: share of the iteration saved, cause by cause, the largest on top."""
    ordered = sorted(prediction.worth.items(), key=lambda item: -item[1])
    names = [CAUSES.get(cause, cause) for cause, _ in ordered]
    shares = [share * 100 for _, share in ordered]
    told = ", ".join(f"{name} {share:.1f} %" for name, share in zip(names, shares, strict=True))
    return Figure(
        "worth",
        "What would help",
        f"Share of the iteration saved if one cause were twice as fast: {told}.",
        [
            {
                "type": "bar",
                "orientation": "h",
                "y": names,
                "x": shares,
                "text": [f"{share:.1f} %" for share in shares],
                "textposition": "auto",
                "marker": {"color": COLOURS["sky"]},
                "hovertemplate": "%{y}<br>saves %{x:.3f} % of the iteration<extra></extra>",
            }
        ],
        {
            "xaxis": axis("share of the iteration saved [%]", rangemode="tozero"),
            "yaxis": axis("", categoryarray=names[::-1]),
            "height": 260,
            "showlegend": False,
        },
        ("change", "iteration saved [%]", "iteration then [ms]"),
        [
            (name, share, prediction.iteration_s * 1e3 * (1.0 - share / 100))
            for name, share in zip(names, shares, strict=True)
        ],
    )
