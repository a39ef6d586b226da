// The times of thousands of ranks in each step, on one canvas: a row for each rank, a column for each step. It draws only
// the rows in view. The pointer and the arrow keys choose a cell.
import { el, setText } from "../dom.js";
import { duration, plural } from "../format.js";
import { hideTooltip, showTooltip } from "./tooltip.js";

/**
 * @typedef {{
 *   rows: { rank: string, host: string }[], columns: string[], values: Float64Array, over: Float64Array,
 * }} Grid
 * The times in ns, and how much they are over the median of their step in percent; row by row, NaN where there is none.
 * @typedef {"over" | "time"} Shade
 */

const ROW_MAX = 22, ROW_MIN = 3, TALLEST = 620, COLUMN_MAX = 60, LEFT = 72, BOTTOM = 22, LINE = 13, LETTER = 10, LABEL = 38; // pixels
const FAINTEST = 0.06; // opacity of the smallest value
const NEUTRAL_PCT = 1; // differences from the median that are no more than that are not colored
const LEAST_SCALE_PCT = 5;
const SCALE_QUANTILE = 0.995; // a few extreme cells must not make all others faint

export class StepGrid {
  /**
   * @param {Grid} grid
   * @param {{ label: string }} options
   */
  constructor(grid, { label }) {
    this.grid = grid;
    this.order = grid.rows.map((_, index) => index);
    /** @type {Shade} */
    this.shade = "over";
    /** @type {{ row: number, column: number } | null} */
    this.chosen = null;
    this.canvas = el("canvas", { tabindex: 0, role: "application", "aria-label": label, "aria-describedby": "step-grid-keys", "data-testid": "step-grid" });
    this.spacer = el("div", { "aria-hidden": "true" });
    this.scroller = el("div", { class: "step-grid" }, this.canvas, this.spacer);
    this.legend = el("span", { class: "small muted", "data-testid": "step-grid-legend" });
    this.said = el("span", { class: "small", role: "status", "data-testid": "step-grid-said" });
    const keys = el("span", { id: "step-grid-keys", class: "unseen" }, "Arrow keys, Home, End and Page keys choose a cell, which is read out.");
    this.element = el("div", {}, this.legend, this.scroller, this.said, keys);
    this.scroller.addEventListener("scroll", () => this.draw());
    this.canvas.addEventListener("pointermove", (event) => this.hovered(event));
    this.canvas.addEventListener("pointerleave", hideTooltip);
    this.canvas.addEventListener("keydown", (event) => this.pressed(event));
    this.canvas.addEventListener("blur", hideTooltip);
    new ResizeObserver(() => this.draw()).observe(this.scroller);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    this.scale = scaleOf(grid);
    this.showLegend();
  }

  /**
   * Show the rows in another order.
   * @param {number[]} order indices of rows
   */
  arrange(order) {
    this.order = order;
    this.chosen = null;
    this.scroller.scrollTop = 0;
    this.draw();
  }

  /** @param {Shade} shade */
  color(shade) {
    this.shade = shade;
    this.showLegend();
    this.draw();
  }

  get rowHeight() {
    return Math.max(ROW_MIN, Math.min(ROW_MAX, Math.floor(TALLEST / Math.max(1, this.order.length))));
  }

  get columnWidth() {
    return Math.min(COLUMN_MAX, (this.scroller.clientWidth - LEFT) / Math.max(1, this.grid.columns.length));
  }

  showLegend() {
    const { least, most, pct } = this.scale;
    const median = `Orange: slower than the median of the ranks in this step, by ${pct.toFixed(0)} % or more where the color is strongest; blue: faster.`;
    setText(this.legend, this.shade === "over" ? median : `The stronger the color, the longer: from ${duration(least)} to ${duration(most)}.`);
  }

  draw() {
    const { canvas, scroller, order, rowHeight } = this;
    const width = scroller.clientWidth;
    if (width === 0) return;
    const whole = order.length * rowHeight;
    const height = Math.min(TALLEST, whole);
    canvas.style.height = `${height + BOTTOM}px`;
    this.spacer.style.height = `${whole - height}px`;
    scroller.style.maxHeight = `${height + BOTTOM}px`;
    const ratio = devicePixelRatio;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round((height + BOTTOM) * ratio);
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    context.scale(ratio, ratio);
    const style = getComputedStyle(document.documentElement);
    const colors = { slower: style.getPropertyValue("--comm"), faster: style.getPropertyValue("--compute"), time: style.getPropertyValue("--accent"), text: style.getPropertyValue("--muted"), chosen: style.getPropertyValue("--text") };
    this.drawCells(context, height, colors);
    this.drawLabels(context, height, colors.text);
    canvas.dataset.rows = String(order.length);
    canvas.dataset.drawn = `${this.shade} ${this.firstRow}`;
  }

  get firstRow() {
    return Math.floor(this.scroller.scrollTop / this.rowHeight);
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {number} height
   * @param {{ slower: string, faster: string, time: string, chosen: string }} colors
   */
  drawCells(context, height, colors) {
    const { grid, order, rowHeight: tall, columnWidth: wide } = this;
    const gap = tall >= 6 ? 1 : 0;
    const between = wide >= 6 ? 1 : 0;
    const last = Math.min(order.length, this.firstRow + Math.ceil(height / tall));
    for (let place = this.firstRow; place < last; place += 1) {
      const y = (place - this.firstRow) * tall;
      for (let column = 0; column < grid.columns.length; column += 1) {
        const [color, opacity] = this.lookOf(order[place] * grid.columns.length + column, colors);
        if (opacity === 0) continue;
        context.fillStyle = color;
        context.globalAlpha = opacity;
        context.fillRect(LEFT + column * wide, y, Math.max(0.5, wide - between), tall - gap);
      }
    }
    context.globalAlpha = 1;
    if (this.chosen && this.chosen.row >= this.firstRow && this.chosen.row < last) {
      context.strokeStyle = colors.chosen;
      context.lineWidth = 2;
      context.strokeRect(LEFT + this.chosen.column * wide, (this.chosen.row - this.firstRow) * tall, Math.max(3, wide), tall);
    }
  }

  /**
   * The color and the opacity of a cell; 0 if there is none.
   * @param {number} index
   * @param {{ slower: string, faster: string, time: string }} colors
   * @returns {[string, number]}
   */
  lookOf(index, colors) {
    const value = this.grid.values[index];
    if (Number.isNaN(value)) return ["", 0];
    const { least, most, pct } = this.scale;
    if (this.shade === "time") return [colors.time, most > least ? FAINTEST + (1 - FAINTEST) * ((value - least) / (most - least)) : 0.5];
    const over = this.grid.over[index];
    if (!(Math.abs(over) > NEUTRAL_PCT)) return [colors.faster, FAINTEST];
    return [over > 0 ? colors.slower : colors.faster, Math.min(1, FAINTEST + (1 - FAINTEST) * (Math.abs(over) / pct))];
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {number} height
   * @param {string} color
   */
  drawLabels(context, height, color) {
    const { grid, order, rowHeight: tall, columnWidth: wide, firstRow } = this;
    context.fillStyle = color;
    context.font = `11.5px ${getComputedStyle(document.body).fontFamily}`;
    context.textAlign = "right";
    const everyRow = Math.ceil(LINE / tall);
    let free = 0; // where the next label has room
    for (let place = Math.ceil(firstRow / everyRow) * everyRow; place < order.length; place += everyRow) {
      const y = Math.max((place - firstRow + 0.5) * tall + 4, LETTER);
      if (y > height + 4) break;
      if (y >= free) context.fillText(`rank ${grid.rows[order[place]].rank}`, LEFT - 6, y);
      free = Math.max(free, y + LINE - 1);
    }
    context.textAlign = "center";
    const everyColumn = Math.ceil(LABEL / wide);
    for (let column = 0; column < grid.columns.length; column += everyColumn) context.fillText(grid.columns[column], LEFT + (column + 0.5) * wide, height + 15);
  }

  /** @param {PointerEvent} event */
  hovered(event) {
    const row = this.firstRow + Math.floor(event.offsetY / this.rowHeight);
    const column = Math.floor((event.offsetX - LEFT) / this.columnWidth);
    if (row >= this.order.length || column < 0 || column >= this.grid.columns.length || event.offsetY > this.canvas.clientHeight - BOTTOM) hideTooltip();
    else showTooltip(event, this.linesOf(row, column));
  }

  /**
   * What a cell is: its rank and host, its step, and its time.
   * @param {number} row
   * @param {number} column
   */
  linesOf(row, column) {
    const { rank, host } = this.grid.rows[this.order[row]];
    const index = this.order[row] * this.grid.columns.length + column;
    const [value, over] = [this.grid.values[index], this.grid.over[index]];
    const place = [`rank ${rank}${host ? ` on ${host}` : ""}`, `step ${this.grid.columns[column]}`];
    if (Number.isNaN(value)) return [...place, "not in the traces"];
    return [...place, duration(value), ...(Number.isNaN(over) ? [] : [over < 0 ? `${Math.abs(over).toPrecision(3)} % under the median of the step` : `${over.toPrecision(3)} % over the median of the step`])];
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    const { row, column } = this.chosen ?? { row: this.firstRow, column: -1 };
    const page = Math.max(1, Math.floor(TALLEST / this.rowHeight));
    /** @type {Record<string, [number, number]>} */
    const targets = {
      ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
      PageUp: [row - page, column], PageDown: [row + page, column], Home: [0, 0], End: [this.order.length - 1, this.grid.columns.length - 1],
    };
    const target = targets[event.key];
    if (!target || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const [nextRow, nextColumn] = [clamp(target[0], this.order.length), clamp(target[1], this.grid.columns.length)];
    this.chosen = { row: nextRow, column: nextColumn };
    const top = nextRow * this.rowHeight;
    const view = this.canvas.clientHeight - BOTTOM;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    else if (top + this.rowHeight > this.scroller.scrollTop + view) this.scroller.scrollTop = top + this.rowHeight - view;
    this.draw();
    const lines = this.linesOf(nextRow, nextColumn);
    setText(this.said, lines.join(", "));
    const { left, top: above } = this.canvas.getBoundingClientRect();
    showTooltip({ clientX: left + LEFT + (nextColumn + 1) * this.columnWidth, clientY: above + (nextRow - this.firstRow + 1) * this.rowHeight }, lines);
  }

  /** What screen readers read as the picture's summary. */
  get summary() {
    return `${plural(this.order.length, "rank")} and ${plural(this.grid.columns.length, "step")}, from ${duration(this.scale.least)} to ${duration(this.scale.most)}`;
  }
}

/**
 * @param {number} index
 * @param {number} length
 */
const clamp = (index, length) => Math.max(0, Math.min(index, length - 1));

/**
 * The smallest and the largest time, and the difference from the median that has the full color.
 * @param {Grid} grid
 */
function scaleOf({ values, over }) {
  let [least, most] = [Infinity, 0];
  for (const value of values) {
    if (value < least) least = value;
    if (value > most) most = value;
  }
  const sizes = over.filter((value) => !Number.isNaN(value)).map(Math.abs).sort();
  const pct = Math.max(LEAST_SCALE_PCT, sizes[Math.floor((sizes.length - 1) * SCALE_QUANTILE)] ?? 0);
  return { least: least === Infinity ? 0 : least, most, pct };
}
