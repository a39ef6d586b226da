// The rows of a query as a table. Values are exact: integers have all their digits, and NULL differs from an empty string.
import { el } from "./dom.js";
import { count } from "./format.js";

const BATCH = 500; // rows that are drawn at once; a browser lays out so many without delay

/**
 * Format a number with thousands separators and at most three decimals.
 * @param {Int} value
 */
export const legible = (value) => (typeof value === "bigint" || Number.isInteger(value) ? count(value) : short.format(value));

const short = new Intl.NumberFormat("en-US", { maximumFractionDigits: 3 });

/**
 * Show a result in `box`; `number` formats numbers, by default exactly.
 * @param {HTMLElement} box
 * @param {Table} table
 * @param {{ number?: (value: Int) => string }} options
 */
export function showResult(box, { columns, rows }, { number = String } = {}) {
  const body = el("tbody");
  const head = el("tr", {}, columns.map((column) => el("th", { scope: "col", class: kind(column), title: about(column) }, column.name)));
  const table = el("table", {}, el("thead", {}, head), body);
  const region = el("div", { class: "rows", role: "region", "aria-label": "Result", tabindex: 0 }, table);
  const more = el("button", { type: "button", class: "quiet" });
  let drawn = 0;

  function draw() {
    const next = rows.slice(drawn, drawn + BATCH);
    body.append(...next.map((row) => el("tr", {}, row.map((value, i) => cell(value, columns[i], number)))));
    drawn += next.length;
    more.hidden = drawn === rows.length;
    more.textContent = `Show ${count(Math.min(BATCH, rows.length - drawn))} more of ${count(rows.length - drawn)}`;
  }
  more.addEventListener("click", draw);
  draw();

  const wrap = el("input", { type: "checkbox", onchange: (/** @type {any} */ event) => table.classList.toggle("wrap", event.target.checked) });
  const foot = el("div", { class: "buttons" }, more, el("label", {}, wrap, " Wrap long text"));
  box.replaceChildren(region, ...(rows.length > 0 ? [foot] : [el("p", { class: "empty muted" }, "No rows.")]));
  box.hidden = false;
}

/** @param {Column} column */
const isNumeric = ({ type }) => type === "int" || type === "double";

/** @param {Column} column */
const kind = (column) => (isNumeric(column) ? "number" : null);

/** @param {Column} column */
const about = ({ type, unit, description }) => [type, unit, description].filter(Boolean).join(" · ");

/**
 * @param {Value} value
 * @param {Column} column
 * @param {(value: Int) => string} number
 */
function cell(value, column, number) {
  if (value === null) return el("td", { class: `null ${kind(column) ?? ""}` }, "NULL");
  const isNumber = typeof value === "number" || typeof value === "bigint";
  const exact = String(value);
  const text = isNumber ? number(value) : exact;
  return el("td", { class: isNumber || isNumeric(column) ? "number" : null, title: exact.length > 60 || text !== exact ? exact : null }, text);
}
