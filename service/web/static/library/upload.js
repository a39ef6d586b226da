// The upload of one file: its progress, and buttons to pause, resume, cancel and retry it.
import { Problem, api, getJson, pageOf } from "../api.js";
import { announce, el, setText } from "../dom.js";
import { bytes, clock } from "../format.js";
import { discard, isOf, remembered, upload } from "../tus.js";

/** @import { UnfinishedUpload } from "../tus.js" */
/** @import { UploadItem } from "./folders.js" */
/**
 * @typedef {{
 *   onEnd: (upload: Upload, trace: Trace | null) => void, onRetry: (upload: Upload) => void,
 *   onLeave: (upload: Upload) => void, onChange: (upload: Upload) => void,
 * }} UploadHandlers
 */

const RATE_WINDOW_MS = 4000;
const RATE_MIN_MS = 250; // a rate over less time would jump

export class Upload {
  /**
   * @param {UploadItem} item
   * @param {UploadHandlers} handlers
   */
  constructor(item, { onEnd, onRetry, onLeave, onChange }) {
    const { file } = item;
    this.item = item;
    this.file = file;
    this.onEnd = onEnd;
    this.onLeave = onLeave;
    this.onChange = onChange;
    this.sent = 0;
    /** @type {TraceSummary | null} */
    this.trace = null;
    this.name = el("span", { class: "name" }, item.path);
    this.bar = el("progress", { "aria-label": `Upload of ${item.path}`, "data-testid": "upload-progress", max: 1, value: 0 });
    this.text = el("span", { class: "small muted" }, `${bytes(file.size)} · waiting`);
    /**
     * @param {string} label
     * @param {() => void} act
     */
    const button = (label, act) =>
      el("button", { type: "button", class: "quiet", "aria-label": `${label}: ${item.path}`, onclick: act }, label);
    const again = () => {
      this.show("waiting");
      onRetry(this);
    };
    this.pause = button("Pause", () => this.stop("paused"));
    this.resume = button("Resume", again);
    this.cancel = button("Cancel", () => this.cancelUpload());
    this.retry = button("Retry", again);
    this.again = again;
    this.dismiss = button("Dismiss", () => onLeave(this));
    this.link = el("span");
    this.problem = el("p", { class: "problem", role: "alert" });
    const buttons = [this.link, this.pause, this.resume, this.cancel, this.retry, this.dismiss];
    const controls = el("span", { class: "buttons" }, ...buttons);
    this.element = el("li", { "data-testid": "upload-row" }, this.name, this.text, controls, this.bar, this.problem);
    this.show("waiting");
  }

  /** Take the upload out of the queue, or stop it and delete it on the server. */
  cancelUpload() {
    if (this.state === "waiting") this.onLeave(this);
    else if (this.state === "sending" || this.state === "paused") this.stop("failed");
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
    this.onChange(this);
  }

  async start() {
    this.show("sending");
    this.rate = new Rate();
    this.controller = new AbortController();
    const { signal } = this.controller;
    try {
      const id = await upload(this.item, {
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
    const stored = remembered().find((unfinished) => isOf(unfinished, this.item));
    if (stored) await discard(stored).catch((error) => this.failed(error));
  }

  /** @param {number} loaded */
  progressed(loaded) {
    const total = this.file.size;
    this.sent = loaded;
    this.onChange(this);
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
    this.showTrace(trace, "stored");
    if (this.item.group === null) announce(`${this.file.name} is stored`);
    this.onEnd(this, trace);
  }

  /**
   * Show that the file is in the library already.
   * @param {TraceSummary} trace
   */
  showAsKnown(trace) {
    this.sent = this.file.size;
    this.showTrace(trace, "in the library already");
  }

  /**
   * @param {TraceSummary} trace
   * @param {string} state in words
   */
  showTrace(trace, state) {
    this.trace = trace;
    this.show("stored");
    setText(this.text, `${bytes(this.file.size)} · ${state}`);
    this.link.replaceChildren(el("a", { href: pageOf(trace.id) }, "Open", el("span", { class: "unseen" }, ` ${trace.name}`)));
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
export function rowOf(unfinished, onLeave) {
  const again = unfinished.name.includes("/") ? "Choose the folder again to resume" : "Choose the file again to resume";
  const text = el("span", { class: "small muted" }, again);
  const act = async () => {
    try {
      await discard(unfinished);
      onLeave(row);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      setText(text, `${error.title}: it is not discarded yet`);
    }
  };
  const button = el("button", { type: "button", class: "quiet", "aria-label": `Discard: ${unfinished.name}`, onclick: act }, "Discard");
  const row = el("li", { "data-testid": "upload-left" }, el("span", { class: "name" }, unfinished.name), text, button);
  getJson(unfinished.url).then(
    ({ offset, length }) => setText(text, `${bytes(offset)} of ${bytes(length)} · ${again.toLowerCase()}`),
    (error) => {
      if ([404, 410].includes(error.status)) act();
    },
  );
  return row;
}

/** @param {Element | null} element */
const visible = (element) => (element?.checkVisibility?.() === false ? null : element);

/** Bytes per second over the last seconds. */
export class Rate {
  constructor() {
    /** @type {[number, number][]} */
    this.samples = [];
  }

  /** @param {number} loaded */
  add(loaded) {
    const now = performance.now();
    this.samples.push([now, loaded]);
    const { samples } = this;
    while (samples.length > 2 && now - samples[0][0] > RATE_WINDOW_MS && now - samples[1][0] >= RATE_MIN_MS) samples.shift();
    const [since, before] = samples[0];
    return now - since < RATE_MIN_MS ? 0 : ((loaded - before) * 1000) / (now - since);
  }
}
