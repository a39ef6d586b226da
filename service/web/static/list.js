// The list of traces: one page of it at a time, updated in place.
import { Problem, api, getJson, groupPageOf, pageOf } from "./api.js";
import { confirmDelete } from "./confirm.js";
import { announce, byId, el, setText } from "./dom.js";
import { UNKNOWN, age, bytes, count, duration, rank, span } from "./format.js";
import { poll } from "./poll.js";
import { startMerge } from "./merge.js";
import { StateView, isFinal } from "./state.js";

/** @typedef {ReturnType<typeof startMerge>} Merge */

const PAGE = 50;
const NONE = "–";

/** Start the list. Returns a function that requests it at once. */
export function startList() {
  /** @type {Map<string, Row>} */
  const rows = new Map(); // by trace id, so that a refresh changes cells and not the focus
  /** @type {(string | null)[]} */
  const cursors = [null]; // of the pages from the newest to this one
  const filter = byId("filter");
  /** @type {string | null} */
  let next = null;
  let requests = 0;

  filter.value = new URLSearchParams(location.search).get("name") ?? "";

  async function ask() {
    const request = ++requests;
    const wanted = new URLSearchParams({ limit: String(PAGE) });
    const cursor = cursors.at(-1) ?? null;
    if (cursor !== null) wanted.set("cursor", cursor);
    if (filter.value) wanted.set("name", filter.value);
    try {
      /** @type {{ next: string | null, traces: TraceSummary[] }} */
      const page = await getJson(`${api("traces")}?${wanted}`);
      if (request === requests) show(page);
      byId("list-problem").hidden = true;
      return page.traces.some((trace) => !isFinal(trace));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      setText(byId("list-problem"), `${error.title}. ${error.detail} Trying again.`);
      byId("list-problem").hidden = false;
      return false;
    }
  }

  /** @param {{ next: string | null, traces: TraceSummary[] }} page */
  function show(page) {
    next = page.next;
    const body = byId("rows");
    const kept = new Set(page.traces.map((trace) => trace.id));
    for (const [id, row] of rows) {
      if (kept.has(id)) continue;
      if (row.element.contains(document.activeElement)) filter.focus();
      row.element.remove();
      rows.delete(id);
    }
    page.traces.forEach((trace, index) => {
      const row = rows.get(trace.id) ?? new Row(refresh, merge);
      rows.set(trace.id, row);
      row.update(trace);
      row.showParent(page.traces);
      if (body.children[index] !== row.element) body.insertBefore(row.element, body.children[index] ?? null);
    });
    showFrame(page.traces.length);
  }

  /** @param {number} length */
  function showFrame(length) {
    const first = cursors.length === 1;
    byId("list-waiting").hidden = true;
    byId("list").hidden = length === 0;
    byId("list-empty").hidden = length > 0 || !first || filter.value !== "";
    byId("list-nomatch").hidden = length > 0 || filter.value === "";
    setText(byId("nomatch-name"), filter.value);
    byId("paging").hidden = first && next === null;
    byId("newer").disabled = first;
    byId("older").disabled = next === null;
    setText(byId("page-number"), `Page ${cursors.length}`);
  }

  const merge = startMerge({
    onMade: () => refresh(),
    onClear: () => {
      for (const row of rows.values()) row.select(false);
    },
  });
  const refresh = poll(ask);

  let typing = 0;
  function filtered() {
    cursors.length = 1;
    const url = new URL(location.href);
    if (filter.value) url.searchParams.set("name", filter.value);
    else url.searchParams.delete("name");
    history.replaceState(null, "", url);
    requests += 1; // so that the answer of an earlier request is not shown
    refresh();
  }
  filter.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(filtered, 200);
  });
  byId("filter-clear").addEventListener("click", () => {
    filter.value = "";
    filter.focus();
    filtered();
  });
  byId("older").addEventListener("click", () => {
    if (next === null) return;
    cursors.push(next);
    requests += 1;
    refresh();
  });
  byId("newer").addEventListener("click", () => {
    if (cursors.length > 1) cursors.pop();
    requests += 1;
    refresh();
  });
  return refresh;
}

/** One trace's row, made once and updated in place. */
class Row {
  /**
   * @param {() => void} refresh
   * @param {Merge} merge
   */
  constructor(refresh, merge) {
    this.merge = merge;
    /** @type {TraceSummary | null} */
    this.trace = null;
    this.box = el("input", { type: "checkbox", "data-testid": "select-trace" });
    this.box.addEventListener("change", () => this.trace && merge.set(this.trace.id, this.box.checked));
    this.link = el("a");
    this.parentLink = el("a");
    this.parent = el("span", { class: "small muted" }, "cut from ", this.parentLink);
    this.groupLink = el("a");
    this.group = el("span", { class: "small muted" }, "in ", this.groupLink);
    this.state = new StateView();
    this.perfetto = el("a", { class: "button", target: "_blank", rel: "noopener", "data-testid": "open-perfetto" }, "Perfetto");
    this.remove = el("button", { type: "button", class: "quiet", "data-testid": "delete-trace" }, "Delete");
    this.remove.addEventListener("click", async () => {
      const { trace } = this;
      if (!trace || !(await confirmDelete(trace))) return;
      announce(`${trace.name} is deleted`);
      merge.set(trace.id, false);
      refresh();
    });
    /** @type {(label: string, attributes: Record<string, string>, ...content: Children[]) => HTMLTableCellElement} */
    const cell = (label, attributes, ...content) => el("td", { role: "cell", "data-label": label, ...attributes }, ...content);
    /** @param {string} label */
    const number = (label) => cell(label, { class: "number" });
    this.cells = { size: number("Size"), rank: number("Rank"), events: number("Events"), steps: number("Steps"), span: number("Span") };
    this.time = el("time");
    this.element = el(
      "tr",
      { role: "row", "data-testid": "trace-row" },
      el("th", { role: "rowheader", scope: "row", class: "name" }, el("div", { class: "pick" }, this.box, el("div", {}, this.link, this.parent, this.group))),
      cell("State", {}, this.state.element),
      Object.values(this.cells),
      cell("Age", { class: "number" }, this.time),
      cell("Actions", { class: "actions" }, el("span", { class: "buttons" }, this.perfetto, this.remove)),
    );
  }

  /** @param {TraceSummary} trace */
  update(trace) {
    if (this.trace && this.trace.state !== trace.state && isFinal(trace)) announce(`${trace.name} is ${trace.state}`);
    this.trace = trace;
    this.element.dataset.id = trace.id;
    setText(this.link, trace.name);
    this.link.href = pageOf(trace.id);
    this.group.hidden = trace.group === null;
    setText(this.groupLink, trace.group?.name ?? "");
    this.groupLink.href = trace.group ? groupPageOf(trace.group.id) : "";
    this.state.update(trace);
    const ready = trace.state === "ready";
    this.box.disabled = !ready;
    this.box.checked = this.merge.has(trace.id);
    this.box.setAttribute("aria-label", `Select ${trace.name}`);
    this.fill("size", bytes(trace.size));
    this.fill("rank", ready || trace.rank !== null ? rank(trace) : null);
    this.fill("events", ready ? count(trace.events.kept) : null);
    this.fill("steps", ready ? count(trace.steps_count) : null);
    this.fill("span", trace.bounds ? duration(span(trace.bounds)) : null);
    setText(this.time, age(trace.created_at));
    this.time.dateTime = trace.created_at;
    this.time.title = trace.created_at;
    this.perfetto.hidden = !ready;
    this.perfetto.href = api("traces", trace.id, "perfetto");
    this.perfetto.setAttribute("aria-label", `Open ${trace.name} in Perfetto`);
    this.remove.setAttribute("aria-label", `Delete ${trace.name}`);
  }

  /**
   * Link to the trace that this one was cut from, by its name if it is on the page.
   * @param {TraceSummary[]} traces
   */
  showParent(traces) {
    const parent = this.trace?.parent ?? null;
    this.parent.hidden = parent === null;
    if (parent === null) return;
    setText(this.parentLink, traces.find((trace) => trace.id === parent)?.name ?? parent);
    this.parentLink.href = pageOf(parent);
  }

  /** @param {boolean} on */
  select(on) {
    this.box.checked = on;
  }

  /**
   * Set a cell's text; null if it is not known yet.
   * @param {keyof Row["cells"]} name
   * @param {string | null} text
   */
  fill(name, text) {
    const cell = this.cells[name];
    setText(cell, text ?? NONE);
    cell.toggleAttribute("data-none", text === null); // cards leave such cells out
    cell.classList.toggle("muted", text === null || text.includes(UNKNOWN));
  }
}
