// Uploads of chosen or dropped files, a few at a time, each with its progress and buttons to pause and cancel.
import { Problem, api, getJson, pageOf } from "./api.js";
import { announce, byId, el, setText } from "./dom.js";
import { bytes, clock } from "./format.js";
import { discard, isOf, remembered, upload } from "./tus.js";

/** @import { UnfinishedUpload } from "./tus.js" */

const AT_ONCE = 2; // browsers allow six connections to a host, and the list needs one
const RATE_WINDOW_MS = 4000;

/**
 * Wire the drop zone and the file button. Calls `onStored` when the service has stored a file.
 * @param {{ onStored: (trace: Trace) => void }} handlers
 */
export function startUploads({ onStored }) {
  const list = byId("uploads");
  /** @type {Upload[]} */
  const waiting = [];
  /** @type {Set<Upload>} */
  const running = new Set();
  const earlier = remembered();

  /** @param {File[]} files */
  function add(files) {
    for (const file of files) {
      const before = earlier.find((unfinished) => isOf(unfinished, file));
      if (before?.row) removeRow(before.row);
      const upload = new Upload(file, { onEnd: ended, onRetry: enqueue, onLeave: remove });
      list.append(upload.element);
      list.hidden = false;
      enqueue(upload);
    }
  }

  /** @param {Upload} upload */
  function enqueue(upload) {
    waiting.push(upload);
    startNext();
  }

  function startNext() {
    while (running.size < AT_ONCE && waiting.length > 0) {
      const next = /** @type {Upload} */ (waiting.shift());
      running.add(next);
      next.start();
    }
  }

  /**
   * @param {Upload} upload
   * @param {Trace | null} trace
   */
  function ended(upload, trace) {
    running.delete(upload);
    if (trace) onStored(trace);
    startNext();
  }

  /** @param {Upload} upload */
  function remove(upload) {
    const index = waiting.indexOf(upload);
    if (index >= 0) waiting.splice(index, 1);
    removeRow(upload.element);
  }

  /** @param {HTMLElement} row */
  function removeRow(row) {
    if (row.contains(document.activeElement)) byId("file-input").focus();
    row.remove();
    list.hidden = list.childElementCount === 0;
  }

  for (const unfinished of earlier) {
    unfinished.row = rowOf(unfinished, removeRow);
    list.append(unfinished.row);
    list.hidden = false;
  }

  listenForFiles(add);
  window.addEventListener("beforeunload", (event) => {
    if (running.size > 0) event.preventDefault(); // leaving the page would interrupt the uploads
  });
}

/** @param {(files: File[]) => void} add */
function listenForFiles(add) {
  const zone = byId("drop-zone");
  const input = byId("file-input");
  input.addEventListener("change", () => {
    add([...(input.files ?? [])]);
    input.value = ""; // so that the same file can be chosen again
  });

  // The whole page takes drops: outside of the zone the browser would open the file instead.
  /** @param {DragEvent} event */
  const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");
  let depth = 0; // each element that the pointer crosses sends enter and leave
  /** @param {number} step */
  const track = (step) => (/** @type {DragEvent} */ event) => {
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
    add([...(event.dataTransfer?.files ?? [])]);
  });
}

class Upload {
  /**
   * @param {File} file
   * @param {{ onEnd: (upload: Upload, trace: Trace | null) => void, onRetry: (upload: Upload) => void, onLeave: (upload: Upload) => void }} handlers
   */
  constructor(file, { onEnd, onRetry, onLeave }) {
    this.file = file;
    this.onEnd = onEnd;
    this.name = el("span", { class: "name" }, file.name);
    this.bar = el("progress", { "aria-label": `Upload of ${file.name}`, "data-testid": "upload-progress", max: 1, value: 0 });
    this.text = el("span", { class: "small muted" }, `${bytes(file.size)} · waiting`);
    /**
     * @param {string} label
     * @param {() => void} act
     */
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

  /**
   * Set the state (waiting, sending, paused, stored or failed), which decides the visible parts of the row.
   * @param {string} state
   */
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
    const first = [this.pause, this.resume, this.dismiss].find((button) => !button.hidden);
    if (had && !this.element.contains(visible(document.activeElement))) first?.focus();
  }

  async start() {
    this.show("sending");
    this.rate = new Rate();
    this.controller = new AbortController();
    const { signal } = this.controller;
    try {
      const id = await upload(this.file, {
        signal,
        onSent: (loaded) => this.progressed(loaded),
        onLost: (problem, ms) => this.lost(problem, ms),
      });
      this.stored(await getJson(api("traces", id)));
    } catch (error) {
      if (signal.aborted) return;
      this.failed(error);
      this.onEnd(this, null);
    }
  }

  /**
   * Pause the upload, or cancel it and delete it on the server.
   * @param {"paused" | "failed"} state
   */
  async stop(state) {
    this.controller?.abort();
    this.onEnd(this, null);
    if (state === "paused") {
      this.show("paused");
      setText(this.text, `${bytes(this.sent ?? 0)} of ${bytes(this.file.size)} · paused`);
      return;
    }
    this.failed(new Problem({ title: "Cancelled", detail: "", code: "cancelled" }));
    const stored = remembered().find((unfinished) => isOf(unfinished, this.file));
    if (stored) await discard(stored).catch((error) => this.failed(error));
  }

  /** @param {number} loaded */
  progressed(loaded) {
    const total = this.file.size;
    this.sent = loaded;
    this.bar.max = total || 1;
    if (loaded < total) this.bar.value = loaded;
    else this.bar.removeAttribute("value"); // all bytes are sent; the server stores them
    const perSecond = this.rate?.add(loaded) ?? 0;
    const parts = [`${bytes(loaded)} of ${bytes(total)}`];
    if (loaded === total) parts.push("being stored");
    else if (perSecond > 0) parts.push(`${bytes(perSecond)}/s`, `${clock(Math.ceil((total - loaded) / perSecond))} left`);
    setText(this.text, parts.join(" · "));
  }

  /**
   * Show that the network or the server is not available.
   * @param {Problem} problem
   * @param {number} ms
   */
  lost(problem, ms) {
    this.rate = new Rate();
    setText(this.text, `${problem.title} · trying again in ${Math.ceil(ms / 1000)} s`);
  }

  /** @param {Trace} trace */
  stored(trace) {
    this.show("stored");
    setText(this.text, `${bytes(this.file.size)} · stored`);
    this.link.replaceChildren(el("a", { href: pageOf(trace.id) }, "Open", el("span", { class: "unseen" }, ` ${trace.name}`)));
    announce(`${this.file.name} is stored`);
    this.onEnd(this, trace);
  }

  /** @param {any} problem */
  failed(problem) {
    this.show("failed");
    setText(this.text, bytes(this.file.size));
    const title = problem.title ?? "The page has a bug";
    const detail = problem.detail ?? String(problem);
    this.problem.replaceChildren(el("strong", {}, title), detail ? ` ${detail}` : "");
  }
}

/**
 * Make the row of an unfinished upload of an earlier page, whose file must be chosen again.
 * @param {UnfinishedUpload} unfinished
 * @param {(row: HTMLElement) => void} onLeave
 */
function rowOf(unfinished, onLeave) {
  const text = el("span", { class: "small muted" }, "Choose the file again to resume");
  const act = async () => {
    await discard(unfinished);
    onLeave(row);
  };
  const button = el("button", { type: "button", class: "quiet", "aria-label": `Discard: ${unfinished.name}`, onclick: act }, "Discard");
  const row = el("li", { "data-testid": "upload-left" }, el("span", { class: "name" }, unfinished.name), text, button);
  getJson(unfinished.url).then(
    ({ offset, length }) => setText(text, `${bytes(offset)} of ${bytes(length)} · choose the file again to resume`),
    (error) => {
      if ([404, 410].includes(error.status)) act();
    },
  );
  return row;
}

/** @param {Element | null} element */
const visible = (element) => (element?.checkVisibility?.() === false ? null : element);

/** Bytes per second over the last seconds. */
class Rate {
  constructor() {
    /** @type {[number, number][]} */
    this.samples = [];
  }

  /** @param {number} loaded */
  add(loaded) {
    const now = performance.now();
    this.samples.push([now, loaded]);
    while (this.samples.length > 2 && now - this.samples[0][0] > RATE_WINDOW_MS) this.samples.shift();
    const [since, before] = this.samples[0];
    return now - since < 250 ? 0 : ((loaded - before) * 1000) / (now - since);
  }
}
