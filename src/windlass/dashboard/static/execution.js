// Keys in a timeline, a log that follows, and the selection of a list. The pages work without it.
"use strict";

// A live part reads the page that the address bar shows: a selected row may have changed it.
document.addEventListener("htmx:configRequest", (event) => {
  if (event.detail.elt.matches("[data-live]")) event.detail.path = location.pathname + location.search;
});

const rowsOf = () => [...document.querySelectorAll("[data-timeline] a.row[href]")];

function mark(row) {
  for (const one of rowsOf()) one.toggleAttribute("aria-current", false);
  row?.setAttribute("aria-current", "true");
}

document.addEventListener("click", (event) => {
  const row = event.target.closest("[data-timeline] a.row[href]");
  if (row) mark(row);
});

document.addEventListener("keydown", (event) => {
  const row = event.target.closest("[data-timeline] a.row[href]");
  if (!row || event.altKey || event.ctrlKey || event.metaKey) return;
  const rows = rowsOf();
  const step = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 }[event.key];
  const target = event.key === "Home" ? rows[0] : event.key === "End" ? rows.at(-1) : step && rows[rows.indexOf(row) + step];
  if (!target) return;
  event.preventDefault();
  target.focus();
  clearTimeout(mark.timer);
  mark.timer = setTimeout(() => target.click(), 120);
});

// A log stays at its end while a person reads the end.
let atEnd = true;
const logOf = () => document.querySelector("[data-log]");
const toEnd = () => logOf() && (logOf().scrollTop = logOf().scrollHeight);
document.addEventListener("htmx:beforeSwap", () => {
  const log = logOf();
  if (log) atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
});
document.addEventListener("htmx:afterSettle", () => atEnd && toEnd());
document.addEventListener("DOMContentLoaded", toEnd);

// The selection of a list survives that the list is read again.
let chosen = new Set();
document.addEventListener("htmx:beforeSwap", () => {
  chosen = new Set([...document.querySelectorAll('[data-selection] input[name="ids[]"]:checked')].map((one) => one.value));
});
document.addEventListener("htmx:afterSettle", () => {
  for (const one of document.querySelectorAll('[data-selection] input[name="ids[]"]')) one.checked = chosen.has(one.value);
});
function select() {
  const form = document.querySelector("[data-selection]");
  if (!form) return;
  const boxes = [...form.querySelectorAll('input[name="ids[]"]')];
  const count = boxes.filter((one) => one.checked).length;
  for (const one of form.querySelectorAll("[data-needs-selection]")) one.disabled = count === 0;
  const csv = new URL(form.querySelector("[data-export]").href);
  csv.searchParams.delete("ids");
  if (count) csv.searchParams.set("ids", boxes.filter((one) => one.checked).map((one) => one.value).join(","));
  form.querySelector("[data-export]").href = csv.href;
  const word = form.querySelector("[data-selected]");
  word.hidden = count === 0;
  word.textContent = `${count} selected`;
  const all = form.querySelector("[data-all]");
  if (all) {
    all.checked = count > 0 && count === boxes.length;
    all.indeterminate = count > 0 && count < boxes.length;
  }
}
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-all]")) {
    for (const one of document.querySelectorAll('[data-selection] input[name="ids[]"]')) one.checked = event.target.checked;
  }
  select();
});
document.addEventListener("DOMContentLoaded", select);
document.addEventListener("htmx:afterSettle", select);
