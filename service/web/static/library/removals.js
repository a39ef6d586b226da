// Deletions that can be undone: a trace is deleted only after some seconds, or when the page is left.
import { Problem, api, deleteTrace } from "../api.js";
import { announce, byId, el, setText } from "../dom.js";
import { plural } from "../format.js";

const UNDO_S = 10;

/** @typedef {{ id: string, name: string }} Removed */

/**
 * Wire the list of deletions. `onChange` is called when rows appear or disappear, `onEnd` when traces are deleted.
 * @param {{ onChange: () => void, onEnd: () => void }} handlers
 */
export function startRemovals({ onChange, onEnd }) {
  const list = byId("removals");
  /** @type {Set<Removal>} */
  const pending = new Set();

  /** @param {HTMLElement} element */
  function leave(element) {
    if (element.contains(document.activeElement)) byId("search").focus();
    element.remove();
    list.hidden = list.childElementCount === 0;
  }

  /** @param {string} text */
  function tell(text) {
    const close = el("button", { type: "button", class: "quiet", onclick: () => leave(item) }, "Dismiss");
    const item = el("li", { role: "alert", class: "bad", "data-testid": "removal-problem" }, el("span", {}, text), close);
    list.append(item);
    list.hidden = false;
  }

  addEventListener("pagehide", () => {
    for (const removal of pending) removal.leavePage();
    pending.clear();
  });
  addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    list.replaceChildren();
    list.hidden = true;
    onEnd();
  });

  return {
    tell,
    /** @param {string} id */
    has: (id) => [...pending].some((removal) => removal.ids.has(id)),
    /** @param {Removed[]} traces */
    add(traces) {
      const removal = new Removal(traces, {
        onOver: (failure) => {
          pending.delete(removal);
          leave(removal.element);
          if (failure) tell(failure);
          onChange();
          onEnd();
        },
      });
      pending.add(removal);
      list.append(removal.element);
      list.hidden = false;
      removal.undo.focus(); // the row that had the focus is gone
      onChange();
    },
  };
}

class Removal {
  /**
   * @param {Removed[]} traces
   * @param {{ onOver: (failure: string | null) => void }} handlers
   */
  constructor(traces, { onOver }) {
    this.ids = new Set(traces.map(({ id }) => id));
    this.title = traces.length === 1 ? traces[0].name : plural(traces.length, "trace");
    this.onOver = onOver;
    this.left = UNDO_S;
    this.isPaused = false;
    this.text = el("span");
    this.undo = el("button", { type: "button", "data-testid": "undo", "aria-label": `Undo: ${this.title}`, onclick: () => this.end() }, "Undo");
    const now = el("button", { type: "button", class: "quiet", "aria-label": `Delete now: ${this.title}`, onclick: () => this.run() }, "Delete now");
    this.element = el("li", { "data-testid": "removal" }, this.text, el("span", { class: "buttons" }, this.undo, now));
    this.element.addEventListener("pointerenter", () => (this.isPaused = true));
    this.element.addEventListener("pointerleave", () => (this.isPaused = false));
    this.show();
    announce(`${this.title} will be deleted in ${UNDO_S} seconds, or when you leave this page. Undo is focused.`);
    this.timer = setInterval(() => this.tick(), 1000);
  }

  show() {
    setText(this.text, `${this.title} will be deleted in ${this.left} s, or when you leave this page.`);
  }

  tick() {
    if (this.isPaused) return;
    this.left -= 1;
    this.show();
    if (this.left <= 0) this.run();
  }

  /** Keep the traces. */
  end() {
    clearInterval(this.timer);
    announce(`${this.title} stays`);
    this.onOver(null);
  }

  async run() {
    clearInterval(this.timer);
    const problems = [];
    for (const id of this.ids) {
      try {
        await deleteTrace(id);
      } catch (error) {
        if (!(error instanceof Problem)) throw error;
        if (error.code !== "unknown_trace") problems.push(`${error.title}. ${error.detail}`); // else it is deleted already
      }
    }
    if (problems.length === 0) announce(`${this.title} is deleted`);
    this.onOver(problems.length > 0 ? `${this.title} was not deleted: ${problems[0]}` : null);
  }

  /** Delete the traces while the page is left: such requests outlive it. */
  leavePage() {
    clearInterval(this.timer);
    for (const id of this.ids) fetch(api("traces", id), { method: "DELETE", keepalive: true });
  }
}
