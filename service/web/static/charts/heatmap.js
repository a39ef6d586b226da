// A heatmap: one row for each rank, one column for each step, and a color that is darker for larger values.
import { chart } from "./chart.js";
import { svg } from "./svg.js";
import { withTooltip } from "./tooltip.js";

/** @typedef {{ row: string, column: string, value: Int, href?: string, note?: string }} Cell */

const ROW_MAX = 22, ROW_MIN = 6, HEIGHT = 640, COLUMN_MAX = 60, LEFT = 64, BOTTOM = 22, RIGHT = 8; // pixels
const LABEL = 34; // pixels between the labels of columns
const FAINTEST = 0.06; // opacity of the smallest value

/**
 * Make the chart. Rows and columns have the given order; a cell that is missing stays empty.
 * @param {{ title: string, name: string, rows: string[], columns: string[], cells: Cell[], text: (value: Int) => string, nameOfColumn: (column: string) => string }} parts
 */
export function heatmap({ title, name, rows, columns, cells, text, nameOfColumn }) {
  const values = cells.map(({ value }) => Number(value));
  const [least, most] = [values.reduce((a, b) => Math.min(a, b), Infinity), values.reduce((a, b) => Math.max(a, b), 0)];
  const [rowOf, columnOf] = [indexOf(rows), indexOf(columns)];

  /** @param {number} width */
  function draw(width) {
    const tall = Math.max(ROW_MIN, Math.min(ROW_MAX, Math.floor(HEIGHT / rows.length)));
    const wide = Math.min(COLUMN_MAX, (width - LEFT - RIGHT) / columns.length);
    const height = rows.length * tall;
    const everyRow = Math.ceil(13 / tall);
    const everyColumn = Math.ceil(LABEL / wide);
    const labels = [
      ...rows.map((row, index) => (index % everyRow ? null : svg("text", { x: LEFT - 6, y: (index + 0.5) * tall + 4, "text-anchor": "end" }, row))),
      ...columns.map((column, index) => (index % everyColumn ? null : svg("text", { x: LEFT + (index + 0.5) * wide, y: height + 15, "text-anchor": "middle" }, column))),
    ];
    const marks = cells.map((cell) => {
      const opacity = most > least ? FAINTEST + (1 - FAINTEST) * ((Number(cell.value) - least) / (most - least)) : 0.5;
      const place = { x: LEFT + (columnOf.get(cell.column) ?? 0) * wide, y: (rowOf.get(cell.row) ?? 0) * tall };
      const mark = svg("rect", { ...place, class: "cell", width: Math.max(0.5, wide - 1), height: tall - 1, "fill-opacity": opacity.toFixed(3), "data-row": cell.row, "data-column": cell.column, "data-value": cell.value });
      withTooltip(mark, () => [`${cell.row}, ${nameOfColumn(cell.column)}`, text(cell.value), ...(cell.note ? [cell.note] : [])]);
      return cell.href ? svg("a", { href: cell.href, "aria-label": `${cell.row}, ${nameOfColumn(cell.column)}: ${text(cell.value)}` }, mark) : mark;
    });
    return svg("svg", { width, height: height + BOTTOM }, svg("g", { class: "tick", "aria-hidden": "true" }, labels), marks);
  }

  const range = cells.length === 0 ? "" : least === most ? `: ${text(most)}` : ` from ${text(least)} to ${text(most)}`;
  return chart({ title: `${title}${range}`, name, summary: `${title}${range}, of ${rows.length} ranks and ${columns.length} columns.`, draw });
}

/** @param {string[]} keys */
const indexOf = (keys) => new Map(keys.map((key, index) => [key, index]));
