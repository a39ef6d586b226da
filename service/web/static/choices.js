// A list of check boxes of any length: long ones have a filter. It is one stop of the Tab key; arrow keys move within.
import { el, setText } from "./dom.js";
import { count } from "./format.js";

/**
 * @typedef {{ value: any, text: string, more?: string | null, link?: HTMLElement | null }} Item
 * @typedef {{ item: Item, box: HTMLInputElement, element: HTMLElement }} Row
 */

const FILTERED = 8; // lists longer than this have a filter

/**
 * Check boxes, any number of which may be set.
 *
 * `text` names an item, `more` follows it in smaller print, `link` is an element at the end of its row.
 */
export class Choices {
  /** @param {{ title: string, items: Item[], testid: string, onChange: () => void }} options */
  constructor({ title, items, testid, onChange }) {
    this.onChange = onChange;
    /** @type {Row | undefined} */
    this.held = undefined;
    /** @type {Row | undefined} */
    this.before = undefined;
    this.rows = items.map((item) => this.rowOf(item));
    this.list = el("div", { class: "options" }, this.rows.map(({ element }) => element));
    this.list.addEventListener("keydown", (event) => this.pressed(event));
    this.list.addEventListener("focusin", ({ target }) => this.hold(this.rows.find(({ element }) => element.contains(/** @type {Node} */ (target)))));
    this.filter = el("input", { type: "search", placeholder: `Filter ${count(items.length)}`, "aria-label": `Filter ${title}`, autocomplete: "off", spellcheck: "false" });
    this.filter.addEventListener("input", () => this.narrow(this.filter.value.trim().toLowerCase()));
    this.summary = el("span", { class: "muted small" });
    this.clear = el("button", { type: "button", class: "quiet", "aria-label": `Clear ${title}` }, "Clear");
    this.clear.addEventListener("click", () => {
      for (const { box } of this.rows) box.checked = false;
      (this.held?.box ?? this.filter).focus(); // the button disappears
      this.changed();
    });
    const head = el("div", { class: "head" }, el("span", { class: "legend" }, title), this.summary, this.clear);
    this.element = el("div", { class: "choices", role: "group", "aria-label": title, "data-testid": testid }, head, items.length > FILTERED ? this.filter : null, this.list);
    this.hold(this.rows[0]);
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
   * With Shift, give all rows from the last clicked one to this the state of this.
   * @param {Row} row
   * @param {boolean} shift
   */
  clicked(row, shift) {
    const [from, to] = [this.rows.indexOf(this.before ?? row), this.rows.indexOf(row)].sort((a, b) => a - b);
    for (const { box, element } of shift ? this.rows.slice(from, to + 1) : []) if (!element.hidden) box.checked = row.box.checked;
    this.before = row;
    this.changed();
  }

  changed() {
    this.showSummary();
    this.onChange();
  }

  showSummary() {
    const chosen = this.chosen?.length ?? 0;
    setText(this.summary, chosen > 0 ? `${count(chosen)} of ${count(this.rows.length)}` : "all");
    this.clear.classList.toggle("away", chosen === 0); // it keeps its place
  }

  /** @param {string} text */
  narrow(text) {
    for (const { item, element } of this.rows) element.hidden = !String(item.text).toLowerCase().includes(text);
    if (this.held?.element.hidden) this.hold(this.rows.find(({ element }) => !element.hidden));
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    const visible = this.rows.filter(({ element }) => !element.hidden);
    const at = this.held ? visible.indexOf(this.held) : -1;
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: visible.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    visible[Math.max(0, Math.min(to, visible.length - 1))].box.focus();
  }

  /**
   * Make a row the stop of the Tab key.
   * @param {Row | undefined} row
   */
  hold(row) {
    if (!row || row === this.held) return;
    if (this.held) setTabIndex(this.held, -1);
    setTabIndex(row, 0);
    this.held = row;
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
