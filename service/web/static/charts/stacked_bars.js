// Horizontal bars, each divided into parts: one bar for each step, rank, device or stream.
import { chart } from "./chart.js";
import { CHARACTER, cutLabels } from "./labels.js";
import { ticks } from "./scale.js";
import { svg } from "./svg.js";
import { withTooltip } from "./tooltip.js";

/** @import { Series } from "./chart.js" */
/**
 * @typedef {{ label: string, values: (Int | null)[], href?: string, note?: string }} Bar `values` are those of the series
 */

const ROW = 22, BAR = 15, AXIS = 22, RIGHT = 24; // pixels; the last label of the axis needs room on the right
const LABEL_SHARE = 0.3; // of the width, at most

/**
 * Make the chart. The values of a bar are drawn from left to right in the order of the series; null is not drawn.
 * @param {{ title: string, name: string, series: Series[], bars: Bar[], text: (value: Int) => string }} parts
 */
export function stackedBars({ title, name, series, bars, text }) {
  const sums = bars.map(({ values }) => values.reduce((/** @type {number} */ sum, value) => sum + Number(value ?? 0), 0));
  const end = Math.max(0, ...sums) || 1;
  const axis = ticks(end);
  const longest = Math.max(0, ...bars.map(({ label }) => label.length));

  /** @param {number} width */
  function draw(width) {
    const left = Math.min(longest * CHARACTER + 10, width * LABEL_SHARE);
    const scale = (width - left - RIGHT) / end;
    const height = bars.length * ROW;
    const grid = axis.map((value) => {
      const x = left + value * scale;
      return svg("g", { class: "tick" }, svg("line", { x1: x, x2: x, y1: 0, y2: height }), svg("text", { x, y: height + 15, "text-anchor": "middle" }, text(value)));
    });
    const labels = cutLabels(bars.map(({ label }) => label), left);
    return svg("svg", { width, height: height + AXIS }, svg("g", { "aria-hidden": "true" }, grid), bars.map((bar, index) => row(bar, index, labels[index], left, scale)));
  }

  /**
   * @param {Bar} bar
   * @param {number} index
   * @param {string} shown the label, cut
   * @param {number} left
   * @param {number} scale
   */
  function row(bar, index, shown, left, scale) {
    const y = index * ROW + (ROW - BAR) / 2;
    let x = left;
    const marks = bar.values.map((value, position) => {
      if (value === null) return null;
      const { kind, label } = series[position];
      const length = Number(value) * scale;
      const mark = svg("rect", { class: kind, x, y, width: length, height: BAR, "data-bar": bar.label, "data-series": label, "data-value": value });
      x += length;
      return withTooltip(mark, () => [`${bar.label}: ${label}`, text(value), bar.note ?? null].filter((line) => line !== null));
    });
    const label = withTooltip(svg("text", { x: left - 6, y: y + BAR - 3, "text-anchor": "end", class: "label" }, shown), () => bar.label);
    const content = [label, ...marks.filter((mark) => mark !== null)];
    return bar.href ? svg("a", { href: bar.href }, content) : svg("g", {}, content);
  }

  const summary = `${title}. ${bars.length} bars of ${series.map(({ label }) => label).join(", ")}; the table has the values.`;
  return chart({ title, name, series, summary, draw });
}
