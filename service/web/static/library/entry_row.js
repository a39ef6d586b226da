// A row of the library: a run, a single trace, or a rank of an unfolded run. Made once and updated in place.
import { api, groupPageOf, pageOf } from "../api.js";
import { announce, el, setText } from "../dom.js";
import { UNKNOWN, age, bytes, count, duration, plural, rank } from "../format.js";
import { icon } from "./icons.js";
import { StateCell } from "./state_cell.js";

const NONE = "–";

/**
 * @typedef {{
 *   onSelect: (entry: LibraryEntry, isOn: boolean) => void,
 *   isSelected: (id: string) => boolean,
 *   onUnfold: (id: string, isOn: boolean) => void,
 *   onPin: (entry: LibraryEntry, isPinned: boolean) => void,
 *   onDelete: (entry: LibraryEntry) => void,
 * }} RowHandlers
 */

/**
 * The id of the run or of the trace of an entry.
 * @param {LibraryEntry} entry
 */
export const idOf = ({ run, trace }) => run?.id ?? trace?.id ?? "";

export class EntryRow {
  /**
   * @param {LibraryEntry} entry
   * @param {RowHandlers} handlers
   * @param {boolean} isRank whether it is below the row of its run
   */
  constructor(entry, handlers, isRank = false) {
    this.entry = entry;
    this.handlers = handlers;
    this.isRun = entry.run !== null;
    this.lastState = "";
    this.box = el("input", { type: "checkbox", "data-testid": this.isRun ? "select-run" : "select-trace" });
    this.box.addEventListener("change", () => handlers.onSelect(this.entry, this.box.checked));
    this.unfold = el("button", { type: "button", class: "unfold", "aria-expanded": "false", "data-testid": "unfold" }, icon("unfold"));
    this.unfold.addEventListener("click", () => handlers.onUnfold(idOf(this.entry), this.unfold.getAttribute("aria-expanded") !== "true"));
    this.link = el("a");
    this.facts = el("span", { class: "small muted facts-line" });
    this.parentLink = el("a");
    this.parent = el("span", { class: "small muted" }, "cut from ", this.parentLink);
    this.state = new StateCell();
    this.pin = el("button", { type: "button", class: "quiet tool", "aria-pressed": "false", "data-write": true, "data-testid": "pin" }, icon("pin"));
    this.pin.addEventListener("click", () => handlers.onPin(this.entry, this.pin.getAttribute("aria-pressed") !== "true"));
    this.perfetto = el("a", { class: "button", target: "_blank", rel: "noopener", "data-testid": "open-perfetto" }, "Perfetto");
    this.remove = el("button", { type: "button", class: "quiet tool", "data-write": true, "data-testid": this.isRun ? "delete-run" : "delete-trace" }, icon("trash"));
    this.remove.addEventListener("click", () => handlers.onDelete(this.entry));
    /** @type {(label: string, attributes: Record<string, string>, ...content: Children[]) => HTMLTableCellElement} */
    const cell = (label, attributes, ...content) => el("td", { role: "cell", "data-label": label, ...attributes }, ...content);
    /** @param {string} label */
    const number = (label) => cell(label, { class: "number" });
    this.cells = { ranks: number(this.isRun ? "Ranks" : "Rank"), events: number("Events"), span: number("Span"), size: number("Size") };
    this.time = el("time");
    const name = el("div", { class: "names" }, this.link, this.facts, this.parent);
    this.element = el(
      "tr",
      { role: "row", class: this.isRun ? "run" : isRank ? "rank" : null, "data-testid": this.isRun ? "run-row" : isRank ? "rank-row" : "trace-row" },
      el("th", { role: "rowheader", scope: "row", class: "name" }, el("div", { class: "pick" }, this.box, this.isRun ? this.unfold : el("span", { class: "no-unfold" }), name)),
      cell("State", {}, this.state.element),
      Object.values(this.cells),
      cell("Uploaded", { class: "number" }, this.time),
      cell("Actions", { class: "actions" }, el("span", { class: "buttons" }, this.perfetto, this.pin, this.remove)),
    );
  }

  /**
   * @param {LibraryEntry} entry
   * @param {boolean} isOpen whether the ranks of the run are shown
   */
  update(entry, isOpen = false) {
    this.entry = entry;
    const { run, trace, name } = entry;
    this.announceEnd();
    this.element.dataset.id = idOf(entry);
    setText(this.link, name);
    this.link.href = run ? groupPageOf(run.id) : pageOf(idOf(entry));
    setText(this.facts, factsOf(entry));
    this.parent.hidden = !trace?.parent;
    this.state.update(entry);
    const isReady = Boolean(entry.states.ready);
    this.box.disabled = Number(entry.traces) === 0;
    this.box.checked = this.handlers.isSelected(idOf(entry));
    this.box.setAttribute("aria-label", `Select ${name}`);
    this.unfold.setAttribute("aria-expanded", String(isOpen));
    this.unfold.setAttribute("aria-label", `Ranks of ${name}`);
    this.unfold.title = isOpen ? "Fold the ranks" : "Unfold the ranks";
    this.unfold.disabled = Number(entry.traces) === 0;
    this.fill("ranks", ranksOf(entry), this.isRun ? titleOfRanks(entry) : "");
    this.fill("events", entry.events === null ? null : count(entry.events));
    this.fill("span", entry.span_ns === null ? null : duration(entry.span_ns), this.isRun ? "The longest of its traces" : `${entry.span_ns ?? ""} ns`);
    this.fill("size", bytes(entry.size), `${count(entry.size)} bytes`);
    setText(this.time, age(entry.uploaded_at));
    this.time.dateTime = entry.uploaded_at;
    this.time.title = entry.uploaded_at;
    this.perfetto.hidden = this.isRun || !isReady;
    if (trace) this.perfetto.href = api("traces", trace.id, "perfetto");
    this.perfetto.setAttribute("aria-label", `Open ${name} in Perfetto`);
    this.updateTools();
  }

  updateTools() {
    const { entry } = this;
    const isPinned = Number(entry.pinned) > 0 && Number(entry.pinned) === Number(entry.traces);
    this.pin.setAttribute("aria-pressed", String(isPinned));
    this.pin.setAttribute("aria-label", `Pin ${entry.name}`);
    this.pin.title = isPinned ? "Pinned: retention keeps it. Unpin" : "Pin: retention keeps it";
    this.pin.disabled = Number(entry.traces) === 0;
    this.remove.setAttribute("aria-label", `Delete ${entry.name}`);
    this.remove.title = "Delete";
  }

  announceEnd() {
    const { states, traces, name } = this.entry;
    const isOver = Number(states.ready ?? 0) + Number(states.failed ?? 0) === Number(traces);
    const state = isOver ? (states.failed ? "failed" : "ready") : "under way";
    if (this.lastState === "under way" && isOver) announce(`${name} is ${state}`);
    this.lastState = state;
  }

  /**
   * Link to the trace that this one was cut from, by its name if it is on the page.
   * @param {(id: string) => string | undefined} nameOf
   */
  showParent(nameOf) {
    const parent = this.entry.trace?.parent ?? null;
    if (parent === null) return;
    setText(this.parentLink, nameOf(parent) ?? parent);
    this.parentLink.href = pageOf(parent);
  }

  /**
   * Set a cell's text; null if it is not known yet.
   * @param {keyof EntryRow["cells"]} name
   * @param {string | null} text
   */
  fill(name, text, title = "") {
    const cell = this.cells[name];
    setText(cell, text ?? NONE);
    cell.title = text === null ? "" : title;
    cell.toggleAttribute("data-none", text === null); // cards leave such cells out
    cell.classList.toggle("muted", text === null || text.includes(UNKNOWN));
  }
}

/**
 * "NVIDIA H100 PCIe · 3 steps · nccl"
 * @param {LibraryEntry} entry
 */
function factsOf({ run, states, gpus, has_gpu_work: hasWork, steps, backend, traces, matching, ranks }) {
  const parts = [];
  if (run && Number(matching) < Number(traces)) parts.push(`${count(matching)} of ${plural(traces, "trace")} match`);
  else if (run && Number(traces) !== Number(ranks)) parts.push(plural(traces, "trace"));
  if (states.ready) {
    parts.push(hasWork ? gpus.join(", ") || "GPU" : "CPU only");
    if (steps !== null && Number(steps) > 0) parts.push(plural(steps, "step"));
    if (backend) parts.push(backend);
  }
  return parts.join(" · ");
}

/** @param {LibraryEntry} entry */
function ranksOf({ run, trace, states, ranks, world_size: world, traces }) {
  if (trace && Number(trace.merged) > 0) return `${plural(trace.merged, "rank")} merged`;
  if (trace && trace.rank !== null) return `rank ${rank(trace)}`;
  if (trace) return states.ready ? rank(trace) : null;
  if (!run || Number(traces) === 0) return null;
  if (Number(ranks) === 0) return states.ready ? UNKNOWN : null;
  return world === null ? count(ranks) : `${count(ranks)} of ${count(world)}`;
}

/** @param {LibraryEntry} entry */
const titleOfRanks = ({ ranks, world_size: world }) =>
  world === null ? "" : `${count(ranks)} of the ${count(world)} ranks of the run have a trace here`;
