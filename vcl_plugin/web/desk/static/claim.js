// The claim's page: controls of the locked films, timelines, map, strip, and decisions by key.
"use strict";

const root = document.getElementById("pair");
const say = (name) => document.querySelector(`[data-say="${name}"]`);
const clock = (seconds) => {
  const tenths = Math.max(0, Math.round(seconds * 10));
  const minutes = Math.floor(tenths / 600);
  return `${minutes}:${String(Math.floor(tenths / 10) % 60).padStart(2, "0")}.${tenths % 10}`;
};

if (root) {
  const pair = new LockedPair(root);
  const doers = (name) => root.querySelector(`[data-do="${name}"]`);
  let shownMatch = 0;
  let maps = [];
  window.pair = pair; // for whoever looks at the page with other tools

  root.querySelector(".transport").hidden = false;
  const sides = { none: "silent", query: "upload", reference: "reference" };
  const RATES = [0.25, 0.5, 1, 1.5, 2, 4];

  function hear(side) {
    pair.hear(side);
    doers("hear").dataset.on = side !== "none";
    say("heard").textContent = sides[side];
    try { localStorage.setItem("heard", side); } catch { /* no storage: asked anew next time */ }
  }
  const acts = {
    play: () => pair.toggle(),
    back: () => pair.step(-1),
    forward: () => pair.step(1),
    previous: () => pair.go(pair.index - 1),
    next: () => pair.go(pair.index + 1),
    loop: () => {
      pair.loops = !pair.loops;
      doers("loop").setAttribute("aria-pressed", pair.loops);
    },
    hear: () => hear({ none: "query", query: "reference", reference: "none" }[pair.heard]),
  };
  for (const [name, act] of Object.entries(acts)) doers(name).addEventListener("click", act);
  const rate = doers("rate");
  rate.addEventListener("change", () => pair.setRate(Number(rate.value)));
  function changeRate(by) {
    const at = Math.min(Math.max(RATES.indexOf(pair.rate) + by, 0), RATES.length - 1);
    rate.value = String(RATES[at]);
    pair.setRate(RATES[at]);
  }
  for (const film of [pair.query, pair.reference]) {
    film.addEventListener("click", acts.play);
    film.addEventListener("error", () => awaitPreview(film));
  }

  // A film that browsers cannot play gets a preview on the server; ask until it is there.
  async function awaitPreview(film, forced = false) {
    const note = film.parentElement.querySelector(".hindrance");
    const address = new URL("/api/v1/media/film", location.href);
    address.searchParams.set("video", film.dataset.video);
    note.hidden = false;
    for (;;) {
      const answer = await fetch(address, { headers: { Range: "bytes=0-0" } });
      if (answer.ok) {
        if (answer.headers.get("x-film") === "original") {
          if (forced) { note.textContent = "This film cannot be played here."; return; }
          address.searchParams.set("preview", "true"); // the browser could not play the film itself
          forced = true;
          continue;
        }
        note.hidden = true;
        film.src = address;
        film.addEventListener("loadedmetadata", () => pair.line_up(), { once: true });
        return;
      }
      const problem = await answer.json();
      if (problem.code !== "preview_pending") { note.textContent = sentence(problem.detail); return; }
      const state = await (await fetch(`/api/v1/media/preview?video=${encodeURIComponent(film.dataset.video)}`)).json();
      note.textContent = `Making a preview: ${Math.round(100 * state.share)} %`;
      await new Promise((done) => setTimeout(done, 700));
    }
  }
  const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

  // Which reference is shown: its timeline, its map, its film.
  root.addEventListener("segment", ({ detail }) => {
    const match = pair.segments[detail].match;
    for (const row of document.querySelectorAll("tr[data-segment]"))
      row.toggleAttribute("aria-current", Number(row.dataset.segment) === detail);
    for (const group of root.querySelectorAll("g.segment"))
      group.classList.toggle("current", Number(group.dataset.segment) === detail);
    if (match === shownMatch) return;
    shownMatch = match;
    for (const each of document.querySelectorAll("[data-match]"))
      each.hidden = Number(each.dataset.match) !== match;
    const id = root.querySelector(`.lines[data-match="${match}"] svg`).dataset.id;
    pair.reference.dataset.video = id;
    pair.reference.removeAttribute("poster");
    pair.reference.src = `/api/v1/media/film?video=${encodeURIComponent(id)}`;
    pair.reference.addEventListener("loadedmetadata", () => pair.line_up(), { once: true });
    for (const each of maps) each.draw();
  });

  // Timelines: a click goes to that moment of that film.
  for (const svg of root.querySelectorAll(".ribbons")) {
    svg.addEventListener("pointerdown", (event) => {
      const box = svg.getBoundingClientRect();
      const share = (event.clientX - box.left) / box.width;
      const isAbove = event.clientY - box.top < box.height / 2;
      const side = isAbove ? "query" : "reference";
      const second = share * Number(svg.dataset[side]);
      const match = Number(svg.parentElement.dataset.match);
      const inside = pair.segments.findIndex((s) => (isAbove || s.match === match) &&
        second >= s[`${side}_start`] && second < s[`${side}_end`]);
      if (inside >= 0) {
        if (inside !== pair.index || pair.free) pair.go(inside);
        pair.seek(isAbove ? second : pair.queryAt(second));
      } else pair.goFreely(isAbove ? second : pair.queryAt(second), isAbove ? pair.referenceAt(second) : second);
    });
  }

  // The map: its picture, the segments in it, and where both films are.
  class SimilarityMap {
    constructor(box) {
      this.box = box;
      this.image = box.querySelector("img");
      this.canvas = box.querySelector("canvas");
      this.match = Number(box.dataset.match);
      this.seconds = { query: Number(box.dataset.query), reference: Number(box.dataset.reference) };
      this.at = null;
      this.numbers = null;
      const begin = () => { this.canvas.hidden = false; this.image.classList.add("hidden"); this.draw(); };
      if (this.image.complete && this.image.naturalWidth) begin();
      else this.image.addEventListener("load", begin);
      this.canvas.addEventListener("pointerdown", (event) => {
        const [reference, query] = this.secondsAt(event);
        pair.goFreely(query, reference);
      });
      this.canvas.addEventListener("pointermove", (event) => this.read(event));
      new ResizeObserver(() => this.draw()).observe(box);
    }

    secondsAt(event) {
      const box = this.canvas.getBoundingClientRect();
      return [(event.clientX - box.left) / box.width * this.seconds.reference,
        (event.clientY - box.top) / box.height * this.seconds.query];
    }

    async read(event) {
      const [reference, query] = this.secondsAt(event);
      if (this.numbers === null) {
        this.numbers = {};
        const answer = await fetch(this.box.dataset.numbers);
        if (answer.ok) this.numbers = await answer.json();
      }
      const row = (this.numbers.values || [])[Math.floor(query / (this.numbers.step || 1))] || [];
      const value = row[Math.floor(reference / (this.numbers.step || 1))];
      say("map").textContent = `${clock(query)} ↔ ${clock(reference)}` +
        (value === undefined ? "" : ` cosine ${value.toFixed(2)}`);
    }

    draw() {
      const width = this.box.clientWidth, height = this.box.clientHeight;
      if (!width || this.canvas.hidden) return;
      const scale = window.devicePixelRatio || 1;
      if (this.canvas.width !== Math.round(width * scale)) {
        this.canvas.width = Math.round(width * scale);
        this.canvas.height = Math.round(height * scale);
      }
      const pen = this.canvas.getContext("2d");
      pen.setTransform(scale, 0, 0, scale, 0, 0);
      pen.imageSmoothingEnabled = false;
      pen.drawImage(this.image, 0, 0, width, height);
      const x = (second) => second / this.seconds.reference * width;
      const y = (second) => second / this.seconds.query * height;
      pair.segments.forEach((s, index) => {
        if (s.match !== this.match) return;
        const isCurrent = index === pair.index && !pair.free;
        pen.strokeStyle = isCurrent ? "#ffffff" : "#7df0c8";
        pen.lineWidth = isCurrent ? 2 : 1.25;
        pen.strokeRect(x(s.reference_start), y(s.query_start),
          x(s.reference_end) - x(s.reference_start), y(s.query_end) - y(s.query_start));
      });
      const moment = this.at || { query: pair.query.currentTime, reference: pair.reference.currentTime };
      pen.strokeStyle = "rgba(255,255,255,.55)";
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(0, y(moment.query)); pen.lineTo(width, y(moment.query));
      pen.moveTo(x(moment.reference), 0); pen.lineTo(x(moment.reference), height);
      pen.stroke();
      pen.fillStyle = "#ffffff";
      pen.beginPath();
      pen.arc(x(moment.reference), y(moment.query), 4, 0, 7);
      pen.fill();
    }
  }
  maps = [...document.querySelectorAll(".map")].map((box) => new SimilarityMap(box));

  root.addEventListener("moment", ({ detail }) => {
    say("query").textContent = clock(detail.query);
    say("reference").textContent = clock(detail.reference);
    doers("play").setAttribute("aria-pressed", detail.isPlaying);
    const speed = Math.abs(detail.slope);
    say("lock").textContent = [pair.free ? "as chosen" : "", detail.slope < 0 ? "reversed, stepped" : "",
      Math.abs(speed - 1) > 0.02 ? `reference at ${speed.toFixed(2)}×` : ""].filter(Boolean).join(" · ");
    const svg = root.querySelector(`.lines[data-match="${shownMatch}"] svg`);
    for (const side of ["query", "reference"]) {
      const head = svg.querySelector(`[data-head="${side}"]`);
      const at = 1000 * detail[side] / Number(svg.dataset[side]);
      head.setAttribute("x1", at);
      head.setAttribute("x2", at);
    }
    for (const map of maps) if (map.match === shownMatch) { map.at = detail; map.draw(); }
  });

  for (const button of document.querySelectorAll("button[data-segment]"))
    button.addEventListener("click", () =>
      pair.go(Number(button.dataset.segment), button.dataset.second ? Number(button.dataset.second) : null));

  const keys = {
    " ": acts.play, ",": acts.back, ".": acts.forward, "[": acts.previous, "]": acts.next,
    l: acts.loop, s: acts.hear, "<": () => changeRate(-1), ">": () => changeRate(1),
    ArrowLeft: () => pair.seek(pair.query.currentTime - 1),
    ArrowRight: () => pair.seek(pair.query.currentTime + 1),
  };
  Object.assign(desk.keys, keys);

  let remembered = "none";
  try { remembered = localStorage.getItem("heard") || "none"; } catch { /* no storage */ }
  hear(remembered in sides ? remembered : "none");
  root.dispatchEvent(new CustomEvent("segment", { detail: 0 }));
  if (!matchMedia("(prefers-reduced-motion: reduce)").matches) {
    pair.go(0);
    pair.play();
  }
}

const decision = document.getElementById("decision");
if (decision) {
  const press = (verb) => {
    const button = decision.querySelector(`button[value="${verb}"]`);
    if (button) decision.requestSubmit(button);
  };
  const ask = (verb) => decision.querySelector(`button[value="${verb}"]`) &&
    desk.askReason(decision, () => press(verb));
  Object.assign(desk.keys, {
    c: () => press("confirm"), m: () => press("no_match"), d: () => press("dispute"),
    u: () => press("uphold"), r: () => ask("release"), e: () => ask("exclude"),
    a: () => { const note = document.getElementById("note"); note.focus(); note.scrollIntoView({ block: "center" }); },
  });
}
const next = document.getElementById("next");
Object.assign(desk.keys, {
  n: () => { location.href = next ? next.href : document.querySelector(".crumbs a").href; },
  k: () => history.back(),
  q: () => { location.href = document.querySelector(".crumbs a").href; },
});
desk.keys.j = desk.keys.n;
