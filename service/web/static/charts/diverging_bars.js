// Bars to both sides of zero: what shrank on the left, what grew on the right.
import { chart } from "./chart.js";
import { CHARACTER, cutLabels } from "./labels.js";
import { ticks } from "./scale.js";
import { svg } from "./svg.js";
import { withTooltip } from "./tooltip.js";

/** @import { Series } from "./chart.js" */
/**
 * @typedef {{
 *   label: string, value: number, kind: string, text: string, note: string[], href?: string, data?: Record<string, any>,
 * }} DivergingBar `text` is the value as people read it, `note` has the lines of the tooltip, and `data` further `data-` attributes
 */

const ROW = 22, BAR = 15, AXIS = 22; // pixels
const VALUE = 78; // pixels for the text at the end of a bar
const TICK = 18; // pixels for half of the last label of the axis
const LABEL_SHARE = 0.38; // of the width, at most
const NARROW = 560; // pixels, below which labels are above their bars
const NARROW_ROW = 40;

/**
 * Make the chart. Bars have the given order.
 * @param {{ title: string, name: string, series: Series[], bars: DivergingBar[], text: (value: number) => string }} parts
 */
export function divergingBars({ title, name, series, bars, text }) {
  const values = bars.map(({ value }) => value);
  const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
  const longest = Math.max(0, ...bars.map(({ label }) => label.length));

  /** @param {number} width */
  function draw(width) {
    const isNarrow = width < NARROW;
    const row = isNarrow ? NARROW_ROW : ROW;
    const labels = isNarrow ? 0 : Math.min(longest * CHARACTER + 10, width * LABEL_SHARE);
    const room = width - labels - (low < 0 ? VALUE : 0) - (high > 0 ? VALUE : TICK);
    const scale = Math.max(1, room) / (high - low || 1);
    const zero = labels + (low < 0 ? VALUE : 0) - low * scale;
    const height = bars.length * row;
    const cut = cutLabels(bars.map(({ label }) => label), isNarrow ? width : labels);
    const marks = bars.map((bar, index) => barOf(bar, { top: index * row, row, isNarrow, zero, scale, labels, shown: cut[index] }));
    return svg("svg", { width, height: height + AXIS }, svg("g", { "aria-hidden": "true" }, axis(zero, scale, height), svg("line", { class: "zero", x1: zero, x2: zero, y1: 0, y2: height })), marks);
  }

  /**
   * @param {number} zero
   * @param {number} scale
   * @param {number} height
   */
  function axis(zero, scale, height) {
    const steps = ticks(Math.max(-low, high), 4);
    const places = [...steps.map((value) => -value).reverse(), ...steps.slice(1)].filter((value) => value >= low && value <= high);
    const isCrowded = places.length > 1 && (places[1] - places[0]) * scale < VALUE;
    return places.map((value, index) => {
      const x = zero + value * scale;
      const label = isCrowded && value !== 0 && index !== 0 && index !== places.length - 1 ? null : svg("text", { x, y: height + 15, "text-anchor": "middle" }, text(value));
      return svg("g", { class: "tick" }, svg("line", { x1: x, x2: x, y1: 0, y2: height }), label);
    });
  }

  const summary = `${title}. ${bars.length} bars: ${bars.slice(0, 5).map(({ label, text: words }) => `${label} ${words}`).join("; ")}. The table has all values.`;
  return chart({ title, name, series, summary, draw });
}

/**
 * @param {DivergingBar} bar
 * @param {{ top: number, row: number, isNarrow: boolean, zero: number, scale: number, labels: number, shown: string }} place `shown` is the label, cut
 */
function barOf(bar, { top, row, isNarrow, zero, scale, labels, shown }) {
  const y = top + row - (ROW - BAR) / 2 - BAR;
  const length = Math.abs(bar.value) * scale;
  const x = bar.value < 0 ? zero - length : zero;
  const data = Object.fromEntries(Object.entries(bar.data ?? {}).map(([key, value]) => [`data-${key}`, value]));
  const mark = svg("rect", { class: bar.kind, x, y, width: Math.max(length, bar.value === 0 ? 0 : 1), height: BAR, "data-bar": bar.label, "data-value": bar.value, ...data });
  const label = isNarrow
    ? svg("text", { x: 0, y: top + 15, class: "label" }, shown)
    : svg("text", { x: labels - 6, y: y + BAR - 3, "text-anchor": "end", class: "label" }, shown);
  const end = bar.value < 0 ? { x: x - 5, "text-anchor": "end" } : { x: x + length + 5, "text-anchor": "start" };
  const content = [label, mark, svg("text", { ...end, y: y + BAR - 3, class: "value" }, bar.text)];
  for (const part of content) withTooltip(part, () => [bar.label, ...bar.note]);
  return bar.href ? svg("a", { href: bar.href }, content) : svg("g", {}, content);
}
