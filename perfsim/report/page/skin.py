"""How the report looks, and what its script does: draws, follows dark mode, print and keys."""

from __future__ import annotations

__all__ = ["SCRIPT", "STYLE"]

STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --paper: #ffffff; --line: #b8c2cc;
  --soft: #f2f5f8; --link: #0b5c9e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e9ee; --paper: #14191f; --line: #4a5663; --soft: #1e262f; --link: #7cc0f5; }
}
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 70em; padding: 1em;
  color: var(--ink); background: var(--paper); }
h1 { font-size: 1.5em; margin: 0.5em 0 0.2em; } h2 { font-size: 1.2em; margin: 2em 0 0.3em; }
a { color: var(--link); } nav a { margin-right: 1.2em; }
.skip { position: absolute; left: -99em; } .skip:focus { left: 1em; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.2em 1.5em; margin: 1em 0; }
dt { color: inherit; opacity: 0.8; } dd { margin: 0; font-variant-numeric: tabular-nums; }
dd.main { font-weight: 600; font-size: 1.15em; }
figure { margin: 0.5em 0; } figcaption { max-width: 60em; }
.plot { width: 100%; min-height: 8em; margin-top: 0.5em; }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
output { display: block; min-height: 1.5em; font-size: 0.9em; }
.scroll { overflow: auto; max-height: 30em; }
table { border-collapse: collapse; margin: 0.5em 0; font-size: 0.9em; }
th, td { padding: 2px 10px; text-align: right; border-bottom: 1px solid var(--line); }
th { position: sticky; top: 0; background: var(--soft); vertical-align: bottom; }
th:first-child, td:first-child, th.word, td.word { text-align: left; }
td { font-variant-numeric: tabular-nums; } summary { cursor: pointer; }
@media (max-width: 40em) { dl { grid-template-columns: 1fr; } dd { margin-bottom: 0.5em; } }
@media print {
  :root { color-scheme: light; --ink: #000000; --paper: #ffffff; --line: #999999; --soft: #ffffff; }
  nav, output, .skip { display: none; } body { max-width: none; padding: 0; font-size: 11px; }
  figure { break-inside: auto; } .plot, h2, tr { break-inside: avoid; } h2 { break-after: avoid; }
  .scroll { max-height: none; overflow: visible; } th { position: static; }
  th, td { padding: 1px 4px; }
}
"""

SCRIPT = """
"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const inks = {
    light: { ink: "#1d2733", line: "#d5dbe1", paper: "#ffffff" },
    dark: { ink: "#e4e9ee", line: "#3a4551", paper: "#14191f" },
  };
  const PRINTED = 690; // pixels: A4 less its margins
  const PAGE = 930; // and as high
  const MOST_PRINTED = 120; // rows of a table that goes to paper
  const inked = (value, ink) => {
    if (value === "ink") return ink;
    if (Array.isArray(value)) return value.map((one) => inked(one, ink));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, inked(v, ink)]));
  };
  const layout = (figure, colours, width) => {
    const axis = { gridcolor: colours.line, linecolor: colours.line, zerolinecolor: colours.line };
    const made = {
      ...figure.layout,
      font: { family: "system-ui, sans-serif", size: 13, color: colours.ink },
      paper_bgcolor: colours.paper, plot_bgcolor: colours.paper,
      margin: { l: 10, r: 20, t: 30, b: figure.layout.showlegend === false ? 50 : 90,
        ...figure.layout.margin },
      legend: { orientation: "h", y: 0, yref: "container", yanchor: "bottom", x: 0,
        ...figure.layout.legend },
      hoverlabel: { font: { family: "system-ui, sans-serif" }, align: "left" },
      hovermode: "closest",
      xaxis: { ...axis, ...figure.layout.xaxis }, yaxis: { ...axis, ...figure.layout.yaxis },
    };
    if (width) {
      made.width = width;
      made.height = Math.min(made.height, PAGE);
    } else made.autosize = true;
    return made;
  };
  const config = { responsive: true, displaylogo: false, showSendToCloud: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d"] };
  const draw = (printed) => {
    const colours = inks[dark.matches && !printed ? "dark" : "light"];
    for (const figure of figures) {
      Plotly.react(figure.name, inked(figure.data, colours.ink),
        layout(figure, colours, printed ? PRINTED : 0), config);
    }
  };
  draw(false);
  dark.addEventListener("change", () => draw(false));
  const tables = document.querySelectorAll("details");
  addEventListener("beforeprint", () => {
    for (const one of tables) {
      one.dataset.open = one.open ? "1" : "";
      one.open = one.querySelectorAll("tbody tr").length <= MOST_PRINTED;
    }
    draw(true);
  });
  addEventListener("afterprint", () => {
    for (const one of tables) one.open = one.dataset.open === "1";
    draw(false);
  });
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  for (const figure of figures) {
    const said = document.getElementById(figure.name + "-said");
    const rows = [...document.querySelectorAll("#" + figure.name + "-table tbody tr")];
    const heads = [...document.querySelectorAll("#" + figure.name + "-table thead th")];
    let at = -1;
    document.getElementById(figure.name).addEventListener("keydown", (event) => {
      if (!(event.key in steps) || !rows.length) return;
      event.preventDefault();
      at = (at + steps[event.key] + rows.length) % rows.length;
      said.textContent = [...rows[at].cells]
        .map((cell, column) => heads[column].textContent + " " + cell.textContent)
        .filter((text, column) => rows[at].cells[column].textContent).join(", ");
    });
  }
  document.documentElement.dataset.drawn = String(figures.length);
})();
"""
