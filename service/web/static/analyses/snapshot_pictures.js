// Pictures of a memory snapshot: memory over time, who holds it, what is left behind, and the segments.
import { flame } from "../charts/flame.js";
import { lines } from "../charts/lines.js";
import { memoryMap } from "../charts/memory_map.js";
import { bytes, duration } from "../format.js";
import { readable } from "../units.js";
import { barsOf, grouped, largest, ofAll, since } from "./marks.js";

/** @import { Row } from "../records.js" */
/** @import { Picture } from "./pictures.js" */

const DEVICES_MAX = 4; // with pictures of their own
const SEGMENTS_MAX = 20; // bars of the map
const TOP = 15; // bars of a list

/** @type {Picture} */
export function memorySnapshot({ devices, curve, frames, steps, leaks, segments, segment_blocks: blocks }, start) {
  const shown = devices.slice(0, DEVICES_MAX).map(deviceOf);
  const rowsOf = (/** @type {Row[]} */ rows) => grouped(rows.filter((row) => shown.includes(deviceOf(row))), deviceOf);
  const at = since(start, "at_ns");
  const curves = [...rowsOf(curve)].map(([device, rows]) => curveOf(device, rows, at, ofAll(shown.length, devices.length)));
  return [
    ...curves,
    ...[...rowsOf(frames)].flatMap(([device, rows]) => ["peak", "live"].map((moment) => heldBy(device, rows.filter((row) => row.moment === moment), curve.filter((row) => deviceOf(row) === device), at))),
    barsOf({ title: "Most memory in each step", name: "snapshot_steps", rows: steps, series: [{ kind: "mem", label: "peak", column: "peak_bytes" }], labelOf: (row) => `${row.name}${devices.length > 1 ? ` · ${deviceOf(row)}` : ""}`, text: bytes }),
    barsOf({ title: "Stacks that leave memory behind in several steps", name: "snapshot_leaks", rows: largest(leaks, "left_bytes", TOP), series: [{ kind: "alarm", label: "left", column: "left_bytes" }], labelOf: (row) => `${siteLabel(row.site)}${devices.length > 1 ? ` · ${deviceOf(row)}` : ""}`, noteOf: ({ steps: count, of_steps: all, site }) => `in ${count} of ${all} steps · ${site}`, text: bytes }),
    ...[...rowsOf(segments)].map(([device, rows]) => mapOf(device, rows, blocks.filter((row) => deviceOf(row) === device), Number(devices.find((row) => deviceOf(row) === device)?.segments ?? rows.length))),
  ];
}

/** @param {Row} row */
export const deviceOf = ({ rank, device }) => `${rank === null ? "" : `rank ${rank} · `}GPU ${device}`;

/**
 * A frame as people read it: "softmax · functional.py:2000" of "/env/torch/nn/functional.py:2000 softmax".
 * @param {Row[string]} site null if it is unknown
 */
export function siteLabel(site) {
  const parts = /^(?:.*[\\/])?([^\\/]+:\d+) (.+)$/.exec(String(site));
  return parts ? `${parts[2]} · ${parts[1]}` : String(site ?? "unknown stack");
}

/**
 * @param {string} device
 * @param {Row[]} rows
 * @param {(row: Row, column?: string) => number} at returns the time of a row since the start of the trace
 * @param {string} more
 */
function curveOf(device, rows, at, more) {
  const series = [
    { kind: "c0", label: "active", column: "active_bytes" },
    { kind: "c7", label: "reserved", column: "reserved_bytes" },
  ].map(({ kind, label, column }) => ({ kind, label, points: rows.map((row) => ({ x: at(row), y: Number(row[column]) })) }));
  return lines({ title: `Memory of ${device} over time${more}`, name: "snapshot_curve", series, textOfY: bytes, isStepped: true, isFilled: true });
}

/**
 * A flame graph of the bytes that are alive at a moment.
 * @param {string} device
 * @param {Row[]} rows
 * @param {Row[]} curve of the device
 * @param {(row: Row, column?: string) => number} time returns the time of a row since the start of the trace
 */
function heldBy(device, rows, curve, time) {
  if (rows.length === 0) return null;
  const [{ moment, at_ns: at }] = rows;
  const when = moment === "peak" ? "at the peak" : curve.length === 0 || at === null || at === curve.at(-1)?.at_ns ? "at the end" : `at ${duration(time({ at_ns: at }))}`;
  const frames = rows.map((row) => ({ key: String(row.id), parent: row.parent === null ? null : String(row.parent), label: siteLabel(row.name), value: Number(row.held_bytes), note: `${readable(/** @type {Int} */ (row.blocks), "blocks")} · ${row.name}` }));
  return flame({ title: `What holds memory of ${device} ${when}`, name: `snapshot_${moment}`, frames, text: bytes });
}

/**
 * @param {string} device
 * @param {Row[]} rows
 * @param {Row[]} blocks
 * @param {number} all number of the device's segments
 */
function mapOf(device, rows, blocks, all) {
  const bySegment = grouped(blocks, ({ segment }) => String(segment));
  const segments = rows.slice(0, SEGMENTS_MAX).map((row) => ({
    label: `${row.address} · ${bytes(/** @type {Int} */ (row.total_bytes))}`,
    size: Number(row.total_bytes),
    blocks: (bySegment.get(String(row.address)) ?? []).map((block) => ({ start: Number(block.offset_bytes), size: Number(block.size_bytes), label: siteLabel(block.site) })),
  }));
  return memoryMap({ title: `Segments of ${device} at the end, and their blocks${ofAll(segments.length, all)}`, name: "snapshot_segments", segments, text: bytes });
}
