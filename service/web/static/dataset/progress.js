// The state of a dataset and the progress of its ingests, as text and as a bar.
import { el, setText } from "../dom.js";
import { bytes, clock, count, plural } from "../format.js";

/** @type {Record<string, string>} classes of the badges, by state */
const BADGES = { reading: "waiting", unavailable: "failed", ingesting: "ingesting", stopped: "failed", idle: "ready", running: "ingesting", done: "ready" };

/** @param {string} state */
export function badgeOf(state) {
  const badge = el("span", { class: "badge" }, state);
  badge.dataset.state = BADGES[state] ?? "";
  return badge;
}

/**
 * "12 of 64 done · 1 failed · 1.2 of 6.4 GB · 120 MB/s · 45 s left".
 * @param {Ingesting} progress
 */
export function progressText({ sources, done, failed, bytes_done: read, bytes_total: total, bytes_per_s: rate, left_s: left }) {
  return [
    sources === null ? `${plural(done, "source")} done` : `${count(done)} of ${plural(sources, "source")} done`,
    Number(failed) > 0 ? `${count(failed)} failed` : null,
    total === null ? bytes(read) : `${bytes(read)} of ${bytes(total)}`,
    rate === null || left === 0 ? null : `${bytes(rate)}/s`,
    left === null || left === 0 ? null : `${clock(Math.ceil(left))} left`,
  ].filter(Boolean).join(" · ");
}

/** A bar and a text that are updated in place. */
export class ProgressView {
  constructor() {
    this.bar = el("progress", { "aria-label": "Progress", "data-testid": "dataset-progress" });
    this.text = el("span", { class: "small muted", "data-testid": "dataset-progress-text" });
    this.element = el("div", { class: "progress" }, this.bar, this.text);
  }

  /** @param {Ingesting} progress */
  update(progress) {
    const { bytes_done: read, bytes_total: total } = progress;
    this.bar.hidden = total === null;
    if (total !== null) {
      this.bar.max = Math.max(1, Number(total));
      this.bar.value = Number(total) === 0 ? 1 : Number(read);
    }
    setText(this.text, progressText(progress));
  }
}
