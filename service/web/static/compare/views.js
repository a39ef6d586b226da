// The tables of a comparison as people look at them: which columns come first, and what is drawn.
import { count } from "../format.js";
import { numberOf, recordsOf } from "../records.js";
import { duration } from "../format.js";
import { readable } from "../units.js";

/** @import { Row } from "../records.js" */
/** @import { DivergingBar } from "../charts/diverging_bars.js" */
/**
 * @typedef {{
 *   label: string, base: number | null, other: number | null, difference: number, percent: number | null, verdict: string, row: Row,
 * }} Change
 * @typedef {{ name: string, title: string, noun: string, columns: string[], none: string }} View `name` is that of the table
 */

const BARS_MAX = 15;
const STEPS_MAX = 40;

/** @typedef {{ kind: string, label: string }} Verdict */

/** @type {Record<string, Verdict>} */
export const VERDICTS = {
  slower: { kind: "alarm", label: "slower" },
  faster: { kind: "mem", label: "faster" },
  new: { kind: "comm", label: "new" },
  gone: { kind: "overlap", label: "gone" },
  same: { kind: "idle", label: "the same" },
};

/** Columns of the tables of names, after those of the measure that is compared. */
const COUNTS = ["base_count", "count", "count_difference"];
/** @type {Record<string, string[]>} */
const MEASURES = {
  step: ["base_per_step_ns", "per_step_ns", "per_step_difference_ns"],
  total: ["base_duration_ns", "duration_ns", "duration_difference_ns"],
  mean: ["base_mean_ns", "mean_ns"],
};
const NAMED = ["name", "kind"];
const OUTCOME = ["difference_pct", "verdict", "ratio"];

/** @type {View[]} */
export const VIEWS = [
  { name: "kernels", title: "Kernels and copies", noun: "kernels and copies", columns: ["base_name", "matched_by"], none: "Neither side runs work on a GPU. Operators and calls of the host can be compared." },
  { name: "ops", title: "Operators and annotations", noun: "operators and annotations", columns: [], none: "Neither side has operators or annotations." },
  { name: "calls", title: "Runtime calls", noun: "runtime calls", columns: [], none: "Neither side calls the runtime or the driver of a GPU." },
  { name: "steps", title: "Time by kind", noun: "kinds of time", columns: [], none: "Neither side has activity." },
  { name: "each_step", title: "Each step", noun: "steps", columns: [], none: "Neither side has steps." },
];

/** Kinds of time as people call them; the columns of the analysis `steps`. */
/** @type {Record<string, string>} */
export const KINDS = {
  total: "whole step", kernel: "computing", memcpy: "copies", memset: "memsets", communication: "communication", runtime: "runtime calls",
  dataloader: "data loading", cpu_exec: "operators of the host", other: "other time",
};

/**
 * The columns of a view's table, with the measure that is compared first.
 * @param {View} view
 * @param {Table} table
 * @param {string} by
 */
export function columnsOf({ name, columns }, table, by) {
  if (name === "steps" || name === "each_step") return table.columns.map((column) => column.name);
  const measures = [...MEASURES[by], ...OUTCOME, ...COUNTS, ...Object.values(MEASURES).flat()];
  return [...new Set([...NAMED, ...measures, ...columns])];
}

/**
 * A table with kinds of time as people call them.
 * @param {Table} table
 * @returns {Table}
 */
export function withWords({ columns, rows }) {
  const category = columns.findIndex(({ name }) => name === "category");
  return { columns, rows: rows.map((row) => row.map((value, index) => (index === category ? (KINDS[String(value)] ?? value) : value))) };
}

/**
 * The rows of a table as changes of the measure that is compared.
 * @param {View} view
 * @param {Table} table
 * @param {string} by
 * @returns {Change[]}
 */
export function changesOf({ name }, table, by) {
  return recordsOf(table).map((row) => {
    const [base, other] = valuesOf(name, row, by);
    const exact = numberOf(row, name === "steps" ? "difference_ns" : name === "each_step" || by === "total" ? "duration_difference_ns" : by === "step" ? "per_step_difference_ns" : "");
    return { label: labelOf(name, row), base, other, difference: exact === null ? (other ?? 0) - (base ?? 0) : Number(exact), percent: numberOf(row, "difference_pct") === null ? null : Number(row.difference_pct), verdict: String(row.verdict), row };
  });
}

/**
 * The values of both sides; null for a side that lacks the row.
 * @param {string} table
 * @param {Row} row
 * @param {string} by
 */
function valuesOf(table, row, by) {
  const [base, other] = table === "steps" ? ["base_mean_ns", "mean_ns"] : table === "each_step" ? ["base_duration_ns", "duration_ns"] : MEASURES[by];
  return [
    { column: base, lacks: row.base_count === 0 },
    { column: other, lacks: row.count === 0 },
  ].map(({ column, lacks }) => {
    const value = numberOf(row, column);
    return lacks || value === null ? null : Number(value);
  });
}

/**
 * @param {string} table
 * @param {Row} row
 */
function labelOf(table, row) {
  if (table === "steps") return KINDS[String(row.category)] ?? String(row.category);
  if (table !== "each_step") return String(row.name ?? "without a name");
  const numbers = row.base_step === row.step || row.base_step === null ? row.step : row.step === null ? row.base_step : `${row.base_step} → ${row.step}`;
  const step = numbers === null ? "whole trace" : `step ${numbers}`;
  return [row.rank === null ? null : `rank ${row.rank}`, Number(row.cycle) > 0 ? `cycle ${row.cycle}` : null, step].filter((word) => word !== null).join(", ");
}

/**
 * What is drawn: the largest changes beyond the threshold or, without any, the largest within it, largest first. Steps and
 * kinds of time keep their order.
 * @param {View} view
 * @param {Change[]} changes
 */
export function drawnOf({ name }, changes) {
  if (name === "steps") return changes.filter(({ base, other }) => base || other);
  const largest = changes.filter(({ difference }) => difference !== 0).sort((a, b) => Math.abs(b.difference) - Math.abs(a.difference));
  if (name === "each_step") {
    const shown = new Set(largest.slice(0, STEPS_MAX));
    return changes.filter((change) => shown.has(change));
  }
  const changed = largest.filter(({ verdict }) => verdict !== "same");
  return (changed.length > 0 ? changed : largest).slice(0, BARS_MAX);
}

/**
 * @param {Change} change
 * @param {string | undefined} href
 * @returns {DivergingBar}
 */
export function barOf({ label, base, other, difference, percent, verdict }, href) {
  const relative = percent === null ? "" : ` (${signedPercent(percent)})`;
  return {
    label,
    value: difference,
    kind: VERDICTS[verdict].kind,
    text: signed(difference),
    href,
    note: [`base ${base === null ? "none" : duration(base)}, other ${other === null ? "none" : duration(other)}`, `${signed(difference)}${relative}, ${VERDICTS[verdict].label}`],
    data: { verdict, base, other },
  };
}

/**
 * A difference with its sign: "+1.2 ms".
 * @param {number} value
 * @param {(size: number) => string} [text] formats a value without its sign
 */
export const signed = (value, text = duration) => `${signOf(value)}${text(Math.abs(value))}`;

/** @param {number} value */
export const signedPercent = (value) => `${signOf(value)}${readable(Math.abs(value), "%")}`;

/** @param {number} value */
const signOf = (value) => (value > 0 ? "+" : value < 0 ? "−" : "");

/**
 * The kinds that appear among changes, for the legend of their chart.
 * @param {{ verdict?: unknown }[]} changes
 * @param {Record<string, Verdict>} [verdicts]
 */
export const seriesOf = (changes, verdicts = VERDICTS) => Object.entries(verdicts).filter(([verdict]) => changes.some((change) => change.verdict === verdict)).map(([, kind]) => kind);

/**
 * How many rows have each verdict: "3 slower, 1 faster, 12 the same".
 * @param {{ verdict?: unknown }[]} changes
 * @param {Record<string, Verdict>} [verdicts]
 */
export function tally(changes, verdicts = VERDICTS) {
  const counts = Object.entries(verdicts).map(([verdict, { label }]) => ({ label, rows: changes.filter((change) => change.verdict === verdict).length }));
  return counts.filter(({ rows }) => rows > 0).map(({ label, rows }) => `${count(rows)} ${label}`).join(", ");
}
