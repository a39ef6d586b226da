// Uploads of chosen or dropped files and folders, a few at a time. The files of a folder are a batch, which becomes a run.
import { Problem, api, getJson, groupPageOf } from "../api.js";
import { announce, byId, el, setText } from "../dom.js";
import { bytes, clock, count, plural } from "../format.js";
import { isOf, remembered } from "../tus.js";
import { batchesOf, filesOfDrop, filesOfInput, suffixes } from "./folders.js";
import { Rate, Upload, rowOf } from "./upload.js";

/** @import { Batch, PathFile, UploadItem } from "./folders.js" */

const AT_ONCE = 2; // browsers allow six connections to a host, and the list needs one
const LOOSE_MAX = 5; // files of no run that are listed without a common row
const LISTED_MAX = 3; // files left out that are named

/**
 * Wire the drop zone and the inputs. Calls `onStored` when the service has stored a file.
 * @param {{ onStored: () => void }} handlers
 */
export function startUploads({ onStored }) {
  const list = byId("uploads");
  /** @type {Upload[]} */
  const waiting = [];
  /** @type {Set<Upload>} */
  const running = new Set();
  const earlier = remembered();

  /** @param {PathFile[]} files */
  async function add(files) {
    const { batches, leftOut } = batchesOf(files);
    showLeftOut(leftOut, files.length);
    for (const batch of batches) await addBatch(batch);
  }

  /** @param {Batch} batch */
  async function addBatch({ run, items }) {
    const { name, known } = run === null ? { name: null, known: new Map() } : await runOf(run, items);
    const view = run === null && items.length <= LOOSE_MAX ? null : new BatchView(name, () => leave(view?.element ?? null));
    if (view) list.append(view.element);
    for (const item of items) {
      item.group = name;
      const before = earlier.find((unfinished) => isOf(unfinished, item));
      if (before?.row) leave(before.row);
      const upload = new Upload(item, { onEnd: ended, onRetry: enqueue, onLeave: remove, onChange: () => view?.update() });
      view?.uploads.push(upload);
      (view?.list ?? list).append(upload.element);
      const trace = known.get(keyOf(item.name, item.file.size));
      if (trace) upload.showAsKnown(trace);
      else enqueue(upload);
    }
    view?.update();
    list.hidden = list.childElementCount === 0;

    /** @param {Upload} upload */
    function remove(upload) {
      const index = waiting.indexOf(upload);
      if (index >= 0) waiting.splice(index, 1);
      leave(upload.element);
      if (!view) return;
      view.uploads.splice(view.uploads.indexOf(upload), 1);
      if (view.uploads.length === 0) leave(view.element);
      else view.update();
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
    if (trace) onStored();
    startNext();
  }

  /** @param {HTMLElement | null} row */
  function leave(row) {
    if (row?.contains(document.activeElement)) byId("file-input").focus();
    row?.remove();
    list.hidden = list.childElementCount === 0;
  }

  for (const unfinished of earlier) {
    unfinished.row = rowOf(unfinished, leave);
    list.append(unfinished.row);
    list.hidden = false;
  }

  listenForFiles(add);
  window.addEventListener("beforeunload", (event) => {
    if (running.size > 0) event.preventDefault(); // leaving the page would interrupt the uploads
  });
}

/** @param {(files: PathFile[]) => void} add */
function listenForFiles(add) {
  const zone = byId("drop-zone");
  for (const input of [byId("file-input"), byId("folder-input")]) {
    input.addEventListener("change", () => {
      add(filesOfInput(input));
      input.value = ""; // so that the same files can be chosen again
    });
  }

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
  document.addEventListener("drop", async (event) => {
    if (!carriesFiles(event) || !event.dataTransfer) return;
    event.preventDefault();
    depth = 0;
    zone.classList.remove("over");
    add(await filesOfDrop(event.dataTransfer));
  });
}

/**
 * Say which files of folders are not uploaded.
 * @param {string[]} paths
 * @param {number} files
 */
function showLeftOut(paths, files) {
  const note = byId("left-out");
  const names = paths.slice(0, LISTED_MAX).join(", ") + (paths.length > LISTED_MAX ? ", …" : "");
  const reason = `only ${suffixes().join(", ")} are taken from folders`;
  if (files === 0) setText(note, "The folder has no files.");
  else setText(note, `Left out ${plural(paths.length, "file")}: ${names} (${reason}).`);
  note.hidden = files > 0 && paths.length === 0;
}

/**
 * Find the run for the files of a folder. A run of that name that has some of these files, or no traces, receives the
 * others; any other run of that name is another run, so the name gets a number.
 * @param {string} folder
 * @param {UploadItem[]} items
 * @returns {Promise<{ name: string, known: Map<string, TraceSummary> }>} the name, and the traces that it has
 */
async function runOf(folder, items) {
  for (let number = 1; ; number += 1) {
    const name = number === 1 ? folder : `${folder} (${number})`;
    try {
      const known = await tracesOf(name);
      if (known.size === 0 || items.some((item) => known.has(keyOf(item.name, item.file.size)))) return { name, known };
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      return { name, known: new Map() }; // the uploads show why the server does not answer
    }
  }
}

/**
 * What tells the files of a run apart.
 * @param {string} name
 * @param {Int} size
 */
const keyOf = (name, size) => `${name}:${size}`;

/**
 * The traces of a run, by name and size; none if there is no such run.
 * @param {string} run
 * @returns {Promise<Map<string, TraceSummary>>}
 */
async function tracesOf(run) {
  /** @type {Map<string, TraceSummary>} */
  const traces = new Map();
  try {
    for (let next = ""; next !== null; ) {
      const page = await getJson(`${api("traces")}?${new URLSearchParams({ group: run, limit: "500", ...(next && { cursor: next }) })}`);
      for (const trace of page.traces) if (trace.state !== "failed") traces.set(keyOf(trace.name, trace.size), trace);
      next = page.next;
    }
  } catch (error) {
    if (error.code !== "unknown_group") throw error;
  }
  return traces;
}

/** The row of a batch: its progress, and its files below. */
class BatchView {
  /**
   * @param {string | null} run
   * @param {() => void} onLeave
   */
  constructor(run, onLeave) {
    this.run = run;
    /** @type {Upload[]} */
    this.uploads = [];
    this.rate = new Rate();
    this.isOver = false;
    this.title = run === null ? "Files" : `Run ${run}`;
    this.list = el("ul", { class: "uploads nested", "aria-label": this.title });
    this.text = el("span", { class: "small muted" });
    this.bar = el("progress", { "aria-label": `Upload of ${this.title}`, max: 1, value: 0 });
    /** @type {(label: string, act: () => void) => HTMLButtonElement} */
    const button = (label, act) => el("button", { type: "button", class: "quiet", "aria-label": `${label}: ${this.title}`, onclick: act }, label);
    this.cancel = button("Cancel all", () => this.cancelAll());
    this.retry = button("Retry failed", () => this.uploads.filter(({ state }) => state === "failed").forEach((upload) => upload.again()));
    this.dismiss = button("Dismiss", onLeave);
    this.link = el("a", { "data-testid": "open-run" });
    this.details = el("details", { open: true }, el("summary", {}, el("strong", { class: "name" }, this.title), " ", this.text), this.list);
    const controls = el("span", { class: "buttons" }, this.link, this.cancel, this.retry, this.dismiss);
    this.element = el("li", { class: "batch", "data-testid": "upload-batch" }, this.details, controls, this.bar);
  }

  /** Cancel the uploads that wait before those that run, in whose place they would start. */
  cancelAll() {
    const isWaiting = (/** @type {Upload} */ { state }) => state === "waiting";
    for (const upload of [...this.uploads.filter(isWaiting), ...this.uploads.filter((upload) => !isWaiting(upload))]) upload.cancelUpload();
  }

  update() {
    const { uploads } = this;
    if (uploads.length === 0) return;
    const stored = uploads.filter(({ state }) => state === "stored").length;
    const failed = uploads.filter(({ state }) => state === "failed").length;
    const total = uploads.reduce((sum, { file }) => sum + file.size, 0);
    const sent = uploads.reduce((sum, upload) => sum + (upload.state === "stored" ? upload.file.size : Math.min(upload.sent, upload.file.size)), 0);
    const isOver = stored + failed === uploads.length;
    const perSecond = this.rate.add(sent);
    const parts = [stored === uploads.length ? `${plural(stored, "trace")} stored` : `${count(stored)} of ${count(uploads.length)} stored`, stored < uploads.length ? `${bytes(sent)} of ${bytes(total)}` : bytes(total)];
    if (failed > 0) parts.push(`${count(failed)} failed`);
    if (!isOver && perSecond > 0) parts.push(`${clock(Math.ceil((total - sent) / perSecond))} left`);
    setText(this.text, parts.join(" · "));
    this.bar.max = total || 1;
    this.bar.value = sent;
    this.bar.hidden = isOver;
    this.cancel.hidden = isOver;
    this.retry.hidden = failed === 0;
    this.dismiss.hidden = !isOver;
    if (isOver && !this.isOver) this.end(stored, failed);
    this.isOver = isOver;
  }

  /**
   * @param {number} stored
   * @param {number} failed
   */
  end(stored, failed) {
    announce(`${this.title}: ${plural(stored, "trace")} stored${failed > 0 ? `, ${failed} failed` : ""}`);
    if (failed === 0) this.details.open = false;
    const group = this.uploads.find(({ trace }) => trace?.group)?.trace?.group;
    if (!group) return;
    this.link.href = groupPageOf(group.id);
    setText(this.link, "Open the run");
  }
}
