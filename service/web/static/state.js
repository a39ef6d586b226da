// The state of a trace: its badge, and the progress of ingest.
import { bytes, roughly } from "./format.js";
import { el, setText } from "./dom.js";
import { damage } from "./health.js";

const FINAL = new Set(["ready", "failed"]);

/** @param {{ state: string }} trace */
export const isFinal = (trace) => FINAL.has(trace.state);

/** Badge and progress of a trace, created once and updated in place. */
export class StateView {
  constructor() {
    this.badge = el("span", { class: "badge", "data-testid": "trace-state" });
    this.bar = el("progress", { "aria-label": "Ingest" });
    this.text = el("span", { class: "small muted" });
    this.progress = el("div", { class: "progress" }, this.bar, this.text);
    this.reason = el("span", { class: "small muted" });
    this.element = el("div", { class: "state" }, this.badge, this.progress, this.reason);
  }

  /** @param {TraceSummary & { left?: string }} trace */
  update(trace) {
    setText(this.badge, trace.state);
    this.badge.dataset.state = trace.state;
    const damaged = trace.state === "ready" ? damage(trace.health) : null;
    setText(this.reason, trace.error?.title ?? damaged ?? "");
    this.reason.title = trace.error?.detail ?? "";
    this.reason.classList.toggle("warm", damaged !== null);
    this.progress.hidden = isFinal(trace) || trace.state === "queued";
    if (!this.progress.hidden) {
      showProgress(this.bar, trace.progress);
      setText(this.text, [progressText(trace.progress), trace.left].filter(Boolean).join(" · "));
    }
  }
}

/**
 * "12 of 816 MB · 1,234 events"
 * @param {Progress} progress
 */
export function progressText({ bytes: done, bytes_total: total, events }) {
  return `${bytes(done)}${total ? ` of ${bytes(total)}` : ""} · ${roughly(events)} events`;
}

/**
 * Set a <progress>; it is indeterminate without a total.
 * @param {HTMLProgressElement} bar
 * @param {{ bytes: Int, bytes_total: Int | null }} progress
 */
export function showProgress(bar, { bytes: done, bytes_total: total }) {
  if (total) {
    bar.max = Number(total);
    bar.value = Number(done);
  } else bar.removeAttribute("value");
}
