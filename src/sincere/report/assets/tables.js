"use strict";
// Tabs, and tables that sort by a click on a column's title.

// A row of buttons, one of them pressed; `show` is called with its index.
function choice(container, names, show) {
  const buttons = names.map((name, i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.addEventListener("click", () => press(i));
    return button;
  });
  const press = (chosen) => {
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === chosen)));
    show(chosen);
  };
  container.append(...buttons);
  press(0);
}

for (const tabs of document.querySelectorAll(".tabs")) {
  const panels = [...tabs.children];
  const bar = document.createElement("div");
  bar.className = "choice";
  tabs.prepend(bar);
  choice(bar, panels.map((panel) => panel.dataset.name), (chosen) => {
    panels.forEach((panel, i) => { panel.hidden = i !== chosen; });
  });
}

function sortBy(table, column, ascending) {
  const body = table.tBodies[0];
  const numeric = table.tHead.rows[0].cells[column].classList.contains("number");
  const key = (row) => (numeric ? row.cells[column].dataset.value : row.cells[column].textContent);
  const rows = [...body.rows].sort((one, other) => {
    const [a, b] = [key(one), key(other)];
    if (a === undefined || b === undefined) return (a === undefined) - (b === undefined); // rows without a value come last
    const order = numeric ? Number(a) - Number(b) : a.localeCompare(b, undefined, { numeric: true });
    return ascending ? order : -order;
  });
  body.append(...rows);
}

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const ascending = head.getAttribute("aria-sort") !== "ascending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    sortBy(table, column, ascending);
  }));
}
