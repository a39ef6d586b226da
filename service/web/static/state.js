// A trace's state: its badge, and how far ingest has come.
import { bytes, roughly } from "./format.js";
import { el, setText } from "./dom.js";
import { damage } from "./health.js";

const FINAL = new Set(["ready", "failed"]);

export const isFinal = (trace) => FINAL.has(trace.state);

/** Badge and progress of a trace, made once and updated in place. */
export class StateView {
  constructor() {
    this.badge = el("span", { class: "badge", "data-testid": "trace-state" });
    this.bar = el("progress", { "aria-label": "Ingest" });
    this.text = el("span", { class: "small muted" });
    this.progress = el("div", { class: "progress" }, this.bar, this.text);
    this.why = el("span", { class: "small muted" });
    this.element = el("div", { class: "state" }, this.badge, this.progress, this.why);
  }

  update(trace) {
    setText(this.badge, trace.state);
    this.badge.dataset.state = trace.state;
    const damaged = trace.state === "ready" ? damage(trace.health) : null;
    setText(this.why, trace.error?.title ?? damaged ?? "");
    this.why.title = trace.error?.detail ?? "";
    this.why.classList.toggle("warm", damaged !== null);
    this.progress.hidden = isFinal(trace) || trace.state === "queued";
    if (!this.progress.hidden) {
      showProgress(this.bar, trace.progress);
      setText(this.text, [progressText(trace.progress), trace.left].filter(Boolean).join(" · "));
    }
  }
}

/** "12 of 816 MB · 1,234 events" */
export function progressText({ bytes: done, bytes_total: total, events }) {
  return `${bytes(done)}${total ? ` of ${bytes(total)}` : ""} · ${roughly(events)} events`;
}

/** Set a <progress>; without a known total it moves without a value. */
export function showProgress(bar, { bytes: done, bytes_total: total }) {
  if (total) {
    bar.max = Number(total);
    bar.value = Number(done);
  } else bar.removeAttribute("value");
}
