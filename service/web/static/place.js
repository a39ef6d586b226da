// Opens the Perfetto UI at a place of its trace. The address of the page names it: `visStart` and `visEnd` are the time to
// show, in ns of the engine; `slice` is the slice to select, as JSON: its `id`, or its thread, time and name.
// The UI also reads `visStart` and `visEnd`, but ignores both if one is outside of the trace.

import { timelineArranged } from "/static/timeline.js";

/**
 * @typedef {{ id: number, ts: bigint, dur: bigint }} Slice
 * @typedef {{ pid: string, tid: string, nth: number, ts: string, dur: string, name: string }} SlicePlace
 * @typedef {{ id: Int } | SlicePlace} SliceReference
 */

const SLICE_MARGIN = 1.5; // durations on each side of a slice
const SLICE_MARGIN_MIN = 1000n; // ns
const DEADLINE_MS = 60_000;
const DETAILS = ".pf-details-shell"; // the panel of the selected slice

/**
 * Show the place that the address names, once the UI has loaded its trace. Throws an Error if there is no such slice.
 * @param {PerfettoApp} app
 * @param {string} address
 */
export async function openPlace(app, address) {
  const wanted = new URL(address).searchParams;
  const [start, end, slice] = ["visStart", "visEnd", "slice"].map((name) => wanted.get(name));
  if (start === null && slice === null) return;
  await until(() => app.trace && !app.isLoadingTrace);
  await timelineArranged(); // it moves tracks, also one that was scrolled to
  const { trace } = app;
  /** @type {[bigint, bigint] | null} */
  let span = start === null || end === null ? null : [BigInt(start), BigInt(end)];
  if (slice !== null) {
    const { id, ts, dur } = await sliceOf(trace, JSON.parse(slice));
    await select(trace, id);
    span ??= around(ts, dur);
  }
  if (span !== null) show(trace, span);
}

/**
 * Find a slice of the engine. Throws an Error if there is none, or several.
 * @param {PerfettoTrace} trace
 * @param {SliceReference} wanted
 * @returns {Promise<Slice>}
 */
async function sliceOf({ engine }, wanted) {
  if ("id" in wanted) {
    const [slice] = await slices(engine, `SELECT id, ts, dur FROM slice WHERE id = ${BigInt(wanted.id)}`);
    if (slice) return slice;
    const { count } = (await engine.query("SELECT count() AS count FROM slice")).firstRow({ count: 0 });
    throw new Error(`No slice has the id ${wanted.id}: there are ${count} here, with ids from 0 on.`);
  }
  const { pid, tid, nth } = wanted;
  const ofThread = await slices(engine, `${sqlOf(wanted)} AND t.pid = ${quoted(pid)} AND t.tid = ${quoted(tid)} ORDER BY s.id`);
  if (ofThread.length > nth) return ofThread[nth];
  const unthreaded = await slices(engine, `${sqlOf(wanted)} AND t.track_id IS NULL`); // instants of a process, or of all
  if (unthreaded.length === 1) return unthreaded[0];
  throw new Error(`The engine has ${unthreaded.length} slices of that name and time outside of threads: open one by its id in SQL.`);
}

/**
 * @param {PerfettoEngine} engine
 * @param {string} sql
 * @returns {Promise<Slice[]>}
 */
async function slices(engine, sql) {
  const rows = [];
  for (const row = (await engine.query(sql)).iter({ id: 0, ts: 0n, dur: 0n }); row.valid(); row.next()) {
    rows.push({ id: row.id, ts: row.ts, dur: row.dur });
  }
  return rows;
}

/** @param {SlicePlace} place */
const sqlOf = ({ ts, dur, name }) => `
  INCLUDE PERFETTO MODULE torch.trace;
  SELECT s.id, s.ts, s.dur
  FROM slice AS s LEFT JOIN torch_track AS t USING (track_id)
  WHERE s.ts = ${BigInt(ts)} AND s.dur = ${BigInt(dur)} AND s.name = ${quoted(name)}`;

/** @param {unknown} text */
const quoted = (text) => `'${String(text).replaceAll("'", "''")}'`;

/**
 * Select a slice, show its details and scroll to its track.
 * @param {PerfettoTrace} trace
 * @param {number} id
 */
async function select({ selection }, id) {
  selection.selectSqlEvent("slice", id, { switchToCurrentSelectionTab: true });
  await until(() => selection.selection.eventId === id && document.querySelector(DETAILS) !== null);
  selection.scrollToSelection(); // only now: the details take half of the timeline's height
}

/**
 * @param {bigint} ts
 * @param {bigint} dur
 * @returns {[bigint, bigint]}
 */
function around(ts, dur) {
  const length = dur > 0n ? dur : 0n;
  const wanted = BigInt(Math.round(SLICE_MARGIN * Number(length)));
  const margin = wanted > SLICE_MARGIN_MIN ? wanted : SLICE_MARGIN_MIN;
  return [ts - margin, ts + length + margin];
}

/**
 * Show a span of time, clipped to that of the trace.
 * @param {PerfettoTrace} trace
 * @param {[bigint, bigint]} span
 */
function show({ traceInfo, timeline }, [start, end]) {
  const first = start > traceInfo.start ? start : traceInfo.start;
  const last = end < traceInfo.end ? end : traceInfo.end;
  if (first < last) timeline.setViewportTime(first, last);
}

/**
 * Wait until a condition holds for which the UI has no event. Throws an Error after the deadline.
 * @param {() => boolean} holds
 * @returns {Promise<void>}
 */
function until(holds) {
  const deadline = performance.now() + DEADLINE_MS;
  return new Promise((resolve, reject) => {
    const check = () => {
      if (holds()) resolve();
      else if (performance.now() > deadline) reject(new Error("The Perfetto UI does not show it."));
      else setTimeout(check, 50);
    };
    check();
  });
}
