// What the ranks of a run do in each step, as the cells of a heatmap.
import { pageOf } from "../api.js";
import { numberOf, recordsOf } from "../records.js";

/** @import { Row } from "../records.js" */
/** @import { Cell } from "../charts/heatmap.js" */
/** @typedef {{ title: string, cells: Cell[], rows: string[], columns: string[] }} Measure */

/** @type {Record<string, { title: string, column: string }>} columns of the table `steps` of the analysis `collectives` */
const OF_COLLECTIVES = {
  waiting: { title: "Wait for other ranks in each step", column: "synchronizing_ns" },
  transfer: { title: "Transfer of data in each step", column: "transfer_ns" },
};

const NO_STEP = "no step"; // a trace without steps, or collectives outside of steps

/**
 * Return the cells of a measure; null if the traces do not show it.
 * @param {string} name
 * @param {{ steps: AnalysisAnswer | null, collectives: AnalysisAnswer | null }} answers
 * @param {(rank: Value) => string | null} traceOf returns the id of the trace of a rank
 * @returns {Measure | null}
 */
export function measureOf(name, { steps, collectives }, traceOf) {
  const spans = steps === null ? [] : recordsOf(steps.tables.steps);
  if (name === "total") {
    const what = spans.some(({ step }) => step !== null) ? "step" : "trace";
    return spans.length === 0 ? null : of(`Length of each ${what}`, spans, "total_ns", spans, traceOf);
  }
  if (collectives === null) return null;
  const { title, column } = OF_COLLECTIVES[name];
  const rows = recordsOf(collectives.tables.steps);
  return rows.length === 0 ? null : of(title, rows, column, spans, traceOf);
}

/**
 * @param {string} title
 * @param {Row[]} records
 * @param {string} column
 * @param {Row[]} spans the steps of the ranks, to which cells lead
 * @param {(rank: Value) => string | null} traceOf
 * @returns {Measure}
 */
function of(title, records, column, spans, traceOf) {
  const places = new Map(spans.map((row) => [`${row.rank}/${row.step}`, row]));
  const cells = records.flatMap((row) => {
    const value = numberOf(row, column);
    if (value === null) return [];
    const id = traceOf(row.rank);
    const place = places.get(`${row.rank}/${row.step}`);
    const window = place ? `?${new URLSearchParams({ start_ns: String(place.start_ns), end_ns: String(place.end_ns) })}` : "";
    return [{ row: rankLabel(row.rank), column: stepLabel(row.step), value, href: id === null ? undefined : `${pageOf(id)}${window}` }];
  });
  return { title, cells, rows: [...new Set(cells.map(({ row }) => row))], columns: ordered(cells.map((cell) => cell.column)) };
}

/** @param {Value} rank */
export const rankLabel = (rank) => (rank === null ? "no rank" : `rank ${rank}`);

/** @param {Value} step */
const stepLabel = (step) => (step === null ? NO_STEP : String(step));

/** @param {string} label */
export const nameOfStep = (label) => (label === NO_STEP ? label : `step ${label}`);

/**
 * The distinct labels of steps in ascending order, and `NO_STEP` behind them.
 * @param {string[]} labels
 */
const ordered = (labels) => [...new Set(labels)].sort((a, b) => Number(a === NO_STEP) - Number(b === NO_STEP) || Number(a) - Number(b));
