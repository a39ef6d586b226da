// Uploads: files chosen or dropped, a few at a time, each with progress, a pause and a way out.
import { Problem, api, getJson, pageOf } from "./api.js";
import { announce, byId, el, setText } from "./dom.js";
import { bytes, clock } from "./format.js";
import { discard, isOf, remembered, upload } from "./tus.js";

const AT_ONCE = 2; // browsers allow six connections to a host, and the list wants one
const RATE_WINDOW_MS = 4000;

/** Wire the drop zone and the file button; `onStored` is called when the service has a file's bytes. */
export function startUploads({ onStored }) {
  const list = byId("uploads");
  const waiting = [];
  const running = new Set();
  const begun = remembered();

  function add(files) {
    for (const file of files) {
      const before = begun.find((one) => isOf(one, file));
      if (before?.row) leave(before.row);
      const one = new Upload(file, { onEnd: ended, onRetry: enqueue, onLeave: left });
      list.append(one.element);
      list.hidden = false;
      enqueue(one);
    }
  }

  function enqueue(one) {
    waiting.push(one);
    startNext();
  }

  function startNext() {
    while (running.size < AT_ONCE && waiting.length > 0) {
      const next = waiting.shift();
      running.add(next);
      next.start();
    }
  }

  function ended(one, trace) {
    running.delete(one);
    if (trace) onStored(trace);
    startNext();
  }

  function left(one) {
    const index = waiting.indexOf(one);
    if (index >= 0) waiting.splice(index, 1);
    leave(one.element);
  }

  function leave(row) {
    if (row.contains(document.activeElement)) byId("file-input").focus();
    row.remove();
    list.hidden = list.childElementCount === 0;
  }

  for (const one of begun) {
    one.row = leftover(one, leave);
    list.append(one.row);
    list.hidden = false;
  }

  listenForFiles(add);
  window.addEventListener("beforeunload", (event) => {
    if (running.size > 0) event.preventDefault(); // leaving would cut the uploads off
  });
}

function listenForFiles(add) {
  const zone = byId("drop-zone");
  const input = byId("file-input");
  input.addEventListener("change", () => {
    add([...input.files]);
    input.value = ""; // the same file may be chosen again
  });

  // The whole page takes the drop: one beside the zone would make the browser open the file instead.
  const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");
  let depth = 0; // enter and leave come for every element passed
  const track = (step) => (event) => {
    if (!carriesFiles(event)) return;
    depth = Math.max(0, depth + step);
    zone.classList.toggle("over", depth > 0);
  };
  document.addEventListener("dragenter", track(+1));
  document.addEventListener("dragleave", track(-1));
  document.addEventListener("dragover", (event) => {
    if (carriesFiles(event)) event.preventDefault();
  });
  document.addEventListener("drop", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    depth = 0;
    zone.classList.remove("over");
    add([...event.dataTransfer.files]);
  });
}

class Upload {
  constructor(file, { onEnd, onRetry, onLeave }) {
    this.file = file;
    this.onEnd = onEnd;
    this.name = el("span", { class: "name" }, file.name);
    this.bar = el("progress", { "aria-label": `Upload of ${file.name}`, "data-testid": "upload-progress", max: 1, value: 0 });
    this.text = el("span", { class: "small muted" }, `${bytes(file.size)} · waiting`);
    const button = (label, act) =>
      el("button", { type: "button", class: "quiet", "aria-label": `${label}: ${file.name}`, onclick: act }, label);
    const again = () => {
      this.show("waiting");
      onRetry(this);
    };
    this.pause = button("Pause", () => this.stop("paused"));
    this.resume = button("Resume", again);
    this.cancel = button("Cancel", () => (this.state === "waiting" ? onLeave(this) : this.stop("failed")));
    this.retry = button("Retry", again);
    this.dismiss = button("Dismiss", () => onLeave(this));
    this.link = el("span");
    this.problem = el("p", { class: "problem", role: "alert" });
    const buttons = [this.link, this.pause, this.resume, this.cancel, this.retry, this.dismiss];
    const controls = el("span", { class: "buttons" }, ...buttons);
    this.element = el("li", { "data-testid": "upload-row" }, this.name, this.text, controls, this.bar, this.problem);
    this.show("waiting");
  }

  /** waiting, sending, paused, stored, failed: which of the row's parts are seen. */
  show(state) {
    const had = this.element.contains(document.activeElement);
    const over = state === "stored" || state === "failed";
    this.state = this.element.dataset.state = state;
    this.pause.hidden = state !== "sending";
    this.resume.hidden = state !== "paused";
    this.cancel.hidden = over;
    this.retry.hidden = state !== "failed";
    this.dismiss.hidden = !over;
    this.bar.hidden = over;
    this.problem.hidden = state !== "failed";
    const first = [this.pause, this.resume, this.dismiss].find((one) => !one.hidden);
    if (had && !this.element.contains(visible(document.activeElement))) first?.focus();
  }

  async start() {
    this.show("sending");
    this.rate = new Rate();
    this.leash = new AbortController();
    const { signal } = this.leash;
    try {
      const onSent = (loaded) => this.progressed(loaded);
      const onLost = (problem, ms) => this.lost(problem, ms);
      this.stored(await getJson(api("traces", await upload(this.file, { signal, onSent, onLost }))));
    } catch (error) {
      if (signal.aborted) return;
      this.failed(error);
      this.onEnd(this, null);
    }
  }

  /** Stop for a while, or for good: then nothing stays of it. */
  async stop(state) {
    this.leash.abort();
    this.onEnd(this, null);
    if (state === "paused") {
      this.show("paused");
      setText(this.text, `${bytes(this.sent ?? 0)} of ${bytes(this.file.size)} · paused`);
      return;
    }
    this.failed(new Problem({ title: "Cancelled", detail: "", code: "cancelled" }));
    const begun = remembered().find((one) => isOf(one, this.file));
    if (begun) await discard(begun).catch((error) => this.failed(error));
  }

  progressed(loaded) {
    const total = this.file.size;
    this.sent = loaded;
    this.bar.max = total || 1;
    if (loaded < total) this.bar.value = loaded;
    else this.bar.removeAttribute("value"); // all is sent; the server makes it safe
    const perSecond = this.rate.add(loaded);
    const parts = [`${bytes(loaded)} of ${bytes(total)}`];
    if (loaded === total) parts.push("being stored");
    else if (perSecond > 0) parts.push(`${bytes(perSecond)}/s`, `${clock(Math.ceil((total - loaded) / perSecond))} left`);
    setText(this.text, parts.join(" · "));
  }

  /** The network, or the server, is away. */
  lost(problem, ms) {
    this.rate = new Rate();
    setText(this.text, `${problem.title} · trying again in ${Math.ceil(ms / 1000)} s`);
  }

  stored(trace) {
    this.show("stored");
    setText(this.text, `${bytes(this.file.size)} · stored`);
    this.link.replaceChildren(el("a", { href: pageOf(trace.id) }, "Open", el("span", { class: "unseen" }, ` ${trace.name}`)));
    announce(`${this.file.name} is stored`);
    this.onEnd(this, trace);
  }

  failed(problem) {
    this.show("failed");
    setText(this.text, bytes(this.file.size));
    const title = problem.title ?? "The page has a bug";
    const detail = problem.detail ?? String(problem);
    this.problem.replaceChildren(el("strong", {}, title), detail ? ` ${detail}` : "");
  }
}

/** What is left of an upload that this browser began, and whose file must be chosen again. */
function leftover(begun, onLeave) {
  const text = el("span", { class: "small muted" }, "Choose the file again, and it goes on");
  const act = async () => {
    await discard(begun);
    onLeave(row);
  };
  const button = el("button", { type: "button", class: "quiet", "aria-label": `Discard: ${begun.name}`, onclick: act }, "Discard");
  const row = el("li", { "data-testid": "upload-left" }, el("span", { class: "name" }, begun.name), text, button);
  getJson(begun.url).then(
    ({ offset, length }) => setText(text, `${bytes(offset)} of ${bytes(length)} · choose the file again, and it goes on`),
    (error) => {
      if ([404, 410].includes(error.status)) act();
    },
  );
  return row;
}

const visible = (element) => (element?.checkVisibility?.() === false ? null : element);

/** Bytes a second over the last moments. */
class Rate {
  constructor() {
    this.samples = [];
  }

  add(loaded) {
    const now = performance.now();
    this.samples.push([now, loaded]);
    while (this.samples.length > 2 && now - this.samples[0][0] > RATE_WINDOW_MS) this.samples.shift();
    const [since, before] = this.samples[0];
    return now - since < 250 ? 0 : ((loaded - before) * 1000) / (now - since);
  }
}
