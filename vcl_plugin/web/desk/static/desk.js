// What every page has: keys, dialogs, the undo that burns down; and the queue's rows.
//
// Pages work without it: forms are forms and links are links. Each page adds its keys to `desk.keys`.
"use strict";

const desk = {
  keys: {},

  // Ask for a reason by number, then go on.
  askReason(form, goOn) {
    const dialog = document.getElementById("reasons");
    dialog.returnValue = "";
    dialog.showModal();
    dialog.onclick = (event) => {
      const reason = event.target.closest("[data-reason]")?.dataset.reason;
      if (!reason) return;
      form.elements.reason.value = reason;
      dialog.close();
      goOn();
    };
    dialog.onkeydown = (event) => {
      const chosen = dialog.querySelectorAll("[data-reason]")[Number(event.key) - 1];
      if (chosen) { event.preventDefault(); chosen.click(); }
    };
  },
};

document.addEventListener("keydown", (event) => {
  const { target } = event;
  const isTyping = target.closest("textarea, select, input:not([type=checkbox])");
  if (target.id === "note" && event.key === "Enter" && (event.ctrlKey || event.metaKey))
    target.form.requestSubmit();
  if (isTyping && event.key === "Escape") target.blur();
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector("dialog[open]")) return;
  if ((event.key === " " || event.key === "Enter") && target.closest("button, a, summary")) return;
  const act = desk.keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act || event.repeat && /^[a-z]$/i.test(event.key) && !"jk".includes(event.key)) return;
  event.preventDefault();
  act(event);
});

desk.keys["?"] = () => document.getElementById("keys").showModal();
desk.keys.z = () => document.querySelector("#undo form")?.requestSubmit();
desk.keys["/"] = () => document.querySelector("input[type=search]")?.focus();

document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-open]");
  if (opener) document.getElementById(opener.dataset.open).showModal();
});
document.addEventListener("submit", (event) => {
  // Pressed twice, a decision is sent once.
  if (event.target.method === "post" && event.target.dataset.sent) event.preventDefault();
  else if (event.target.method === "post") event.target.dataset.sent = "yes";
});
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
});
document.addEventListener("htmx:configRequest", (event) => {
  event.detail.headers["X-CSRF-Token"] = document.body.dataset.csrf;
});

// The undo burns down and goes.
const toast = document.querySelector("#undo form");
if (toast) {
  const ends = performance.now() + 1000 * Number(toast.dataset.left);
  const fuse = toast.querySelector("rect");
  const whole = Number(fuse.getAttribute("width")), all = ends - performance.now();
  const burn = setInterval(() => {
    const left = ends - performance.now();
    fuse.setAttribute("width", Math.max(0, whole * left / all));
    if (left <= 0) { clearInterval(burn); toast.remove(); }
  }, 250);
}

// The queue: one row is current, some are selected.
const queue = {
  row: null,
  from: null,
  get form() { return document.getElementById("bulk"); },
  get rows() { return [...document.querySelectorAll("table.queue tbody tr")]; },
  get ticks() { return [...document.querySelectorAll("table.queue tbody input[name=id]")]; },
  go(by) {
    const { rows } = this;
    if (!rows.length) return;
    const at = rows.indexOf(this.row);
    this.current(rows[at < 0 ? 0 : Math.min(Math.max(at + by, 0), rows.length - 1)]);
    this.row.querySelector("a.open").focus({ preventScroll: true });
    this.row.scrollIntoView({ block: "nearest" });
  },
  current(row) {
    this.row?.removeAttribute("aria-current");
    this.row = row;
    row?.setAttribute("aria-current", "true");
  },
  tick(row, isRange) {
    const box = row?.querySelector("input[name=id]");
    if (!box) return;
    box.checked = !box.checked;
    if (isRange && this.from) {
      const { rows } = this;
      const [a, b] = [rows.indexOf(this.from), rows.indexOf(row)].sort((x, y) => x - y);
      for (const each of rows.slice(a, b + 1)) each.querySelector("input[name=id]").checked = true;
    }
    this.from = row;
    this.count();
  },
  count() {
    const count = this.ticks.filter((each) => each.checked).length;
    const bar = document.getElementById("bulkbar");
    if (!bar) return;
    bar.classList.toggle("empty", count === 0);
    document.getElementById("selected").textContent = `${count} selected`;
    const all = document.getElementById("all");
    all.checked = count > 0 && count === this.ticks.length;
    all.indeterminate = count > 0 && count < this.ticks.length;
  },
  // Decide what is selected, else the current row.
  decide(verb) {
    const { form, ticks } = this;
    if (!form || !form.elements.csrf_token) return;
    if (!ticks.some((each) => each.checked)) {
      if (!this.row) return;
      this.tick(this.row);
    }
    const press = () => form.requestSubmit(form.querySelector(`button[value="${verb}"]`));
    if (verb === "release") desk.askReason(form, press);
    else press();
  },
};

function beginQueue() {
  if (!queue.form) return;
  queue.current(null);
  queue.count();
  queue.form.addEventListener("change", (event) => {
    if (event.target.id === "all") for (const each of queue.ticks) each.checked = event.target.checked;
    queue.count();
  });
  queue.form.addEventListener("focusin", (event) => {
    const row = event.target.closest("tbody tr");
    if (row) queue.current(row);
  });
  for (const input of document.querySelectorAll(".bulk input")) input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") event.preventDefault(); // it would press the first button
  });
}
if (document.getElementById("queue")) {
  beginQueue();
  document.addEventListener("htmx:afterSettle", beginQueue);
  Object.assign(desk.keys, {
    j: () => queue.go(1), k: () => queue.go(-1), ArrowDown: () => queue.go(1), ArrowUp: () => queue.go(-1),
    Enter: () => queue.row?.querySelector("a.open").click(),
    x: (event) => queue.tick(queue.row, event.shiftKey),
    c: () => queue.decide("confirm"), m: () => queue.decide("no_match"), r: () => queue.decide("release"),
    d: () => queue.decide("dispute"), u: () => queue.decide("uphold"),
  });
}
