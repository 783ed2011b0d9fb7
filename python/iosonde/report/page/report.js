// Sorts and filters tables, saves figures and tables, shows values under the pointer, shows single runs.
// Figures are in the page as SVG. The chart library and the rows are unpacked on demand; text from users is only ever set
// as text.
(() => {
  "use strict";
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const data = read("data");
  document.querySelectorAll(".actions, .controls").forEach((element) => { element.hidden = false; });
  document.querySelectorAll(".unscripted").forEach((element) => { element.hidden = true; });

  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).text();
  }

  // Rows come as columns, text as distinct values and places.
  function rowsOf(figure) {
    const take = Object.entries(figure.columns).map(([name, column]) => {
      if (Array.isArray(column)) return [name, (i) => column[i]];
      return [name, column.at ? (i) => column.of[column.at[i]] : () => column.of[0]];
    });
    return Array.from({ length: figure.rows }, (_, i) => Object.fromEntries(take.map(([name, at]) => [name, at(i)])));
  }

  const figures = new Map();
  async function figureOf(name) {
    if (!figures.has(name)) {
      const figure = JSON.parse(await unpack(data.figures[name]));
      figure.table = rowsOf(figure);
      figures.set(name, figure);
    }
    return figures.get(name);
  }

  // The page's policy names the library by its hash.
  let loading = null;
  function library() {
    loading = loading || unpack(document.getElementById("library").textContent).then((text) => {
      const script = document.createElement("script");
      script.textContent = text;
      document.head.append(script);
    });
    return loading;
  }

  // Expressions are interpreted (`ast`), so the page's policy need not allow text to become code.
  async function embed(place, specification, options) {
    await library();
    const settings = { mode: "vega-lite", actions: false, ast: true, defaultStyle: false, loader: offline, tooltip: tip };
    return window.vegaEmbed(place, specification, { ...settings, ...options });
  }

  // Nothing is ever loaded; a chart that tried would fail here, before the page's policy refuses it.
  const offline = { load: refuse, sanitize: refuse, http: refuse, file: refuse };
  function refuse() { return Promise.reject(new Error("this report loads nothing")); }

  // Values under the pointer: the figure is drawn again by the library, in the place of the static one.

  async function interact(element) {
    const figure = await figureOf(element.dataset.figure);
    const charts = [...element.querySelectorAll(".chart")];
    await Promise.all(charts.map((chart, index) => {
      const values = figure.table.filter((row) => row.panel === figure.keys[index]);
      const config = { ...structuredClone(data.theme), background: null, autosize: { type: "fit-x", contains: "padding" } };
      const specification = { ...figure.panels[index], width: chart.clientWidth, data: { values }, config, description: figure.description };
      return embed(chart, specification, { renderer: "svg" });
    }));
    element.dataset.drawn = "true";
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-interactive]");
    if (!button) return;
    const element = button.closest("[data-figure]");
    button.remove();
    interact(element);
  });

  // Tooltips: a short list of names and values, as text.
  const bubble = document.createElement("div");
  bubble.className = "tip";
  bubble.hidden = true;
  document.body.append(bubble);
  function tip(_handler, event, _item, value) {
    if (!value || typeof value !== "object") { bubble.hidden = true; return; }
    bubble.replaceChildren(...Object.entries(value).filter(([, text]) => text !== "null" && text !== "").map(([name, text]) => {
      const row = document.createElement("div");
      const key = document.createElement("span");
      key.textContent = name;
      row.append(key, text);
      return row;
    }));
    bubble.hidden = false;
    const { width, height } = bubble.getBoundingClientRect();
    bubble.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
    bubble.style.top = `${event.clientY + height + 24 > innerHeight ? event.clientY - height - 12 : event.clientY + 14}px`;
  }

  // Saving --------------------------------------------------------------------------------------------------------

  function save(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  async function saveSvg(name, figure) {
    const specification = { title: figure.title, ...figure.specification, datasets: { figure: figure.table }, config: data.paper };
    const { view, finalize } = await embed(document.createElement("div"), specification, { renderer: "none" });
    save(`${name}.svg`, "image/svg+xml", await view.toSVG());
    finalize();
  }

  // A spreadsheet would evaluate texts such as `=1+1`, even foreign ones; `foreign_text.cell` has the same rule.
  const marked = (text) => /^[=+\-@\t\r\n＝＋－＠]./s.test(text) && !/^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/.test(text) ? `'${text}` : text;
  const field = (value) => {
    const text = value === null || value === undefined ? "" : typeof value === "number" ? String(value) : marked(String(value));
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = (rows) => rows.map((row) => row.map(field).join(",")).join("\n") + "\n";

  function saveCsv(name, figure) {
    const columns = Object.keys(figure.heads);
    const rows = figure.table.map((row) => columns.map((column) => row[column]));
    save(`${name}.csv`, "text/csv", lines([columns.map((column) => figure.heads[column]), ...rows]));
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-save]");
    if (!button) return;
    const name = button.closest("[data-figure]").dataset.figure;
    (button.dataset.save === "svg" ? saveSvg : saveCsv)(name, await figureOf(name));
  });

  // Tables --------------------------------------------------------------------------------------------------------

  const sortKey = (cell) => cell.dataset.number !== undefined ? Number(cell.dataset.number) : null;

  function sortBy(head) {
    const table = head.closest("table"), body = table.tBodies[0], index = head.cellIndex;
    const up = head.getAttribute("aria-sort") !== "ascending";
    table.querySelectorAll("[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = [...body.rows].map((row) => [sortKey(row.cells[index]), row.cells[index].textContent, row]);
    rows.sort(([a, s], [b, t]) => {
      if (a === null || b === null) return a === b ? (up ? s.localeCompare(t) : t.localeCompare(s)) : a === null ? 1 : -1;
      return up ? a - b : b - a;
    });
    body.append(...rows.map(([, , row]) => row));
  }

  function filterRows(input) {
    // Words are looked for in what names a row; a number, with or without a unit, must be the whole of a cell.
    const words = input.value.toLowerCase().match(/\d[\d.]*( ?[kmgt]?i?b)?(?!\S)|\S+/g) || [];
    const plain = (text) => text.toLowerCase().replaceAll(" ", "");
    for (const row of document.getElementById(input.dataset.filter).tBodies[0].rows) {
      const names = [...row.querySelectorAll("th")].map((cell) => plain(cell.textContent));
      const has = (word) => names.some((name) => (/^\d/.test(word) ? name === plain(word) : name.includes(word)));
      row.hidden = !words.every(has);
    }
  }

  function saveTable(button) {
    const table = document.getElementById(button.dataset.saveTable);
    const value = (cell) => cell.dataset.number ?? (cell.firstChild ? cell.firstChild.textContent : "");
    const mark = document.body.dataset.simulated === "simulated" ? (head) => [head ? "simulated" : "true"] : () => [];
    const inHead = (row) => row.parentNode.tagName === "THEAD";
    const rows = [...table.rows].map((row) => [...[...row.cells].map((cell) => inHead(row) ? cell.textContent : value(cell)), ...mark(inHead(row))]);
    save(`${button.dataset.name.toLowerCase().replace(/[^a-z0-9]+/g, "-")}.csv`, "text/csv", lines(rows));
  }

  document.addEventListener("click", (event) => {
    const head = event.target.closest(".sort"), button = event.target.closest("[data-save-table]");
    if (head) sortBy(head.closest("th"));
    if (button) saveTable(button);
  });
  document.addEventListener("input", (event) => { if (event.target.dataset.filter) filterRows(event.target); });

  // Every run -----------------------------------------------------------------------------------------------------

  const sets = document.getElementById("run-set"), cases = document.getElementById("run-case");
  const list = document.getElementById("run-list"), stage = document.getElementById("run-view");
  let runs = null, shown = null;

  const make = (tag, text, attributes = {}) => {
    const element = Object.assign(document.createElement(tag), attributes);
    if (text !== undefined) element.textContent = text;
    return element;
  };

  function fillSets() {
    runs = runs || read("run-data");
    sets.replaceChildren(...Object.keys(runs).map((label) => make("option", label, { value: label })));
    fillCases();
  }

  function fillCases(wanted) {
    const known = runs[sets.value].cases;
    const groups = Map.groupBy ? Map.groupBy(known, (item) => item.part) : new Map([["", known]]);
    cases.replaceChildren(...[...groups].map(([part, items]) => {
      const group = make("optgroup", undefined, { label: part });
      group.append(...items.map((item) => make("option", item.name, { value: item.id })));
      return group;
    }));
    cases.value = wanted || (known.find((item) => item.id !== "control" && item.runs.some((run) => run.series)) || known[0]).id;
    fillRuns();
  }

  function fillRuns() {
    const item = runs[sets.value].cases.find(({ id }) => id === cases.value);
    list.replaceChildren(...item.runs.map((run) => {
      const button = make("button", run.outcome === "complete" ? run.id : `${run.id}: ${run.outcome}`, { type: "button" });
      button.addEventListener("click", () => showRun(run));
      button.dataset.run = run.id;
      return button;
    }));
    showRun(item.runs.find((run) => run.series) || item.runs[0]);
  }

  function specOf(run) {
    const spec = structuredClone(runs[sets.value].spec);
    for (const [path, value] of run.spec) {
      if (!path.length) return value;
      path.slice(0, -1).reduce((place, key) => place[key], spec)[path.at(-1)] = value;
    }
    return spec;
  }

  async function showRun(run) {
    shown = run;
    list.querySelectorAll("button").forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.run === run.id)));
    const series = run.series ? JSON.parse(await unpack(run.series)) : null;
    if (shown !== run) return;
    const facts = make("p", undefined, { className: "run-facts" });
    for (const [name, value] of [["Run", run.id], ["Repeat", run.repeat], ["Position", run.order], ["Outcome", run.outcome], ["Started", run.started]]) {
      if (value === "") continue;
      const fact = make("span", `${name} `);
      fact.append(make("b", value));
      facts.append(fact);
    }
    const notes = [run.why, ...run.warnings].filter(Boolean).map((text) => make("p", text, { className: "source" }));
    const panels = make("div", undefined, { className: "panels" });
    panels.dataset.columns = "3";
    stage.replaceChildren(facts, ...notes, panels, specDetails(run));
    if (series) drawRun(panels, run, series);
    stage.dataset.run = run.id;
  }

  function specDetails(run) {
    const details = make("details", undefined, { className: "block" });
    const text = JSON.stringify(specOf(run), null, 2);
    const summary = make("summary");
    summary.append(make("h3", "Spec of this run"));
    const button = make("button", "Save spec.json", { type: "button" });
    button.addEventListener("click", () => save(`${run.id}.json`, "application/json", text + "\n"));
    const actions = make("p", undefined, { className: "actions" });
    actions.append(button);
    const block = make("pre");
    block.append(make("code", text));
    details.append(summary, actions, block);
    return details;
  }

  const TIME_AXIS = "datum.value >= 1e9 ? format(datum.value/1e9,'.3~r')+' s' : datum.value >= 1e6 ? format(datum.value/1e6,'.3~r')+' ms' : datum.value >= 1e3 ? format(datum.value/1e3,'.3~r')+' µs' : datum.value+' ns'";

  function drawRun(panels, run, series) {
    const { loop } = runs[sets.value].cases.find(({ id }) => id === cases.value);
    const rate = series.ops_per_sec ? "ops_per_sec" : "iops";
    const rows = series.seconds.map((seconds, i) => ({
      seconds, operation: series.operation[i], bandwidth: (series.bandwidth || [])[i] / 1e6, [rate]: series[rate]?.[i],
      mean: (series.completion_latency_ns_mean || [])[i], max: (series.completion_latency_ns_max || [])[i],
    }));
    const last = series.seconds.reduce((a, b) => Math.max(a, b), 0.1);
    const x = { field: "seconds", type: "quantitative", title: "Time in the measurement (s)", scale: { domain: [0, last] }, axis: { tickCount: 6 } };
    const highest = rows.reduce((top, row) => Math.max(top, row.max || 0), 1e3);
    const lowest = rows.reduce((low, row) => Math.min(low, row.mean || low), highest);
    const ticks = [];
    for (let tick = 10 ** Math.floor(Math.log10(lowest)); tick <= highest * 10; tick *= 10) ticks.push(tick);
    const operations = [...new Set(series.operation)];
    const color = operations.length > 1 ? { field: "operation", type: "nominal", title: "Operation", scale: { domain: operations } } : undefined;
    const single = rows.length === operations.length;
    const mark = (extra) => ({ type: "line", strokeWidth: 1.4, point: single ? { size: 30 } : false, ...extra });
    const quantity = (field, title) => ({
      mark: mark({}), encoding: { x, y: { field, type: "quantitative", title, axis: { tickCount: 5 } }, color, tooltip: [{ field: "seconds", title: "s" }, { field, title, format: ",.4~r" }] },
    });
    const latency = {
      transform: [{ fold: ["mean", "max"], as: ["statistic", "ns"] }, { filter: "isValid(datum.ns) && datum.ns > 0" }],
      mark: mark({}),
      encoding: {
        x, color, y: { field: "ns", type: "quantitative", title: `Completion latency (${loop})`, scale: { type: "log", domain: [ticks[0], ticks.at(-1)] }, axis: { labelExpr: TIME_AXIS, values: ticks } },
        strokeDash: { field: "statistic", type: "nominal", title: "Statistic", sort: ["mean", "max"], scale: { domain: ["mean", "max"], range: [[1, 0], [3, 3]] }, legend: { symbolType: "stroke" } },
      },
    };
    for (const chart of [quantity("bandwidth", "Bandwidth (MB/s)"), quantity(rate, rate === "iops" ? "IOPS" : "Operations per second"), latency]) {
      const panel = make("div", undefined, { className: "panel" }), place = make("div", undefined, { className: "chart" });
      panel.append(place);
      panels.append(panel);
      const specification = { ...chart, data: { values: rows }, width: place.clientWidth, height: 190, config: { ...structuredClone(data.theme), background: null, autosize: { type: "fit-x", contains: "padding" } }, description: `Time series of run ${run.id}` };
      embed(place, specification, { renderer: "svg" });
    }
  }

  function showCase(key) {
    if (!runs) fillSets();
    const [label, id] = key.split("\n");
    sets.value = label;
    fillCases(id);
    document.getElementById("runs").scrollIntoView();
  }

  document.addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-case]"), link = event.target.closest("[data-show-case]");
    if (row && !window.getSelection().toString()) showCase(row.dataset.case);
    if (link) { event.preventDefault(); showCase(link.dataset.showCase); }
  });
  sets.addEventListener("change", () => fillCases());
  cases.addEventListener("change", fillRuns);
  new IntersectionObserver((entries, observer) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    if (!runs) fillSets();
  }, { rootMargin: "400px" }).observe(document.getElementById("runs"));
})();
