// What pages do beyond links and forms: copying, relative times, keys. Everything works without it, except copying.
"use strict";
document.documentElement.classList.add("js");

function toast(text) {
  const place = document.querySelector("[data-toast]");
  place.textContent = text;
  place.classList.add("shown");
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => place.classList.remove("shown"), 2500);
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // A page that is served without TLS has no clipboard.
    const area = Object.assign(document.createElement("textarea"), { value: text, className: "visually-hidden" });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) {
    await copyText(button.dataset.copy);
    const word = button.querySelector("span");
    if (word && word.textContent !== "Copied") {
      const before = word.textContent;
      word.textContent = "Copied";
      setTimeout(() => (word.textContent = before), 1500);
    }
    toast("Copied");
  }
  for (const open of document.querySelectorAll("details.menu[open]")) {
    if (!open.contains(event.target)) open.removeAttribute("open");
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    for (const open of document.querySelectorAll("details.menu[open]")) {
      open.removeAttribute("open");
      open.querySelector("summary").focus();
    }
  }
  const typing = event.target.closest("input, textarea, select, [contenteditable]");
  const isFind = (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) || (event.key === "k" && (event.ctrlKey || event.metaKey));
  if (isFind) {
    const field = document.querySelector("[data-find]");
    if (field) {
      event.preventDefault();
      field.focus();
    }
  }
});

// Fields that grow, and selects that filter at once.
document.addEventListener("change", (event) => {
  if (event.target.matches(".filters select")) event.target.form.requestSubmit();
});

const UNITS = [[3600, "h"], [60, "min"], [1, "s"]];
function ago(at) {
  const seconds = (Date.now() - at) / 1000;
  const distance = Math.abs(seconds);
  if (distance < 1) return "now";
  if (distance >= 86400) return; // the server wrote the date, or does so at the next load
  const [length, unit] = UNITS.find(([length]) => distance >= length);
  const text = `${Math.floor(distance / length)} ${unit}`;
  return seconds > 0 ? `${text} ago` : `in ${text}`;
}
function tick() {
  for (const one of document.querySelectorAll("time[data-ago]")) {
    const text = ago(Date.parse(one.dateTime));
    if (text && one.textContent !== text) one.textContent = text;
  }
}
setInterval(tick, 5000);

// A refresh in the background must not close what the person has opened, nor end a session's page silently.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.xhr.responseURL.includes("/ui/sign-in") && !location.pathname.includes("/ui/sign-in")) {
    event.detail.shouldSwap = false;
    location.reload();
  }
});
document.addEventListener("DOMContentLoaded", () => {
  for (const current of document.querySelectorAll(".tabs [aria-current]")) {
    const bar = current.parentElement;
    bar.scrollLeft = current.offsetLeft - bar.offsetLeft - (bar.clientWidth - current.offsetWidth) / 2;
  }
  if (window.Idiomorph) {
    window.Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) => !(name === "open" && node.tagName === "DETAILS");
  }
});

// A part of the page that could not be read again shows old facts, which the page has to show.
document.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.elt?.hasAttribute?.("hx-trigger")) {
    document.querySelector("[data-stale]").hidden = event.detail.successful;
  }
});

// An area that scrolls is reached by the keyboard, also in browsers that leave it out.
function reachable() {
  for (const area of document.querySelectorAll(".table-box, .paper, .crew-text pre, .text-value, .detail, .tabs, .sections")) {
    const scrolls = area.scrollWidth > area.clientWidth + 1 || area.scrollHeight > area.clientHeight + 1;
    if (scrolls && !area.querySelector("a[href], button, input, select, textarea, [tabindex]")) area.tabIndex = 0;
  }
}
for (const moment of ["DOMContentLoaded", "htmx:afterSettle"]) document.addEventListener(moment, reachable);
window.addEventListener("resize", reachable);
