// The visible range of the overview as a table, for those who do not see the canvas.
import { Problem } from "../api.js";
import { byId } from "../dom.js";
import { parseExact } from "../exact.js";
import { hideProblem, showProblem } from "../problem.js";
import { showTable } from "../table.js";
import { Frame } from "./frame.js";
import { rowsOf } from "./rows.js";

/** @import { Row } from "./draw.js" */
/** @import { Overview } from "./overview.js" */

/** @type {Column[]} */
const COLUMNS = [
  { name: "lane", type: "string", unit: null, description: "a stream, a thread, or the memory of a device" },
  { name: "busy_ns", type: "int", unit: "ns", description: "time in which something runs" },
  { name: "busy_pct", type: "double", unit: "%", description: "share of the visible range" },
  { name: "computing_ns", type: "int", unit: "ns", description: "time in which kernels compute" },
  { name: "communication_ns", type: "int", unit: "ns", description: "time in which kernels communicate" },
  { name: "copies_ns", type: "int", unit: "ns", description: "time in which memory is copied or set" },
  { name: "allocated_bytes", type: "int", unit: "bytes", description: "most allocated memory" },
];

/** Shows the table, while its fold is open. */
export class LanesTable {
  /** @param {Overview} overview */
  constructor(overview) {
    this.overview = overview;
    this.fold = byId("overview-lanes");
    this.fold.addEventListener("toggle", () => this.update());
    this.asking = new AbortController();
  }

  /** Ask for the exact figures of the visible range, unless the fold is closed. */
  async update() {
    if (!this.fold.open) return;
    this.asking.abort();
    const { signal } = (this.asking = new AbortController());
    const { source, view, lanes, trace } = this.overview;
    const [from, to] = [Math.floor(view.from), Math.ceil(view.to)];
    try {
      const { tables } = await source.get({ bins: 1, lanes, steps: 0, from_ns: source.at(from), to_ns: source.at(to) }, parseExact, signal);
      hideProblem(byId("overview-problem"));
      const rows = rowsOf(new Frame(tables, { from, to, bins: 1 }), trace).map((row) => valuesOf(row, to - from));
      showTable(byId("overview-table"), { columns: COLUMNS, rows }, { label: "Lanes of the visible range", fileName: "lanes.csv" });
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!(error instanceof Problem)) throw error;
      showProblem(byId("overview-problem"), error);
    }
  }
}

/**
 * @param {Row} row
 * @param {number} length of the visible range in ns
 * @returns {Value[]}
 */
function valuesOf(row, length) {
  if (row.kind === "curve") return [row.label, null, null, null, null, null, known(row.curve.most[0])];
  const { lane, sums } = row.lane;
  const kinds = lane.kind === "thread" ? [null, null, null] : [sums.compute[1], sums.comm[1], sums.mem[1]];
  return [row.label, sums.busy[1], (100 * sums.busy[1]) / length, ...kinds, null];
}

/** @param {number} value */
const known = (value) => (Number.isNaN(value) ? null : value);
