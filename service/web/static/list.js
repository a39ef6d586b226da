// The list of traces: one page of it at a time, kept fresh in place.
import { Problem, api, getJson, groupPageOf, pageOf } from "./api.js";
import { confirmDelete } from "./confirm.js";
import { announce, byId, el, setText } from "./dom.js";
import { UNKNOWN, age, bytes, count, duration, rank, span } from "./format.js";
import { poll } from "./poll.js";
import { startMerge } from "./merge.js";
import { StateView, isFinal } from "./state.js";

const PAGE = 50;
const NONE = "–";

/** Start the list; the returned function asks for it at once. */
export function startList() {
  const rows = new Map(); // by trace id, so that a refresh changes cells and not the focus
  const cursors = [null]; // of the pages from the newest to this one
  const filter = byId("filter");
  let next = null;
  let asked = 0;

  filter.value = new URLSearchParams(location.search).get("name") ?? "";

  async function ask() {
    const turn = ++asked;
    const wanted = new URLSearchParams({ limit: PAGE });
    if (cursors.at(-1) !== null) wanted.set("cursor", cursors.at(-1));
    if (filter.value) wanted.set("name", filter.value);
    try {
      const page = await getJson(`${api("traces")}?${wanted}`);
      if (turn === asked) show(page);
      byId("list-problem").hidden = true;
      return page.traces.some((trace) => !isFinal(trace));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      setText(byId("list-problem"), `${error.title}. ${error.detail} Trying again.`);
      byId("list-problem").hidden = false;
      return false;
    }
  }

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
      if (!rows.has(trace.id)) rows.set(trace.id, new Row(refresh, merge));
      const row = rows.get(trace.id);
      row.update(trace);
      row.showParent(page.traces);
      if (body.children[index] !== row.element) body.insertBefore(row.element, body.children[index] ?? null);
    });
    showFrame(page.traces.length);
  }

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
    onClear: () => rows.forEach((row) => row.select(false)),
  });
  const refresh = poll(ask);

  let typing = 0;
  function filtered() {
    cursors.length = 1;
    const url = new URL(location.href);
    if (filter.value) url.searchParams.set("name", filter.value);
    else url.searchParams.delete("name");
    history.replaceState(null, "", url);
    asked += 1; // what is on its way answers an old question
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
    asked += 1;
    refresh();
  });
  byId("newer").addEventListener("click", () => {
    if (cursors.length > 1) cursors.pop();
    asked += 1;
    refresh();
  });
  return refresh;
}

/** One trace's row, made once and updated in place. */
class Row {
  constructor(refresh, merge) {
    this.merge = merge;
    this.box = el("input", { type: "checkbox", "data-testid": "select-trace" });
    this.box.addEventListener("change", () => merge.set(this.trace.id, this.box.checked));
    this.link = el("a");
    this.parentLink = el("a");
    this.parent = el("span", { class: "small muted" }, "cut from ", this.parentLink);
    this.groupLink = el("a");
    this.group = el("span", { class: "small muted" }, "in ", this.groupLink);
    this.state = new StateView();
    this.perfetto = el("a", { class: "button", target: "_blank", rel: "noopener", "data-testid": "open-perfetto" }, "Perfetto");
    this.remove = el("button", { type: "button", class: "quiet", "data-testid": "delete-trace" }, "Delete");
    this.remove.addEventListener("click", async () => {
      if (!(await confirmDelete(this.trace))) return;
      announce(`${this.trace.name} is deleted`);
      merge.set(this.trace.id, false);
      refresh();
    });
    const cell = (label, attributes, ...content) => el("td", { role: "cell", "data-label": label, ...attributes }, ...content);
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
    const known = trace.state === "ready";
    this.box.disabled = !known;
    this.box.checked = this.merge.has(trace.id);
    this.box.setAttribute("aria-label", `Select ${trace.name}`);
    this.fill("size", bytes(trace.size));
    this.fill("rank", known || trace.rank !== null ? rank(trace) : null);
    this.fill("events", known ? count(trace.events.kept) : null);
    this.fill("steps", known ? count(trace.steps_count) : null);
    this.fill("span", trace.bounds ? duration(span(trace.bounds)) : null);
    setText(this.time, age(trace.created_at));
    this.time.dateTime = trace.created_at;
    this.time.title = trace.created_at;
    this.perfetto.hidden = !known;
    this.perfetto.href = api("traces", trace.id, "perfetto");
    this.perfetto.setAttribute("aria-label", `Open ${trace.name} in Perfetto`);
    this.remove.setAttribute("aria-label", `Delete ${trace.name}`);
  }

  /** The mark of a trace that was cut out of another, by whose name if that is on the page. */
  showParent(traces) {
    const { parent } = this.trace;
    this.parent.hidden = parent === null;
    if (parent === null) return;
    setText(this.parentLink, traces.find((trace) => trace.id === parent)?.name ?? parent);
    this.parentLink.href = pageOf(parent);
  }

  select(on) {
    this.box.checked = on;
  }

  /** Set a cell's text; null is for what is not known yet. */
  fill(name, text) {
    const cell = this.cells[name];
    setText(cell, text ?? NONE);
    cell.toggleAttribute("data-none", text === null); // cards leave such cells out
    cell.classList.toggle("muted", text === null || text.includes(UNKNOWN));
  }
}
