// The rows of the overview, with their labels.
import { CURVE, LANE } from "./draw.js";

const UNKNOWN_TYPE = "-1"; // what a file says whose changes of memory name no device

/** @import { Frame, Lane } from "./frame.js" */
/** @import { Row } from "./draw.js" */

/**
 * The rows: streams, then memory, then threads.
 * @param {Frame} frame
 * @param {Trace} trace
 * @returns {Row[]}
 */
export function rowsOf(frame, trace) {
  const lanes = frame.lanes.map((lane) => /** @type {Row} */ ({ kind: "lane", label: labelOf(lane.lane, trace), short: shortOf(lane.lane), lane, height: LANE }));
  const curves = frame.curves.map((curve) => {
    const type = curve.device_type === UNKNOWN_TYPE ? "unknown device" : curve.device_type;
    const device = curve.device < 0 ? type : `${type} ${curve.device}`;
    return /** @type {Row} */ ({ kind: "curve", label: `${rankOf(curve.rank, trace)}Memory · ${device}`, short: device, curve, height: CURVE });
  });
  const isStream = (/** @type {Row} */ row) => row.kind === "lane" && row.lane.lane.kind === "stream";
  return [...lanes.filter(isStream), ...curves, ...lanes.filter((row) => !isStream(row))];
}

/**
 * @param {Lane} lane
 * @param {Trace} trace
 */
function labelOf({ rank, kind, device, stream, process, thread }, trace) {
  const prefix = rankOf(rank, trace);
  if (kind === "stream") return `${prefix}${device === null ? "" : `GPU ${device} · `}stream ${stream ?? "unknown"}`;
  const name = trace.threads.find(({ pid, tid }) => String(pid) === process && String(tid) === thread)?.name?.trim() ?? "";
  const number = `thread ${thread ?? "unknown"}`;
  return `${prefix}${name.includes(String(thread)) ? name : [name, number].filter(Boolean).join(" · ")}`;
}

/**
 * A label for narrow screens: device/stream, or the number of a thread.
 * @param {Lane} lane
 */
const shortOf = ({ kind, device, stream, thread }) => (kind === "stream" ? `${device ?? "?"}/${stream ?? "?"}` : `thr. ${thread ?? "?"}`);

/**
 * @param {number | null} rank
 * @param {Trace} trace
 */
const rankOf = (rank, trace) => (trace.ranks.length > 0 && rank !== null ? `Rank ${rank} · ` : "");
