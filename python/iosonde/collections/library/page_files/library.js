"use strict";
(() => {
  const table = document.querySelector(".sets table"), body = table.tBodies[0];
  const tools = document.querySelector(".tools"), shown = document.getElementById("shown");
  const search = document.getElementById("search"), study = document.getElementById("study"), device = document.getElementById("device");
  const rows = [...body.rows].map((row) => ({ row, text: row.textContent.toLowerCase(), study: row.dataset.study, device: row.dataset.device }));

  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const each of rows) {
      const visible = (!study.value || each.study === study.value) && (!device.value || each.device === device.value)
        && words.every((word) => each.text.includes(word));
      if (each.row.hidden === visible) each.row.hidden = !visible;
      count += visible;
    }
    shown.textContent = count === rows.length ? `${count} result sets.` : `${count} of ${rows.length} result sets.`;
  }

  function sortBy(head) {
    const index = head.cellIndex, up = head.getAttribute("aria-sort") !== "ascending";
    table.querySelectorAll("[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = (cell) => cell.dataset.number === undefined ? null : Number(cell.dataset.number);
    const keyed = rows.map(({ row }) => [key(row.cells[index]), row.cells[index].textContent.trim(), row]);
    keyed.sort(([a, s], [b, t]) => {
      const order = a !== null && b !== null ? a - b : a === null && b === null ? s.localeCompare(t, undefined, { numeric: true }) : a === null ? 1 : -1;
      return up ? order : -order;
    });
    body.append(...keyed.map(([, , row]) => row));
  }

  for (const head of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => sortBy(head));
  }
  tools.hidden = false;
  tools.addEventListener("input", filter);
  tools.addEventListener("submit", (event) => event.preventDefault());
  tools.addEventListener("reset", () => setTimeout(filter));
  filter();
})();
