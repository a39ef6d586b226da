// What pictures of analyses share: labels of rows, and bars of them.
import { stackedBars } from "../charts/stacked_bars.js";
import { duration } from "../format.js";
import { numberOf } from "../records.js";

/** @import { Series } from "../charts/chart.js" */
/** @import { Row } from "../records.js" */
/** @typedef {Series & { column: string }} ColumnSeries */

export const BARS_MAX = 40; // the table has all

/**
 * Text for titles of charts that do not show all rows.
 * @param {number} shown
 * @param {number} all
 */
export const ofAll = (shown, all) => (shown < all ? ` (the first ${shown} of ${all})` : "");

/**
 * Name what a row is about: "Rank 1 · GPU 0 · stream 7", without the rank if the rows have one only.
 * @param {Row[]} rows
 * @returns {(row: Row) => string}
 */
export function placeOf(rows) {
  const hasRanks = new Set(rows.map(({ rank }) => rank)).size > 1;
  const hasDevices = new Set(rows.map(({ device }) => device)).size > 1;
  return ({ rank, device, stream }) => {
    const parts = [hasRanks && `Rank ${rank}`, device !== undefined && (hasDevices || stream === undefined) && `GPU ${device}`, stream !== undefined && `stream ${stream}`];
    return parts.filter(Boolean).join(" · ") || "All";
  };
}

/**
 * Bars of rows: each column is a series. Null if there are no rows.
 * @param {{ title: string, name: string, rows: Row[], series: ColumnSeries[], labelOf: (row: Row) => string, text?: (value: Int) => string, noteOf?: (row: Row) => string | undefined }} parts
 */
export function barsOf({ title, name, rows, series, labelOf, text = duration, noteOf = () => undefined }) {
  const shown = rows.slice(0, BARS_MAX);
  if (shown.length === 0) return null;
  const bars = shown.map((row) => ({ label: labelOf(row), note: noteOf(row), values: series.map(({ column }) => numberOf(row, column)) }));
  return stackedBars({ title: `${title}${ofAll(shown.length, rows.length)}`, name, series, bars, text });
}

/**
 * The rows with the largest values in a column, the largest first; rows without a value are left out.
 * @param {Row[]} rows
 * @param {string} column
 * @param {number} most
 */
export const largest = (rows, column, most) => rows.filter((row) => Number(row[column] ?? 0) > 0).sort((a, b) => Number(b[column]) - Number(a[column])).slice(0, most);

/**
 * Nanoseconds from a start to the time of a row, exact at any epoch.
 * @param {bigint} start
 * @param {string} column
 * @returns {(row: Row, other?: string) => number}
 */
export const since = (start, column) => (row, other = column) => Number(BigInt(/** @type {Int} */ (row[other])) - start);

/**
 * Rows by a key, in the order of the keys' first rows.
 * @param {Row[]} rows
 * @param {(row: Row) => string} keyOf
 */
export function grouped(rows, keyOf) {
  /** @type {Map<string, Row[]>} */
  const groups = new Map();
  for (const row of rows) {
    const key = keyOf(row);
    const group = groups.get(key);
    if (group) group.push(row);
    else groups.set(key, [row]);
  }
  return groups;
}

/**
 * A color from those without a meaning.
 * @param {number} index
 */
export const colorOf = (index) => `c${index % 8}`;

/** @param {Row} row */
export const nameOfRank = ({ rank }) => (rank === null ? "This trace" : `Rank ${rank}`);
