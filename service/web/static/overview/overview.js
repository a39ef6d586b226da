// The overview of a trace: all of it on one canvas. Mouse and keys zoom, move, and choose a window.
import { reasonAgainst } from "../answer.js";
import { Problem } from "../api.js";
import { byId, el, setText } from "../dom.js";
import { count, duration, plural } from "../format.js";
import { hideProblem, showProblem } from "../problem.js";
import { draw, headOf, heightOf, leftOf } from "./draw.js";
import { FrameSource } from "./frame.js";
import { startKeys } from "./keys.js";
import { LanesTable } from "./lanes_table.js";
import { Pointer } from "./pointer.js";
import { rowsOf } from "./rows.js";
import { startToolbar } from "./toolbar.js";
import { View } from "./view.js";
import { chooseWindow, chosenWindow, onWindowChange, putVisibleIntoAddress, visibleInAddress } from "./window.js";

/** @import { Frame } from "./frame.js" */
/** @import { Row } from "./draw.js" */
/** @typedef {Record<"in" | "out" | "left" | "right" | "whole", () => void>} Acts what moves the visible range */

const LANES = [16, 64, 256, 1000]; // lanes after each click on "more"
const LONGEST_HEIGHT = 560; // pixels of the canvas; further lanes scroll
const MARGIN = 0.5; // of the visible range that is asked for on each side of it
const KEY_ZOOM = 0.6;
const KEY_PAN = 0.15; // of the visible range
const SETTLED_MS = 250; // pause after which the address has the visible range

const LEGEND = [
  ["compute", "computing"], ["comm", "communication"], ["mem", "copies"], ["host", "host threads"], ["c5", "launches"], ["c3", "allocated memory"],
];

/**
 * Show the overview of a ready trace.
 * @param {Trace} trace
 */
export async function startOverview(trace) {
  byId("overview").hidden = false;
  const overview = new Overview(trace);
  await overview.start();
}

export class Overview {
  /** @param {Trace} trace */
  constructor(trace) {
    this.trace = trace;
    this.source = new FrameSource(trace);
    this.canvas = byId("overview-canvas");
    this.scroller = byId("overview-scroll");
    this.view = new View(1);
    /** @type {Frame | null} */
    this.frame = null;
    /** @type {Row[]} */
    this.rows = [];
    this.lanes = LANES[0];
    this.width = 0;
    /** @type {{ from: number, to: number } | null} */
    this.chosen = null;
    /** @type {number | null} */
    this.pointer = null;
    this.isDrawing = false;
    /** @type {{ from: number, to: number, bins: number, lanes: number } | null} */
    this.asked = null;
    this.settling = 0;
    this.table = new LanesTable(this);
  }

  async start() {
    this.width = Math.floor(this.scroller.clientWidth);
    try {
      const reason = await reasonAgainst(this.trace, "overview");
      if (reason !== null) {
        this.showEmpty(reason);
        return;
      }
      const frame = await this.source.whole(this.columns, this.lanes);
      const { start, length } = this.source;
      this.view = new View(length, this.trace.bounds ? Number(start - BigInt(this.trace.bounds.start_ns)) : 0);
      const visible = visibleInAddress();
      if (visible) this.view.show(this.source.since(visible.start_ns), this.source.since(visible.end_ns));
      this.receive(frame);
    } catch (error) {
      this.showFault(error);
      return;
    }
    this.takeChosen(chosenWindow());
    this.wire();
    startToolbar(this.trace);
    this.changed();
    try {
      if (await this.source.moreSteps()) this.redraw();
    } catch (error) {
      this.showFault(error);
    }
  }

  /** The number of columns of pixels. */
  get columns() {
    return Math.max(1, this.width - leftOf(this.width));
  }

  /** @param {Frame} frame */
  receive(frame) {
    this.frame = frame;
    this.rows = rowsOf(frame, this.trace);
    const kinds = new Set(frame.lanes.map(({ lane }) => lane.kind));
    const shown = LEGEND.filter(([kind]) => ({ host: kinds.has("thread"), c5: frame.launches[frame.bins] > 0 || !this.view.isWhole, c3: frame.curves.length > 0 })[kind] ?? kinds.has("stream"));
    byId("overview-legend").replaceChildren(...shown.map(([kind, label]) => el("li", {}, el("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), label)));
    const more = byId("overview-more");
    const next = LANES.find((lanes) => lanes > this.lanes);
    const hidden = frame.tracks - frame.lanes.length;
    more.hidden = hidden <= 0 || next === undefined;
    setText(more, next !== undefined && frame.tracks > next ? `${count(next - this.lanes)} more lanes of ${count(hidden)}` : `${plural(hidden, "more lane")}`);
    byId("overview-fewer").hidden = this.lanes === LANES[0];
    setText(byId("overview-said"), hidden > 0 && next === undefined ? `The busiest ${count(frame.lanes.length)} of ${count(frame.tracks)} lanes` : "");
    Object.assign(this.canvas, { overview: this }); // for tests
    this.redraw();
  }

  redraw() {
    if (this.isDrawing) return;
    this.isDrawing = true;
    requestAnimationFrame(() => {
      this.isDrawing = false;
      this.drawNow();
    });
  }

  drawNow() {
    const { frame, source, view, rows, chosen, pointer, width } = this;
    if (!frame || width === 0) return;
    const whole = headOf(source, frame) + heightOf(rows);
    const height = Math.min(LONGEST_HEIGHT, whole);
    this.canvas.style.height = `${height}px`;
    byId("overview-spacer").style.height = `${whole - height}px`;
    draw(this.canvas, { frame, source, view, rows, width, height, scroll: this.scroller.scrollTop, chosen, pointer });
    const range = byId("overview-range");
    setText(range, view.isWhole ? `all ${duration(Math.round(view.length))}` : `${duration(Math.round(view.span))} from ${view.text(view.from, view.span / 100)}`);
    range.title = `${source.at(view.from)} to ${source.at(view.to)} ns on the trace's clock`;
    Object.assign(this.canvas.dataset, { drawn: `${frame.from}/${frame.to}`, steps: source.steps.length });
  }

  /** Draw the visible range from what is there, and ask for more if needed. */
  changed() {
    this.redraw();
    this.ask();
    clearTimeout(this.settling);
    this.settling = setTimeout(() => {
      const { view, source } = this;
      putVisibleIntoAddress(view.isWhole ? null : { start_ns: source.at(view.from), end_ns: source.at(view.to) });
      this.table.update();
    }, SETTLED_MS);
  }

  /** Whether a range of data is fine enough and has all that is visible. */
  suffices(/** @type {{ from: number, to: number, bins: number } | null} */ data) {
    if (!data) return false;
    const { view } = this;
    const columns = data.bins * (view.span / (data.to - data.from));
    const slack = view.span * MARGIN * 0.3;
    const hasBefore = data.from <= Math.max(0, view.from - slack);
    return hasBefore && data.to >= Math.min(view.length, view.to + slack) && columns >= this.columns * 0.95 && columns <= this.columns * 4;
  }

  async ask() {
    const { view, lanes } = this;
    if (this.frame && this.suffices(this.frame) && this.frame.lanes.length >= Math.min(lanes, this.frame.tracks)) return;
    if (this.asked && this.asked.lanes === lanes && overlaps(this.asked, view)) return; // asks again when it has arrived
    const margin = view.isWhole ? 0 : view.span * MARGIN;
    const [from, to] = [Math.max(0, Math.floor(view.from - margin)), Math.min(view.length, Math.ceil(view.to + margin))];
    const bins = Math.max(1, Math.min(Math.round((this.columns * (to - from)) / view.span), to - from));
    const asked = { from, to, bins, lanes };
    this.asked = asked;
    try {
      const frame = await this.source.range(from, to, bins, lanes);
      this.asked = null;
      hideProblem(byId("overview-problem"));
      this.receive(frame);
      if (!this.suffices(asked)) this.ask();
    } catch (error) {
      if (error.name === "AbortError") return;
      this.asked = null;
      this.showFault(error);
    }
  }

  /** @param {any} error */
  showFault(error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Problem)) throw error;
    showProblem(byId("overview-problem"), error);
    if (!this.frame) byId("overview-body").hidden = true;
  }

  /** @param {string} reason */
  showEmpty(reason) {
    byId("overview-body").hidden = true;
    byId("overview-empty").hidden = false;
    setText(byId("overview-empty"), reason);
  }

  // -- the chosen window ---------------------------------------------------------------------------------------------------

  /** @param {import("./window.js").TraceWindow | null} window */
  takeChosen(window) {
    const { source } = this;
    this.chosen = window && { from: source.since(window.start_ns), to: source.since(window.end_ns) };
    this.redraw();
  }

  /**
   * Choose a window of the whole, to the nanosecond.
   * @param {number} from
   * @param {number} to
   */
  choose(from, to) {
    const [first, last] = [Math.max(0, Math.round(from)), Math.min(this.view.length, Math.max(Math.round(to), Math.round(from) + 1))];
    if (last > first) chooseWindow({ start_ns: this.source.at(first), end_ns: this.source.at(last) });
  }

  /**
   * Choose the step before or after the chosen window.
   * @param {1 | -1} direction
   */
  chooseStep(direction) {
    const { steps } = this.source;
    const { from, to } = this.chosen ?? (direction > 0 ? { from: this.view.from, to: this.view.from } : { from: this.view.to, to: this.view.to });
    const step = direction > 0 ? steps.find((other) => other.from >= to) : steps.findLast((other) => other.to <= from);
    if (!step) return;
    chooseWindow({ start_ns: BigInt(step.start_ns), end_ns: BigInt(step.end_ns) });
    this.reveal(step.from, step.to);
  }

  /**
   * Move the visible range so that it has a window, if that is not longer.
   * @param {number} from
   * @param {number} to
   */
  reveal(from, to) {
    const { view } = this;
    if (from >= view.from && to <= view.to) return;
    if (to - from > view.span) view.show(from - (to - from) * 0.1, to + (to - from) * 0.1);
    else view.pan(from < view.from ? from - view.from : to - view.to);
    this.changed();
  }

  wire() {
    const { canvas, view } = this;
    const middle = () => (this.chosen && this.chosen.to > view.from && this.chosen.from < view.to ? (this.chosen.from + this.chosen.to) / 2 : (view.from + view.to) / 2);
    /** @param {() => void} act */
    const acting = (act) => () => {
      act();
      this.changed();
    };
    const acts = {
      in: acting(() => view.zoom(KEY_ZOOM, middle())),
      out: acting(() => view.zoom(1 / KEY_ZOOM, middle())),
      left: acting(() => view.pan(-view.span * KEY_PAN)),
      right: acting(() => view.pan(view.span * KEY_PAN)),
      whole: acting(() => view.whole()),
    };
    for (const [name, act] of Object.entries(acts)) byId(`overview-${name}`).addEventListener("click", act);
    byId("overview-more").addEventListener("click", () => this.showLanes(LANES.find((lanes) => lanes > this.lanes) ?? this.lanes));
    byId("overview-fewer").addEventListener("click", () => this.showLanes(LANES[0]));
    byId("overview-clear").addEventListener("click", () => {
      chooseWindow(null);
      canvas.focus();
    });
    byId("overview-zoom").addEventListener("click", () => {
      if (!this.chosen) return;
      const { from, to } = this.chosen;
      view.show(from - (to - from) * 0.05, to + (to - from) * 0.05);
      this.changed();
    });
    canvas.addEventListener("dblclick", acts.whole);
    new Pointer(this);
    startKeys(this, acts);
    this.scroller.addEventListener("scroll", () => this.redraw());
    onWindowChange((window) => this.takeChosen(window));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    new ResizeObserver(() => {
      const width = Math.floor(this.scroller.clientWidth);
      if (width === this.width || width === 0) return;
      this.width = width;
      this.changed();
    }).observe(this.scroller);
  }

  /** @param {number} lanes */
  showLanes(lanes) {
    this.lanes = lanes;
    if (this.frame && this.frame.lanes.length > lanes) this.frame.lanes.length = lanes;
    this.asked = null;
    this.askAnew();
    this.table.update();
  }

  async askAnew() {
    const { view, lanes } = this;
    try {
      this.receive(await this.source.range(Math.floor(view.from), Math.ceil(view.to), Math.min(this.columns, Math.ceil(view.span)), lanes));
    } catch (error) {
      this.showFault(error);
    }
  }
}

/**
 * @param {{ from: number, to: number }} range
 * @param {{ from: number, to: number }} other
 */
const overlaps = (range, other) => range.to > other.from && range.from < other.to && (range.to - range.from) / (other.to - other.from) < 8 && (other.to - other.from) / (range.to - range.from) < 4;
