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
      const made = layout(figure, colours, printed ? PRINTED : 0);
      // Or Plotly takes the height of an empty element when the window changes its width.
      document.getElementById(figure.name).style.height = made.height + "px";
      Plotly.react(figure.name, inked(figure.data, colours.ink), made, config);
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
