// A treemap: one tile for each part of a whole, with an area in proportion to its value.
import { chart } from "./chart.js";
import { nameOf } from "./labels.js";
import { svg } from "./svg.js";
import { withTooltip } from "./tooltip.js";

/** @import { Series } from "./chart.js" */
/** @typedef {{ label: string, series: number, value: Int, note?: string }} Part `series` is the index of its color */
/** @typedef {{ x: number, y: number, width: number, height: number }} Area */

const HEIGHT = 260, LINE = 16, CHARACTER = 7; // pixels
const LABEL_MIN = { width: 44, height: 20 }; // pixels of a tile that has a label

/**
 * Make the chart. Parts without a value are left out.
 * @param {{ title: string, name: string, series: Series[], parts: Part[], text: (value: Int) => string }} options
 */
export function treemap({ title, name, series, parts, text }) {
  const shown = parts.filter(({ value }) => Number(value) > 0).sort((a, b) => Number(b.value) - Number(a.value));
  const total = shown.reduce((sum, { value }) => sum + Number(value), 0);

  /** @param {number} width */
  function draw(width) {
    const areas = squarify(shown.map(({ value }) => Number(value) / total), { x: 0, y: 0, width, height: HEIGHT });
    return svg("svg", { width, height: HEIGHT }, shown.map((part, index) => tile(part, areas[index])));
  }

  /**
   * @param {Part} part
   * @param {Area} area
   */
  function tile(part, { x, y, width, height }) {
    const { kind, label } = series[part.series];
    const mark = svg("rect", { class: kind, x, y, width: Math.max(0.5, width - 1), height: Math.max(0.5, height - 1), "data-bar": part.label, "data-series": label, "data-value": part.value });
    const hasLabel = width >= LABEL_MIN.width && height >= LABEL_MIN.height;
    const share = `${((100 * Number(part.value)) / total).toFixed(1)} %`;
    const words = hasLabel ? [svg("text", { x: x + 5, y: y + LINE }, fitting(nameOf(part.label), width)), height >= 2 * LINE + 6 && svg("text", { x: x + 5, y: y + 2 * LINE, class: "value" }, fitting(text(part.value), width))] : [];
    const lines = [part.label, `${text(part.value)}, ${share} of all`, label, ...(part.note ? [part.note] : [])];
    return withTooltip(svg("g", { class: "tile" }, mark, words.filter((word) => word !== false)), () => lines);
  }

  const summary = `${title}. ${shown.length} parts; the largest is ${shown[0]?.label ?? "none"}.`;
  return chart({ title, name, series, summary, draw });
}

/**
 * Divide an area into parts of the given shares, in rows along its shorter side, so that the tiles are nearly square.
 * @param {number[]} shares in descending order; their sum is 1
 * @param {Area} area
 * @returns {Area[]}
 */
function squarify(shares, area) {
  const scale = area.width * area.height;
  const areas = [];
  let rest = area;
  for (let first = 0; first < shares.length; ) {
    const side = Math.min(rest.width, rest.height);
    let last = first + 1;
    let sum = shares[first] * scale;
    while (last < shares.length && worst(shares[first], shares[last], sum + shares[last] * scale, side, scale) <= worst(shares[first], shares[last - 1], sum, side, scale)) sum += shares[last++] * scale;
    const thickness = side > 0 ? sum / side : 0;
    const isColumn = rest.width >= rest.height;
    let at = 0;
    for (const share of shares.slice(first, last)) {
      const length = thickness > 0 ? (share * scale) / thickness : 0;
      areas.push(isColumn ? { x: rest.x, y: rest.y + at, width: thickness, height: length } : { x: rest.x + at, y: rest.y, width: length, height: thickness });
      at += length;
    }
    rest = isColumn
      ? { ...rest, x: rest.x + thickness, width: Math.max(0, rest.width - thickness) }
      : { ...rest, y: rest.y + thickness, height: Math.max(0, rest.height - thickness) };
    first = last;
  }
  return areas;
}

/**
 * The worst ratio of sides in a row of tiles.
 * @param {number} largest share of the whole
 * @param {number} smallest share of the whole
 * @param {number} sum pixels of the row
 * @param {number} side pixels
 * @param {number} scale pixels of the whole
 */
function worst(largest, smallest, sum, side, scale) {
  return Math.max((side * side * largest * scale) / (sum * sum), (sum * sum) / (side * side * smallest * scale));
}

/**
 * @param {string} label
 * @param {number} width
 */
function fitting(label, width) {
  const length = Math.floor((width - 10) / CHARACTER);
  return label.length <= length ? label : `${label.slice(0, Math.max(1, length - 1))}…`;
}
