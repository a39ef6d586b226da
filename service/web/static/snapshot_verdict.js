// What a memory snapshot shows at a glance: the peak of each GPU, who held it, and what is left behind.
import { deviceOf, siteLabel } from "./analyses/snapshot_pictures.js";
import { addressOf } from "./analyses/place.js";
import { barsOf, largest } from "./analyses/marks.js";
import { api, pageOf } from "./api.js";
import { el } from "./dom.js";
import { bytes, duration, plural } from "./format.js";
import { JobView } from "./job.js";
import { recordsOf } from "./records.js";
import { perfettoOf } from "./selection.js";
import { readable } from "./units.js";

/** @import { Row } from "./records.js" */

const DEVICES_MAX = 8; // sentences
const STACKS_MAX = 8; // bars
const LEAKS_MAX = 3;
const MARGIN_NS = 1_000_000n; // shown on each side of the peak

/**
 * @param {Trace} trace
 * @param {AnalysisAnswer} answer of the analysis `memory_snapshot`
 */
export function snapshotVerdict(trace, { tables, notes }) {
  const [devices, stacks, leaks, ooms, steps, sources] = ["devices", "peak_stacks", "leaks", "ooms", "steps", "step_sources"].map((name) => recordsOf(tables[name]));
  const used = devices.filter((row) => Number(row.peak_bytes) > 0 || Number(row.ooms) > 0);
  const sentences = used.slice(0, DEVICES_MAX).map((row) => el("p", { class: "verdict-sentence", "data-testid": "verdict-sentence" }, peakOf(trace, row, stacks)));
  const more = used.length > DEVICES_MAX ? [el("p", { class: "muted small" }, `And ${plural(used.length - DEVICES_MAX, "more GPU")}; the analysis has all.`)] : [];
  const empty = used.length === 0 ? [el("p", { "data-testid": "verdict-sentence" }, "No memory is active in this snapshot.")] : [];
  const bars = barsOf({ title: "What held the most at the peak", name: "verdict", rows: largest(stacks, "held_bytes", STACKS_MAX), series: [{ kind: "mem", label: "held", column: "held_bytes" }], labelOf: (row) => `${used.length > 1 ? `${deviceOf(row)} · ` : ""}${siteLabel(row.site)}`, noteOf: ({ site, blocks }) => `${plural(/** @type {Int} */ (blocks), "block")}${site === null ? "" : ` · ${site}`}`, text: bytes });
  const failures = devices.reduce((sum, row) => sum + Number(row.ooms), 0);
  const items = [...ooms.slice(0, 1).map((row) => failureOf(row, failures)), ...largest(leaks, "left_bytes", LEAKS_MAX).map((row) => leakOf(row, used.length > 1))];
  const found = items.length > 0 ? [el("h3", {}, "What stands out"), el("ul", { class: "advice", "data-testid": "snapshot-findings" }, items)] : [];
  const analysis = el("p", { class: "small" }, el("a", { href: addressOf({ name: "memory_snapshot", steps: "", options: {} }), "data-testid": "verdict-analysis" }, "All about this memory: over time, by stack, by segment"));
  return [...empty, ...sentences, ...more, ...(bars ? [bars] : []), ...found, ...stepsOf(trace, steps, sources, notes), analysis];
}

/**
 * The peak of each step, and the trace that has the steps. If none of the traces beside the snapshot can be used, the reason.
 * @param {Trace} snapshot
 * @param {Row[]} steps
 * @param {Row[]} sources
 * @param {string[]} notes of the answer
 */
function stepsOf(snapshot, steps, sources, notes) {
  if (steps.length === 0) return sources.some(({ trace }) => trace !== null) ? [el("p", { class: "muted small", "data-testid": "snapshot-steps-from" }, notes.join(" "))] : [];
  const several = new Set(steps.map(deviceOf)).size > 1;
  const bars = barsOf({ title: "Most memory in each step", name: "verdict_steps", rows: steps, series: [{ kind: "mem", label: "peak", column: "peak_bytes" }], labelOf: (row) => `${row.name}${several ? ` · ${deviceOf(row)}` : ""}`, text: bytes });
  const used = sources.find((row) => row.used === "yes");
  const origin = used?.trace_id ? ["Steps from trace ", el("a", { href: pageOf(String(used.trace_id)) }, String(used.trace)), "."] : ["Steps from the snapshot's own annotations."];
  return [...(bars ? [bars] : []), el("p", { class: "muted small", "data-testid": "snapshot-steps-from" }, origin), ...(used?.trace_id ? [mergeOf(snapshot, String(used.trace_id))] : [])];
}

/**
 * A button that merges the snapshot with the trace of its rank, on the clock that both have.
 * @param {Trace} snapshot
 * @param {string} traceId
 */
function mergeOf(snapshot, traceId) {
  const rank = Number(snapshot.rank ?? 0);
  const button = el("button", { type: "button", class: "quiet", "data-write": true, "data-testid": "merge-snapshot", title: "The merged trace shows the snapshot beside its rank, as memory snapshot" }, "Merge both on one clock");
  const job = new JobView(`merge of snapshot ${snapshot.id}`, { onBusy: (busy) => button.setAttribute("aria-disabled", String(busy)) });
  button.addEventListener("click", () => {
    if (button.getAttribute("aria-disabled") !== "true") job.start(api("traces", "merge"), { traces: [traceId, snapshot.id], ranks: [rank, rank], align: "base" });
  });
  job.resume();
  return el("div", { class: "buttons" }, button, job.element);
}

/**
 * "GPU 0 held at most 3.25 GB, at 12.3 ms. 3.78 GB were reserved then. Of the peak, 88 % is of softmax · functional.py:2000."
 * @param {Trace} trace
 * @param {Row} device
 * @param {Row[]} stacks
 */
function peakOf(trace, device, stacks) {
  const name = deviceOf(device).replace(/^r/, "R");
  const at = device.peak_at_ns === null ? [", at the start"] : [", at ", placeOf(trace, BigInt(/** @type {Int} */ (device.peak_at_ns)))];
  const reserved = device.peak_reserved_then_bytes === null ? "" : ` ${bytes(/** @type {Int} */ (device.peak_reserved_then_bytes))} were reserved then.`;
  const held = stacks.filter((row) => row.rank === device.rank && row.device === device.device);
  const named = [held.find(({ site }) => site !== null), held.find(({ site }) => site === null)].filter((row) => row !== undefined);
  named.sort((one, other) => Number(other.held_bytes) - Number(one.held_bytes));
  const shares = named.flatMap((row, index) => [index > 0 ? "; " : "", el("strong", {}, shareOf(row)), ...(row.site === null ? [" has no stack"] : [" is of ", el("code", { title: String(row.site) }, siteLabel(row.site))])]);
  return [`${name} held at most `, el("strong", {}, bytes(/** @type {Int} */ (device.peak_bytes))), ...at, ".", reserved, ...(shares.length > 0 ? [" Of the peak, ", ...shares, "."] : [])];
}

/** @param {Row} row */
const shareOf = ({ held_pct: share }) => readable(Number(share ?? 0), "%");

/**
 * A link to a moment in Perfetto.
 * @param {Trace} trace
 * @param {bigint} time
 */
function placeOf(trace, time) {
  const since = trace.bounds === null ? time : time - BigInt(trace.bounds.start_ns);
  const href = perfettoOf(trace.id, { window: { start_ns: time - MARGIN_NS, end_ns: time + MARGIN_NS } });
  return el("a", { href, target: "_blank", rel: "noopener", title: "Show it in Perfetto", "data-testid": "peak-place" }, duration(since));
}

/**
 * @param {Row} failure
 * @param {number} count
 */
function failureOf({ failed_bytes: failed, active_bytes: active, device_free_bytes: free, site }, count) {
  const times = count === 1 ? "Memory ran out once" : `Memory ran out ${count} times; the first time`;
  const [asked, used, left] = [failed, active, free].map((size) => (size === null ? "an unknown size" : bytes(/** @type {Int} */ (size))));
  return el("li", {}, `${times}: ${siteLabel(site)} asked for `, el("strong", {}, asked), ` while ${used} were active and the device had ${left} free.`);
}

/**
 * @param {Row} leak
 * @param {boolean} several whether several devices have memory
 */
function leakOf(leak, several) {
  const { site, steps, of_steps: all, left_bytes: size, left_per_step_bytes: each } = leak;
  return el("li", {}, several ? `${deviceOf(leak)}: ` : "", el("code", { title: String(site) }, siteLabel(site)), ` leaves memory behind in ${steps} of ${all} steps: `, el("strong", {}, bytes(/** @type {Int} */ (size))), `, ${bytes(Number(each))} a step.`);
}
