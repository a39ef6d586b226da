// The data of the overview: what the analysis `overview` answers for a range of time, as sums that any zoom can be drawn from.
import { api, send } from "../api.js";
import { parseExact } from "../exact.js";

/**
 * @typedef {{ rank: number | null, kind: string, device: number | null, stream: number | null, process: string | null, thread: string | null }} Lane
 * @typedef {{ lane: Lane, sums: Record<Content, Float64Array> }} LaneSums `sums` has the covered time before each edge of a bin
 * @typedef {{ rank: number | null, device_type: string, device: number, most: Float64Array }} Curve bytes; NaN where unknown
 * @typedef {{ rank: number | null, number: Int, start_ns: Int, end_ns: Int, from: number, to: number }} StepBand
 * @typedef {"busy" | "compute" | "comm" | "mem"} Content
 * @typedef {{ bins: number, lanes: number, steps: number, from_ns?: bigint, to_ns?: bigint }} Question
 */

/** @type {Content[]} */
export const CONTENTS = ["busy", "compute", "comm", "mem"];

const ROUNDING = 1e-6; // of a bin
const STEPS_FIRST = 2000; // steps that the first answer has
const STEPS_MAX = 100_000; // further steps are not drawn

/** What runs in a range of time. Times are in ns since the start of the whole. */
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
    const filled = columnsOf(tables.bins);
    filled.bin.forEach((bin, row) => {
      const sums = byTrack.get(`${filled.rank[row]}/${filled.track[row]}`)?.sums;
      for (const content of sums ? CONTENTS : []) /** @type {any} */ (sums)[content][bin + 1] = filled[`${content}_ns`][row] ?? 0;
    });
    this.lanes = [...byTrack.values()];
    for (const { sums } of this.lanes) for (const content of CONTENTS) addUp(sums[content]);
    this.launches = new Float64Array(bins + 1);
    const launches = columnsOf(tables.launches);
    launches.bin.forEach((bin, row) => { this.launches[bin + 1] += launches.launches[row]; });
    addUp(this.launches);
    this.curves = curvesOf(columnsOf(tables.memory), bins);
    /** Streams and threads of the trace, drawn or not. */
    this.tracks = columnsOf(tables.window).tracks.reduce((sum, tracks) => sum + Number(tracks), 0);
  }

  /**
   * The time that content covers between two times, estimated within a bin.
   * @param {Float64Array} sums
   * @param {number} from
   * @param {number} to
   */
  between(sums, from, to) {
    return this.before(sums, to) - this.before(sums, from);
  }

  /**
   * @param {Float64Array} sums
   * @param {number} time
   */
  before(sums, time) {
    const place = ((time - this.from) / (this.to - this.from)) * this.bins;
    if (place <= 0) return 0;
    if (place >= this.bins) return sums[this.bins];
    const bin = Math.floor(place + ROUNDING);
    if (place - bin < ROUNDING) return sums[bin]; // otherwise an idle column beside a busy one were not quite idle
    return sums[bin] + (sums[bin + 1] - sums[bin]) * (place - bin);
  }
}

/** Asks for frames. A new question cancels the one before. */
export class FrameSource {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    this.start = 0n; // of the whole, in ns on the trace's own clock
    this.length = 1; // of the whole, in ns
    /** @type {StepBand[]} */
    this.steps = [];
    this.stepsCount = 0;
    /** @type {number | null} */
    this.stepsRank = null; // the steps of one rank are drawn: those of several would cover each other
    this.hasRanks = false;
    this.longestStep = 0;
    /** @type {AbortController | null} */
    this.asking = null;
  }

  /**
   * Ask for the whole, with its steps.
   * @param {number} bins
   * @param {number} lanes
   */
  async whole(bins, lanes) {
    const tables = await this.ask({ bins, lanes, steps: STEPS_FIRST }, parseExact);
    const window = columnsOf(tables.window);
    const [start, end] = [smallest(window.start_ns), largest(window.end_ns)];
    this.start = start;
    this.length = Number(end - start);
    this.takeSteps(tables);
    this.stepsCount = Number(window.steps[Math.max(0, window.rank.indexOf(this.stepsRank))]);
    this.hasRanks = window.rank.length > 1;
    // the ranks of a merged trace have windows of their own: their bins differ, until one window is asked for
    const isOneWindow = window.start_ns.length === 1;
    return isOneWindow ? new Frame(tables, { from: 0, to: this.length, bins }) : this.range(0, this.length, bins, lanes);
  }

  /** Ask for all steps of a trace that has many; false if all are known. */
  async moreSteps() {
    if (this.steps.length >= Math.min(this.stepsCount, STEPS_MAX)) return false;
    this.takeSteps((await this.get({ bins: 1, lanes: 1, steps: STEPS_MAX }, parseExact)).tables);
    return true;
  }

  /** @param {Record<string, { columns: Column[], values: any[][] }>} tables */
  takeSteps(tables) {
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
   * Ask for tables; this cancels the question before.
   * @param {Question} question
   * @param {(text: string) => any} parse
   */
  async ask(question, parse) {
    this.asking?.abort();
    const asking = new AbortController();
    this.asking = asking;
    const { tables } = await this.get(question, parse, asking.signal);
    if (asking.signal.aborted) throw new DOMException("cancelled", "AbortError");
    return tables;
  }

  /**
   * @param {Question} question
   * @param {(text: string) => any} parse
   * @param {AbortSignal} [signal]
   */
  async get({ bins, lanes, steps, ...range }, parse, signal) {
    const wanted = { format: "columns", busiest: "trace", bins, tracks: lanes, steps_max: steps, ...range };
    const parameters = new URLSearchParams(Object.entries(wanted).map(([name, value]) => [name, String(value)]));
    const response = await send("GET", `${api("traces", this.id, "analysis", "overview")}?${parameters}`, { signal });
    return parse(await response.text());
  }

  /**
   * The time on the trace's own clock of a time since the start of the whole.
   * @param {number} time
   */
  at(time) {
    return this.start + BigInt(Math.round(time));
  }

  /**
   * The time since the start of the whole of a time on the trace's own clock.
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
const columnsOf = ({ columns, values }) => Object.fromEntries(columns.map(({ name }, place) => [name, values[place]]));

/**
 * Replace the values of bins by the sums before the edges of bins.
 * @param {Float64Array} values
 */
function addUp(values) {
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
