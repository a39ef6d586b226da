// The frame of all charts: a title, a legend, and a drawing that follows the width of the page.
import { el } from "../dom.js";

/**
 * @typedef {{ kind: string, label: string }} Series `kind` is the class of its color in charts.css
 * @typedef {{
 *   title: string, name: string, series?: Series[], summary: string, draw: (width: number) => SVGElement,
 * }} ChartParts
 */

/**
 * Make a chart. `draw` gets the width in pixels, each time the width changes. The test id of the chart ends with `name`.
 * Screen readers read `summary` instead of the drawing.
 * @param {ChartParts} parts
 */
export function chart({ title, name, series = [], summary, draw }) {
  const plot = el("div", { class: "plot", role: "img", "aria-label": summary });
  const legend = series.length > 1 ? [legendOf(series)] : [];
  const figure = el("figure", { class: "chart", "data-testid": `chart-${name}` }, el("figcaption", {}, title), ...legend, plot);
  let drawnWidth = 0;
  new ResizeObserver(([{ contentRect }]) => {
    const width = Math.floor(contentRect.width);
    if (width === drawnWidth || width === 0) return;
    drawnWidth = width;
    const drawing = draw(width);
    if (drawing.querySelector("a, [tabindex]")) plot.setAttribute("role", "group"); // screen readers skip an image's content
    plot.replaceChildren(drawing);
  }).observe(plot);
  return figure;
}

/** @param {Series[]} series */
const legendOf = (series) =>
  el("ul", { class: "legend" }, series.map(({ kind, label }) => el("li", {}, el("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), label)));
