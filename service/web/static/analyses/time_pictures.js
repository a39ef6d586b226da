// Pictures of where time goes: devices, steps, idleness, overlap, data and the critical path.
import { stackedBars } from "../charts/stacked_bars.js";
import { strip } from "../charts/strip.js";
import { count, duration, stepTitle } from "../format.js";
import { numberOf } from "../records.js";
import { BARS_MAX, barsOf, colorOf, grouped, nameOfRank, ofAll, placeOf, since } from "./marks.js";

/** @import { Row } from "../records.js" */
/** @import { Picture } from "./pictures.js" */

/** Parts of the time of a GPU, which do not overlap. */
const DEVICE_SERIES = [
  { kind: "compute", label: "computing" },
  { kind: "overlap", label: "computing and communicating" },
  { kind: "comm", label: "communicating only" },
  { kind: "mem", label: "copying only" },
  { kind: "idle", label: "idle" },
];

const STEP_SERIES = [
  { kind: "compute", label: "kernels", column: "kernel_ns" },
  { kind: "comm", label: "communication", column: "communication_ns" },
  { kind: "mem", label: "copies", column: "memcpy_ns" },
  { kind: "c5", label: "memsets", column: "memset_ns" },
  { kind: "c4", label: "runtime calls", column: "runtime_ns" },
  { kind: "c6", label: "loading data", column: "dataloader_ns" },
  { kind: "host", label: "operators", column: "cpu_exec_ns" },
  { kind: "idle", label: "other", column: "other_ns" },
];

/** @type {Record<string, { kind: string, label: string }>} */
const IDLE_KINDS = {
  host_wait: { kind: "host", label: "waits for the host" },
  kernel_wait: { kind: "overlap", label: "cost of launches" },
  other: { kind: "other", label: "other" },
};

/** @type {Record<string, string>} */
const PATH_KINDS = { host: "host", compute: "compute", communication: "comm", memory: "mem", launch: "c4", queue: "c6", return: "c5", delay: "alarm", event: "overlap", gap: "idle", handover: "other" };

/** @type {Picture} */
export function temporalBreakdown({ breakdown }) {
  const labelOf = placeOf(breakdown);
  const rows = breakdown.slice(0, BARS_MAX);
  if (rows.length === 0) return [];
  const bars = rows.map((row) => ({
    label: labelOf(row),
    values: [Number(row.compute_ns) - Number(row.overlap_ns), ...["overlap_ns", "exposed_comm_ns", "exposed_mem_ns", "idle_ns"].map((column) => numberOf(row, column))],
  }));
  return [stackedBars({ title: `Time of each GPU${ofAll(rows.length, breakdown.length)}`, name: "temporal_breakdown", series: DEVICE_SERIES, bars, text: duration })];
}

/** @type {Picture} */
export function steps({ steps: rows }) {
  const series = STEP_SERIES.filter(({ column }) => rows.some((row) => Number(row[column] ?? 0) > 0));
  return [barsOf({ title: "Time of each step, by what runs", name: "steps", rows, series, labelOf: stepOf(rows) })];
}

/**
 * @param {Row[]} rows
 * @returns {(row: Row) => string}
 */
function stepOf(rows) {
  const hasRanks = new Set(rows.map(({ rank }) => rank)).size > 1;
  return ({ rank, step }) => `${hasRanks ? `Rank ${rank} · ` : ""}${stepTitle(step)}`;
}

/** @type {Picture} */
export function idleBreakdown({ breakdown }) {
  if (breakdown.length === 0) return [];
  const categories = [...new Set(breakdown.map(({ category }) => String(category)))];
  const series = categories.map((category, index) => IDLE_KINDS[category] ?? { kind: colorOf(index), label: category });
  const labelOf = placeOf(breakdown);
  const streams = [...grouped(breakdown, labelOf)];
  const bars = streams.slice(0, BARS_MAX).map(([label, rows]) => ({ label, values: categories.map((category) => numberOf(rows.find((row) => row.category === category) ?? {}, "idle_ns")) }));
  return [stackedBars({ title: `Idle time of each stream, by its cause${ofAll(bars.length, streams.length)}`, name: "idle_breakdown", series, bars, text: duration })];
}

/** @type {Picture} */
export function commOverlap({ overlap }) {
  const series = [
    { kind: "overlap", label: "hidden behind computing", column: "overlap_ns" },
    { kind: "comm", label: "exposed", column: "exposed_comm_ns" },
  ];
  return [barsOf({ title: "Communication of each GPU", name: "comm_overlap", rows: overlap, series, labelOf: placeOf(overlap) })];
}

/** @type {Picture} */
export function dataloader({ steps: rows }) {
  const series = [
    { kind: "alarm", label: "waited for", column: "exposed_ns" },
    { kind: "idle", label: "hidden behind the GPU", column: "hidden_ns" },
  ];
  return [barsOf({ title: "Loading of data in each step", name: "dataloader", rows, series, labelOf: stepOf(rows) })];
}

/** @type {Picture} */
export function criticalPath({ summary, path, total }, start) {
  const kinds = [...new Set(summary.map(({ kind }) => String(kind)))];
  const series = kinds.map((kind, index) => ({ kind: PATH_KINDS[kind] ?? colorOf(index), label: kind }));
  const ranks = [...grouped(summary, nameOfRank)];
  const bars = ranks.slice(0, BARS_MAX).map(([label, rows]) => ({ label, values: kinds.map((kind) => numberOf(rows.find((row) => row.kind === kind) ?? {}, "length_ns")) }));
  if (bars.length === 0) return [];
  const charts = [stackedBars({ title: "The critical path by kind", name: "critical_path", series, bars, text: duration })];
  for (const [label, rows] of grouped(path, nameOfRank)) {
    const whole = total.find((row) => nameOfRank(row) === label) ?? {};
    const at = since(start, "start_ns");
    const spans = rows.map((row) => ({ start: at(row), end: at(row, "end_ns"), series: kinds.indexOf(String(row.kind)), label: String(row.name ?? row.kind) }));
    spans.sort((a, b) => a.start - b.start);
    const first = whole.start_ns === undefined || whole.start_ns === null ? (spans[0]?.start ?? 0) : at(whole);
    charts.push(strip({ title: `The critical path over time${ranks.length > 1 ? `, ${label}` : ""}${ofEdges(rows.length, whole)}`, name: "critical_path_strip", series, spans, first, text: duration }));
  }
  return charts;
}

/**
 * @param {number} listed
 * @param {Row} total
 */
const ofEdges = (listed, { edges }) => (typeof edges === "number" && listed < edges ? ` (the longest ${count(listed)} of ${count(edges)} edges)` : "");
