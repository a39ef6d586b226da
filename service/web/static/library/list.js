// The list of the library: one page of entries at a time, updated in place; runs unfold to their ranks.
import { Problem, api, getJson, groupPageOf, send } from "../api.js";
import { confirmDeleteGroup } from "../confirm.js";
import { announce, byId, el, setText } from "../dom.js";
import { count, plural } from "../format.js";
import { poll } from "../poll.js";
import { PAGE, apiQuery, firstOrder, isNarrow, readView, writeView } from "./address.js";
import { EntryRow, idOf } from "./entry_row.js";
import { startRemovals } from "./removals.js";
import { startSelection } from "./selection.js";

const RANKS_MAX = 256; // ranks of a run that are shown here; its page shows all
const TYPING_MS = 200;

/** @type {[string, string, string][]} a column's key, its heading, and its class */
const COLUMNS = [
  ["name", "Name", ""],
  ["", "State", ""],
  ["ranks", "Ranks", "number"],
  ["events", "Events", "number"],
  ["span", "Span", "number"],
  ["size", "Size", "number"],
  ["uploaded", "Uploaded", "number"],
];
/** @type {[string, string, string][]} orders for small screens, whose rows have no headings: column, order, name */
const ORDERS = [
  ["uploaded", "desc", "newest first"],
  ["uploaded", "asc", "oldest first"],
  ["name", "asc", "name"],
  ["size", "desc", "largest first"],
  ["size", "asc", "smallest first"],
  ["span", "desc", "longest span first"],
  ["events", "desc", "most events first"],
  ["ranks", "desc", "most ranks first"],
];

/** Start the list. Returns a function that requests it at once. */
export function startList() {
  const list = new List();
  return () => list.refresh();
}

class List {
  constructor() {
    this.view = readView();
    /** @type {Map<string, EntryRow>} */
    this.rows = new Map(); // by id, of ranks after "rank ", so that a refresh changes cells and not the focus
    /** @type {Map<string, LibraryEntry[]>} */
    this.ranks = new Map(); // of unfolded runs
    /** @type {LibraryPage | null} */
    this.page = null;
    this.requests = 0;
    this.typing = 0;
    this.heads = COLUMNS.map((column) => this.headOf(...column));
    byId("heads").replaceChildren(...this.heads, el("th", { role: "columnheader", scope: "col" }, el("span", { class: "unseen" }, "Actions")));
    byId("sort-by").replaceChildren(...ORDERS.map(([sort, order, name]) => el("option", { value: `${sort} ${order}` }, name)));
    this.removals = startRemovals({ onChange: () => this.show(), onEnd: () => this.refresh() });
    this.selection = startSelection({
      onChange: () => this.refresh(),
      onClear: () => this.show(),
      onDelete: (entries) => this.removeAll(entries),
    });
    /** @type {import("./entry_row.js").RowHandlers} */
    this.handlers = {
      onSelect: (entry, isOn) => this.selection.set(entry, isOn),
      isSelected: (id) => this.selection.has(id),
      onUnfold: (id, isOn) => this.unfold(id, isOn),
      onPin: (entry, isPinned) => this.pin(entry, isPinned),
      onDelete: (entry) => this.remove(entry),
    };
    this.listen();
    this.showControls();
    this.refresh = poll(() => this.ask());
  }

  listen() {
    byId("filters").addEventListener("submit", (event) => event.preventDefault());
    byId("search").addEventListener("input", () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.change({}, false), TYPING_MS);
    });
    for (const name of /** @type {const} */ (["state", "kind", "gpu"])) {
      byId(`filter-${name}`).addEventListener("change", () => this.change({ [name]: byId(`filter-${name}`).value }));
    }
    for (const name of /** @type {const} */ (["pinned", "damaged"])) {
      byId(`filter-${name}`).addEventListener("change", () => this.change({ [name]: byId(`filter-${name}`).checked ? "true" : "" }));
    }
    byId("sort-by").addEventListener("change", () => {
      const [sort, order] = byId("sort-by").value.split(" ");
      this.change({ sort, order });
    });
    const clear = () => {
      this.change({ q: "", state: "", kind: "", gpu: "", pinned: "", damaged: "" });
      this.showControls();
      byId("search").focus();
    };
    byId("filter-clear").addEventListener("click", clear);
    byId("nomatch-clear").addEventListener("click", clear);
    byId("previous").addEventListener("click", () => this.turn(-PAGE));
    byId("next").addEventListener("click", () => this.turn(PAGE));
    addEventListener("popstate", () => {
      this.view = readView();
      this.showControls();
      this.askAgain();
    });
  }

  /**
   * Change the view, and put it into the address.
   * @param {Partial<import("./address.js").LibraryView>} fields
   */
  change(fields, isStep = true) {
    clearTimeout(this.typing);
    this.view = { ...this.view, offset: 0, q: byId("search").value.trim(), ...fields };
    writeView(this.view, isStep);
    this.showControls(false);
    this.askAgain();
  }

  /** @param {number} entries */
  turn(entries) {
    this.change({ offset: Math.max(0, this.view.offset + entries) });
    byId("list").scrollIntoView({ block: "nearest" });
  }

  askAgain() {
    this.requests += 1; // so that the answer of an earlier request is not shown
    this.refresh();
  }

  /** Show the view in the controls; the search field only if its text is not being typed. */
  showControls(withSearch = true) {
    const { view } = this;
    if (withSearch) byId("search").value = view.q;
    for (const name of /** @type {const} */ (["state", "kind", "gpu"])) byId(`filter-${name}`).value = view[name];
    for (const name of /** @type {const} */ (["pinned", "damaged"])) byId(`filter-${name}`).checked = view[name] === "true";
    byId("sort-by").value = `${view.sort} ${view.order}`;
    byId("filter-clear").hidden = !isNarrow(view);
    this.heads.forEach((head, index) => {
      if (COLUMNS[index][0] === view.sort) head.setAttribute("aria-sort", view.order === "asc" ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
  }

  /**
   * @param {string} key
   * @param {string} title
   * @param {string} style
   */
  headOf(key, title, style) {
    const button = el("button", { type: "button", class: "sort" }, title);
    button.addEventListener("click", () => {
      const { sort, order } = this.view;
      const next = sort === key ? (order === "asc" ? "desc" : "asc") : firstOrder(key);
      announce(`Sorted by ${title}, ${next === "asc" ? "ascending" : "descending"}`);
      this.change({ sort: key, order: next });
    });
    return el("th", { role: "columnheader", scope: "col", class: style || null, "data-column": key || null }, key ? button : title);
  }

  /** Request the page of the list and the ranks of unfolded runs. Resolves to whether traces are being read. */
  async ask() {
    const request = ++this.requests;
    try {
      /** @type {LibraryPage} */
      const page = await getJson(`${api("library")}?${apiQuery(this.view)}`);
      const shown = page.entries.map(({ run }) => run?.id ?? "").filter((id) => this.view.open.has(id));
      const ranks = await Promise.all(shown.map((run) => getJson(`${api("library")}?${apiQuery(this.view, { run, limit: RANKS_MAX })}`)));
      byId("list-problem").hidden = true;
      if (request !== this.requests) return true;
      if (page.entries.length === 0 && Number(page.total) > 0) {
        this.change({ offset: Math.floor((Number(page.total) - 1) / PAGE) * PAGE }, false); // the last page became empty
        return true;
      }
      this.page = page;
      this.ranks = new Map(shown.map((run, index) => [run, ranks[index].entries]));
      this.show();
      return page.entries.some(({ states }) => states.queued || states.ingesting);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      setText(byId("list-problem"), `${error.title}. ${error.detail} Trying again.`);
      byId("list-problem").hidden = false;
      return false;
    }
  }

  show() {
    if (!this.page) return;
    const entries = this.page.entries.filter((entry) => !this.removals.has(idOf(entry)));
    const names = new Map(entries.map((entry) => [idOf(entry), entry.name]));
    /** @type {HTMLElement[]} */
    const elements = [];
    const kept = new Set();
    for (const entry of entries) {
      const isOpen = entry.run !== null && this.ranks.has(entry.run.id);
      const row = this.rowOf(entry);
      row.update(entry, isOpen);
      row.showParent((id) => names.get(id));
      kept.add(idOf(entry));
      elements.push(row.element);
      if (entry.run && isOpen) elements.push(...this.showRanks(entry, kept));
    }
    this.dropRows(kept);
    const body = byId("rows");
    elements.forEach((element, index) => {
      if (body.children[index] !== element) body.insertBefore(element, body.children[index] ?? null);
    });
    while (body.children.length > elements.length) body.lastElementChild?.remove();
    this.showFrame(entries.length);
  }

  /**
   * @param {LibraryEntry} run
   * @param {Set<string>} kept receives the keys of the rows
   */
  showRanks(run, kept) {
    const id = idOf(run);
    const ranks = (this.ranks.get(id) ?? []).filter((rank) => !this.removals.has(idOf(rank)));
    const elements = ranks.map((rank) => {
      const row = this.rowOf(rank, true);
      row.update(rank);
      kept.add(`rank ${idOf(rank)}`);
      return row.element;
    });
    if (Number(run.matching) <= RANKS_MAX) return elements;
    const more = el("a", { href: groupPageOf(id) }, `All ${plural(run.traces, "trace")} of ${run.name}`);
    return [...elements, el("tr", { role: "row", class: "rank" }, el("td", { role: "cell", colspan: COLUMNS.length + 1 }, more))];
  }

  /** @param {LibraryEntry} entry */
  rowOf(entry, isRank = false) {
    const id = idOf(entry);
    const key = isRank ? `rank ${id}` : id;
    this.selection.update(entry);
    let row = this.rows.get(key);
    if (!row) {
      row = new EntryRow(entry, this.handlers, isRank);
      this.rows.set(key, row);
    }
    return row;
  }

  /** @param {Set<string>} kept */
  dropRows(kept) {
    for (const [key, row] of this.rows) {
      if (kept.has(key)) continue;
      if (row.element.contains(document.activeElement)) byId("search").focus();
      row.element.remove();
      this.rows.delete(key);
    }
  }

  /** @param {number} length of the shown entries */
  showFrame(length) {
    const { page, view } = this;
    if (!page) return;
    const total = Number(page.total);
    const isEmpty = Number(page.stored) === 0;
    const last = view.offset + page.entries.length;
    byId("list-waiting").hidden = true;
    byId("filters").hidden = isEmpty && !isNarrow(view);
    byId("list").hidden = length === 0;
    byId("list-empty").hidden = !isEmpty;
    byId("list-nomatch").hidden = isEmpty || total > 0;
    setText(byId("nomatch-text"), view.q ? ` “${view.q}”` : " these filters");
    byId("paging").hidden = total <= PAGE && view.offset === 0;
    byId("previous").disabled = view.offset === 0;
    byId("next").disabled = last >= total;
    setText(byId("page-place"), `${count(view.offset + 1)}–${count(last)} of ${count(total)}`);
    const amount = Number(page.traces) === total ? plural(total, "trace") : `${plural(page.traces, "trace")} in ${plural(total, "row")}`;
    setText(byId("count"), isEmpty ? "" : isNarrow(view) ? `${amount} of ${count(page.stored)}` : amount);
  }

  // -- actions on rows

  /**
   * @param {string} id
   * @param {boolean} isOn
   */
  unfold(id, isOn) {
    const open = new Set(this.view.open);
    if (isOn) open.add(id);
    else open.delete(id);
    this.view = { ...this.view, open };
    writeView(this.view, false);
    if (!isOn) {
      this.ranks.delete(id);
      this.show();
    }
    this.askAgain();
  }

  /**
   * @param {LibraryEntry} entry
   * @param {boolean} isPinned
   */
  async pin(entry, isPinned) {
    try {
      await send("PATCH", entry.run ? api("groups", entry.run.id) : api("traces", idOf(entry)), { json: { pinned: isPinned } });
      announce(`${entry.name} is ${isPinned ? "pinned" : "not pinned"}`);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.removals.tell(`${entry.name} was not ${isPinned ? "pinned" : "unpinned"}: ${error.title}. ${error.detail}`);
    }
    this.refresh();
  }

  /** @param {LibraryEntry} entry */
  async remove(entry) {
    if (!entry.run) {
      this.removals.add([{ id: idOf(entry), name: entry.name }]);
      this.selection.set(entry, false);
      return;
    }
    const isEmpty = Number(entry.traces) === 0;
    const isDeleted = await (isEmpty ? this.dissolve(entry.run) : confirmDeleteGroup({ ...entry.run, traces: entry.traces }));
    if (!isDeleted) return;
    announce(`${entry.name} is deleted`);
    this.selection.set(entry, false);
    this.refresh();
  }

  /**
   * Remove a run without traces: nothing is lost, so nothing is asked. Resolves to true if it is removed.
   * @param {{ id: string, name: string }} run
   */
  async dissolve({ id, name }) {
    try {
      await send("DELETE", api("groups", id));
      return true;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.removals.tell(`${name} was not removed: ${error.title}. ${error.detail}`);
      return false;
    }
  }

  /** @param {LibraryEntry[]} entries */
  async removeAll(entries) {
    const traces = entries.filter(({ run }) => run === null);
    if (traces.length > 0) this.removals.add(traces.map((entry) => ({ id: idOf(entry), name: entry.name })));
    for (const entry of traces) this.selection.set(entry, false);
    for (const entry of entries) if (entry.run) await this.remove(entry);
  }
}
