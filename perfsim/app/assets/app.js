// What the page does by itself: texts of controls to questions, sliders, marks, drawing, sharing.
// What it shows comes from the server: sentences and figures as they are, HTML that is escaped there.
"use strict";
(() => {
  const SETTLE_MS = 200; // quiet before figures are drawn
  const OFF = /^(false|no|off|0|f|n)$/i;
  const FIGURES = ["timeline", "scaling", "breakeven"];
  const INKS = {
    light: { ink: "#1d2733", line: "#dde3e9" },
    dark: { ink: "#e4e9ee", line: "#333e4a" },
  };
  const CONFIG = { responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "toImage"] };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const byId = (id) => document.getElementById(id);
  const notice = (words) => { byId("notice").textContent = words; };

  const post = async (where, question, signal) => {
    const response = await fetch(where, {
      method: "POST", signal, body: JSON.stringify(question),
      headers: { "Content-Type": "application/json" },
    });
    if (!response.ok) return { field: "", sentence: (await response.text()).trim() };
    return response.json();
  };

  // Figures: data of the server, in the colours of the page.

  let plotly = null;
  const library = () => {
    plotly ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = "plotly.js";
      script.addEventListener("load", () => resolve(window.Plotly));
      script.addEventListener("error", reject);
      document.head.append(script);
    });
    return plotly;
  };
  const inked = (value, ink) => {
    if (value === "ink") return ink;
    if (Array.isArray(value)) return value.map((one) => inked(one, ink));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, inked(v, ink)]));
  };
  const figureOf = (drawn, scheme) => {
    const colours = INKS[scheme];
    const axis = { gridcolor: colours.line, linecolor: colours.line, zerolinecolor: colours.line };
    const { height: _, ...given } = drawn.layout;
    const layout = inked(given, colours.ink);
    return {
      data: inked(drawn.data, colours.ink),
      layout: {
        ...layout,
        autosize: true,
        font: { family: "system-ui, sans-serif", size: 12, color: colours.ink },
        paper_bgcolor: "rgba(0,0,0,0)",
        plot_bgcolor: "rgba(0,0,0,0)",
        margin: { l: 10, r: 16, t: 24, b: layout.showlegend === false ? 44 : 72, ...layout.margin },
        legend: { orientation: "h", y: 0, yref: "container", yanchor: "bottom", x: 0, ...layout.legend },
        hoverlabel: { font: { family: "system-ui, sans-serif" }, align: "left" },
        hovermode: "closest",
        xaxis: { ...axis, ...layout.xaxis },
        yaxis: { ...axis, ...layout.yaxis },
      },
    };
  };
  const drawnOn = new Map(); // by plot: the figure that stands there
  const draw = async (plot, drawn) => {
    const plots = await library();
    drawnOn.set(plot, drawn);
    if (!drawn.data) {
      plots.purge(plot);
      return;
    }
    const { data, layout } = figureOf(drawn, dark.matches ? "dark" : "light");
    await plots.react(plot, data, layout, CONFIG);
  };
  dark.addEventListener("change", () => drawnOn.forEach((drawn, plot) => draw(plot, drawn)));

  const save = (name, url) => {
    const link = document.createElement("a");
    link.href = url;
    link.download = name;
    link.click();
  };
  const picture = async (name, drawn) => {
    if (!drawn || !drawn.data) {
      notice("There is no figure to save.");
      return;
    }
    const { data, layout } = figureOf(drawn, "light");
    Object.assign(layout, {
      paper_bgcolor: "#ffffff", plot_bgcolor: "#ffffff",
      title: { text: drawn.heading, x: 0.01, font: { size: 15 } },
      margin: { ...layout.margin, t: 64 },
    });
    const size = { format: "png", width: 1000, height: (drawn.layout.height || 420) + 60, scale: 2 };
    save(`perfsim-${name}.png`, await (await library()).toImage({ data, layout }, size));
  };

  // One scenario: its controls, its answer, its figures.

  class Pane {
    constructor(letter) {
      this.letter = letter;
      this.root = byId(`pane-${letter}`);
      this.answer = byId(`answer-${letter}`);
      this.wrong = this.root.querySelector(".wrong-all");
      this.options = this.root.querySelector(".options");
      this.placed = {};
      this.texts = {}; // of the last question
      this.good = null; // of the last answer
      this.busy = false;
      this.owner = null; // whose options are shown
      this.root.querySelector(".controls").addEventListener("input", (event) => this.changed(event.target));
      for (const button of this.root.querySelectorAll("[data-export]"))
        button.addEventListener("click", () => this.export(button.dataset.export));
      for (const button of this.root.querySelectorAll("[data-picture]"))
        button.addEventListener("click", () =>
          picture(button.dataset.picture, drawnOn.get(this.plot(button.dataset.picture))));
    }
    get controls() { return [...this.root.querySelectorAll(".controls .field")]; }
    input(key) { return this.root.querySelector(`.field[data-key="${CSS.escape(key)}"] input`); }
    plot(name) { return this.root.querySelector(`.${name} .plot`); }
    put(key, text) {
      const input = this.input(key);
      if (input) input.value = text;
    }

    // What stands in the controls; empty ones are left out.
    read() {
      const texts = {};
      for (const one of this.controls) {
        const input = one.querySelector("input");
        if (input.type === "checkbox") {
          const usual = input.dataset.on === "true";
          if (input.checked !== usual) texts[one.dataset.key] = String(input.checked);
        } else if (input.value.trim()) texts[one.dataset.key] = input.value;
      }
      return texts;
    }
    async load(texts) {
      for (const one of this.controls) {
        const input = one.querySelector("input");
        const text = texts[one.dataset.key] ?? "";
        if (input.type === "checkbox")
          input.checked = text ? !OFF.test(text.trim()) : input.dataset.on === "true";
        else input.value = text;
      }
      await this.showOptions(texts);
      this.ask();
    }
    async showOptions(texts) {
      const owner = `${texts.method ?? ""}/${texts.fusion ?? ""}`;
      this.owner = owner;
      const shown = await post("options", { pane: this.letter, texts });
      if (this.owner !== owner) return;
      if (shown.sentence) notice(shown.sentence);
      this.options.innerHTML = shown.html ?? "";
    }

    changed(input) {
      if (input.dataset.slider) this.slide(input);
      const key = input.closest(".field")?.dataset.key;
      if (key === "method" || key === "fusion") {
        // Options are for their method: those of another are not asked for.
        this.options.replaceChildren();
        this.ask();
        this.showOptions({ method: this.input("method").value, fusion: this.input("fusion").value })
          .then(() => this.place());
      } else this.ask();
    }
    // A slider that is moved, as the text of its field.
    slide(slider) {
      const name = slider.dataset.slider;
      const number = slider.dataset.base ** Number(slider.value);
      const words = String(Number(number.toPrecision(3)));
      this.placed[name] = number;
      this.say(slider);
      if (name === "density") this.put("options.density", words);
      else if (name === "batch" || name === "gpus") this.put(name, String(Math.max(1, Math.round(number))));
      else if (this.input("node").value.trim() && !this.input("net").value.trim())
        this.put("nic", `${words}Gbit/s`);
      else {
        const [rate, latency] = [this.placed.rate ?? 10, this.placed.latency ?? 20]
          .map((one) => String(Number(one.toPrecision(3))));
        this.put("net", `${rate}Gbit/s,${latency}us`);
      }
    }
    say(slider) {
      const unit = { rate: "Gbit/s", latency: "us" }[slider.dataset.slider];
      const number = this.placed[slider.dataset.slider];
      if (unit) slider.parentElement.querySelector(".at").textContent =
        number > 0 ? `${Number(number.toPrecision(3))} ${unit}` : "";
    }
    // Sliders where the answer says that they stand, and what empty controls mean.
    place() {
      for (const slider of this.root.querySelectorAll("[data-slider]")) {
        const number = this.placed[slider.dataset.slider];
        slider.disabled = !(number > 0);
        if (number > 0 && document.activeElement !== slider)
          slider.value = Math.log(number) / Math.log(slider.dataset.base);
        this.say(slider);
      }
      for (const one of this.controls) {
        const input = one.querySelector("input[type=text]");
        const words = (this.taken || {})[one.dataset.key];
        if (input && words !== undefined) input.placeholder = words;
      }
    }

    // One question at a time; what changes meanwhile is asked when its answer is there.
    async ask() {
      const texts = this.read();
      this.texts = texts;
      showLink();
      this.root.classList.add("behind");
      clearTimeout(this.settling);
      if (this.busy) return;
      this.busy = true;
      try {
        this.show(await post("answer", { texts }), texts);
      } catch {
        this.show({ field: "", sentence: "The app does not answer: perfsim app may have been stopped." }, texts);
      } finally {
        this.busy = false;
      }
      if (this.texts !== texts) this.ask();
    }
    show(found, texts) {
      this.mark(found.field, found.sentence);
      if (found.sentence) {
        this.root.classList.remove("behind");
        return;
      }
      this.answer.innerHTML = found.html;
      this.good = texts;
      const readout = document.querySelector(`[data-readout="${this.letter}"]`);
      readout.textContent = (comparing ? `${this.letter.toUpperCase()} ` : "") + found.seconds;
      this.taken = found.taken;
      this.placed = { ...found.placed };
      const texts_ = texts;
      this.settling = setTimeout(() => this.settle(texts_), SETTLE_MS);
      // The frame with the answer goes first.
      requestAnimationFrame(() => setTimeout(() => this.place()));
      library();
    }
    // Where a refusal belongs, and that the answer below it is an older one.
    mark(field, sentence) {
      this.root.classList.toggle("refused", Boolean(sentence));
      document.querySelector(`[data-readout="${this.letter}"]`).classList.toggle("old", Boolean(sentence));
      let shown = false;
      for (const one of this.controls) {
        const input = one.querySelector("input");
        const words = one.querySelector(".wrong");
        const mine = Boolean(sentence) && one.dataset.key === field;
        if (mine) {
          if (words.textContent !== sentence) words.textContent = sentence;
          input.setAttribute("aria-invalid", "true");
          input.setAttribute("aria-describedby", words.id);
          shown = true;
          const folded = one.closest("details");
          if (folded) folded.open = true;
        } else if (words.textContent) {
          words.textContent = "";
          input.removeAttribute("aria-invalid");
          input.removeAttribute("aria-describedby");
        }
      }
      const old = this.good ? "The last answer; " : "No answer; ";
      this.wrong.textContent = sentence ? old + (shown ? "see the marked field." : sentence) : "";
    }

    async settle(texts) {
      this.drawing?.abort();
      this.drawing = new AbortController();
      const { signal } = this.drawing;
      const one = async (figure) => {
        const drawn = await post("figure", { figure, texts }, signal);
        if (signal.aborted) return;
        const place = this.root.querySelector(`[data-figure="${figure}"]`);
        place.querySelector("figcaption").textContent = drawn.words ?? drawn.sentence;
        await draw(this.plot(figure), drawn);
      };
      compare(signal);
      try {
        await Promise.all(FIGURES.map(one));
        this.root.classList.remove("behind");
      } catch (error) {
        if (error.name !== "AbortError") notice(String(error.message));
      }
    }

    async export(kind) {
      if (kind === "open") return openFile(this);
      if (kind === "link") return copyLink();
      if (!this.good) return notice("There is no answer to save yet.");
      const question = { kind, texts: this.good, a: panes.a.good };
      if (comparing) question.b = panes.b.good;
      notice("...");
      const found = await post("saved", question);
      if (found.sentence) return notice(found.sentence);
      const url = URL.createObjectURL(new Blob([found.text], { type: "application/octet-stream" }));
      save(found.name, url);
      setTimeout(() => URL.revokeObjectURL(url), 10000);
      const old = this.root.classList.contains("refused") ? ", of the last answer" : "";
      return notice(`${found.name} is saved${old}.`);
    }
  }

  const openFile = (pane) => {
    const input = document.createElement("input");
    input.type = "file";
    input.accept = ".toml";
    input.addEventListener("change", async () => {
      const file = input.files[0];
      if (!file) return;
      // A larger file is refused by the server, in its own words.
      const text = await file.slice(0, 150000).text();
      const found = await post("opened", { name: file.name, text });
      notice(found.notice ?? found.sentence);
      if (found.texts) pane.load(found.texts);
    });
    input.click();
  };
  const copyLink = async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      notice("The link is on the clipboard.");
    } catch {
      notice("The link is in the address bar.");
    }
  };

  // A beside B.

  let comparing = false;
  const queryOf = () => {
    const query = new URLSearchParams();
    for (const [pane, before] of comparing ? [["a", ""], ["b", "b."]] : [["a", ""]])
      for (const [key, text] of Object.entries(panes[pane].texts)) query.append(before + key, text);
    return query.toString().replaceAll("%2C", ",").replaceAll("%3A", ":").replaceAll("%2F", "/");
  };
  const showLink = () => history.replaceState(null, "", `${location.pathname}?${queryOf()}`);
  const setComparing = (on) => {
    comparing = on;
    byId("app").classList.toggle("comparing", on);
    byId("compare").setAttribute("aria-pressed", String(on));
    byId("compare").textContent = on ? "One alone" : "Compare two";
    showLink();
    for (const plot of drawnOn.keys()) if (plot.isConnected) window.Plotly?.Plots.resize(plot);
  };
  const compare = async (signal) => {
    const { a, b } = panes;
    if (!comparing || !a.good || !b.good) return;
    const found = await post("compared", { a: a.good, b: b.good }, signal).catch(() => null);
    if (!found || signal?.aborted) return;
    byId("compared").textContent = found.words ?? found.sentence;
    if (found.data) draw(byId("plot-compared"), found);
  };

  const panes = {};
  const start = () => {
    for (const letter of ["a", "b"]) panes[letter] = new Pane(letter);
    const state = JSON.parse(byId("state").textContent);
    byId("compare").addEventListener("click", () => {
      setComparing(!comparing);
      if (!comparing) return;
      if (panes.b.good) compare();
      else panes.b.load(panes.a.read());
    });
    if (Object.keys(state.b).length) {
      setComparing(true);
      panes.b.load(state.b);
    }
    panes.a.load(state.a);
  };

  // A list of names offers all of them when it is clicked, not only what begins like its text.
  document.addEventListener("mousedown", (event) => {
    const input = event.target;
    if (!(input instanceof HTMLInputElement) || !input.list || document.activeElement === input) return;
    const { value, placeholder } = input;
    if (!value) return;
    const restore = (back) => {
      input.removeEventListener("blur", left);
      input.removeEventListener("input", typed);
      input.placeholder = placeholder;
      if (back) input.value = value;
    };
    const typed = () => restore(false);
    const left = () => restore(true);
    input.value = "";
    input.placeholder = value;
    input.addEventListener("blur", left);
    input.addEventListener("input", typed, true);
  });

  start();
})();
