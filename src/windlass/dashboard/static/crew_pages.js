// The pages of a crew: tokens that are fetched when they are wanted, forms that are sent once, a log that follows its end.
"use strict";

async function fetchToken(form) {
  const answer = await fetch(form.action, {
    method: "POST",
    body: new URLSearchParams(new FormData(form)),
    headers: { Accept: "application/json" },
    redirect: "error",
  });
  const found = await answer.json();
  return found.token;
}

async function useToken(form, button) {
  const place = document.getElementById(form.dataset.token);
  const word = button.querySelector("span");
  if (button.value === "show" && place.textContent !== place.dataset.mask) {
    place.textContent = place.dataset.mask;
    word.textContent = "Show";
    return;
  }
  const token = await fetchToken(form);
  if (button.value === "show") {
    place.textContent = token;
    word.textContent = "Hide";
    return;
  }
  await copyText((form.dataset.prefix ?? "") + token);
  toast(form.dataset.prefix ? "Copied, with the Bearer Token" : "Copied");
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.matches("[data-token]")) {
    event.preventDefault();
    useToken(form, event.submitter).catch(() => toast("The token can't be read. Load the page again."));
  } else if (form.matches("[data-once]") && !event.defaultPrevented) {
    setTimeout(() => setBusy(form, true));
  }
});

function setBusy(form, busy) {
  for (const button of form.querySelectorAll("button:not([tabindex])")) button.disabled = busy;
  form.setAttribute("aria-busy", String(busy));
}

// A page that the browser shows again by "back" is for another kickoff.
window.addEventListener("pageshow", (event) => {
  const isBack = event.persisted || performance.getEntriesByType("navigation")[0]?.type === "back_forward";
  for (const form of document.querySelectorAll("[data-once]")) setBusy(form, false);
  if (!isBack) return;
  for (const field of document.querySelectorAll("[data-fresh]")) {
    field.value = Array.from(crypto.getRandomValues(new Uint8Array(16)), (one) => one.toString(16).padStart(2, "0")).join("");
  }
});

document.addEventListener("keydown", (event) => {
  const form = event.target.closest("[data-submit-keys]");
  if (form && event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    const button = form.querySelector(".form-end button");
    if (button) form.requestSubmit(button);
  }
});

// A log stays at its end while the reader is there.
document.addEventListener("htmx:beforeSwap", (event) => {
  const log = event.detail.target?.closest?.("[data-follow]");
  if (log) log.dataset.atEnd = String(log.scrollHeight - log.scrollTop - log.clientHeight < 60);
});
document.addEventListener("htmx:afterSettle", () => {
  for (const log of document.querySelectorAll("[data-follow]")) {
    if (log.dataset.atEnd !== "false") log.scrollTop = log.scrollHeight;
  }
});
