// A query's rows as a table. Values are shown as they are: exact integers, NULL told from an empty string.
import { el } from "./dom.js";
import { count } from "./format.js";

const AT_ONCE = 500; // rows drawn before the next button press; a browser lays out so many at ease

const written = String;

/** A number as a person reads it: grouped, and with three decimals at most. */
export const legible = (value) => (typeof value === "bigint" || Number.isInteger(value) ? count(value) : short.format(value));

const short = new Intl.NumberFormat("en-US", { maximumFractionDigits: 3 });

/** Show a result ({columns, rows}) in `box`; `number` writes numbers, exactly if not told otherwise. */
export function showResult(box, { columns, rows }, { number = written } = {}) {
  const body = el("tbody");
  const head = el("tr", {}, columns.map((column) => el("th", { scope: "col", class: kind(column), title: about(column) }, column.name)));
  const table = el("table", {}, el("thead", {}, head), body);
  const region = el("div", { class: "rows", role: "region", "aria-label": "Result", tabindex: 0 }, table);
  const more = el("button", { type: "button", class: "quiet" });
  let drawn = 0;

  function draw() {
    const next = rows.slice(drawn, drawn + AT_ONCE);
    body.append(...next.map((row) => el("tr", {}, row.map((value, i) => cell(value, columns[i], number)))));
    drawn += next.length;
    more.hidden = drawn === rows.length;
    more.textContent = `Show ${count(Math.min(AT_ONCE, rows.length - drawn))} more of ${count(rows.length - drawn)}`;
  }
  more.addEventListener("click", draw);
  draw();

  const wrap = el("input", { type: "checkbox", onchange: (event) => table.classList.toggle("wrap", event.target.checked) });
  const foot = el("div", { class: "buttons" }, more, el("label", {}, wrap, " Wrap long text"));
  box.replaceChildren(region, ...(rows.length > 0 ? [foot] : [el("p", { class: "empty muted" }, "No rows.")]));
  box.hidden = false;
}

const isNumeric = ({ type }) => type === "int" || type === "double";

const kind = (column) => (isNumeric(column) ? "number" : null);

const about = ({ type, unit, description }) => [type, unit, description].filter(Boolean).join(" · ");

function cell(value, column, number) {
  if (value === null) return el("td", { class: `null ${kind(column) ?? ""}` }, "NULL");
  const isNumber = typeof value === "number" || typeof value === "bigint";
  const exact = String(value);
  const text = isNumber ? number(value) : exact;
  return el("td", { class: isNumber || isNumeric(column) ? "number" : null, title: exact.length > 60 || text !== exact ? exact : null }, text);
}
