// Distributions: a line from the minimum to the maximum, a box of the middle half, and a mark at the median, on a logarithmic axis.
import { chart } from "./chart.js";
import { powers } from "./scale.js";
import { svg } from "./svg.js";
import { withTooltip } from "./tooltip.js";

/** @typedef {{ label: string, kind: string, count: Int, min: number, p25: number, p50: number, p75: number, max: number, mean: number }} Distribution */

const ROW = 30, BOX = 14, AXIS = 22, RIGHT = 30; // pixels
const LABEL_SHARE = 0.3; // of the width, at most
const CHARACTER = 6.9; // pixels

/**
 * Make the chart. Values below `least` are drawn at it.
 * @param {{ title: string, name: string, rows: Distribution[], text: (value: number) => string, least?: number }} parts
 */
export function boxPlot({ title, name, rows, text, least = 1 }) {
  const values = rows.flatMap(({ min, max }) => [Math.max(min, least), Math.max(max, least)]);
  const low = Math.floor(Math.log10(values.reduce((a, b) => Math.min(a, b), Infinity)));
  const high = Math.max(low + 1, Math.ceil(Math.log10(values.reduce((a, b) => Math.max(a, b), least))));
  const longest = Math.max(0, ...rows.map(({ label }) => label.length));

  /** @param {number} width */
  function draw(width) {
    const left = Math.min(longest * CHARACTER + 12, width * LABEL_SHARE);
    const x = (/** @type {number} */ value) => left + ((Math.log10(Math.max(value, least)) - low) / (high - low)) * (width - left - RIGHT);
    const height = rows.length * ROW;
    const axis = powers(low, high, Math.floor(width / 90)).map((value) => svg("g", {}, svg("line", { x1: x(value), x2: x(value), y1: 0, y2: height }), svg("text", { x: x(value), y: height + 15, "text-anchor": "middle" }, text(value))));
    const marks = rows.map((row, index) => {
      const middle = index * ROW + ROW / 2;
      const box = svg("rect", { class: row.kind, x: x(row.p25), y: middle - BOX / 2, width: Math.max(1, x(row.p75) - x(row.p25)), height: BOX, "data-bar": row.label, "data-value": row.p50, "data-min": row.min, "data-max": row.max, "data-count": row.count });
      const whisker = svg("line", { class: "whisker", x1: x(row.min), x2: x(row.max), y1: middle, y2: middle });
      const median = svg("line", { class: "median", x1: x(row.p50), x2: x(row.p50), y1: middle - BOX / 2 - 3, y2: middle + BOX / 2 + 3 });
      const label = svg("text", { x: left - 6, y: middle + 4, "text-anchor": "end" }, row.label);
      return withTooltip(svg("g", {}, label, whisker, box, median), () => [row.label, `median ${text(row.p50)}, mean ${text(row.mean)}`, `half of all from ${text(row.p25)} to ${text(row.p75)}`, `all from ${text(row.min)} to ${text(row.max)}`]);
    });
    return svg("svg", { width, height: height + AXIS }, svg("g", { class: "tick", "aria-hidden": "true" }, axis), marks);
  }

  return chart({ title, name, summary: `${title}. ${rows.map(({ label, p50 }) => `${label}: median ${text(p50)}`).join("; ")}.`, draw });
}
