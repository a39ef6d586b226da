// The visible range of the overview, in ns since the start of its whole, which is that of the first slice, and the ticks
// of its ruler. Its texts are times since the start of the trace, as everywhere on the page.

import { timeText, timeTicks } from "../charts/scale.js";

const SHORTEST = 50; // ns that can be visible

/** A range of the whole. */
export class View {
  /**
   * @param {number} length of the whole
   * @param {number} offset of its start from that of the trace
   */
  constructor(length, offset = 0) {
    this.length = Math.max(1, length);
    this.offset = offset;
    this.from = 0;
    this.to = this.length;
  }

  get span() {
    return this.to - this.from;
  }

  get isWhole() {
    return this.from === 0 && this.to === this.length;
  }

  /**
   * Show a range, or the nearest one that is in the whole.
   * @param {number} from
   * @param {number} to
   */
  show(from, to) {
    const span = Math.min(this.length, Math.max(Math.min(SHORTEST, this.length), to - from));
    const middle = (from + to) / 2;
    this.from = Math.max(0, Math.min(this.length - span, middle - span / 2));
    this.to = Math.min(this.length, this.from + span);
  }

  /**
   * Multiply the visible span, and keep a time at its place.
   * @param {number} factor
   * @param {number} around
   */
  zoom(factor, around) {
    const span = Math.min(this.length, Math.max(Math.min(SHORTEST, this.length), this.span * factor));
    const from = around - ((around - this.from) * span) / this.span;
    this.show(from, from + span);
  }

  /** @param {number} time by which to move */
  pan(time) {
    const by = Math.max(-this.from, Math.min(this.length - this.to, time));
    this.show(this.from + by, this.to + by);
  }

  whole() {
    this.show(0, this.length);
  }

  /**
   * A time as text, since the start of the trace.
   * @param {number} time
   * @param {number} step
   */
  text(time, step) {
    return timeText(time + this.offset, step);
  }

  /**
   * Visible times that are round since the start of the trace, about `count` of them, with their labels.
   * @param {number} count
   */
  ticks(count) {
    return timeTicks(this.to + this.offset, count, this.from + this.offset).map(({ time, text }) => ({ time: time - this.offset, text }));
  }
}
