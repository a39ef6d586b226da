// Opens the Perfetto UI at a place of its trace. The page's address names it: `visStart` and `visEnd` the time to show,
// in the engine's ns, and `slice` the slice to select, as JSON: its `id`, or what else the engine has of it.
// The UI itself reads `visStart` and `visEnd`, but ignores both where one lies outside of the trace.

import { timelineArranged } from "/static/timeline.js";

const SLICE_MARGIN = 1.5; // durations on each side of a slice
const SLICE_MARGIN_MIN = 1000n; // ns
const DEADLINE_MS = 60_000;
const DETAILS = ".pf-details-shell"; // the panel of the selected slice

/** Show the place that the address names, once the UI has loaded its trace. Throws an Error if the slice is not there. */
export async function openPlace(app, address) {
  const asked = new URL(address).searchParams;
  const [start, end, slice] = ["visStart", "visEnd", "slice"].map((name) => asked.get(name));
  if (start === null && slice === null) return;
  await until(() => app.trace && !app.isLoadingTrace);
  await timelineArranged(); // it moves tracks, also one that was scrolled to
  const { trace } = app;
  let span = start === null || end === null ? null : [BigInt(start), BigInt(end)];
  if (slice !== null) {
    const { id, ts, dur } = await sliceOf(trace, JSON.parse(slice));
    await select(trace, id);
    span ??= around(ts, dur);
  }
  if (span !== null) show(trace, span);
}

/** The slice of the engine that is meant. */
async function sliceOf({ engine }, wanted) {
  if ("id" in wanted) {
    const [slice] = await slices(engine, `SELECT id, ts, dur FROM slice WHERE id = ${BigInt(wanted.id)}`);
    if (slice) return slice;
    const { count } = (await engine.query("SELECT count() AS count FROM slice")).firstRow({ count: 0 });
    throw new Error(`No slice has the id ${wanted.id}: there are ${count} here, with ids from 0 on.`);
  }
  const { pid, tid, nth } = wanted;
  const ofThread = await slices(engine, `${alike(wanted)} AND t.pid = ${quoted(pid)} AND t.tid = ${quoted(tid)} ORDER BY s.id`);
  if (ofThread.length > nth) return ofThread[nth];
  const ofNone = await slices(engine, `${alike(wanted)} AND t.track_id IS NULL`); // instants of a process, or of all
  if (ofNone.length === 1) return ofNone[0];
  throw new Error(`The engine has ${ofNone.length} slices of that name and time outside of threads: open one by its id in SQL.`);
}

async function slices(engine, sql) {
  const rows = [];
  for (const row = (await engine.query(sql)).iter({ id: 0, ts: 0n, dur: 0n }); row.valid(); row.next()) {
    rows.push({ id: row.id, ts: row.ts, dur: row.dur });
  }
  return rows;
}

const alike = ({ ts, dur, name }) => `
  INCLUDE PERFETTO MODULE torch.trace;
  SELECT s.id, s.ts, s.dur
  FROM slice AS s LEFT JOIN torch_track AS t USING (track_id)
  WHERE s.ts = ${BigInt(ts)} AND s.dur = ${BigInt(dur)} AND s.name = ${quoted(name)}`;

const quoted = (text) => `'${String(text).replaceAll("'", "''")}'`;

/** Select a slice, show its details and scroll to its track. */
async function select({ selection }, id) {
  selection.selectSqlEvent("slice", id, { switchToCurrentSelectionTab: true });
  await until(() => selection.selection.eventId === id && document.querySelector(DETAILS));
  selection.scrollToSelection(); // only now: the details take half of the timeline's height
}

function around(ts, dur) {
  const lasting = dur > 0n ? dur : 0n;
  const wanted = BigInt(Math.round(SLICE_MARGIN * Number(lasting)));
  const margin = wanted > SLICE_MARGIN_MIN ? wanted : SLICE_MARGIN_MIN;
  return [ts - margin, ts + lasting + margin];
}

/** Show a span of time, as far as the trace has it. */
function show({ traceInfo, timeline }, [start, end]) {
  const first = start > traceInfo.start ? start : traceInfo.start;
  const last = end < traceInfo.end ? end : traceInfo.end;
  if (first < last) timeline.setViewportTime(first, last);
}

/** Wait for what the UI says nowhere. */
function until(holds) {
  const deadline = performance.now() + DEADLINE_MS;
  return new Promise((resolve, reject) => {
    const look = () => {
      if (holds()) resolve();
      else if (performance.now() > deadline) reject(new Error("The Perfetto UI does not show it."));
      else setTimeout(look, 50);
    };
    look();
  });
}
