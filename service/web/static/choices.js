// A list to choose from, of any length: a filter above a long one, one stop for the Tab key, arrows within.
import { el, setText } from "./dom.js";
import { count } from "./format.js";

const FILTERED = 8; // lists longer than this have a filter

/**
 * Check boxes of which any number may be set.
 *
 * `items` are `{ value, text, more, link }`: the text names it, `more` is said beside it, `link` is an element at the
 * end of its row.
 */
export class Choices {
  constructor({ title, items, testid, onChange }) {
    this.onChange = onChange;
    this.rows = items.map((item) => this.rowOf(item));
    this.list = el("div", { class: "options" }, this.rows.map(({ element }) => element));
    this.list.addEventListener("keydown", (event) => this.pressed(event));
    this.list.addEventListener("focusin", ({ target }) => this.hold(this.rows.find(({ element }) => element.contains(target))));
    this.filter = el("input", { type: "search", placeholder: `Filter ${count(items.length)}`, "aria-label": `Filter ${title}`, autocomplete: "off", spellcheck: "false" });
    this.filter.addEventListener("input", () => this.narrow(this.filter.value.trim().toLowerCase()));
    this.told = el("span", { class: "muted small" });
    this.clear = el("button", { type: "button", class: "quiet", "aria-label": `Clear ${title}` }, "Clear");
    this.clear.addEventListener("click", () => {
      this.rows.forEach(({ box }) => (box.checked = false));
      (this.held?.box ?? this.filter).focus(); // the button goes away
      this.changed();
    });
    const head = el("div", { class: "head" }, el("span", { class: "legend" }, title), this.told, this.clear);
    this.element = el("div", { class: "choices", role: "group", "aria-label": title, "data-testid": testid }, head, items.length > FILTERED ? this.filter : null, this.list);
    this.hold(this.rows[0]);
    this.tell();
  }

  /** The values that are chosen, in the list's order; null where there are none. */
  get chosen() {
    const some = this.rows.filter(({ box }) => box.checked).map(({ item }) => item.value);
    return some.length > 0 ? some : null;
  }

  rowOf(item) {
    const box = el("input", { type: "checkbox", tabindex: -1 });
    const more = item.more ? el("span", { class: "muted small" }, item.more) : null;
    const row = { item, box, element: el("div", { class: "option" }, el("label", {}, box, el("span", {}, el("span", {}, item.text), " ", more)), item.link ?? null) };
    if (item.link) item.link.tabIndex = -1;
    box.addEventListener("click", (event) => this.clicked(row, event.shiftKey));
    return row;
  }

  /** With Shift, all from the one before to this become as this. */
  clicked(row, shift) {
    const [from, to] = [this.rows.indexOf(this.before ?? row), this.rows.indexOf(row)].sort((a, b) => a - b);
    if (shift) this.rows.slice(from, to + 1).forEach(({ box, element }) => (box.checked = element.hidden ? box.checked : row.box.checked));
    this.before = row;
    this.changed();
  }

  changed() {
    this.tell();
    this.onChange();
  }

  tell() {
    const chosen = this.chosen?.length ?? 0;
    setText(this.told, chosen > 0 ? `${count(chosen)} of ${count(this.rows.length)}` : "all");
    this.clear.classList.toggle("away", chosen === 0); // it keeps its place
  }

  narrow(text) {
    for (const { item, element } of this.rows) element.hidden = !String(item.text).toLowerCase().includes(text);
    if (this.held.element.hidden) this.hold(this.rows.find(({ element }) => !element.hidden));
  }

  pressed(event) {
    const seen = this.rows.filter(({ element }) => !element.hidden);
    const at = seen.indexOf(this.held);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: seen.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    seen[Math.max(0, Math.min(to, seen.length - 1))].box.focus();
  }

  /** Make a row the one that Tab reaches. */
  hold(row) {
    if (!row || row === this.held) return;
    for (const [one, index] of [[this.held, -1], [row, 0]]) {
      if (!one) continue;
      one.box.tabIndex = index;
      if (one.item.link) one.item.link.tabIndex = index;
    }
    this.held = row;
  }
}
