// The answer of `step_matrix` as rows of ranks and columns of steps.
/** @import { Grid } from "../charts/step_grid.js" */
/** @typedef {"rank" | "host" | "time"} Order */

/**
 * Arrange the rows of the answer; a step that a rank lacks is NaN.
 * @param {ColumnsTable} matrix
 * @returns {Grid}
 */
export function gridOf({ columns, values }) {
  const column = (/** @type {string} */ name) => values[columns.findIndex((each) => each.name === name)];
  const [cycles, steps, ranks, hosts, times, over] = ["cycle", "step", "rank", "host", "value_ns", "over_median_pct"].map(column);
  const isOneCycle = new Set(cycles).size < 2;
  /** @type {Map<string, number>} */
  const places = new Map();
  /** @type {Map<string, number>} */
  const indices = new Map();
  /** @type {Grid["rows"]} */
  const rows = [];
  const cells = times.map((_, index) => {
    const title = steps[index] === null ? "whole" : String(steps[index]);
    const step = isOneCycle ? title : `${cycles[index]}/${title}`;
    if (!places.has(step)) places.set(step, places.size);
    const rank = ranks[index] === null ? "?" : String(ranks[index]);
    if (!indices.has(rank)) {
      indices.set(rank, rows.length);
      rows.push({ rank, host: String(hosts[index] ?? "") });
    }
    return [indices.get(rank) ?? 0, places.get(step) ?? 0];
  });
  const grid = { rows, columns: [...places.keys()], values: new Float64Array(rows.length * places.size).fill(NaN), over: new Float64Array(rows.length * places.size).fill(NaN) };
  cells.forEach(([row, place], index) => {
    grid.values[row * places.size + place] = Number(times[index]);
    grid.over[row * places.size + place] = over[index] === null ? NaN : Number(over[index]);
  });
  return grid;
}

const collator = new Intl.Collator("en", { numeric: true });

/**
 * Functions that return the rows in each order: by rank, by host and rank, or the slowest first.
 * @param {Grid} grid
 * @returns {Record<Order, () => number[]>}
 */
export function ordersOf({ rows, columns, values }) {
  const all = () => rows.map((_, index) => index);
  const byRank = (/** @type {number} */ a, /** @type {number} */ b) => collator.compare(rows[a].rank, rows[b].rank);
  return {
    rank: () => all().sort(byRank),
    host: () => all().sort((a, b) => collator.compare(rows[a].host, rows[b].host) || byRank(a, b)),
    time: () => {
      const means = all().map((row) => mean(values.subarray(row * columns.length, (row + 1) * columns.length)));
      return all().sort((a, b) => means[b] - means[a] || byRank(a, b));
    },
  };
}

/** @param {Float64Array} values */
function mean(values) {
  const present = values.filter((value) => !Number.isNaN(value));
  return present.length === 0 ? 0 : present.reduce((sum, value) => sum + value, 0) / present.length;
}
