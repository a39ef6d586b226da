// Lines over a common axis, which is time or numbers, as of memory over time. Each line can be filled, and can hold its value until the next point.
import { chart } from "./chart.js";
import { exactTimeText, ticks, timeTicks } from "./scale.js";
import { svg } from "./svg.js";
import { hideTooltip, showTooltip } from "./tooltip.js";

/** @typedef {{ kind: string, label: string, points: { x: number, y: number }[] }} Line `points` are in the order of x */
/**
 * @typedef {{
 *   title: string, name: string, series: Line[], textOfX?: (x: number) => string, textOfY: (y: number) => string,
 *   isStepped?: boolean, isFilled?: boolean,
 * }} LinesParts without `textOfX`, x is a time in ns
 */

const HEIGHT = 180, LEFT = 74, RIGHT = 24, BOTTOM = 22, TOP = 8; // pixels

/** @param {LinesParts} parts */
export function lines({ title, name, series, textOfX, textOfY, isStepped = false, isFilled = false }) {
  const all = series.flatMap(({ points }) => points);
  const first = extreme(all, "x", Math.min, 0);
  const last = Math.max(extreme(all, "x", Math.max, first), first + 1);
  const atText = textOfX ?? exactTimeText(first, last);
  const least = Math.min(0, extreme(all, "y", Math.min, 0));
  const most = Math.max(extreme(all, "y", Math.max, 0), least + 1e-9);

  /** @param {number} width */
  function draw(width) {
    const plot = { width: width - LEFT - RIGHT, height: HEIGHT - TOP - BOTTOM };
    /** @param {number} value */
    const x = (value) => LEFT + ((value - first) / (last - first)) * plot.width;
    /** @param {number} value */
    const y = (value) => TOP + plot.height - ((value - least) / (most - least)) * plot.height;
    const wanted = Math.max(2, Math.floor(width / 160));
    const marked = textOfX ? ticks(last, wanted, first).map((value) => ({ time: value, text: textOfX(value) })) : timeTicks(last, wanted, first);
    const across = marked.map(({ time, text }) => svg("text", { x: x(time), y: HEIGHT - 6, "text-anchor": "middle" }, text));
    const up = ticks(most, 4).map((value) => svg("g", {}, svg("line", { x1: LEFT, x2: LEFT + plot.width, y1: y(value), y2: y(value) }), svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, textOfY(value))));
    const paths = series.map(({ kind, label, points }) => pathOf(points, { x, y, base: y(Math.max(0, least)) }, kind, label));
    const cursor = svg("line", { class: "cursor", y1: TOP, y2: TOP + plot.height, visibility: "hidden" });
    const surface = svg("rect", { x: LEFT, y: TOP, width: Math.max(0, plot.width), height: plot.height, fill: "transparent" });
    surface.addEventListener("pointermove", (event) => {
      const at = first + ((event.offsetX - LEFT) / plot.width) * (last - first);
      cursor.setAttribute("x1", String(event.offsetX));
      cursor.setAttribute("x2", String(event.offsetX));
      cursor.setAttribute("visibility", "visible");
      showTooltip(event, [atText(at), ...series.map(({ label, points }) => `${label}: ${valueAt(points, at, textOfY)}`)]);
    });
    surface.addEventListener("pointerleave", () => {
      cursor.setAttribute("visibility", "hidden");
      hideTooltip();
    });
    return svg("svg", { width, height: HEIGHT }, svg("g", { class: "tick", "aria-hidden": "true" }, up, across), paths, cursor, surface);
  }

  /**
   * @param {Line["points"]} points
   * @param {{ x: (value: number) => number, y: (value: number) => number, base: number }} scale
   * @param {string} kind
   * @param {string} label
   */
  function pathOf(points, { x, y, base }, kind, label) {
    const steps = points.map((point, index) => {
      const to = `${x(point.x).toFixed(1)},${y(point.y).toFixed(1)}`;
      if (index === 0) return `M${to}`;
      return isStepped ? `H${x(point.x).toFixed(1)}V${y(point.y).toFixed(1)}` : `L${to}`;
    });
    const line = svg("path", { class: `line ${kind}`, d: steps.join(""), "data-series": label, "data-points": points.length });
    if (!isFilled || points.length === 0) return line;
    const area = svg("path", { class: `area ${kind}`, d: `${steps.join("")}V${base}H${x(points[0].x).toFixed(1)}Z` });
    return svg("g", {}, area, line);
  }

  const summary = `${title}. ${series.map(({ label, points }) => `${label}: ${points.length} points`).join("; ")}.`;
  return chart({ title, name, series, summary, draw });
}

/**
 * @param {{ x: number, y: number }[]} points
 * @param {"x" | "y"} key
 * @param {(a: number, b: number) => number} choose
 * @param {number} none
 */
const extreme = (points, key, choose, none) => (points.length === 0 ? none : points.reduce((value, point) => choose(value, point[key]), points[0][key]));

/**
 * The value of the last point that is not after x.
 * @param {{ x: number, y: number }[]} points
 * @param {number} at
 * @param {(y: number) => string} text
 */
function valueAt(points, at, text) {
  let [low, high] = [0, points.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle].x <= at) low = middle + 1;
    else high = middle;
  }
  return low === 0 ? "–" : text(points[low - 1].y);
}
