// A strip of time: spans in the colors of their kinds, on one line.
import { chart } from "./chart.js";
import { exactTimeText, timeTicks } from "./scale.js";
import { svg } from "./svg.js";
import { hideTooltip, showTooltip } from "./tooltip.js";

/** @import { Series } from "./chart.js" */
/** @typedef {{ start: number, end: number, series: number, label: string }} Interval `series` is the index of its kind */

const HEIGHT = 34, AXIS = 20, RIGHT = 24, LEFT = 4; // pixels
const THINNEST = 0.3; // pixels

/**
 * Make the chart. Spans are in the order of time, in ns, and do not overlap.
 * @param {{ title: string, name: string, series: Series[], spans: Interval[], first: number, text: (value: number) => string }} parts
 */
export function strip({ title, name, series, spans, first, text }) {
  const end = spans.reduce((last, span) => Math.max(last, span.end), first);
  const timeText = exactTimeText(first, end);

  /** @param {number} width */
  function draw(width) {
    const scale = (width - LEFT - RIGHT) / Math.max(end - first, 1);
    /** @param {number} time */
    const x = (time) => LEFT + (time - first) * scale;
    const axis = timeTicks(end, Math.max(2, Math.floor(width / 120)), first).map(({ time, text: label }) => svg("g", {}, svg("line", { x1: x(time), x2: x(time), y1: 0, y2: HEIGHT + 4 }), svg("text", { x: x(time), y: HEIGHT + 17, "text-anchor": "middle" }, label)));
    const paths = series.map(({ kind, label }, index) => {
      const own = spans.filter((span) => span.series === index);
      const d = own.map(({ start, end: last }) => `M${x(start).toFixed(2)},0h${Math.max(THINNEST, (last - start) * scale).toFixed(2)}v${HEIGHT}H${x(start).toFixed(2)}z`).join("");
      const value = own.reduce((sum, { start, end: last }) => sum + last - start, 0);
      return svg("path", { class: kind, d, "data-series": label, "data-value": value, "data-marks": own.length });
    });
    const surface = svg("rect", { x: LEFT, y: 0, width: Math.max(0, width - LEFT - RIGHT), height: HEIGHT, fill: "transparent" });
    surface.addEventListener("pointermove", (event) => {
      const at = first + (event.offsetX - LEFT) / scale;
      const span = spanAt(spans, at);
      showTooltip(event, span ? [span.label, `${series[span.series].label}, ${text(span.end - span.start)}`, `at ${timeText(span.start)}`] : [timeText(at), "no listed part of the path"]);
    });
    surface.addEventListener("pointerleave", hideTooltip);
    return svg("svg", { width, height: HEIGHT + AXIS }, svg("g", { class: "tick", "aria-hidden": "true" }, axis), svg("rect", { class: "ground", x: LEFT, y: 0, width: Math.max(0, width - LEFT - RIGHT), height: HEIGHT }), paths, surface);
  }

  return chart({ title, name, series, summary: `${title}. ${spans.length} spans of ${series.map(({ label }) => label).join(", ")}; the table has the values.`, draw });
}

/**
 * The last span that starts before a time, if it lasts until then.
 * @param {Interval[]} spans
 * @param {number} at
 */
function spanAt(spans, at) {
  let [low, high] = [0, spans.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans[middle].start <= at) low = middle + 1;
    else high = middle;
  }
  return low > 0 && spans[low - 1].end >= at ? spans[low - 1] : null;
}
