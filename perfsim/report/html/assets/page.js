"use strict";
(async () => {
  const tables = document.querySelectorAll("details");
  const packed = document.getElementById("plotly");
  const inflate = async (text) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };
  if (!("DecompressionStream" in window)) {
    document.getElementById("undrawn").hidden = false;
    for (const one of document.querySelectorAll(".plot, output")) one.hidden = true;
    for (const one of tables) one.open = true;
    return;
  }
  const script = document.createElement("script");
  script.textContent = await inflate(packed.textContent);
  document.head.append(script);
  packed.remove();
  for (const held of document.querySelectorAll('script[type="application/gzip"]')) {
    held.textContent = await inflate(held.textContent);
    held.type = "application/json";
  }
  const figures = JSON.parse(document.getElementById("figures").textContent);

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const inks = {
    light: { ink: "#1d2733", line: "#d5dbe1", paper: "#ffffff" },
    dark: { ink: "#e4e9ee", line: "#3a4551", paper: "#14191f" },
  };
  const PRINTED = 690; // pixels: A4 less its margins
  const PAGE = 930; // and as high
  const MOST_PRINTED = 120; // rows of a table that goes to paper
  const NARROW = 600; // pixels: below this, names beside bars have several lines
  const NAME = 18; // letters of such a line
  const LINE = 17; // pixels of a line
  const LEGEND = 40; // pixels of the legend that a figure's height allows for
  const inked = (value, ink) => {
    if (value === "ink") return ink;
    if (Array.isArray(value)) return value.map((one) => inked(one, ink));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, inked(v, ink)]));
  };
  const wrap = (text, most) => {
    const lines = [""];
    for (const word of String(text).split(" ")) {
      const longer = lines.at(-1) ? lines.at(-1) + " " + word : word;
      if (longer.length <= most || !lines.at(-1)) lines[lines.length - 1] = longer;
      else lines.push(word);
    }
    return lines.join("<br>");
  };
  const titled = (axis, more) => {
    const made = { ...more, ...axis };
    if (axis.title) made.title = { ...axis.title, font: { size: 13 }, standoff: 8 };
    return made;
  };
  const named = (axis) => {
    const names = axis.categoryarray;
    return { ...axis, tickmode: "array", tickvals: names, ticktext: names.map((n) => wrap(n, NAME)) };
  };
  const layout = (figure, colours, width, printed) => {
    const axis = { gridcolor: colours.line, linecolor: colours.line, zerolinecolor: colours.line };
    const made = {
      ...figure.layout,
      font: { family: "system-ui, sans-serif", size: 13, color: colours.ink },
      paper_bgcolor: colours.paper, plot_bgcolor: colours.paper,
      margin: { l: 10, r: 20, t: 30, b: figure.layout.showlegend === false ? 50 : 90,
        ...figure.layout.margin },
      legend: { orientation: "h", y: 0, yref: "container", yanchor: "bottom", x: 0, xref: "container",
        ...figure.layout.legend },
      hoverlabel: { font: { family: "system-ui, sans-serif" }, align: "left" },
      hovermode: "closest",
      xaxis: titled(figure.layout.xaxis, axis),
      yaxis: titled(figure.layout.yaxis, axis),
    };
    if (made.yaxis.categoryarray && width < NARROW) {
      made.yaxis = named(made.yaxis);
      const lines = Math.max(...made.yaxis.ticktext.map((name) => name.split("<br>").length));
      made.height = Math.max(made.height, 130 + (LINE * lines + 8) * made.yaxis.ticktext.length);
    }
    if (printed) made.width = width;
    else made.autosize = true;
    return made;
  };
  // Return how a title is broken into lines where it is longer than what there is around its axis.
  const broken = (plot, which, text) => {
    const title = plot.querySelector(`.${which}title`);
    if (!title || !text) return text;
    const [frame, box] = [plot.getBoundingClientRect(), title.getBoundingClientRect()];
    const [from, to, start, end] = which === "x"
      ? [frame.left, frame.right, box.left, box.right] : [frame.top, frame.bottom, box.top, box.bottom];
    const room = 2 * Math.min((start + end) / 2 - from, to - (start + end) / 2) - 4;
    return end - start <= room ? text : wrap(text, Math.floor((text.length * room) / (end - start)));
  };
  const config = { responsive: true, displaylogo: false, showSendToCloud: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d"] };
  const draw = (printed) => {
    const colours = inks[dark.matches && !printed ? "dark" : "light"];
    for (const figure of figures) {
      const plot = document.getElementById(figure.name);
      const width = printed ? PRINTED : plot.clientWidth;
      const made = layout(figure, colours, width, printed);
      const data = inked(figure.data, colours.ink);
      const show = () => {
        if (printed) made.height = Math.min(made.height, PAGE);
        // Or Plotly takes the height of an empty element when the window changes its width.
        plot.style.height = made.height + "px";
        Plotly.react(plot, data, inked(made, colours.ink), config);
      };
      show();
      const legend = plot.querySelector(".legend .bg")?.getBoundingClientRect().height ?? 0;
      const titles = ["x", "y"].map((which) => broken(plot, which, made[which + "axis"].title?.text));
      const lines = (titles[0] ?? "").split("<br>").length - 1;
      if (legend <= LEGEND && titles.every((text, at) => text === made["xy"[at] + "axis"].title?.text))
        continue;
      made.height += Math.max(0, legend - LEGEND) + LINE * lines;
      for (const at of [0, 1]) {
        const axis = made["xy"[at] + "axis"];
        if (axis.title) axis.title = { ...axis.title, text: titles[at] };
      }
      show();
    }
  };
  draw(false);
  dark.addEventListener("change", () => draw(false));
  let [drawn, waiting] = [innerWidth, 0];
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (innerWidth !== drawn) draw(false);
      drawn = innerWidth;
    }, 120);
  });
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
