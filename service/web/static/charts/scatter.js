// Points over two axes; the axes can be logarithmic.
import { plural } from "../format.js";
import { chart } from "./chart.js";
import { exactTimeText, powers, ticks, timeTicks } from "./scale.js";
import { svg } from "./svg.js";
import { withTooltip } from "./tooltip.js";

/** @import { Series } from "./chart.js" */
/** @typedef {{ x: number, y: number, series: number, label: string }} Point */
/** @typedef {{ text?: (value: number) => string, name: string, isLogarithmic?: boolean }} Axis without `text`, its values are times in ns */

const HEIGHT = 220, LEFT = 82, RIGHT = 28, TOP = 8, BOTTOM = 40; // pixels
const RADIUS = 3; // pixels

/**
 * Make the chart. Points that a logarithmic axis cannot show are left out, and the title counts them.
 * @param {{ title: string, name: string, series: Series[], points: Point[], x: Axis, y: Axis }} parts
 */
export function scatter({ title, name, series, points, x, y }) {
  const shown = points.filter((point) => (!x.isLogarithmic || point.x > 0) && (!y.isLogarithmic || point.y > 0));
  const left = points.length - shown.length;
  const heading = left > 0 ? `${title} (without ${plural(left, "value")} of 0, which the scale cannot show)` : title;

  /** @param {number} width */
  function draw(width) {
    const across = scaleOf(shown.map((point) => point.x), x, LEFT, width - RIGHT, Math.floor(width / 120));
    const up = scaleOf(shown.map((point) => point.y), y, HEIGHT - BOTTOM, TOP, 4);
    const grid = [
      ...across.ticks.map(({ value, label }) => svg("g", {}, svg("line", { x1: across.at(value), x2: across.at(value), y1: TOP, y2: HEIGHT - BOTTOM }), svg("text", { x: across.at(value), y: HEIGHT - BOTTOM + 15, "text-anchor": "middle" }, label))),
      ...up.ticks.map(({ value, label }) => svg("g", {}, svg("line", { x1: LEFT, x2: width - RIGHT, y1: up.at(value), y2: up.at(value) }), svg("text", { x: LEFT - 6, y: up.at(value) + 4, "text-anchor": "end" }, label))),
      svg("text", { x: (LEFT + width - RIGHT) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, x.name),
    ];
    const marks = shown.map((point) => {
      const { kind, label } = series[point.series];
      const mark = svg("circle", { class: `${kind} point`, cx: across.at(point.x).toFixed(1), cy: up.at(point.y).toFixed(1), r: RADIUS, "data-series": label, "data-x": point.x, "data-value": point.y });
      return withTooltip(mark, () => [point.label, `${x.name}: ${across.text(point.x)}`, `${y.name}: ${up.text(point.y)}`]);
    });
    return svg("svg", { width, height: HEIGHT }, svg("g", { class: "tick", "aria-hidden": "true" }, grid), marks);
  }

  return chart({ title: heading, name, series, summary: `${heading}. ${shown.length} points: ${y.name} over ${x.name}; the table has the values.`, draw });
}

/**
 * @param {number[]} values
 * @param {Axis} axis
 * @param {number} from pixels
 * @param {number} to pixels
 * @param {number} wanted number of ticks
 */
function scaleOf(values, { text, isLogarithmic = false }, from, to, wanted) {
  const count = Math.max(2, wanted);
  if (!text) return timeScaleOf(values, from, to, count);
  const most = values.reduce((a, b) => Math.max(a, b), isLogarithmic ? 1e-9 : 0) || 1;
  if (!isLogarithmic) return { at: (/** @type {number} */ value) => from + (value / most) * (to - from), ticks: ticks(most, count).map((value) => ({ value, label: text(value) })), text };
  const least = values.reduce((a, b) => Math.min(a, b), most);
  const [low, high] = [Math.floor(Math.log10(least)), Math.max(Math.ceil(Math.log10(most)), Math.floor(Math.log10(least)) + 1)];
  return { at: (/** @type {number} */ value) => from + ((Math.log10(value) - low) / (high - low)) * (to - from), ticks: powers(low, high, count).map((value) => ({ value, label: text(value) })), text };
}

/**
 * @param {number[]} times
 * @param {number} from pixels
 * @param {number} to pixels
 * @param {number} wanted number of ticks
 */
function timeScaleOf(times, from, to, wanted) {
  const first = times.reduce((a, b) => Math.min(a, b), times[0] ?? 0);
  const last = times.reduce((a, b) => Math.max(a, b), first + 1);
  return {
    at: (/** @type {number} */ time) => from + ((time - first) / (last - first)) * (to - from),
    ticks: timeTicks(last, wanted, first).map(({ time, text }) => ({ value: time, label: text })),
    text: exactTimeText(first, last),
  };
}
