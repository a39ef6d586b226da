// A list of check boxes. A long list has a filter. The Tab key stops at the list once; arrow keys move within the list.
import { el, setText } from "./dom.js";
import { count } from "./format.js";

/**
 * @typedef {{ value: any, text: string, more?: string | null, link?: HTMLElement | null }} Item
 * @typedef {{ item: Item, box: HTMLInputElement, element: HTMLElement }} Row
 */

const UNFILTERED_MAX = 8; // longer lists have a filter

/**
 * A list of check boxes. Any number of them may be checked.
 *
 * `text` names an item, `more` follows it in smaller print, `link` is an element at the end of its row.
 */
export class Choices {
  /** @param {{ title: string, items: Item[], testid: string, onChange: () => void }} options */
  constructor({ title, items, testid, onChange }) {
    this.onChange = onChange;
    /** @type {Row | undefined} */
    this.tabStop = undefined;
    /** @type {Row | undefined} */
    this.lastClicked = undefined;
    this.rows = items.map((item) => this.rowOf(item));
    this.list = el("div", { class: "options" }, this.rows.map(({ element }) => element));
    this.list.addEventListener("keydown", (event) => this.moveFocus(event));
    this.list.addEventListener("focusin", ({ target }) => this.setTabStop(this.rows.find(({ element }) => element.contains(/** @type {Node} */ (target)))));
    this.filter = el("input", { type: "search", placeholder: `Filter ${count(items.length)}`, "aria-label": `Filter ${title}`, autocomplete: "off", spellcheck: "false" });
    this.filter.addEventListener("input", () => this.filterRows(this.filter.value.trim().toLowerCase()));
    this.summary = el("span", { class: "muted small" });
    this.clear = el("button", { type: "button", class: "quiet", "aria-label": `Clear ${title}` }, "Clear");
    this.clear.addEventListener("click", () => {
      for (const { box } of this.rows) box.checked = false;
      (this.tabStop?.box ?? this.filter).focus(); // because the button disappears
      this.changed();
    });
    const head = el("div", { class: "head" }, el("span", { class: "legend" }, title), this.summary, this.clear);
    this.element = el("div", { class: "choices", role: "group", "aria-label": title, "data-testid": testid }, head, items.length > UNFILTERED_MAX ? this.filter : null, this.list);
    this.setTabStop(this.rows[0]);
    this.showSummary();
  }

  /** The chosen values in the list's order, or null if there are none. */
  get chosen() {
    const values = this.rows.filter(({ box }) => box.checked).map(({ item }) => item.value);
    return values.length > 0 ? values : null;
  }

  /**
   * @param {Item} item
   * @returns {Row}
   */
  rowOf(item) {
    const box = el("input", { type: "checkbox", tabindex: -1 });
    const more = item.more ? el("span", { class: "muted small" }, item.more) : null;
    const row = { item, box, element: el("div", { class: "option" }, el("label", {}, box, el("span", {}, el("span", {}, item.text), " ", more)), item.link ?? null) };
    if (item.link) item.link.tabIndex = -1;
    box.addEventListener("click", (event) => this.clicked(row, event.shiftKey));
    return row;
  }

  /**
   * With Shift, copy the state of the clicked row to all visible rows between it and the row clicked before.
   * @param {Row} row
   * @param {boolean} shift
   */
  clicked(row, shift) {
    if (shift) {
      const [from, to] = [this.rows.indexOf(this.lastClicked ?? row), this.rows.indexOf(row)].sort((a, b) => a - b);
      for (const { box, element } of this.rows.slice(from, to + 1)) if (!element.hidden) box.checked = row.box.checked;
    }
    this.lastClicked = row;
    this.changed();
  }

  changed() {
    this.showSummary();
    this.onChange();
  }

  showSummary() {
    const chosen = this.chosen?.length ?? 0;
    setText(this.summary, chosen > 0 ? `${count(chosen)} of ${count(this.rows.length)}` : "all");
    this.clear.classList.toggle("away", chosen === 0); // invisible, but it keeps its place
  }

  /**
   * Show only the rows that contain a text.
   * @param {string} text in lower case
   */
  filterRows(text) {
    for (const { item, element } of this.rows) element.hidden = !String(item.text).toLowerCase().includes(text);
    if (this.tabStop?.element.hidden) this.setTabStop(this.rows.find(({ element }) => !element.hidden));
  }

  /**
   * Move the focus to another visible row, if the key is an arrow key, Home or End.
   * @param {KeyboardEvent} event
   */
  moveFocus(event) {
    const visible = this.rows.filter(({ element }) => !element.hidden);
    const current = this.tabStop ? visible.indexOf(this.tabStop) : -1;
    const target = { ArrowDown: current + 1, ArrowUp: current - 1, Home: 0, End: visible.length - 1 }[event.key];
    if (target === undefined) return;
    event.preventDefault();
    visible[Math.max(0, Math.min(target, visible.length - 1))].box.focus();
  }

  /**
   * Make a row the stop of the Tab key.
   * @param {Row | undefined} row
   */
  setTabStop(row) {
    if (!row || row === this.tabStop) return;
    if (this.tabStop) setTabIndex(this.tabStop, -1);
    setTabIndex(row, 0);
    this.tabStop = row;
  }
}

/**
 * @param {Row} row
 * @param {number} index
 */
function setTabIndex({ box, item }, index) {
  box.tabIndex = index;
  if (item.link) item.link.tabIndex = index;
}
