"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const text = (id, value) => { if ($(id).textContent !== value) $(id).textContent = value; };
  const tile = (id, value, small) => {
    const note = document.createElement("small");
    note.textContent = small;
    $(id).replaceChildren(value, note);
  };
  const scaled = (value, units, step) => {
    let unit = 0;
    while (value >= step && unit < units.length - 1) { value /= step; unit += 1; }
    return `${value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)} ${units[unit]}`.trim();
  };
  const rateText = (value, unit) => `${scaled(value, ["", "k", "M"], 1000)} ${unit}`;
  const latencyText = (ns) => scaled(ns, ["ns", "µs", "ms", "s"], 1000);

  function showStudy(study) {
    if (!study.title) return;
    text("title", study.title);
    text("question", study.question);
    text("place", `· ${study.target} · ${study.profile}`);
    document.title = `${study.title} · iosonde live`;
  }

  function showProgress(state) {
    const { progress, verdicts } = state;
    if (progress.total === undefined) return;
    const percent = Math.round(100 * (state.over && state.over.outcome === "complete" ? 1 : progress.share));
    $("bar").firstElementChild.style.width = `${percent}%`;
    $("bar").setAttribute("aria-valuenow", String(percent));
    const failed = progress.failed ? `, ${progress.failed} failed` : "";
    text("runs", `${progress.done} of ${progress.at_most ? "at most " : ""}${progress.total} runs${failed}`);
    text("remaining", state.over ? "" : `${progress.at_most ? "at most " : ""}${progress.remaining} remaining`);
    const found = Object.entries(verdicts).sort(([, a], [, b]) => b - a).map(([kind, count]) => `${count} ${kind}`);
    text("verdicts", found.length ? `Verdict so far: ${found.join(", ")}` : progress.done ? "Verdict so far: none" : "");
  }

  function showNow(state) {
    $("running").hidden = Boolean(state.over);
    if (!state.now.load) return;
    const phase = document.createElement("span");
    phase.className = "phase";
    phase.textContent = state.now.phase;
    $("current").replaceChildren(state.now.load, phase);
    const values = state.values;
    if (values.rate === undefined) return;
    tile("rate", values.rate_text, "");
    tile("bandwidth", values.bandwidth_text, "");
    tile("p50", values.p50_text, `p50 ${values.latency} latency`);
    tile("p99", values.p99_text, `p99; p99.9 ${values.p99_9_text}`);
    const backlog = values.latency === "response" ? `; ${values.backlog} due and not started` : "";
    tile("queue", values.in_flight.toFixed(1), values.queue_depth ? `in flight on average, of ${values.queue_depth}${backlog}` : "in flight on average");
  }

  function draw(id, points, place) {
    const values = points.filter((point) => point[place] !== null);
    const path = $(id).querySelector("path");
    if (values.length < 2) { path.removeAttribute("d"); return; }
    const [first, last] = [values[0][0], values.at(-1)[0]];
    const top = Math.max(...values.map((point) => point[place])) || 1;
    path.setAttribute("d", values.map((point, i) =>
      `${i ? "L" : "M"}${(100 * (point[0] - first) / (last - first || 1)).toFixed(2)},${(98 - 94 * point[place] / top).toFixed(2)}`).join(""));
  }

  function showCases(cases) {
    const body = $("cases");
    cases.forEach((item, index) => {
      const row = body.rows[index] || body.insertRow();
      if (!row.cells.length) {
        row.append(Object.assign(document.createElement("th"), { scope: "row" }));
        for (let i = 0; i < 4; i += 1) row.insertCell();
        row.cells[4].className = "words";
      }
      row.className = item.running ? "running" : "";
      const verdicts = Object.entries(item.verdicts).map(([kind, count]) => item.done > 1 ? `${count} ${kind}` : kind).join(", ");
      const shown = [
        item.load,
        `${item.done}${item.planned ? ` of ${item.planned}` : ""}${item.failed ? `, ${item.failed} failed` : ""}`,
        item.rate === null ? "" : rateText(item.rate, item.unit),
        item.p99_ns === null ? "" : latencyText(item.p99_ns),
        verdicts,
      ];
      shown.forEach((value, place) => { if (row.cells[place].textContent !== value) row.cells[place].textContent = value; });
      row.cells[1].classList.toggle("failed", item.failed > 0);
    });
  }

  let report = "";
  function showOver(over) {
    if (!over || !$("over").hidden) return;
    report = over.report;
    const words = { complete: "The study is over.", stopped: "The study was stopped.", failed: "The study failed.", lost: "The study is over." };
    $("over").replaceChildren(`${words[over.outcome] || "The study is over."} ${over.text} `);
    $("over").className = `banner ${over.outcome === "complete" ? "done" : "lost"}`;
    if (report) {
      const link = Object.assign(document.createElement("a"), { href: "report.html", textContent: "Open the report", id: "report", rel: "noreferrer" });
      $("over").append(link, ` (${report})`);
    }
    $("over").hidden = false;
  }

  function show(state) {
    showStudy(state.study);
    showProgress(state);
    showNow(state);
    $("timelines").hidden = state.points.length < 2;
    draw("rates", state.points, 1);
    draw("tails", state.points, 2);
    showCases(state.cases);
    $("notes-section").hidden = !state.notes.length;
    $("notes").replaceChildren(...state.notes.map((note) => Object.assign(document.createElement("li"), { textContent: note })));
    showOver(state.over);
  }

  let version = -1, failures = 0;
  async function poll() {
    try {
      const answer = await fetch(`state?since=${version}`, { cache: "no-store" });
      if (answer.status === 200) {
        const state = await answer.json();
        version = state.version;
        show(state);
      }
      failures = 0;
      text("connection", "");
    } catch (error) {
      failures += 1;
      if (!$("over").hidden) {
        const link = $("report");
        if (link) link.replaceWith("The report is a file now:");
        return;
      }
      if (failures > 2) text("connection", "No answer from iosonde; asking again.");
      if (failures > 60) {
        text("connection", "iosonde is gone.");
        return;
      }
    }
    setTimeout(poll, 1000);
  }
  poll();
})();
