// Dropped videos go to the server in parts, so that a cut line costs one part and not the whole.
"use strict";

const PART = 8 << 20;
const TRIES = 6;
const drop = document.getElementById("drop");

async function call(method, address, body, headers = {}) {
  const answer = await fetch(address, {
    method, body, headers: { "X-CSRF-Token": document.body.dataset.csrf, ...headers },
  });
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({ detail: `the server answered ${answer.status}` }));
  throw Object.assign(new Error(problem.detail), { isFinal: answer.status < 500 });
}

async function send(file, facts, tell) {
  const address = "/api/v1/uploads/sessions";
  const body = JSON.stringify({ size: file.size, title: file.name.slice(0, 500), ...facts });
  const session = await (await call("POST", address, body, { "Content-Type": "application/json" })).json();
  const here = `${address}/${session.id}`;
  let offset = 0, failures = 0;
  while (offset < file.size) {
    try {
      await call("PATCH", here, file.slice(offset, offset + PART),
        { "Upload-Offset": String(offset), "Content-Type": "application/octet-stream" });
      offset = Math.min(offset + PART, file.size);
      failures = 0;
      tell(offset / file.size);
    } catch (error) {
      if (error.isFinal || (failures += 1) >= TRIES) throw error;
      await new Promise((done) => setTimeout(done, 500 * 2 ** failures));
      offset = Number((await call("HEAD", here)).headers.get("Upload-Offset"));
    }
  }
  return (await call("POST", `${here}/complete`)).json();
}

async function sendAll(files) {
  const facts = Object.fromEntries([...new FormData(drop)].filter(([, value]) => value));
  let last = null;
  for (const file of files) {
    const row = document.createElement("li");
    const name = document.createElement("bdi");
    name.textContent = file.name;
    const bar = Object.assign(document.createElement("progress"), { max: 1, value: 0 });
    const note = document.createElement("span");
    row.append(name, bar, note);
    document.getElementById("sending").append(row);
    try {
      if (!file.size) throw new Error("the file is empty");
      if (file.size > Number(drop.dataset.most)) throw new Error("the file is larger than this server takes");
      const accepted = await send(file, facts, (share) => {
        bar.value = share;
        note.textContent = `${Math.round(100 * share)} %`;
      });
      last = `/searches/${encodeURIComponent(accepted.search_id)}`;
      const link = Object.assign(document.createElement("a"), { href: last, textContent: "see the search" });
      note.replaceChildren(link);
    } catch (error) {
      bar.remove();
      note.className = "failure";
      note.textContent = error.message;
    }
  }
  if (files.length === 1 && last) location.href = last;
}

if (drop) {
  drop.addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("files").addEventListener("change", (event) => sendAll([...event.target.files]));
  for (const name of ["dragenter", "dragover"]) document.addEventListener(name, (event) => {
    event.preventDefault();
    drop.classList.add("over");
  });
  document.addEventListener("dragleave", (event) => event.relatedTarget || drop.classList.remove("over"));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    if (event.dataTransfer.files.length) sendAll([...event.dataTransfer.files]);
  });
}
