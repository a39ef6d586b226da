// A table that stays quick with 100,000 rows: only the visible rows are in the page. Rows can be sorted, searched and copied.
import { announce, copyButton, el, save, setText } from "./dom.js";
import { count, plural } from "./format.js";
import { readable } from "./units.js";

/**
 * @typedef {{
 *   label?: string, isExact?: boolean, csv?: string, arrow?: string, fileName?: string, actions?: (row: Value[]) => Children,
 * }} TableOptions
 * `label` is the table's name for screen readers. `isExact` shows values as they are, without units. `csv` and `arrow` are
 * addresses of the whole table; without `csv`, the CSV is written here, as `fileName`. `actions` makes the last cell of a row.
 */

const ROW_HEIGHT = 26; // pixels, as in table.css
const OVERSCAN = 20; // rows that are drawn above and below the visible ones
const SEARCH_MIN = 8; // rows from which on a search field is of use
const MARKDOWN_MAX = 1000; // rows of a copy

/** @type {Record<string, string>} how names of columns end with a unit, where it is not the unit itself */
const UNITS_IN_NAMES = { "%": "pct", "GB/s": "gb_per_s" };

const collator = new Intl.Collator("en", { numeric: true });

/**
 * Show a table in `box`.
 * @param {HTMLElement} box
 * @param {Table} table
 * @param {TableOptions} options
 */
export function showTable(box, table, options = {}) {
  box.hidden = false; // the table measures its columns
  if (table.rows.length === 0) box.replaceChildren(el("p", { class: "empty muted" }, "No rows."));
  else new TableView(box, table, options);
}

class TableView {
  /**
   * @param {HTMLElement} box
   * @param {Table} table
   * @param {TableOptions} options
   */
  constructor(box, { columns, rows }, options) {
    this.columns = columns;
    this.rows = rows;
    this.options = options;
    /** @type {Value[][]} */
    this.shown = rows; // sorted and filtered
    /** @type {{ column: number, descending: boolean } | null} */
    this.order = null;
    /** @type {string[]} */
    this.words = []; // that a row must contain
    this.drawn = { first: -1, last: -1 };
    this.heads = columns.map((column, index) => this.headOf(column, index));
    this.body = el("tbody");
    const actions = options.actions ? [el("th", { scope: "col", class: "actions" }, el("span", { class: "unseen" }, "Actions"))] : [];
    this.element = el("table", { "aria-rowcount": rows.length + 1 }, el("thead", {}, el("tr", { "aria-rowindex": 1 }, ...this.heads, ...actions)), this.body);
    this.region = el("div", { class: "rows", role: "region", "aria-label": options.label ?? "Result", tabindex: 0 }, this.element);
    this.region.addEventListener("scroll", () => this.draw());
    this.length = el("span", { class: "muted small", role: "status" });
    box.replaceChildren(this.toolbar(), this.region);
    this.draw();
    this.freezeWidths();
    new ResizeObserver(() => this.draw()).observe(this.region);
  }

  toolbar() {
    const search = el("input", { type: "search", placeholder: "Search", "aria-label": `Search in ${this.options.label ?? "the result"}`, "data-testid": "table-search" });
    search.addEventListener("input", () => this.filter(search.value));
    const wrap = el("input", { type: "checkbox" });
    wrap.addEventListener("change", () => this.wrap(wrap.checked));
    const { csv, arrow, fileName = "table.csv" } = this.options;
    const download = csv
      ? el("a", { href: csv, download: "" }, "CSV")
      : el("button", { type: "button", class: "quiet", onclick: () => save(new Blob([this.csv()], { type: "text/csv" }), fileName) }, "CSV");
    return el(
      "div",
      { class: "table-tools buttons" },
      this.rows.length >= SEARCH_MIN ? search : null,
      this.length,
      el("span", { class: "buttons table-copies" }, el("label", { class: "small" }, wrap, " Wrap"), copyButton(() => this.markdown(), "Copy the table as Markdown", "Markdown"), download, arrow ? el("a", { href: arrow, download: "" }, "Arrow") : null),
    );
  }

  /**
   * @param {Column} column
   * @param {number} index
   */
  headOf(column, index) {
    const button = el("button", { type: "button", class: "sort", title: about(column) }, nameOf(column, this.options.isExact));
    button.addEventListener("click", () => this.sort(index));
    return el("th", { scope: "col", class: isNumeric(column) ? "number" : null, "data-column": column.name }, button);
  }

  /**
   * Sort by a column; numbers begin with the largest. A second call reverses the order, a third restores that of the analysis.
   * @param {number} column
   */
  sort(column) {
    const first = isNumeric(this.columns[column]);
    if (this.order?.column !== column) this.order = { column, descending: first };
    else this.order = this.order.descending === first ? { column, descending: !first } : null;
    this.heads.forEach((head, index) => {
      if (this.order?.column === index) head.setAttribute("aria-sort", this.order.descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    announce(this.order ? `Sorted by ${this.columns[column].name}, ${this.order.descending ? "descending" : "ascending"}` : "In the original order");
    this.arrange();
  }

  /** @param {string} text */
  filter(text) {
    this.words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.arrange();
  }

  /** Select and sort the rows to show, and draw them from the first. */
  arrange() {
    const { words } = this;
    const rows = words.length === 0 ? [...this.rows] : this.rows.filter((row) => matches(row, words));
    if (this.order) {
      const { column, descending } = this.order;
      rows.sort((a, b) => compare(a[column], b[column], descending));
    }
    this.shown = rows;
    setText(this.length, words.length === 0 ? "" : `${count(rows.length)} of ${plural(this.rows.length, "row")}`);
    this.region.scrollTop = 0;
    this.drawn = { first: -1, last: -1 };
    this.draw();
  }

  /** Draw the visible rows, unless they are drawn already. Empty rows above and below them have the height of the others. */
  draw() {
    const height = this.element.classList.contains("wrap") ? Infinity : this.region.clientHeight || 20 * ROW_HEIGHT;
    const top = Math.floor(this.region.scrollTop / ROW_HEIGHT);
    const first = Math.max(0, top - OVERSCAN);
    const last = Math.min(this.shown.length, Math.ceil(top + height / ROW_HEIGHT) + OVERSCAN);
    const { drawn } = this;
    const isInside = drawn.first <= Math.max(0, top - 2) && drawn.last >= Math.min(this.shown.length, top + height / ROW_HEIGHT + 2);
    if (drawn.first >= 0 && isInside) return;
    this.drawn = { first, last };
    const rows = this.shown.slice(first, last).map((row, index) => this.rowOf(row, first + index));
    this.body.replaceChildren(...spacer(first), ...rows, ...spacer(this.shown.length - last));
  }

  /**
   * @param {Value[]} row
   * @param {number} index
   */
  rowOf(row, index) {
    const cells = row.map((value, column) => cellOf(value, this.columns[column], this.options.isExact ?? false));
    const actions = this.options.actions ? [el("td", { class: "actions" }, this.options.actions(row))] : [];
    return el("tr", { "aria-rowindex": index + 2 }, ...cells, ...actions);
  }

  /** Keep the widths of the first rows: otherwise columns would move while the table scrolls. */
  freezeWidths() {
    if (this.shown.length <= this.drawn.last) return;
    for (const head of this.element.querySelectorAll("th")) head.style.minWidth = `${Math.ceil(head.getBoundingClientRect().width)}px`;
  }

  /**
   * Wrap long texts; then all rows are drawn, since their heights differ.
   * @param {boolean} isOn
   */
  wrap(isOn) {
    this.element.classList.toggle("wrap", isOn);
    this.drawn = { first: -1, last: -1 };
    this.draw();
  }

  /** The shown rows as a Markdown table. */
  markdown() {
    const line = (/** @type {string[]} */ cells) => `| ${cells.map((cell) => cell.replaceAll("|", "\\|").replaceAll("\n", " ")).join(" | ")} |`;
    const rows = this.shown.slice(0, MARKDOWN_MAX).map((row) => line(row.map((value, index) => textOf(value, this.columns[index], this.options.isExact ?? false))));
    const more = this.shown.length > MARKDOWN_MAX ? [`… and ${plural(this.shown.length - MARKDOWN_MAX, "more row")}`] : [];
    return [line(this.columns.map((column) => nameOf(column, this.options.isExact))), line(this.columns.map((column) => (isNumeric(column) ? "--:" : "---"))), ...rows, ...more].join("\n");
  }

  /** The shown rows as CSV, with exact values; null is empty. */
  csv() {
    const line = (/** @type {Value[]} */ cells) => cells.map((value) => quoted(value === null ? "" : String(value))).join(",");
    return [line(this.columns.map(({ name }) => name)), ...this.shown.map(line), ""].join("\r\n");
  }
}

/** @param {string} text */
const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/**
 * An empty row in place of rows that are not drawn.
 * @param {number} rows
 */
function spacer(rows) {
  if (rows === 0) return [];
  const cell = el("td");
  cell.style.height = `${rows * ROW_HEIGHT}px`;
  return [el("tr", { class: "spacer", "aria-hidden": "true" }, cell)];
}

/**
 * @param {Value[]} row
 * @param {string[]} words
 */
function matches(row, words) {
  const text = row.map((value) => (value === null ? "" : String(value).toLowerCase())).join("\n");
  return words.every((word) => text.includes(word));
}

/**
 * Compare two values of a column; null comes last in either order.
 * @param {Value} a
 * @param {Value} b
 * @param {boolean} descending
 */
function compare(a, b, descending) {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  const order = typeof a === "string" && typeof b === "string" ? collator.compare(a, b) : a < b ? -1 : a > b ? 1 : 0;
  return descending ? -order : order;
}

/** @param {Column} column */
const isNumeric = ({ type }) => type === "int" || type === "double";

/** @param {Column} column */
const about = ({ name, type, unit, description }) => [name, type, unit, description].filter(Boolean).join(" · ");

/**
 * "idle_ns" as "idle", since the values have their units.
 * @param {Column} column
 * @param {boolean} [isExact]
 */
function nameOf({ name, unit }, isExact = false) {
  if (isExact) return name;
  const end = `_${UNITS_IN_NAMES[unit ?? ""] ?? unit}`;
  const short = unit && name.endsWith(end) ? name.slice(0, -end.length) : name;
  return unit === "%" ? `${short} %`.replaceAll("_", " ") : short.replaceAll("_", " ");
}

/**
 * @param {Value} value
 * @param {Column} column
 * @param {boolean} isExact
 */
function textOf(value, { name, unit }, isExact) {
  if (value === null) return isExact ? "NULL" : "";
  if (isExact || (typeof value !== "number" && typeof value !== "bigint")) return String(value);
  return isPlace(name, unit) ? String(value) : readable(value, unit);
}

/**
 * Whether a column has points in time: as a length, nanoseconds since the epoch mean nothing.
 * @param {string} name
 * @param {string | null | undefined} unit
 */
const isPlace = (name, unit) => unit === "ns" && /(^|_)(start|end|ts|peak)_ns$/.test(name);

/**
 * @param {Value} value
 * @param {Column} column
 * @param {boolean} isExact
 */
function cellOf(value, column, isExact) {
  const numeric = isNumeric(column) || typeof value === "number" || typeof value === "bigint";
  if (value === null) return el("td", { class: `null ${numeric ? "number" : ""}` }, isExact ? "NULL" : "–");
  const text = textOf(value, column, isExact);
  const exact = column.unit && numeric ? `${value} ${column.unit}` : String(value);
  return el("td", { class: numeric ? "number" : null, title: exact !== text && (numeric || exact.length > 60) ? exact : exact.length > 60 ? exact : null }, text);
}
