// Sortable tables: a button in a column header sorts the rows; a second click reverses the order.
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const value = (row, column) => {
    const text = row.cells[column].textContent;
    return column ? Number.parseFloat(text.replace(/[^\d.]/g, "")) : text; // NaN of "\u2013"
  };
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    const turn = down ? -1 : 1;
    const order = (a, b) => (column
      ? Number.isNaN(a) - Number.isNaN(b) || turn * (a - b) || 0
      : turn * a.localeCompare(b, undefined, { numeric: true }));
    const rows = [...table.tBodies[0].rows].sort((a, b) => order(value(a, column), value(b, column)));
    table.tBodies[0].append(...rows);
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
  }));
}
