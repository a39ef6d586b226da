// What the tooltip of the overview says: the time, the lane, and the exact shares of the column below the pointer.
import { count, duration, plural } from "../format.js";
import { readable } from "../units.js";
import { mostBetween } from "./draw.js";

/** @import { Frame, LaneSums, StepBand } from "./frame.js" */
/** @import { Row } from "./draw.js" */
/** @import { View } from "./view.js" */
/** @typedef {{ kind: string, time: number, row?: Row, step?: StepBand }} Place what is drawn at a point of the canvas */

/**
 * The lines of the tooltip of a place.
 * @param {Place} place
 * @param {Frame} frame
 * @param {View} view
 * @param {number} column length of a column of pixels in ns
 */
export function tooltipLines({ kind, time, row, step }, frame, view, column) {
  const at = `at ${view.text(time, column)}`;
  if (kind === "step") return step ? [`Step ${step.number}: ${duration(BigInt(step.end_ns) - BigInt(step.start_ns))}`, at] : [at];
  const length = (frame.to - frame.from) / frame.bins;
  const bin = Math.max(0, Math.min(frame.bins - 1, Math.floor((time - frame.from) / length)));
  if (kind === "launches") {
    const launches = frame.launches[bin + 1] - frame.launches[bin];
    return [`${plural(launches, "launch", "launches")} in ${duration(Math.round(length))}`, at];
  }
  if (row?.kind === "curve") {
    const most = mostBetween(frame, row.curve, frame.from + bin * length, frame.from + (bin + 1) * length);
    return [row.label, Number.isNaN(most) ? "unknown: before the first event of the allocator" : `${readable(most, "bytes")} (${count(most)} bytes)`, at];
  }
  if (row?.kind === "lane") return [row.label, ...sharesOf(row.lane, bin, length), at];
  return [at];
}

/**
 * The shares of a bin in words.
 * @param {LaneSums} lane
 * @param {number} bin
 * @param {number} length of the bin in ns
 */
function sharesOf({ lane, sums }, bin, length) {
  const share = (/** @type {"busy" | "compute" | "comm" | "mem"} */ content) => {
    const covered = sums[content][bin + 1] - sums[content][bin];
    return { covered, text: `${readable((100 * covered) / length, "%")} (${duration(covered)} of ${duration(Math.round(length))})` };
  };
  const busy = share("busy");
  if (busy.covered === 0) return ["idle"];
  if (lane.kind === "thread") return [`busy ${busy.text}`];
  const kinds = /** @type {const} */ ([["compute", "computing"], ["comm", "communication"], ["mem", "copies"]]);
  return [`busy ${busy.text}`, ...kinds.flatMap(([content, word]) => (share(content).covered > 0 ? [`${word} ${share(content).text}`] : []))];
}
