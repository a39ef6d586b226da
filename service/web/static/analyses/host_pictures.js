// Pictures of the program: operators, modules, annotations and memory.
import { flame } from "../charts/flame.js";
import { lines } from "../charts/lines.js";
import { bytes, duration } from "../format.js";
import { numberOf } from "../records.js";
import { barsOf, grouped, largest, ofAll, since } from "./marks.js";

/** @import { Row } from "../records.js" */
/** @import { Picture } from "./pictures.js" */

const TOP = 15; // bars of a list
const DEVICES_MAX = 4; // curves of memory

/** @type {Picture} */
export function operators({ operators: rows }) {
  const hasRanks = new Set(rows.map(({ rank }) => rank)).size > 1;
  const labelOf = (/** @type {Row} */ { rank, name, shapes }) => `${hasRanks ? `Rank ${rank} · ` : ""}${name}${shapes ? ` ${shapes}` : ""}`;
  return [
    barsOf({ title: "Operators by the time of their own work on the GPU", name: "operators_device", rows: largest(rows, "device_self_ns", TOP), series: [{ kind: "compute", label: "GPU", column: "device_self_ns" }], labelOf }),
    barsOf({ title: "Operators by their own time on the host", name: "operators_host", rows: largest(rows, "host_self_ns", TOP), series: [{ kind: "host", label: "host", column: "host_self_ns" }], labelOf }),
  ];
}

/** @type {Picture} */
export function modules({ modules: rows }) {
  return [
    tree(rows, "Modules by the time of their work on the GPU", "modules_device", "device_total_ns"),
    tree(rows, "Modules by their time on the host", "modules_host", "host_total_ns"),
  ];
}

/** @type {Picture} */
export function callStacks({ frames, functions, totals }) {
  const [listed, all] = ["listed", "rows"].map((column) => totals.reduce((sum, row) => sum + Number(row[column]), 0));
  const more = listed < all ? ` (the ${listed} largest of ${all} rows)` : "";
  return [
    tree(frames, `Call stacks by their time on the host${more}`, "call_stacks_host", "host_total_ns"),
    tree(frames, `Call stacks by the time of their work on the GPU${more}`, "call_stacks_device", "device_total_ns"),
    barsOf({ title: "Functions by their own time on the host", name: "functions", rows: largest(functions, "host_self_ns", TOP), series: [{ kind: "host", label: "host", column: "host_self_ns" }], labelOf: ({ name }) => String(name) }),
  ];
}

/**
 * @param {Row[]} rows of the analysis `modules` or `call_stacks`
 * @param {string} title
 * @param {string} name
 * @param {string} column
 */
function tree(rows, title, name, column) {
  const frames = rows.filter((row) => Number(row[column] ?? 0) > 0).map((row) => ({
    key: `${row.rank}/${row.id}`,
    parent: row.parent === null ? null : `${row.rank}/${row.parent}`,
    label: String(row.name),
    value: Number(row[column]),
    note: `${row.calls} calls`,
  }));
  return frames.length > 0 ? flame({ title, name, frames, text: duration }) : null;
}

/** @type {Picture} */
export function annotations({ nested }) {
  return [...grouped(nested, ({ side }) => String(side))].map(([side, rows]) => {
    /** @type {(row: Row, path: string) => string} */
    const keyOf = ({ rank }, path) => `${rank}/${path}`;
    const frames = rows.map((row) => {
      const [path, name] = [String(row.path), String(row.name)];
      const parent = Number(row.depth) > 0 ? keyOf(row, path.slice(0, path.length - name.length - " > ".length)) : null;
      return { key: keyOf(row, path), parent, label: name, value: Number(row.sum_ns), note: `${row.count} times` };
    });
    return flame({ title: `Regions on the ${side === "host" ? "host" : "GPU"}`, name: `annotations_${side}`, frames, text: duration });
  });
}

/** @type {Picture} */
export function memory({ curve, at_peak: peak, categories }, start) {
  const devices = [...grouped(curve, deviceOf)];
  const more = ofAll(Math.min(devices.length, DEVICES_MAX), devices.length);
  const at = since(start, "at_ns");
  const curves = devices.slice(0, DEVICES_MAX).map(([device, rows]) => {
    const series = [
      { kind: "c0", label: "allocated", column: "allocated_bytes" },
      { kind: "c7", label: "reserved", column: "reserved_bytes" },
    ].map(({ kind, label, column }) => ({ kind, label, points: rows.flatMap((row) => (numberOf(row, column) === null ? [] : [{ x: at(row), y: Number(row[column]) }])) }));
    const known = series.filter(({ points }) => points.length > 0);
    const shown = known.length > 0 ? known : [{ kind: "c0", label: "growth", points: rows.map((row) => ({ x: at(row), y: Number(row.growth_bytes) })) }];
    return lines({ title: `Memory of ${device} over time${more}`, name: "memory", series: shown, textOfY: bytes, isStepped: true, isFilled: true });
  });
  return [
    ...curves,
    barsOf({ title: "What held memory at the peak", name: "memory_categories", rows: largest(categories, "held_at_peak_bytes", TOP), series: [{ kind: "mem", label: "held", column: "held_at_peak_bytes" }], labelOf: ({ category, reason }) => String(category ?? reason), text: bytes }),
    barsOf({ title: "Who held memory at the peak", name: "memory_peak", rows: largest(peak, "held_bytes", TOP), series: [{ kind: "mem", label: "held", column: "held_bytes" }], labelOf: ({ operator, caller }) => `${operator ?? "unknown"}${caller ? ` in ${caller}` : ""}`, text: bytes }),
  ];
}

/** @param {Row} row */
const deviceOf = ({ rank, device_type: type, device }) => `${type}${Number(device) < 0 ? "" : ` ${device}`}${rank === null || rank === undefined ? "" : `, rank ${rank}`}`;
