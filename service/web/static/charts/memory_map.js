// A map of memory: a bar for each segment, in which each block lies at its address. The rest is unused, or not listed.
import { chart } from "./chart.js";
import { svg } from "./svg.js";
import { hideTooltip, showTooltip } from "./tooltip.js";

/** @typedef {{ start: number, size: number, label: string }} Block `start` is in bytes from the start of the segment */
/** @typedef {{ label: string, size: number, blocks: Block[] }} Segment `blocks` are in the order of their starts */

const ROW = 22, BAR = 15, RIGHT = 24; // pixels
const CHARACTER = 6.9; // pixels, on average
const LABEL_SHARE = 0.4; // of the width, at most
const THINNEST = 0.3; // pixels

/**
 * Make the chart. All bars have the same length, whatever the size of their segments.
 * @param {{ title: string, name: string, segments: Segment[], text: (value: number) => string }} parts
 */
export function memoryMap({ title, name, segments, text }) {
  const longest = Math.max(0, ...segments.map(({ label }) => label.length));

  /** @param {number} width */
  function draw(width) {
    const left = Math.min(longest * CHARACTER + 10, width * LABEL_SHARE);
    const length = Math.max(1, width - left - RIGHT);
    return svg("svg", { width, height: segments.length * ROW }, segments.map((segment, index) => row(segment, index, left, length)));
  }

  /**
   * @param {Segment} segment
   * @param {number} index
   * @param {number} left
   * @param {number} length
   */
  function row({ label, size, blocks }, index, left, length) {
    const y = index * ROW + (ROW - BAR) / 2;
    const scale = length / Math.max(size, 1);
    const d = blocks.map((block) => `M${(left + block.start * scale).toFixed(2)},${y}h${Math.max(THINNEST, block.size * scale).toFixed(2)}v${BAR}H${(left + block.start * scale).toFixed(2)}z`).join("");
    const filled = blocks.reduce((sum, block) => sum + block.size, 0);
    const surface = svg("rect", { x: left, y, width: length, height: BAR, fill: "transparent" });
    surface.addEventListener("pointermove", (event) => {
      const at = (event.offsetX - left) / scale;
      const block = blocks.findLast(({ start }) => start <= at);
      const inside = block !== undefined && at < block.start + Math.max(block.size, THINNEST / scale);
      showTooltip(event, inside ? [block.label, `${text(block.size)} at ${text(block.start)} of ${label}`] : ["unused, or a block that is not listed", label]);
    });
    surface.addEventListener("pointerleave", hideTooltip);
    return svg(
      "g",
      {},
      svg("text", { x: left - 6, y: y + BAR - 3, "text-anchor": "end", class: "label" }, label),
      svg("rect", { class: "ground", x: left, y, width: length, height: BAR }),
      svg("path", { class: "mem outlined", d, "data-bar": label, "data-value": filled, "data-marks": blocks.length }),
      surface,
    );
  }

  const blocks = segments.reduce((sum, segment) => sum + segment.blocks.length, 0);
  return chart({ title, name, summary: `${title}. ${segments.length} segments with ${blocks} blocks; the tables have them.`, draw });
}
