// The time of GPUs: a sentence, and a bar for each.
import { stackedBars } from "./charts/stacked_bars.js";
import { el } from "./dom.js";
import { duration, plural } from "./format.js";
import { numberOf } from "./records.js";
import { readable } from "./units.js";

/** @import { Row } from "./records.js" */

const WORTH_SAYING = 0.005; // share of the time; the chart shows smaller ones

/** Parts of the time of a GPU, in the order of its bar. They do not overlap, and their sum is the span. */
const SERIES = [
  { kind: "compute", label: "computing" },
  { kind: "overlap", label: "computing and communicating" },
  { kind: "comm", label: "communicating only" },
  { kind: "mem", label: "copying only" },
  { kind: "idle", label: "idle" },
];

/**
 * The time of the GPUs: a sentence, and a bar for each.
 * @param {Row[]} devices rows of the analysis `temporal_breakdown`
 * @param {{ barsMax?: number, hrefOf?: (row: Row) => string | undefined }} options
 */
export function deviceTime(devices, { barsMax = 16, hrefOf = () => undefined } = {}) {
  const shown = devices.slice(0, barsMax);
  const bars = shown.map((row) => ({
    label: labelOf(row),
    href: hrefOf(row),
    values: [
      Number(row.compute_ns) - Number(row.overlap_ns),
      ...["overlap_ns", "exposed_comm_ns", "exposed_mem_ns", "idle_ns"].map((column) => numberOf(row, column)),
    ],
  }));
  const more = devices.length > shown.length ? el("p", { class: "muted small" }, `And ${plural(devices.length - shown.length, "more GPU")}; the analysis has all.`) : "";
  const parts = { title: "Time of each GPU, from its first work to its last", name: "verdict", series: SERIES, bars, text: duration };
  return el("div", { class: "verdict-time" }, el("p", { class: "verdict-sentence", "data-testid": "verdict-sentence" }, sentenceOf(devices)), stackedBars(parts), more);
}

/** @param {Row} row */
const labelOf = ({ rank, device }) => (rank === null ? `GPU ${device}` : `Rank ${rank} · GPU ${device}`);

/**
 * "The GPU is idle 76.2 % of 661 ms, and computing 17.5 % …", of all GPUs together.
 * @param {Row[]} devices
 */
function sentenceOf(devices) {
  /** @param {string} column */
  const sum = (column) => devices.reduce((total, row) => total + Number(row[column]), 0);
  const span = sum("span_ns");
  /** @param {number} part */
  const share = (part) => readable(span > 0 ? (100 * part) / span : 0, "%");
  const subject = devices.length === 1 ? "The GPU is" : `The ${devices.length} GPUs are`;
  const each = devices.length === 1 ? duration(span) : `${duration(span / devices.length)} on average`;
  const waits = [
    { part: sum("exposed_comm_ns"), words: "is exposed communication" },
    { part: sum("exposed_mem_ns"), words: "is exposed copying" },
  ]
    .filter(({ part }) => part >= span * WORTH_SAYING)
    .map(({ part, words }) => `${share(part)} ${words}`);
  return [`${subject} idle `, el("strong", {}, share(sum("idle_ns"))), ` of ${each}, and computing `, el("strong", {}, share(sum("compute_ns"))), waits.length > 0 ? `; ${waits.join(", and ")}.` : "."];
}
