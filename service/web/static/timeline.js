// Arranges the timeline of the Perfetto UI v52 for traces of PyTorch: GPUs and the threads that feed them come first
// and open, under the names and numbers of the trace. SQL keeps the engine's names and numbers.

const OPEN_TRACKS_MAX = 64; // tracks of open groups: several screens; of 64 ranks, all open ones draw 4 times slower
const THREADS_MAX = 12; // threads of a process that stand alone; a group has the others
const TITLE_WIDTH = '330px'; // of the column of names; the UI's own is 250 px
const LONG_NAME = 30; // characters; a longer name comes behind its number, so that its end is what may be cut
const PATH = -1, GPU = 0, HOST = 1, OTHER = 2;
const OVERLAY = 'Critical path'; // the process that an overlay adds

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

/** Make room for names, before the UI reads its style; of a longer one, the end is cut, which the UI shows on hover. */
export function widenTitles() {
  document.documentElement.style.setProperty('--track-shell-width', TITLE_WIDTH);
  const style = document.createElement('style');
  style.textContent = `
    .pf-track__title.pf-middle-ellipsis { display: block; white-space: nowrap; text-overflow: ellipsis; }
    .pf-track__title.pf-middle-ellipsis > span { overflow: visible; }`;
  document.head.append(style);
}

let arrangement = Promise.resolve();

/** Wait until the timeline of the open trace is arranged: before that, tracks still move. */
export const timelineArranged = () => arrangement;

/** Have the timeline of each trace that the UI opens from our server arranged as soon as its tracks are there. */
export function arrangeTimelines(app) {
  const shared = Object.getPrototypeOf(app);
  const activate = shared.setActiveTrace;
  shared.setActiveTrace = function (opened) {
    if (opened.traceInfo.source.type === 'HTTP_RPC') {
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

async function arrange(trace) {
  const rows = await rowsOf(trace.engine);
  const processes = Map.groupBy(rows, ({ upid }) => upid);
  const groups = [...processes.values()].map((tracks) => groupOf(trace, tracks)).filter(({ node }) => node);
  for (const group of groups) arrangeGroup(trace, group);
  nameInstants(trace);
  groups.sort(
    (a, b) => section(a) - section(b) || a.rank - b.rank || a.kind - b.kind || b.busy - a.busy || a.number - b.number,
  );
  for (const { node } of groups) trace.workspace.addChildLast(node);
  for (const node of globalInstants(trace)) trace.workspace.addChildLast(node);
  open(groups);
  closeSummaries(trace, groups);
}

/** The path first, then ranks with their GPUs and processes, then the rest. */
const section = ({ kind }) => (kind === GPU || kind === HOST ? 0 : kind);

async function rowsOf(engine) {
  const rows = [];
  for (const row = (await engine.query(TRACKS)).iter(COLUMNS); row.valid(); row.next()) {
    rows.push(Object.fromEntries(Object.keys(COLUMNS).map((column) => [column, row[column]])));
  }
  return rows;
}

/** A process of the UI: its node, its tracks, and where it belongs among the others. */
function groupOf(trace, tracks) {
  const [{ upid, pid, rank, device }] = tracks;
  const isHost = isNumber(pid) && tracks.some(({ tid }) => isNumber(tid) || tid.startsWith('-'));
  const kind = pid === OVERLAY ? PATH : device >= 0 ? GPU : isHost ? HOST : OTHER;
  const node = trace.workspace.getTrackByUri(`/process_${upid}`);
  const busy = kind === HOST ? tracks.reduce((sum, { slices }) => sum + slices, 0) : 0; // process 0 is Kineto's remnant
  return { node, tracks, kind, rank, busy, number: device >= 0 ? device : Number(pid) || 0 };
}

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

const nodeOfThread = (process, { utid }) => process.children.find(({ uri }) => uri === `/thread_${utid}`);

const byStream = (a, b) => a.stream - b.stream || a.lane - b.lane;

/**
 * Main thread, autograd threads, then those with the most slices; lanes follow their thread. Where none has the number
 * of the process, as in merged traces, the main thread is that of the lowest number.
 */
function byInterest(tracks) {
  const numbers = tracks.map(({ tid }) => tid).filter(isNumber);
  const main = numbers.includes(tracks[0].pid) ? tracks[0].pid : numbers.sort((a, b) => a - b)[0];
  const slices = new Map();
  for (const { tid, slices: count } of tracks) slices.set(tid, (slices.get(tid) ?? 0) + count);
  const place = ({ tid, thread }) => (tid === main ? 0 : /autograd/.test(thread) ? 1 : 2);
  return (a, b) =>
    place(a) - place(b) || slices.get(b.tid) - slices.get(a.tid) || a.tid.localeCompare(b.tid) || a.lane - b.lane;
}

/** Move threads into a closed group of their own, at the end of their process. */
function fold(process, nodes) {
  const others = new process.constructor({ name: `${nodes.length} more threads`, isSummary: true });
  for (const node of nodes) others.addChildLast(node);
  process.addChildLast(others);
}

/** The name of a process, with its number where the trace has one: merged traces have made theirs up. */
function processTitle({ pid, rank, device, process }, kind) {
  if (kind === GPU) return process;
  const ofRank = rank >= 0 ? ` · rank ${rank}` : '';
  const merged = `rank ${rank} · `;
  const isMerged = process.startsWith(merged);
  const name = isMerged ? process.slice(merged.length) : withoutEnd(process, ofRank);
  if (kind === OTHER || kind === PATH || isMerged || isIn(pid, name)) return `${name || `process ${pid}`}${ofRank}`;
  if (name.length > LONG_NAME) return `process ${pid}${ofRank} · ${name}`;
  return `${name || 'process'} ${pid}${ofRank}`;
}

const withoutEnd = (text, end) => (end && text.endsWith(end) ? text.slice(0, -end.length) : text);

function threadTitle({ tid, device, stream, lane, thread }) {
  const ofLane = lane > 1 ? ` · lane ${lane}` : '';
  const name = withoutEnd(thread, ofLane);
  if (device >= 0 || isIn(tid, name)) return `${name === tid ? `thread ${tid}` : name}${ofLane}`;
  if (!/^-?\d+$/.test(tid)) return `${name || tid}${ofLane}`;
  return `${name || 'thread'} ${tid}${ofLane}`;
}

const isNumber = (text) => /^\d+$/.test(text);

const isIn = (number, name) => name.split(/[^\w-]+/).includes(number);

/** Give the tracks of a thread its title; what has a name of its own, as counters have, keeps it. */
function nameThread(trace, thread) {
  const title = threadTitle(thread);
  thread.node.name = title;
  for (const child of thread.node.children) {
    const track = child.uri && trace.tracks.getTrack(child.uri);
    if (track?.tags?.kind === 'SliceTrack' && track.tags.type === 'thread_execution') child.name = title;
    if (track && thread.device >= 0) track.chips = track.chips?.filter((chip) => chip !== 'main thread');
  }
}

const globalInstants = ({ tracks, workspace }) =>
  workspace.children.filter(({ uri }) => uri && tracks.getTrack(uri)?.tags?.type === 'legacy_chrome_global_instants');

/** The UI has no name for tracks of instants. */
function nameInstants(trace) {
  for (const node of trace.workspace.flatTracks) {
    const type = node.uri && trace.tracks.getTrack(node.uri)?.tags?.type;
    if (type === 'legacy_chrome_global_instants') node.name = 'Instants of the whole trace';
    if (type === 'chrome_process_instant') node.name = 'Instants of the process';
  }
}

/** Open groups in their order, as long as their rows are few enough to be read. */
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
 * Have summaries of closed groups drawn to the end of the window. The UI v52 draws them up to the last change in it: so
 * the end of the window was blank, and all of it under a slice that lasts longer than the window.
 */
function closeSummaries(trace, groups) {
  const tracks = groups.map(({ node }) => trace.tracks.getTrack(node.uri)?.renderer);
  const summary = tracks.find((renderer) => renderer?.onBoundsChange && renderer.renderSummary);
  if (!summary) return;
  const shared = Object.getPrototypeOf(summary);
  if (shared.isClosed) return;
  shared.isClosed = true;
  const draw = shared.renderSummary;
  shared.renderSummary = function (context, data) {
    return draw.call(this, context, closed(data));
  };
}

/** The data of a summary, with a point at its end. */
function closed(data) {
  if (!data.length || data.starts.at(-1) >= data.end) return data;
  const last = data.utilizations.at(-1);
  return { ...data, starts: [...data.starts, data.end], utilizations: [...data.utilizations, last] };
}
