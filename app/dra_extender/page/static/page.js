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

  // One square is a stop of the tab key, and arrow keys move between all of them.
  const squares = () => [...document.querySelectorAll(".cells a")];

  function rove() {
    const all = squares();
    const stop = all.find((each) => each === document.activeElement) ?? all[0];
    for (const each of all) each.tabIndex = each === stop ? 0 : -1;
  }

  function nearest(all, from, down) {
    const here = from.getBoundingClientRect();
    const rows = all.map((each) => [each, each.getBoundingClientRect()])
      .filter(([, at]) => (down ? at.top >= here.bottom : at.bottom <= here.top));
    const next = Math[down ? "min" : "max"](...rows.map(([, at]) => at.top));
    const far = ([, at]) => Math.abs(at.left - here.left);
    return rows.filter(([, at]) => at.top === next).sort((a, b) => far(a) - far(b))[0]?.[0];
  }

  document.addEventListener("keydown", (event) => {
    const all = squares();
    const place = all.indexOf(event.target);
    if (place < 0 || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
    const next = {
      ArrowRight: () => all[place + 1],
      ArrowLeft: () => all[place - 1],
      ArrowDown: () => nearest(all, event.target, true),
      ArrowUp: () => nearest(all, event.target, false),
      Home: () => all[0],
      End: () => all[all.length - 1],
    }[event.key];
    if (!next) return;
    event.preventDefault();
    const found = next();
    if (!found) return;
    found.focus();
    rove();
  });
  document.addEventListener("focusin", (event) => {
    if (event.target.matches(".cells a")) status.textContent = "Arrow keys move between squares.";
  });
  rove();

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
      rove();
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
