// Pictures of the work of GPUs: kernels, launches, queues, copies and collectives.
import { boxPlot } from "../charts/box_plot.js";
import { lines } from "../charts/lines.js";
import { scatter } from "../charts/scatter.js";
import { stackedBars } from "../charts/stacked_bars.js";
import { treemap } from "../charts/treemap.js";
import { bytes, count, duration } from "../format.js";
import { numberOf } from "../records.js";
import { readable } from "../units.js";
import { barsOf, colorOf, grouped, largest, nameOfRank, ofAll, placeOf, since } from "./marks.js";

/** @import { Row } from "../records.js" */
/** @import { Picture } from "./pictures.js" */

const TOP = 15; // bars of a list
const TILES_MAX = 150;
const LINES_MAX = 8;

/** @type {Record<string, { kind: string, label: string }>} */
const TYPES = { COMP: { kind: "compute", label: "computing" }, COMM: { kind: "comm", label: "communication" }, MEM: { kind: "mem", label: "copies and memsets" } };

/** @type {Record<string, string>} */
const LAUNCH_TIMES = { cpu_duration: "call on the host", gpu_duration: "work on the GPU", launch_delay: "delay after the call" };

/** @type {Picture} */
export function kernelBreakdown({ total_kernels: kernels }) {
  if (kernels.length === 0) return [];
  const types = [...new Set(kernels.map(({ type }) => String(type)))];
  const series = types.map((type, index) => TYPES[type] ?? { kind: colorOf(index), label: type });
  const parts = largest(kernels, "sum_ns", TILES_MAX).map((row) => ({ label: kernelName(row), series: types.indexOf(String(row.type)), value: numberOf(row, "sum_ns") ?? 0, note: `${count(Number(row.count))} calls` }));
  const bars = largest(kernels, "sum_ns", TOP).map((row) => ({ label: kernelName(row), note: `${count(Number(row.count))} calls`, values: types.map((type) => (row.type === type ? numberOf(row, "sum_ns") : null)) }));
  return [
    treemap({ title: `Kernels by their time${ofAll(parts.length, kernels.length)}`, name: "kernel_breakdown", series, parts, text: duration }),
    stackedBars({ title: `The ${bars.length} kernels with the most time`, name: "top_kernels", series, bars, text: duration }),
  ];
}

/** @param {Row} row */
const kernelName = ({ name }) => String(name).replace(/^void /, "");

/** @type {Picture} */
export function kernelSequences({ sequences }) {
  const rows = largest(sequences, "device_ns", TOP);
  const series = [{ kind: "compute", label: "time on the GPU", column: "device_ns" }];
  return [barsOf({ title: "Sequences with the most time on the GPU, by operator", name: "kernel_sequences", rows, series, labelOf: ({ op, length }) => `${length} kernels of ${op}`, noteOf: ({ count: times }) => `${count(Number(times))} times` })];
}

/** @type {Picture} */
export function launchStats({ summary, calls }) {
  const hasRanks = new Set(summary.map(({ rank }) => rank)).size > 1;
  const rows = summary.filter(({ p50_ns: median }) => median !== null).map((row) => ({
    label: `${hasRanks ? `Rank ${row.rank}: ` : ""}${LAUNCH_TIMES[String(row.time)] ?? row.time}`,
    kind: row.time === "gpu_duration" ? "compute" : row.time === "launch_delay" ? "alarm" : "host",
    count: Number(row.count), min: Number(row.min_ns), p25: Number(row.p25_ns), p50: Number(row.p50_ns), p75: Number(row.p75_ns), max: Number(row.max_ns), mean: Number(row.mean_ns),
  }));
  const series = [{ kind: "host", label: "calls on the host", column: "cpu_duration_ns" }];
  return [
    rows.length > 0 ? boxPlot({ title: "Times of launches: the middle half, the median and the extremes", name: "launch_stats", rows, text: duration }) : null,
    barsOf({ title: "Time of the host in launching calls", name: "launch_calls", rows: largest(calls, "cpu_duration_ns", TOP), series, labelOf: ({ rank, call }) => `${hasRanks ? `Rank ${rank}: ` : ""}${call}` }),
  ];
}

/** @type {Picture} */
export function queueLength({ series: rows }, start) {
  if (rows.length === 0) return [];
  const at = since(start, "at_ns");
  const streams = [...grouped(rows, placeOf(rows))];
  const shown = streams.slice(0, LINES_MAX).map(([label, points], index) => ({ kind: colorOf(index), label, points: points.map((row) => ({ x: at(row), y: Number(row.length) })) }));
  const more = streams.length > LINES_MAX ? ` (the first ${LINES_MAX} of ${streams.length} streams)` : "";
  return [lines({ title: `Work that was launched and has not started${more}`, name: "queue_length", series: shown, textOfY: (y) => count(y), isStepped: true })];
}

/** @type {Picture} */
export function memoryBandwidth({ series: rows, summary }, start) {
  if (rows.length === 0) return [];
  const at = since(start, "at_ns");
  const kinds = [...new Set(rows.map(({ kind }) => String(kind)))];
  const series = kinds.map((kind, index) => ({ kind: colorOf(index), label: kind }));
  const points = rows.map((row) => ({ x: at(row), y: Number(row.bandwidth_gbps), series: kinds.indexOf(String(row.kind)), label: String(row.kind) }));
  const labelOf = placeOf(summary);
  return [
    scatter({ title: "Bandwidth of each copy and memset", name: "memory_bandwidth", series, points, x: { name: "time" }, y: { name: "bandwidth", text: rate, isLogarithmic: true } }),
    barsOf({ title: "Copied bytes", name: "copied_bytes", rows: summary, series: [{ kind: "mem", label: "bytes", column: "bytes" }], labelOf: (row) => `${row.kind}${labelOf(row) === "All" || summary.length <= kinds.length ? "" : ` · ${labelOf(row)}`}`, text: bytes }),
  ];
}

/** @param {Int} value */
const rate = (value) => readable(value, "GB/s");

/** @param {Int} value */
const percent = (value) => readable(value, "%");

/** @type {Record<string, string>} */
const USES = { busy_pct: "some work runs", utilization_pct: "some kernel runs", sm_efficiency_pct: "SMs with work", occupancy_pct: "occupancy of SMs", tensor_core_pct: "kernels on tensor cores" };

/** @type {Picture} */
export function gpuSummary({ gpus }) {
  const labelOf = placeOf(gpus);
  const bars = gpus.flatMap((row) =>
    Object.entries(USES).flatMap(([column, label]) => {
      const value = numberOf(row, column);
      return value === null ? [] : [{ label: gpus.length > 1 ? `${labelOf(row)}: ${label}` : label, values: [value] }];
    }),
  );
  if (bars.length === 0) return [];
  return [stackedBars({ title: "Use of the GPU, in % of the time", name: "gpu_summary", series: [{ kind: "compute", label: "use" }], bars, text: percent })];
}

/** @type {Picture} */
export function collectives({ ranks, operations, waits }) {
  const parts = [
    { kind: "alarm", label: "waiting for other ranks", column: "wait_ns" },
    { kind: "comm", label: "transfer", column: "transfer_ns" },
  ];
  const known = ranks.filter(({ wait_ns: wait }) => wait !== null);
  const hasRanks = new Set(operations.map(({ rank }) => rank)).size > 1;
  const byOperation = barsOf({ title: "Time in each kind of collective", name: "collective_kinds", rows: largest(operations, "latency_ns", TOP), series: [{ kind: "comm", label: "time", column: "latency_ns" }], labelOf: ({ rank, collective }) => `${hasRanks ? `Rank ${rank} · ` : ""}${collective}` });
  const measured = waits.filter(({ bus_gb_per_s: bandwidth, size_bytes: size }) => Number(bandwidth ?? 0) > 0 && Number(size ?? 0) > 0);
  const names = [...new Set(measured.map(({ collective }) => String(collective)))];
  const points = measured.map((row) => ({ x: Number(row.size_bytes), y: Number(row.bus_gb_per_s), series: names.indexOf(String(row.collective)), label: `${row.collective}${row.step === null ? "" : `, step ${row.step}`}, ${duration(numberOf(row, "duration_ns") ?? 0)}` }));
  const bySize = points.length > 0 ? scatter({ title: "Bandwidth on the bus by size", name: "collectives", series: names.map((label, index) => ({ kind: colorOf(index), label })), points, x: { name: "size", text: bytes, isLogarithmic: true }, y: { name: "bandwidth", text: rate } }) : null;
  return [barsOf({ title: "Time of each rank in collectives", name: "collective_ranks", rows: known, series: parts, labelOf: nameOfRank }), byOperation, bySize];
}
