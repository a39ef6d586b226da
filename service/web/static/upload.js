// Uploads: files chosen or dropped, a few at a time, each with progress and a way out.
import { Problem, api, pageOf, root } from "./api.js";
import { announce, byId, el, setText } from "./dom.js";
import { bytes, clock } from "./format.js";
import { parseExact } from "./exact.js";

const AT_ONCE = 2; // browsers allow six connections to a host, and the list wants one
const RATE_WINDOW_MS = 4000;

/** Wire the drop zone and the file button; `onStored` is called when the service has a file's bytes. */
export function startUploads({ onStored }) {
  const list = byId("uploads");
  const waiting = [];
  const running = new Set();

  function add(files) {
    for (const file of files) {
      const upload = new Upload(file, { onEnd: ended, onRetry: enqueue, onLeave: left });
      list.append(upload.element);
      list.hidden = false;
      enqueue(upload);
    }
  }

  function enqueue(upload) {
    waiting.push(upload);
    startNext();
  }

  function startNext() {
    while (running.size < AT_ONCE && waiting.length > 0) {
      const upload = waiting.shift();
      running.add(upload);
      upload.start();
    }
  }

  function ended(upload, trace) {
    running.delete(upload);
    if (trace) onStored(trace);
    startNext();
  }

  function left(upload) {
    const index = waiting.indexOf(upload);
    if (index >= 0) waiting.splice(index, 1);
    if (upload.element.contains(document.activeElement)) byId("file-input").focus();
    upload.element.remove();
    list.hidden = list.childElementCount === 0;
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
    this.cancel = button("Cancel", () => (this.request ? this.request.abort() : onLeave(this)));
    this.retry = button("Retry", () => {
      this.show("waiting");
      onRetry(this);
    });
    this.dismiss = button("Dismiss", () => onLeave(this));
    this.link = el("span");
    this.problem = el("p", { class: "problem", role: "alert" });
    const controls = el("span", { class: "buttons" }, this.link, this.cancel, this.retry, this.dismiss);
    this.element = el("li", { "data-testid": "upload-row" }, this.name, this.text, controls, this.bar, this.problem);
    this.show("waiting");
  }

  /** waiting, sending, stored, failed: which of the row's parts are seen. */
  show(state) {
    const had = this.element.contains(document.activeElement);
    this.element.dataset.state = state;
    this.cancel.hidden = state === "stored" || state === "failed";
    this.retry.hidden = state !== "failed";
    this.dismiss.hidden = state === "waiting" || state === "sending";
    this.bar.hidden = state === "stored" || state === "failed";
    this.problem.hidden = state !== "failed";
    if (had && !this.element.contains(visible(document.activeElement))) this.dismiss.focus();
  }

  start() {
    this.show("sending");
    this.rate = new Rate();
    this.sent = 0;
    const request = new XMLHttpRequest();
    this.request = request;
    request.upload.onprogress = (event) => this.progressed(event);
    request.upload.onload = () => {
      this.bar.removeAttribute("value"); // all is sent; the server makes it safe
      setText(this.text, `${bytes(this.file.size)} sent · being stored`);
    };
    request.onload = () => this.answered(request);
    request.onerror = () => this.broke();
    request.onabort = () => this.failed(new Problem({ title: "Cancelled", detail: "", code: "cancelled" }));
    request.open("PUT", api("traces", this.file.name));
    request.setRequestHeader("Accept", "application/json");
    request.send(this.file);
  }

  progressed({ loaded, total }) {
    this.sent = loaded;
    this.bar.max = total || 1;
    this.bar.value = loaded;
    const perSecond = this.rate.add(loaded);
    const parts = [`${bytes(loaded)} of ${bytes(total)}`];
    if (perSecond > 0) parts.push(`${bytes(perSecond)}/s`, `${clock(Math.ceil((total - loaded) / perSecond))} left`);
    setText(this.text, parts.join(" · "));
  }

  answered(request) {
    if (request.status < 200 || request.status >= 300) {
      this.failed(Problem.read(request.responseText, request.status, request.statusText));
      return;
    }
    const trace = parseExact(request.responseText);
    this.request = null;
    this.show("stored");
    setText(this.text, `${bytes(this.file.size)} · stored`);
    this.link.replaceChildren(el("a", { href: pageOf(trace.id) }, "Open", el("span", { class: "unseen" }, ` ${trace.name}`)));
    announce(`${this.file.name} is stored`);
    this.onEnd(this, trace);
  }

  /** No answer at all: the network, a server that went away, or one that refused without reading on. */
  broke() {
    const where = `after ${bytes(this.sent)} of ${bytes(this.file.size)}`;
    const folder = this.file.size === 0 || this.file.type === "" ? " If this is a folder, drop the files in it." : "";
    const detail = `The connection ended ${where} without an answer from ${location.host}${root}.${this.sent ? "" : folder}`;
    this.failed(new Problem({ title: "Upload interrupted", detail, code: "interrupted" }));
  }

  failed(problem) {
    this.request = null;
    this.show("failed");
    setText(this.text, bytes(this.file.size));
    this.problem.replaceChildren(el("strong", {}, problem.title), problem.detail ? ` ${problem.detail}` : "");
    this.onEnd(this, null);
  }
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
