// The data of the overview: the answers of the analysis `overview` for ranges of time, added up so that any zoom can be drawn.
import { api, send } from "../api.js";
import { parseExact } from "../exact.js";

/**
 * @typedef {{ rank: number | null, kind: string, device: number | null, stream: number | null, process: string | null, thread: string | null }} Lane
 * @typedef {{ lane: Lane, sums: Record<Content, Float64Array> }} LaneSums `sums` has, for each edge of a bin, the covered time from the start of the frame to it, in ns
 * @typedef {{ rank: number | null, device_type: string, device: number, most: Float64Array }} Curve `most` has the maximum of allocated bytes in each bin; NaN where unknown
 * @typedef {{ rank: number | null, number: Int, start_ns: Int, end_ns: Int, from: number, to: number }} StepBand
 * @typedef {"busy" | "compute" | "comm" | "mem"} Content
 * @typedef {{ bins: number, lanes: number, steps: number, from_ns?: bigint, to_ns?: bigint }} Question
 */

/** @type {Content[]} */
export const CONTENTS = ["busy", "compute", "comm", "mem"];

const ROUNDING = 1e-6; // tolerance for errors of rounding, as a part of a bin
const STEPS_FIRST = 2000; // maximum number of steps in the first answer
const STEPS_MAX = 100_000; // further steps are not drawn

/** What runs in a range of time. Times are in ns since the start of the trace. */
export class Frame {
  /**
   * @param {Record<string, { columns: Column[], values: any[][] }>} tables
   * @param {{ from: number, to: number, bins: number }} range
   */
  constructor(tables, { from, to, bins }) {
    this.from = from;
    this.to = to;
    this.bins = bins;
    const tracks = columnsOf(tables.tracks);
    /** @type {Map<string, LaneSums>} */
    const byTrack = new Map();
    tracks.track.forEach((track, row) => {
      const [kind, process, thread] = [tracks.kind[row], tracks.process[row], tracks.thread[row]];
      const lane = { rank: tracks.rank[row], kind, device: tracks.device[row], stream: tracks.stream[row], process, thread };
      const sums = Object.fromEntries(CONTENTS.map((content) => [content, new Float64Array(bins + 1)]));
      byTrack.set(`${tracks.rank[row]}/${track}`, { lane, sums: /** @type {any} */ (sums) });
    });
    const busyBins = columnsOf(tables.bins);
    busyBins.bin.forEach((bin, row) => {
      const sums = byTrack.get(`${busyBins.rank[row]}/${busyBins.track[row]}`)?.sums;
      if (!sums) return;
      for (const content of CONTENTS) sums[content][bin + 1] = busyBins[`${content}_ns`][row] ?? 0;
    });
    this.lanes = [...byTrack.values()];
    for (const { sums } of this.lanes) for (const content of CONTENTS) accumulate(sums[content]);
    this.launches = new Float64Array(bins + 1);
    const launches = columnsOf(tables.launches);
    launches.bin.forEach((bin, row) => { this.launches[bin + 1] += launches.launches[row]; });
    accumulate(this.launches);
    this.curves = curvesOf(columnsOf(tables.memory), bins);
    /** The number of streams and threads of the trace, drawn or not. */
    this.tracks = columnsOf(tables.window).tracks.reduce((sum, tracks) => sum + Number(tracks), 0);
  }

  /**
   * The increase of sums between two times: covered time in ns, or launches. Within a bin it is interpolated.
   * @param {Float64Array} sums
   * @param {number} from
   * @param {number} to
   */
  between(sums, from, to) {
    return this.sumBefore(sums, to) - this.sumBefore(sums, from);
  }

  /**
   * The sum from the start of the frame to a time.
   * @param {Float64Array} sums
   * @param {number} time
   */
  sumBefore(sums, time) {
    const position = ((time - this.from) / (this.to - this.from)) * this.bins; // in bins
    if (position <= 0) return 0;
    if (position >= this.bins) return sums[this.bins];
    const bin = Math.floor(position + ROUNDING);
    if (position - bin < ROUNDING) return sums[bin]; // so that an idle column beside a busy one is drawn as idle
    return sums[bin] + (sums[bin + 1] - sums[bin]) * (position - bin);
  }
}

/** Asks for frames. A new question cancels the previous one. */
export class FrameSource {
  /** @param {Pick<Trace, "id" | "bounds">} trace */
  constructor({ id, bounds }) {
    this.id = id;
    this.bounds = bounds;
    this.start = 0n; // of the trace, in ns on its own clock
    this.length = 1; // of the trace, in ns
    /** @type {StepBand[]} */
    this.steps = [];
    this.stepsCount = 0;
    /** @type {number | null} */
    this.stepsRank = null; // only the steps of this rank are drawn: steps of several ranks would overlap
    this.hasRanks = false;
    this.longestStep = 0;
    /** @type {AbortController | null} */
    this.abortController = null;
  }

  /**
   * Ask for the whole trace, with its steps.
   * @param {number} bins
   * @param {number} lanes
   */
  async whole(bins, lanes) {
    const tables = await this.ask({ bins, lanes, steps: STEPS_FIRST }, parseExact);
    const window = columnsOf(tables.window);
    const { start_ns: begins, end_ns: ends } = this.bounds ?? { start_ns: [], end_ns: [] };
    const [start, end] = [smallest(window.start_ns.concat(begins)), largest(window.end_ns.concat(ends))];
    this.start = start;
    this.length = Number(end - start);
    this.setSteps(tables);
    this.stepsCount = Number(window.steps[Math.max(0, window.rank.indexOf(this.stepsRank))]);
    this.hasRanks = window.rank.length > 1;
    // each rank of a merged trace has a window and bins of its own: ask again, for one window of the trace
    const isOneWindow = window.start_ns.length === 1 && BigInt(window.start_ns[0]) === start && BigInt(window.end_ns[0]) === end;
    return isOneWindow ? new Frame(tables, { from: 0, to: this.length, bins }) : this.range(0, this.length, bins, lanes);
  }

  /** Ask for all steps if some are still unknown; return whether it asked. */
  async moreSteps() {
    if (this.steps.length >= Math.min(this.stepsCount, STEPS_MAX)) return false;
    this.setSteps((await this.get({ bins: 1, lanes: 1, steps: STEPS_MAX }, parseExact)).tables);
    return true;
  }

  /** @param {Record<string, { columns: Column[], values: any[][] }>} tables */
  setSteps(tables) {
    const { rank, step, start_ns, end_ns } = columnsOf(tables.steps);
    this.stepsRank = rank[0] ?? null;
    this.steps = start_ns.map((begin, row) => ({
      rank: rank[row], number: step[row], start_ns: begin, end_ns: end_ns[row], from: this.since(begin), to: this.since(end_ns[row]),
    })).filter((band) => band.rank === this.stepsRank);
    this.steps.sort((a, b) => a.from - b.from);
    this.longestStep = this.steps.reduce((longest, { from, to }) => Math.max(longest, to - from), 0);
  }

  /**
   * Ask for a range of time.
   * @param {number} from
   * @param {number} to
   * @param {number} bins
   * @param {number} lanes
   */
  async range(from, to, bins, lanes) {
    const tables = await this.ask({ bins, lanes, steps: 0, from_ns: this.at(from), to_ns: this.at(to) }, JSON.parse);
    return new Frame(tables, { from, to, bins });
  }

  /**
   * Ask for tables, and cancel the previous question.
   * @param {Question} question
   * @param {(text: string) => any} parse
   */
  async ask(question, parse) {
    this.abortController?.abort();
    this.abortController = new AbortController();
    const { signal } = this.abortController;
    const { tables } = await this.get(question, parse, signal);
    if (signal.aborted) throw new DOMException("cancelled", "AbortError");
    return tables;
  }

  /**
   * Send a question, and parse the answer.
   * @param {Question} question
   * @param {(text: string) => any} parse
   * @param {AbortSignal} [signal]
   */
  async get({ bins, lanes, steps, ...range }, parse, signal) {
    const query = { format: "columns", busiest: "trace", bins, tracks: lanes, steps_max: steps, ...range };
    const parameters = new URLSearchParams(Object.entries(query).map(([name, value]) => [name, String(value)]));
    const response = await send("GET", `${api("traces", this.id, "analysis", "overview")}?${parameters}`, { signal });
    return parse(await response.text());
  }

  /**
   * Convert a time since the start of the trace into a time on the trace's own clock.
   * @param {number} time
   */
  at(time) {
    return this.start + BigInt(Math.round(time));
  }

  /**
   * Convert a time on the trace's own clock into a time since the start of the trace.
   * @param {Int} time
   */
  since(time) {
    return Number(BigInt(time) - this.start);
  }
}

/**
 * The columns of a table by name.
 * @param {{ columns: Column[], values: any[][] }} table
 * @returns {Record<string, any[]>}
 */
const columnsOf = ({ columns, values }) => Object.fromEntries(columns.map(({ name }, index) => [name, values[index]]));

/**
 * Replace each value by the sum of all values up to it.
 * @param {Float64Array} values
 */
function accumulate(values) {
  for (let edge = 1; edge < values.length; edge += 1) values[edge] += values[edge - 1];
}

/** @param {Int[]} times */
const smallest = (times) => times.map(BigInt).reduce((a, b) => (a < b ? a : b));

/** @param {Int[]} times */
const largest = (times) => times.map(BigInt).reduce((a, b) => (a > b ? a : b));

/**
 * @param {Record<string, any[]>} memory
 * @param {number} bins
 * @returns {Curve[]}
 */
function curvesOf(memory, bins) {
  /** @type {Map<string, Curve>} */
  const curves = new Map();
  memory.bin.forEach((bin, row) => {
    const [rank, device_type, device] = [memory.rank[row], memory.device_type[row], memory.device[row]];
    const key = `${rank}/${device_type}/${device}`;
    if (!curves.has(key)) curves.set(key, { rank, device_type, device, most: new Float64Array(bins).fill(NaN) });
    /** @type {Curve} */ (curves.get(key)).most[bin] = memory.allocated_bytes[row];
  });
  return [...curves.values()];
}
