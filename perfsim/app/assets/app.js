// What the page does by itself: texts of controls to questions, sliders, marks, drawing, sharing.
"use strict";
(() => {
  const NONE = () => window.dash_clientside.no_update;
  const page = {
    id: Math.random().toString(36).slice(2), // tells the server whose questions supersede whose
    asked: {}, // by pane: the last question as text, and its number
    placed: { a: {}, b: {} }, // where the last answer put the sliders
    texts: {},
    comparing: false,
  };
  const SETTLE_MS = 200; // quiet before figures are drawn
  const OFF = /^(false|no|off|0|f|n)$/i;
  const INKS = {
    light: { ink: "#1d2733", line: "#dde3e9", paper: "rgba(0,0,0,0)" },
    dark: { ink: "#e4e9ee", line: "#333e4a", paper: "rgba(0,0,0,0)" },
  };
  const byId = (id) => document.getElementById(id);
  // As Dash writes an identifier that is an object: its keys in order.
  const elementOf = (id) =>
    byId(JSON.stringify(Object.fromEntries(Object.entries(id).sort(([a], [b]) => (a < b ? -1 : 1)))));
  const put = (id, values) => window.dash_clientside.set_props(id, values);

  const inked = (value, ink) => {
    if (value === "ink") return ink;
    if (Array.isArray(value)) return value.map((one) => inked(one, ink));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, inked(v, ink)]));
  };
  const figureOf = (drawn, scheme) => {
    const colours = INKS[scheme];
    const axis = { gridcolor: colours.line, linecolor: colours.line, zerolinecolor: colours.line };
    const { height: _, ...given } = drawn.layout || {};
    const layout = inked(given, colours.ink);
    return {
      data: inked(drawn.data || [], colours.ink),
      layout: {
        ...layout,
        autosize: true,
        font: { family: "system-ui, sans-serif", size: 12, color: colours.ink },
        paper_bgcolor: colours.paper,
        plot_bgcolor: colours.paper,
        margin: { l: 10, r: 16, t: 24, b: layout.showlegend === false ? 44 : 72, ...layout.margin },
        legend: { orientation: "h", y: 0, yref: "container", yanchor: "bottom", x: 0, ...layout.legend },
        hoverlabel: { font: { family: "system-ui, sans-serif" }, align: "left" },
        hovermode: "closest",
        xaxis: { ...axis, visible: Boolean(drawn.data), ...layout.xaxis },
        yaxis: { ...axis, visible: Boolean(drawn.data), ...layout.yaxis },
      },
    };
  };

  const CONFIG = { responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "toImage"] };
  // Plotly is large: it is fetched once there is something to draw.
  let plotly = null;
  const loaded = () => {
    plotly ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = "plotly.js";
      script.addEventListener("load", () => resolve(window.Plotly));
      script.addEventListener("error", reject);
      document.head.append(script);
    });
    return plotly;
  };

  const queryOf = () => {
    const query = new URLSearchParams();
    for (const [pane, before] of [["a", ""], ["b", "b."]]) {
      if (pane === "b" && !page.comparing) continue;
      for (const [key, text] of Object.entries(page.texts[pane] || {})) query.append(before + key, text);
    }
    return "?" + query.toString().replaceAll("%2C", ",").replaceAll("%3A", ":").replaceAll("%2F", "/");
  };
  const showLink = () => history.replaceState(history.state, "", location.pathname + queryOf());
  const compare = (on) => {
    page.comparing = on;
    byId("app").classList.toggle("comparing", on);
    byId("readout-b").hidden = !on;
    byId("compare").setAttribute("aria-pressed", String(on));
    put("compare", { children: on ? "One alone" : "Compare two" });
    put("comparing", { data: on });
    showLink();
  };

  const rounded = (number) => String(Number(number.toPrecision(3)));
  const at = (pane, name, value) => {
    const output = byId(`at-${pane}-${name}`);
    const units = { rate: " Gbit/s", latency: " us" };
    if (output && units[name]) output.textContent = rounded(10 ** value) + units[name];
  };
  const POWERS = { batch: 2, gpus: 2, rate: 10, latency: 10, density: 10 };

  const save = (name, url) => {
    const link = document.createElement("a");
    link.href = url;
    link.download = name;
    link.click();
  };
  const open = (pane) => {
    const input = document.createElement("input");
    input.type = "file";
    input.accept = ".toml";
    input.addEventListener("change", async () => {
      const file = input.files[0];
      if (!file) return;
      // A larger file is refused by the server, in its own words.
      const text = await file.slice(0, 150000).text();
      put("opened", { data: { pane, name: file.name, text, at: Date.now() } });
    });
    input.click();
  };

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    perfsim: {
      start: () => {
        const dark = matchMedia("(prefers-color-scheme: dark)");
        dark.addEventListener("change", () => put("scheme", { data: dark.matches ? "dark" : "light" }));
        return [page.id, dark.matches ? "dark" : "light"];
      },

      // A scenario that was loaded, into the controls of its pane.
      fill: (loaded, fields, switches) => {
        if (!loaded) return [fields.map(NONE), switches.map(NONE)];
        if (loaded.compare !== undefined && loaded.compare !== page.comparing) compare(loaded.compare);
        const on = (id) => {
          const text = loaded.texts[id.switch];
          return text ? !OFF.test(text.trim()) : id.on === "true";
        };
        return [
          fields.map((id) => loaded.texts[id.field] ?? ""),
          switches.map((id) => (on(id) ? ["on"] : [])),
        ];
      },

      // What stands in the controls, as a question.
      gather: (values, states, options, fields, switches, optionIds, loaded) => {
        if (!loaded || !fields.length) return NONE();
        const pane = fields[0].pane;
        const texts = {};
        fields.forEach((id, index) => (texts[id.field] = values[index] ?? ""));
        switches.forEach((id, index) => {
          const on = (states[index] || []).length > 0;
          texts[id.switch] = on === (id.on === "true") ? "" : String(on);
        });
        const owner = `${texts.method}/${texts.fusion}`;
        const own = optionIds.filter((id) => id.of === owner);
        own.forEach((id) => (texts[id.option] = options[optionIds.indexOf(id)] ?? ""));
        if (!own.length && loaded.texts.method === texts.method)
          for (const [key, text] of Object.entries(loaded.texts)) if (key.includes(".")) texts[key] = text;
        for (const key of Object.keys(texts)) if (!String(texts[key]).trim()) delete texts[key];
        const text = JSON.stringify(texts) + loaded.number;
        const last = page.asked[pane];
        if (last && last.text === text) return NONE();
        const number = (last ? last.number : 0) + 1;
        page.asked[pane] = { text, number };
        page.texts[pane] = texts;
        showLink();
        return { texts, number, page: page.id };
      },

      // Where a refusal belongs, and that the answer below is an older one.
      mark: (verdict) => {
        if (!verdict) return "";
        const { pane, field, sentence } = verdict;
        const wrap = byId(`pane-${pane}`);
        wrap.classList.toggle("refused", Boolean(sentence));
        // Where the answer is below the controls, its time stands at the foot of the screen too.
        const readout = byId(`readout-${pane}`);
        const time = verdict.time || "";
        readout.classList.toggle("old", Boolean(sentence));
        if (time) readout.textContent = (page.comparing ? `${pane.toUpperCase()} ` : "") + time;
        let shown = false;
        for (const one of wrap.querySelectorAll(".field")) {
          const input = one.querySelector("input");
          const mine = Boolean(sentence) && one.dataset.key === `${pane}:${field}`;
          const words = one.querySelector(".wrong");
          words.textContent = mine ? sentence : "";
          if (!input) continue;
          if (mine) {
            input.setAttribute("aria-invalid", "true");
            input.setAttribute("aria-describedby", words.id);
            shown = true;
          } else if (input.hasAttribute("aria-invalid")) {
            input.removeAttribute("aria-invalid");
            input.removeAttribute("aria-describedby");
          }
        }
        if (!sentence) return "";
        const old = wrap.querySelector(".answer .question") ? " Below is the last answer." : "";
        return shown ? `No answer: see the field marked.${old}` : sentence + old;
      },

      // Sliders where the answer says that they stand.
      place: (answered) => {
        if (!answered) return;
        const { pane, placed, taken } = answered;
        loaded();
        // What an empty control stands for.
        for (const one of byId(`pane-${pane}`).querySelectorAll(".field[data-key]")) {
          const words = taken[one.dataset.key.slice(2)];
          const input = one.querySelector("input[type=text]");
          if (input && words !== undefined && document.activeElement !== input) input.placeholder = words;
        }
        for (const name of Object.keys(POWERS)) {
          const id = { pane, slider: name };
          const slider = elementOf(id);
          if (!slider) continue;
          const there = placed[name] > 0;
          slider.disabled = !there;
          if (!there) continue;
          const value = Math.log(placed[name]) / Math.log(POWERS[name]);
          page.placed[pane][name] = value;
          at(pane, name, value);
          if (document.activeElement !== slider) put(id, { value });
        }
      },

      // A slider that was moved, as the text of its field.
      slide: (values, ids, texts) => {
        const triggered = window.dash_clientside.callback_context.triggered_id;
        const index = ids.findIndex((id) => triggered && id.slider === triggered.slider);
        if (index < 0) return;
        const { pane, slider } = ids[index];
        const value = Number(values[index]);
        const placed = page.placed[pane];
        if (placed[slider] === undefined || Math.abs(value - placed[slider]) < 1e-9) return;
        if (document.activeElement !== elementOf(ids[index])) return;
        placed[slider] = value;
        at(pane, slider, value);
        const number = POWERS[slider] ** value;
        if (slider === "batch" || slider === "gpus") {
          put({ pane, field: slider }, { value: String(Math.max(1, Math.round(number))) });
        } else if (slider === "density") {
          const own = page.texts[pane] || {};
          const of = `${own.method ?? ""}/${own.fusion ?? ""}`;
          put({ pane, option: "options.density", of }, { value: rounded(number) });
        } else if ((page.texts[pane] || {}).node && !(page.texts[pane] || {}).net) {
          put({ pane, field: "nic" }, { value: `${rounded(number)}Gbit/s` });
        } else {
          const rate = rounded(10 ** placed.rate);
          const latency = rounded(10 ** (placed.latency ?? 1));
          put({ pane, field: "net" }, { value: `${rate}Gbit/s,${latency}us` });
        }
      },

      // The question, once no other has come for a while.
      settle: (answered) => {
        if (!answered) return NONE();
        const { pane, number } = answered;
        byId(`pane-${pane}`).classList.add("behind");
        return new Promise((resolve) =>
          setTimeout(() => resolve(page.asked[pane].number === number ? answered : NONE()), SETTLE_MS),
        );
      },

      draw: async (drawn, scheme, id) => {
        if (!drawn) return "";
        const [, , pane] = id.split("-");
        const plot = byId(id);
        const plotly = await loaded();
        if (drawn.data) {
          const { data, layout } = figureOf(drawn, scheme || "light");
          // Bars of the timeline need room: as many streams, as high.
          plot.style.height = id.includes("timeline") ? `${Math.min(drawn.layout.height, 480)}px` : "";
          await plotly.react(plot, data, layout, CONFIG);
        } else plotly.purge(plot);
        if (pane) byId(`pane-${pane}`).classList.remove("behind");
        return drawn.words;
      },

      toggle: (clicks, loaded, answered) => {
        if (!clicks) return NONE();
        compare(!page.comparing);
        if (!page.comparing || loaded) return NONE();
        return { texts: { ...((answered || {}).texts || page.texts.a) }, number: Date.now() };
      },

      // What needs no server: opening a file, copying the link.
      take: () => {
        const context = window.dash_clientside.callback_context;
        const id = context.triggered_id;
        if (!id || !context.triggered[0].value) return NONE();
        if (id.export === "open") open(id.pane);
        if (id.export !== "link") return NONE();
        if (!navigator.clipboard) return `The link is in the address bar: ${location.href}`;
        return navigator.clipboard.writeText(location.href).then(
          () => "The link is on the clipboard.",
          () => "The link is in the address bar.",
        );
      },

      picture: (clicks, drawn, id) => {
        if (!clicks || !drawn || !drawn.data) return;
        const figure = figureOf(drawn, "light");
        figure.layout = {
          ...figure.layout,
          paper_bgcolor: "#ffffff", plot_bgcolor: "#ffffff",
          title: { text: drawn.heading, x: 0.01, font: { size: 15 } },
          margin: { ...figure.layout.margin, t: 64 },
        };
        const size = { format: "png", width: 1000, height: (drawn.layout.height || 420) + 60, scale: 2 };
        loaded().then((library) => library.toImage(figure, size)).then((url) => save(`perfsim-${id.png}.png`, url));
      },
    },
  });

  // A list of names offers all of them when it is clicked, not only what begins like its text.
  document.addEventListener("mousedown", (event) => {
    const input = event.target;
    if (!(input instanceof HTMLInputElement) || !input.list || document.activeElement === input) return;
    const { value, placeholder } = input;
    if (!value) return;
    const typed = () => restore(false);
    const restore = (back) => {
      input.removeEventListener("blur", left);
      input.removeEventListener("input", typed);
      input.placeholder = placeholder;
      if (back) input.value = value;
    };
    const left = () => restore(true);
    input.value = "";
    input.placeholder = value;
    input.addEventListener("blur", left);
    input.addEventListener("input", typed);
  });
})();
