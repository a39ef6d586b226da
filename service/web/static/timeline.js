// Arranges the timeline of the Perfetto UI v52 for traces of PyTorch: GPUs and the threads that launch their work come
// first and expanded, with the names and numbers of the trace. In SQL the engine's names and numbers stay.

import { showBusyTime } from "./minimap.js";

/**
 * @typedef {{
 *   utid: number, upid: number, pid: string, tid: string, rank: number, device: number, stream: number, lane: number,
 *   thread: string, process: string, slices: number, node?: PerfettoNode,
 * }} Track
 * @typedef {{
 *   node: PerfettoNode, tracks: Track[], kind: number, rank: number, busy: number, number: number,
 * }} Group
 */

const OPEN_TRACKS_MAX = 64; // tracks of expanded groups: several screens. All groups of 64 ranks draw 4 times slower.
const THREADS_MAX = 12; // threads of a process outside of its group of further threads
const LONG_NAME = 30; // characters; a longer name follows its number, so that only its end is truncated
const PATH = -1, GPU = 0, HOST = 1, OTHER = 2; // kinds of groups, in order
const OVERLAY = 'Critical path'; // the process that an overlay adds

/** The UI's query for the unfinished slices of a track. */
const UNFINISHED = /(-1 as durQ,\s+-1 as dur,.+?from) \((.+)\)\s+group by 1\s+having dur = -1\s*$/s;

const TRACKS = `
  SELECT
    place.utid, ifnull(t.upid, -1) AS upid, place.pid, place.tid, ifnull(place.rank, -1) AS rank,
    ifnull(place.device, -1) AS device, ifnull(place.stream, -1) AS stream, place.lane,
    ifnull(t.name, '') AS thread, ifnull(p.name, '') AS process,
    (SELECT ifnull(sum(slice_count), 0) FROM _thread_available_info_summary AS s WHERE s.utid = place.utid) AS slices
  FROM _torch_track AS place JOIN thread AS t USING (utid) LEFT JOIN process AS p USING (upid)`;
const NUMBER = 0, TEXT = 'str'; // types of columns, as the UI writes them
const COLUMNS = {
  utid: NUMBER, upid: NUMBER, pid: TEXT, tid: TEXT, rank: NUMBER, device: NUMBER, stream: NUMBER, lane: NUMBER,
  thread: TEXT, process: TEXT, slices: NUMBER,
};

/** @type {Promise<void>} */
let arrangement = Promise.resolve();

/** Wait until the timeline of the open trace is arranged: before that, tracks still move. */
export const timelineArranged = () => arrangement;

/**
 * Arrange the timeline of each trace that the UI opens from our server, as soon as its tracks exist.
 * @param {PerfettoApp} app
 */
export function arrangeTimelines(app) {
  const shared = Object.getPrototypeOf(app);
  const activate = shared.setActiveTrace;
  shared.setActiveTrace = function (/** @type {PerfettoTrace} */ opened) {
    if (opened.traceInfo.source.type === 'HTTP_RPC') {
      lookForUnfinishedFirst(opened);
      showBusyTime(opened, async () => (await groupsOf(opened)).map(({ tracks: [{ upid }] }) => upid));
      arrangement = new Promise((resolve) => {
        opened.onTraceReady.addListener(() =>
          arrange(opened)
            .catch((error) => console.error('The timeline is not arranged:', error))
            .finally(resolve),
        );
      });
    }
    return activate.call(this, opened);
  };
}

/**
 * Let the UI put the slices of a track in groups only if some are unfinished. It wants those that are the last of their
 * depth, and groups all slices for it: two seconds for 3.5 million. SQLite evaluates the first table of a join before it
 * reads and orders the slices, but `where exists` after that.
 * @param {PerfettoTrace} trace
 */
function lookForUnfinishedFirst(trace) {
  const engine = trace.engine.engine; // that of all plugins
  const query = engine.query;
  engine.query = function (/** @type {string} */ sql, /** @type {string | undefined} */ tag) {
    const guarded = '$1 (select 1 from ($2) where dur = -1 limit 1) cross join ($2) group by 1 having dur = -1';
    return query.call(this, sql.replace(UNFINISHED, guarded), tag);
  };
}

/** @param {PerfettoTrace} trace */
async function arrange(trace) {
  const groups = await groupsOf(trace);
  for (const group of groups) arrangeGroup(trace, group);
  nameInstants(trace);
  for (const { node } of groups) trace.workspace.addChildLast(node);
  for (const node of globalInstants(trace)) trace.workspace.addChildLast(node);
  open(groups);
  closeSummaries(trace, groups);
}

/**
 * Return the groups in their order.
 * @param {PerfettoTrace} trace
 */
async function groupsOf(trace) {
  const rows = await rowsOf(trace.engine);
  const processes = Map.groupBy(rows, ({ upid }) => upid);
  const groups = [...processes.values()].map((tracks) => groupOf(trace, tracks)).filter(({ node }) => node);
  return groups.sort(
    (a, b) => section(a) - section(b) || a.rank - b.rank || a.kind - b.kind || b.busy - a.busy || a.number - b.number,
  );
}

/**
 * Order of groups: the critical path first, then ranks with their GPUs and processes, then the rest.
 * @param {Group} group
 */
const section = ({ kind }) => (kind === GPU || kind === HOST ? 0 : kind);

/**
 * @param {PerfettoEngine} engine
 * @returns {Promise<Track[]>}
 */
async function rowsOf(engine) {
  /** @type {any[]} */
  const rows = [];
  for (const row = (await engine.query(TRACKS)).iter(COLUMNS); row.valid(); row.next()) {
    rows.push(Object.fromEntries(Object.keys(COLUMNS).map((column) => [column, row[column]])));
  }
  return rows;
}

/**
 * Describe a process of the UI: its node, its tracks, and its keys of order.
 * @param {PerfettoTrace} trace
 * @param {Track[]} tracks
 * @returns {Group}
 */
function groupOf(trace, tracks) {
  const [{ upid, pid, rank, device }] = tracks;
  const isHost = isNumber(pid) && tracks.some(({ tid }) => isNumber(tid) || tid.startsWith('-'));
  const kind = pid === OVERLAY ? PATH : device >= 0 ? GPU : isHost ? HOST : OTHER;
  const node = trace.workspace.getTrackByUri(`/process_${upid}`);
  const busy = kind === HOST ? tracks.reduce((sum, { slices }) => sum + slices, 0) : 0; // process 0 is Kineto's remnant
  return { node, tracks, kind, rank, busy, number: device >= 0 ? device : Number(pid) || 0 };
}

/**
 * @param {PerfettoTrace} trace
 * @param {Group} group
 */
function arrangeGroup(trace, { node, tracks, kind }) {
  node.name = processTitle(tracks[0], kind);
  const threads = tracks
    .map((track) => ({ ...track, node: nodeOfThread(node, track) }))
    .filter((thread) => thread.node);
  threads.sort(kind === GPU ? byStream : byInterest(tracks));
  for (const thread of threads) {
    nameThread(trace, thread);
    node.addChildLast(thread.node);
  }
  if (kind !== GPU && threads.length > THREADS_MAX) fold(node, threads.slice(THREADS_MAX).map((thread) => thread.node));
}

/**
 * @param {PerfettoNode} process
 * @param {Track} track
 * @returns {PerfettoNode}
 */
const nodeOfThread = (process, { utid }) => process.children.find((/** @type {PerfettoNode} */ { uri }) => uri === `/thread_${utid}`);

/**
 * @param {Track} a
 * @param {Track} b
 */
const byStream = (a, b) => a.stream - b.stream || a.lane - b.lane;

/**
 * Compare threads: main thread, autograd threads, then those with the most slices; lanes follow their thread. If no
 * thread has the number of the process, as in merged traces, the main thread is that with the lowest number.
 * @param {Track[]} tracks
 * @returns {(a: Track, b: Track) => number}
 */
function byInterest(tracks) {
  const numbers = tracks.map(({ tid }) => tid).filter(isNumber);
  const main = numbers.includes(tracks[0].pid) ? tracks[0].pid : numbers.sort((a, b) => Number(a) - Number(b))[0];
  /** @type {Map<string, number>} */
  const slices = new Map();
  for (const { tid, slices: count } of tracks) slices.set(tid, (slices.get(tid) ?? 0) + count);
  /** @param {Track} track */
  const place = ({ tid, thread }) => (tid === main ? 0 : /autograd/.test(thread) ? 1 : 2);
  return (a, b) =>
    place(a) - place(b) || (slices.get(b.tid) ?? 0) - (slices.get(a.tid) ?? 0) || a.tid.localeCompare(b.tid) || a.lane - b.lane;
}

/**
 * Move threads into a collapsed group at the end of their process.
 * @param {PerfettoNode} process
 * @param {PerfettoNode[]} nodes
 */
function fold(process, nodes) {
  const others = new process.constructor({ name: `${nodes.length} more threads`, isSummary: true });
  for (const node of nodes) others.addChildLast(node);
  process.addChildLast(others);
}

/**
 * The name of a process, with its number unless the trace is merged: its numbers are invented.
 * @param {Track} track
 * @param {number} kind
 */
function processTitle({ pid, rank, process }, kind) {
  if (kind === GPU) return process;
  const ofRank = rank >= 0 ? ` · rank ${rank}` : '';
  const merged = `rank ${rank} · `;
  const isMerged = process.startsWith(merged);
  const name = isMerged ? process.slice(merged.length) : withoutEnd(process, ofRank);
  if (kind === OTHER || kind === PATH || isMerged || isIn(pid, name)) return `${name || `process ${pid}`}${ofRank}`;
  if (name.length > LONG_NAME) return `process ${pid}${ofRank} · ${name}`;
  return `${name || 'process'} ${pid}${ofRank}`;
}

/**
 * @param {string} text
 * @param {string} end
 */
const withoutEnd = (text, end) => (end && text.endsWith(end) ? text.slice(0, -end.length) : text);

/** @param {Track} track */
function threadTitle({ tid, device, lane, thread }) {
  const ofLane = lane > 1 ? ` · lane ${lane}` : '';
  const name = withoutEnd(thread, ofLane);
  const isNumber = /^-?\d+$/.test(tid);
  if (device >= 0 || isIn(tid, name)) return `${name === tid && isNumber ? `thread ${tid}` : name}${ofLane}`;
  return isNumber ? `${name || 'thread'} ${tid}${ofLane}` : `${name || tid}${ofLane}`;
}

/** @param {string} text */
const isNumber = (text) => /^\d+$/.test(text);

/**
 * @param {string} number
 * @param {string} name
 */
const isIn = (number, name) => name.split(/[^\w-]+/).includes(number);

/**
 * Give the tracks of a thread its title. Tracks with their own names, such as counters, keep them.
 * @param {PerfettoTrace} trace
 * @param {Track & { node: PerfettoNode }} thread
 */
function nameThread(trace, thread) {
  const title = threadTitle(thread);
  thread.node.name = title;
  for (const child of thread.node.children) {
    const track = child.uri && trace.tracks.getTrack(child.uri);
    if (track?.tags?.kind === 'SliceTrack' && track.tags.type === 'thread_execution') child.name = title;
    if (track && thread.device >= 0) track.chips = track.chips?.filter((/** @type {string} */ chip) => chip !== 'main thread');
  }
}

/**
 * @param {PerfettoTrace} trace
 * @returns {PerfettoNode[]}
 */
const globalInstants = ({ tracks, workspace }) =>
  workspace.children.filter((/** @type {PerfettoNode} */ { uri }) => uri && tracks.getTrack(uri)?.tags?.type === 'legacy_chrome_global_instants');

/**
 * Name the tracks of instants, which the UI leaves without a name.
 * @param {PerfettoTrace} trace
 */
function nameInstants(trace) {
  for (const node of trace.workspace.flatTracks) {
    const type = node.uri && trace.tracks.getTrack(node.uri)?.tags?.type;
    if (type === 'legacy_chrome_global_instants') node.name = 'Instants of the whole trace';
    if (type === 'chrome_process_instant') node.name = 'Instants of the process';
  }
}

/**
 * Expand groups in their order, up to a readable number of rows.
 * @param {Group[]} groups
 */
function open(groups) {
  let rows = 0;
  for (const { node, kind } of groups) {
    if (kind === OTHER) continue;
    rows += node.children.length;
    if (rows > OPEN_TRACKS_MAX && rows > node.children.length) return;
    node.expand();
  }
}

/**
 * Draw the summaries of collapsed groups to the end of the window. The UI v52 draws them only up to the last change in
 * it, and leaves the rest blank: all of the window under a slice that lasts longer.
 * @param {PerfettoTrace} trace
 * @param {Group[]} groups
 */
function closeSummaries(trace, groups) {
  const tracks = groups.map(({ node }) => trace.tracks.getTrack(node.uri)?.renderer);
  const summary = tracks.find((renderer) => renderer?.onBoundsChange && renderer.renderSummary);
  if (!summary) return;
  const shared = Object.getPrototypeOf(summary);
  if (shared.isClosed) return;
  shared.isClosed = true;
  const draw = shared.renderSummary;
  shared.renderSummary = function (/** @type {any} */ context, /** @type {any} */ data) {
    return draw.call(this, context, closed(data));
  };
}

/**
 * Return the data of a summary with a point at its end.
 * @param {any} data
 */
function closed(data) {
  if (!data.length || data.starts.at(-1) >= data.end) return data;
  const last = data.utilizations.at(-1);
  return { ...data, starts: [...data.starts, data.end], utilizations: [...data.utilizations, last] };
}
