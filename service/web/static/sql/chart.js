// The chart of a query's result: bars of its first number, by the text that differs most; or a line over its first column.
import { lines } from "../charts/lines.js";
import { stackedBars } from "../charts/stacked_bars.js";
import { count, duration } from "../format.js";
import { el } from "../dom.js";

const BARS_MAX = 20;

/**
 * Return a chart in a folded element; null if the result has no shape that a chart shows.
 * @param {Table} table
 */
export function chartOf({ columns, rows }) {
  const numbers = indices(columns, rows, (value) => typeof value === "number" || typeof value === "bigint");
  const texts = indices(columns, rows, (value) => typeof value === "string");
  if (rows.length < 2 || numbers.length === 0) return null;
  const counts = texts.map((column) => different(rows, column));
  const label = texts[counts.indexOf(Math.max(...counts))];
  const chart = texts.length > 0 ? barsOf(columns, rows, label, numbers) : numbers.length > 1 ? lineOf(columns, rows, numbers) : null;
  if (chart === null) return null;
  return el("details", { open: true }, el("summary", {}, "Chart"), chart);
}

/**
 * Return the columns whose values are all of a kind; null fits any.
 * @param {Column[]} columns
 * @param {Value[][]} rows
 * @param {(value: Value) => boolean} isOfKind
 */
const indices = (columns, rows, isOfKind) =>
  columns.map((_, index) => index).filter((index) => rows.some((row) => row[index] !== null) && rows.every((row) => row[index] === null || isOfKind(row[index])));

/**
 * The number of different texts of a column: the column with the most tells the rows apart.
 * @param {Value[][]} rows
 * @param {number} column
 */
const different = (rows, column) => new Set(rows.map((row) => row[column])).size;

/**
 * Bars of the first rows. A column of times is preferred to other numbers, since it is what people sum.
 * @param {Column[]} columns
 * @param {Value[][]} rows
 * @param {number} label
 * @param {number[]} numbers
 */
function barsOf(columns, rows, label, numbers) {
  const value = numbers.find((index) => isTime(columns[index].name)) ?? numbers[0];
  const shown = rows.slice(0, BARS_MAX).filter((row) => Number(row[value] ?? -1) >= 0);
  if (shown.length === 0) return null;
  const { name } = columns[value];
  const bars = shown.map((row) => ({ label: row[label] === null ? "NULL" : String(row[label]), values: [/** @type {Int} */ (row[value])] }));
  const more = rows.length > BARS_MAX ? `, first ${BARS_MAX} of ${count(rows.length)} rows` : "";
  return stackedBars({ title: `${name}${more}`, name: "query", series: [{ kind: "c0", label: name }], bars, text: isTime(name) ? duration : number });
}

/**
 * @param {Column[]} columns
 * @param {Value[][]} rows
 * @param {number[]} numbers
 */
function lineOf(columns, rows, [x, ...others]) {
  const ys = others.filter((index) => columns[index].name !== "rank").slice(0, 4);
  const series = ys.map((index, position) => ({
    kind: `c${position}`,
    label: columns[index].name,
    points: rows.filter((row) => row[x] !== null && row[index] !== null).map((row) => ({ x: Number(row[x]), y: Number(row[index]) })),
  }));
  const isAllTime = ys.every((index) => isTime(columns[index].name));
  return lines({ title: `By ${columns[x].name}`, name: "query", series, ...(isTime(columns[x].name) ? {} : { textOfX: number }), textOfY: isAllTime ? duration : number });
}

/** @param {string} name */
const isTime = (name) => /(_ns|^ts|^dur)$/.test(name);

const short = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 4 });

/** @param {Int} value */
const number = (value) => short.format(value);
