// A flame graph, from the top down: each part lies below its parent, and its width is its value. A click zooms.
import { announce, el } from "../dom.js";
import { chart } from "./chart.js";
import { svg } from "./svg.js";
import { hideTooltip, withTooltip } from "./tooltip.js";

/** @typedef {{ key: string, parent: string | null, label: string, value: number, note?: string }} Frame */
/** @typedef {Frame & { children: Node[], above: Node | null, depth: number }} Node */

const ROW = 21, CHARACTER = 6.6, PADDING = 4; // pixels
const SHORTEST = 4; // characters of a label that is drawn
const THINNEST = 0.5; // pixels of a frame that is drawn
const COLORS = 8;

/**
 * Make the chart. A frame whose parent is not there is a root. Arrow keys move between frames, Enter zooms, Escape shows all.
 * @param {{ title: string, name: string, frames: Frame[], text: (value: number) => string }} options
 */
export function flame({ title, name, frames, text }) {
  const whole = treeOf(frames);
  const depth = depthOf(whole);
  let shown = whole;
  let focused = whole;
  let width = 0;
  const drawing = svg("svg", {});
  const reset = el("button", { type: "button", class: "quiet", hidden: true, onclick: () => zoom(whole) }, "Show all");

  /** @param {Node} node */
  function zoom(node) {
    shown = node;
    focused = node;
    reset.hidden = node === whole;
    hideTooltip();
    fill();
    announce(node === whole ? "All is shown" : `${node.label} is shown`);
  }

  function fill() {
    const marks = /** @type {SVGElement[]} */ ([]);
    const ancestors = [];
    for (let node = shown.above; node !== null && node !== whole; node = node.above) ancestors.unshift(node);
    ancestors.forEach((node, row) => marks.push(mark(node, 0, width, row)));
    place(shown, 0, width, ancestors.length, marks);
    drawing.setAttribute("width", String(width));
    drawing.setAttribute("height", String(Math.max(1, depth) * ROW));
    drawing.replaceChildren(...marks);
  }

  /**
   * @param {Node} node
   * @param {number} x
   * @param {number} size
   * @param {number} row
   * @param {SVGElement[]} marks
   */
  function place(node, x, size, row, marks) {
    if (size < THINNEST) return;
    if (node !== whole) marks.push(mark(node, x, size, row));
    const inner = Math.max(node.value, node.children.reduce((sum, child) => sum + child.value, 0));
    let at = x;
    for (const child of node.children) {
      const part = inner > 0 ? (size * child.value) / inner : 0;
      place(child, at, part, row + (node === whole ? 0 : 1), marks);
      at += part;
    }
  }

  /**
   * @param {Node} node
   * @param {number} x
   * @param {number} size
   * @param {number} row
   */
  function mark(node, x, size, row) {
    const share = whole.value > 0 ? `, ${((100 * node.value) / whole.value).toFixed(1)} % of all` : "";
    const room = size - 2 * PADDING;
    const isNamed = room > Math.min(node.label.length, SHORTEST) * CHARACTER;
    const frame = svg(
      "g",
      { class: "frame", role: "button", tabindex: node === focused || (focused === whole && node === whole.children[0]) ? 0 : -1, "aria-label": `${node.label}: ${text(node.value)}${share}`, "data-key": node.key },
      svg("rect", { class: `c${colorOf(node.label)}`, x, y: row * ROW, width: Math.max(THINNEST, size - 1), height: ROW - 1, "data-bar": node.key, "data-value": node.value }),
      isNamed ? svg("svg", { x: x + PADDING, y: row * ROW, width: room, height: ROW }, svg("text", { x: 0, y: 15 }, node.label)) : null, // it cuts what is drawn, and keeps the words
    );
    frame.addEventListener("click", () => zoom(node === shown ? (node.above ?? whole) : node));
    frame.addEventListener("keydown", (event) => move(/** @type {KeyboardEvent} */ (event), node));
    return withTooltip(frame, () => [node.label, `${text(node.value)}${share}`, ...(node.note ? [node.note] : [])]);
  }

  /**
   * @param {KeyboardEvent} event
   * @param {Node} node
   */
  function move(event, node) {
    const siblings = node.above?.children ?? [];
    const at = siblings.indexOf(node);
    /** @type {Record<string, Node | null | undefined>} */
    const next = { ArrowDown: node.children[0], ArrowUp: node.above === whole ? null : node.above, ArrowLeft: siblings[at - 1], ArrowRight: siblings[at + 1] };
    if (event.key === "Enter" || event.key === " ") zoom(node === shown ? (node.above ?? whole) : node);
    else if (event.key === "Escape") zoom(whole);
    else if (event.key in next) focus(next[event.key]);
    else return;
    event.preventDefault();
    if (["Enter", " ", "Escape"].includes(event.key)) focus(focused === whole ? node : focused);
  }

  /** @param {Node | null | undefined} node */
  function focus(node) {
    const frame = node && /** @type {SVGElement | null} */ (drawing.querySelector(`[data-key="${CSS.escape(node.key)}"]`));
    if (!frame) return;
    for (const other of drawing.querySelectorAll(".frame")) other.setAttribute("tabindex", "-1");
    frame.setAttribute("tabindex", "0");
    frame.focus();
  }

  const summary = `${title}. ${frames.length} frames; Enter zooms into one, Escape shows all.`;
  const figure = chart({ title, name, summary, draw: (now) => {
    width = now;
    fill();
    return drawing;
  } });
  figure.classList.add("flame");
  figure.querySelector("figcaption")?.append(" ", reset);
  return figure;
}

/**
 * Link frames to their parents; the result is above all roots.
 * @param {Frame[]} frames
 * @returns {Node}
 */
function treeOf(frames) {
  /** @type {Node} */
  const whole = { key: "", parent: null, label: "All", value: 0, children: [], above: null, depth: 0 };
  /** @type {Map<string, Node>} */
  const nodes = new Map(frames.map((frame) => [frame.key, { ...frame, children: [], above: null, depth: 0 }]));
  for (const node of nodes.values()) {
    node.above = (node.parent === null ? undefined : nodes.get(node.parent)) ?? whole;
    node.above.children.push(node);
  }
  whole.value = whole.children.reduce((sum, { value }) => sum + value, 0);
  for (const node of [whole, ...nodes.values()]) node.children.sort((a, b) => b.value - a.value);
  return whole;
}

/**
 * The number of rows below a node.
 * @param {Node} node
 * @returns {number}
 */
const depthOf = (node) => node.children.reduce((depth, child) => Math.max(depth, 1 + depthOf(child)), 0);

/**
 * A color for a name, without its number, so that layers of one kind look alike.
 * @param {string} label
 */
function colorOf(label) {
  let hash = 0;
  for (const character of label.replace(/[_#\d.]+$/, "")) hash = (hash * 31 + character.charCodeAt(0)) | 0;
  return Math.abs(hash) % COLORS;
}
