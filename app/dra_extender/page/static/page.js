"use strict";
// Replaces the content when the server says that there is a newer state, and lets clocks run.  The page works without it.
(() => {
  const body = document.body;
  const status = document.getElementById("status");
  const parts = ["content", "facts"];
  const units = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];
  let offset = Number(body.dataset.now) - Date.now() / 1000;
  let fetching = false;
  let missed = false;

  function age(seconds) {
    for (const [size, unit] of units) {
      if (seconds >= size) return Math.floor(seconds / size) + unit;
    }
    return "0s";
  }

  function tick() {
    const now = Date.now() / 1000 + offset;
    for (const each of document.querySelectorAll("time.clock")) {
      const { since, until } = each.dataset;
      const text = age(since === undefined ? Number(until) - now : now - Number(since));
      if (each.textContent !== text) each.textContent = text;
    }
  }

  // The focused link is found again by its address, a focused field by its id, with what was typed.
  function focused() {
    const active = document.activeElement;
    if (!active || active === body) return () => {};
    const { id, value } = active;
    const href = active.getAttribute("href");
    return () => {
      if (active.isConnected) return;
      const found = id ? document.getElementById(id)
        : [...document.querySelectorAll("main a")].find((each) => each.getAttribute("href") === href);
      if (!found) return;
      if (value !== undefined && "value" in found) found.value = value;
      found.focus({ preventScroll: true });
    };
  }

  async function renew() {
    if (fetching) {
      missed = true;
      return;
    }
    fetching = true;
    try {
      const response = await fetch(location.href, { cache: "no-store" });
      const text = await response.text();
      const next = new DOMParser().parseFromString(text, "text/html");
      const opened = [...document.querySelectorAll("details[open][id]")].map((each) => each.id);
      const refocus = focused();
      for (const id of parts) {
        const fresh = next.getElementById(id);
        if (fresh) document.getElementById(id).replaceChildren(...fresh.childNodes);
      }
      for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
      refocus();
      document.title = next.title;
      Object.assign(body.dataset, { ...next.body.dataset });
      offset = Number(body.dataset.now) - Date.now() / 1000;
      if (body.dataset.unfinished !== "yes") status.textContent = "Updated.";
    } catch {
      status.textContent = "The page cannot be renewed: has the command ended?";
    } finally {
      fetching = false;
      if (missed) {
        missed = false;
        renew();
      } else {
        goOn();
      }
    }
  }

  // Answers that take long are given in parts.
  function goOn() {
    if (body.dataset.unfinished === "yes") setTimeout(renew, 500);
  }

  goOn();
  if (body.dataset.live === "yes") {
    const events = new EventSource(body.dataset.events);
    events.addEventListener("generation", (event) => {
      if (event.data !== body.dataset.generation) renew();
    });
    events.addEventListener("open", () => { status.textContent = ""; });
    events.addEventListener("error", () => {
      status.textContent = "No connection: has the command ended?";
    });
    setInterval(tick, 1000);
  }
})();
