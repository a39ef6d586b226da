// The cell "State" of the library: the state of a trace, or of all traces of a run, and their health, as icons and words.
import { el, setText } from "../dom.js";
import { count, plural } from "../format.js";
import { progressText, showProgress } from "../state.js";
import { icon } from "./icons.js";

const WORST_FIRST = /** @type {const} */ (["failed", "ingesting", "queued", "ready"]);

/** @typedef {(typeof WORST_FIRST)[number]} TraceState */

export class StateCell {
  constructor() {
    this.word = el("span", { "data-testid": "trace-state" });
    this.mark = el("span", { class: "mark" });
    this.badge = el("span", { class: "state-word" }, this.mark, this.word);
    this.bar = el("progress", { "aria-label": "Ingest" });
    this.text = el("span", { class: "small muted" });
    this.progress = el("div", { class: "progress" }, this.bar, this.text);
    this.health = el("span", { class: "health small", "data-testid": "health" });
    this.element = el("div", { class: "state" }, this.badge, this.health, this.progress);
    this.shown = "";
  }

  /** @param {LibraryEntry} entry */
  update(entry) {
    const state = Number(entry.traces) > 0 ? stateOf(entry) : "empty";
    if (this.badge.dataset.state !== state) {
      this.badge.dataset.state = state;
      this.mark.replaceChildren(...(state === "empty" ? [] : [icon(state)]));
    }
    setText(this.word, wordOf(entry));
    this.progress.hidden = !entry.states.ingesting;
    if (!this.progress.hidden) {
      showProgress(this.bar, entry.progress);
      setText(this.text, progressText(entry.progress));
    }
    const { text, isWarning, title } = healthOf(entry);
    if (text === this.shown) return;
    this.shown = text;
    this.health.classList.toggle("warm", isWarning);
    this.health.title = title;
    this.health.replaceChildren(...(isWarning ? [icon("damaged")] : []), text);
  }
}

/**
 * The state of an entry: of a run, the one that most needs a look.
 * @param {LibraryEntry} entry
 * @returns {TraceState}
 */
const stateOf = ({ states }) => WORST_FIRST.find((state) => states[state]) ?? "queued";

/** @param {LibraryEntry} entry */
function wordOf(entry) {
  const { traces, states } = entry;
  if (Number(traces) === 0) return "empty";
  const state = stateOf(entry);
  if (entry.trace || Number(states[state]) === Number(traces)) return state;
  const ready = `${count(states.ready ?? 0)} of ${count(traces)} ready`;
  const rest = WORST_FIRST.filter((name) => name !== "ready" && states[name]).map((name) => `${count(states[name] ?? 0)} ${name}`);
  return [ready, ...rest].join(" · ");
}

/**
 * @param {LibraryEntry} entry
 * @returns {{ text: string, isWarning: boolean, title: string }}
 */
function healthOf({ run, trace, states, traces, damaged, incomplete, refused, repaired }) {
  if (trace?.error) return { text: trace.error.title ?? "", isWarning: false, title: trace.error.detail ?? "" };
  if (!states.ready) return { text: "", isWarning: false, title: "" };
  if (Number(damaged) === 0) return { text: "complete", isWarning: false, title: "Nothing was refused or repaired" };
  const parts = [
    Number(refused) > 0 ? `${count(refused)} refused` : null,
    Number(incomplete) > 0 ? (run ? `${count(incomplete)} incomplete` : "incomplete") : null,
    Number(repaired) > 0 ? plural(repaired, "repair") : null,
  ];
  const damage = parts.filter(Boolean).join(" · ");
  const text = run ? `${count(damaged)} of ${plural(traces, "trace")} damaged: ${damage}` : damage;
  return { text, isWarning: true, title: "The page of the trace lists what was refused and repaired" };
}
