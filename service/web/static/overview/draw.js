// Draws the overview: a ruler, steps, launches, and a row for each lane and each curve of memory.
import { CONTENTS } from "./frame.js";

/** @import { Frame, Curve, LaneSums, StepBand, FrameSource } from "./frame.js" */
/** @import { View } from "./view.js" */
/**
 * @typedef {{ kind: "lane", label: string, short: string, lane: LaneSums, height: number } | { kind: "curve", label: string, short: string, curve: Curve, height: number }} Row
 * @typedef {{
 *   frame: Frame, source: FrameSource, view: View, rows: Row[], width: number, height: number, scroll: number,
 *   chosen: { from: number, to: number } | null, pointer: number | null,
 * }} Picture `chosen` and `pointer` are times since the start of the whole
 * @typedef {[number, number, number]} Color
 */

export const RULER = 20, STEPS = 19, LAUNCHES = 26; // heights in pixels
export const LANE = 24, CURVE = 44;
const GAP = 4; // between rows
const TICK = 96; // pixels, at least, from one tick to the next
const NARROW = 130; // pixels for labels, below which they are short
const CHARACTER = 7;
const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif";

/** @param {number} width */
export const leftOf = (width) => Math.round(Math.min(190, width * 0.28));

/**
 * The height of what stays on top while the rows scroll.
 * @param {FrameSource} source
 * @param {Frame} frame
 */
export const headOf = (source, frame) => RULER + (source.stepsCount > 0 ? STEPS : 0) + (frame.launches[frame.bins] > 0 ? LAUNCHES : 0);

/** @param {Row[]} rows */
export const heightOf = (rows) => rows.reduce((sum, { height }) => sum + height, 0);

/**
 * Draw the picture onto the canvas, and return the colors of its kinds.
 * @param {HTMLCanvasElement} canvas
 * @param {Picture} picture
 */
export function draw(canvas, picture) {
  const { width, height, frame, source, rows, scroll } = picture;
  const ratio = devicePixelRatio || 1;
  const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== across || canvas.height !== down) [canvas.width, canvas.height] = [across, down];
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const theme = themeOf(canvas);
  const left = leftOf(width);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = theme.surface;
  context.fillRect(0, 0, width, height);
  context.font = FONT;
  context.textBaseline = "middle";
  const head = headOf(source, frame);
  let y = head - scroll;
  for (const row of rows) {
    if (y + row.height > head && y < height) drawRow(context, picture, row, { y, left, ratio, theme });
    y += row.height;
  }
  context.fillStyle = theme.surface;
  context.fillRect(0, 0, width, head);
  drawGrid(context, picture, { left, head, theme });
  let top = RULER;
  if (source.stepsCount > 0) {
    drawSteps(context, picture, { y: top, left, theme });
    top += STEPS;
  }
  if (head > top) drawLaunches(context, picture, { y: top, left, ratio, theme });
  drawMarks(context, picture, { left, theme });
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Picture} picture
 * @param {Row} row
 * @param {{ y: number, left: number, ratio: number, theme: Theme }} place
 */
function drawRow(context, picture, row, { y, left, ratio, theme }) {
  const inner = row.height - GAP;
  const image = imageOf(context, picture.width - left, inner, ratio, theme.back);
  const columns = columnsOf(picture, image.width);
  if (row.kind === "lane") paintLane(image, columns, picture.frame, row.lane, theme);
  else paintCurve(image, columns, picture.frame, row.curve, theme);
  context.putImageData(image, Math.round(left * ratio), Math.round(y * ratio));
  drawLabel(context, left < NARROW ? row.short : row.label, y + inner / 2, left, theme);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {string} label
 * @param {number} y
 * @param {number} left
 * @param {Theme} theme
 */
function drawLabel(context, label, y, left, theme) {
  context.fillStyle = theme.text;
  context.textAlign = "left";
  context.fillText(fitted(context, label, left - 12), 4, y);
}

/**
 * The beginning and the end of a text, as much as fits.
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} width
 */
function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  const length = Math.max(2, Math.floor(width / CHARACTER));
  for (let kept = length + 4; kept > 2; kept -= 1) {
    const short = `${text.slice(0, Math.floor(kept / 3))}…${text.slice(text.length - Math.ceil((2 * kept) / 3) + 1)}`;
    if (context.measureText(short).width <= width) return short;
  }
  return "…";
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} width
 * @param {number} height
 * @param {number} ratio
 * @param {Color} color
 */
function imageOf(context, width, height, ratio, color) {
  const image = context.createImageData(Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio)));
  new Uint32Array(image.data.buffer).fill(packed(color));
  return image;
}

/**
 * The edges in time of the columns of an image as wide as the visible range.
 * @param {Picture} picture
 * @param {number} count
 */
function columnsOf({ view }, count) {
  const edges = new Float64Array(count + 1);
  for (let column = 0; column <= count; column += 1) edges[column] = view.from + (view.span * column) / count;
  return edges;
}

/**
 * The heights of the parts of a column of a lane, from below. A lane is as high as it is busy, at least a pixel, and is divided by
 * kind; kinds that run at the same time have parts in proportion.
 * @param {Frame} frame
 * @param {LaneSums} lane
 * @param {number} from
 * @param {number} to
 * @param {number} height
 * @returns {number[]} ends of the parts: computing, communication, copies, all else
 */
export function partsOf(frame, { sums }, from, to, height) {
  const [busy, ...kinds] = CONTENTS.map((content) => frame.between(sums[content], from, to));
  if (busy <= 0) return [0, 0, 0, 0];
  const top = Math.max(1, Math.min(height, Math.round((busy / (to - from)) * height)));
  const all = Math.max(busy, kinds.reduce((sum, kind) => sum + kind, 0));
  let sum = 0;
  const ends = kinds.map((kind) => {
    sum += kind;
    return Math.round((sum / all) * top);
  });
  return [...ends, top];
}

/**
 * @param {ImageData} image
 * @param {Float64Array} columns
 * @param {Frame} frame
 * @param {LaneSums} lane
 * @param {Theme} theme
 */
function paintLane(image, columns, frame, lane, theme) {
  const { width, height } = image;
  const pixels = new Uint32Array(image.data.buffer);
  const colors = [theme.compute, theme.comm, theme.mem, lane.lane.kind === "thread" ? theme.host : theme.other].map(packed);
  for (let x = 0; x < width; x += 1) {
    const ends = partsOf(frame, lane, columns[x], columns[x + 1], height);
    let from = 0;
    for (let part = 0; part < ends.length; part += 1) {
      for (let y = from; y < ends[part]; y += 1) pixels[(height - 1 - y) * width + x] = colors[part];
      from = Math.max(from, ends[part]);
    }
  }
}

/**
 * @param {ImageData} image
 * @param {Float64Array} columns
 * @param {Frame} frame
 * @param {Curve} curve
 * @param {Theme} theme
 */
function paintCurve(image, columns, frame, curve, theme) {
  const { width, height } = image;
  const pixels = new Uint32Array(image.data.buffer);
  const [line, fill] = [packed(theme.memory), packed(mixed(theme.memory, theme.back, 0.35))];
  const top = largestOf(curve);
  for (let x = 0; x < width; x += 1) {
    const most = mostBetween(frame, curve, columns[x], columns[x + 1]);
    if (Number.isNaN(most)) continue;
    const level = Math.max(1, Math.round((Math.max(0, most) / top) * (height - 2)));
    for (let y = 0; y < level; y += 1) pixels[(height - 1 - y) * width + x] = y >= level - 2 ? line : fill;
  }
}

/** @param {Curve} curve */
const largestOf = ({ most }) => most.reduce((largest, value) => (value > largest ? value : largest), 1);

/**
 * The most that a curve has between two times; NaN if it is not known.
 * @param {Frame} frame
 * @param {Curve} curve
 * @param {number} from
 * @param {number} to
 */
export function mostBetween(frame, { most }, from, to) {
  const place = (/** @type {number} */ time) => ((time - frame.from) / (frame.to - frame.from)) * frame.bins;
  const first = Math.max(0, Math.floor(place(from) + 1e-6));
  const end = Math.min(frame.bins, Math.max(first + 1, Math.ceil(place(to) - 1e-6)));
  let largest = NaN;
  for (let bin = first; bin < end; bin += 1) if (!(most[bin] <= largest)) largest = Number.isNaN(most[bin]) ? largest : most[bin];
  return largest;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Picture} picture
 * @param {{ left: number, head: number, theme: Theme }} place
 */
function drawGrid(context, { view, width, height }, { left, head, theme }) {
  const scale = (width - left) / view.span;
  context.textAlign = "center";
  for (const { time, text } of view.ticks((width - left) / TICK)) {
    const x = left + (time - view.from) * scale;
    context.fillStyle = theme.line;
    context.globalAlpha = 0.6;
    context.fillRect(Math.round(x), RULER - 4, 1, height - RULER + 4);
    context.globalAlpha = 1;
    const half = context.measureText(text).width / 2;
    context.fillStyle = theme.muted;
    if (x - half >= left - 24) context.fillText(text, Math.min(x, width - half), RULER / 2 - 1);
  }
  context.fillStyle = theme.line;
  context.fillRect(0, head - 2, width, 1);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Picture} picture
 * @param {{ y: number, left: number, theme: Theme }} place
 */
function drawSteps(context, { source, view, width }, { y, left, theme }) {
  drawLabel(context, source.hasRanks ? `Steps of rank ${source.stepsRank}` : "Steps", y + STEPS / 2 - 1, left, theme);
  const scale = (width - left) / view.span;
  const inner = STEPS - 3;
  let covered = -1; // pixels up to which bands without a number are drawn
  context.textAlign = "center";
  for (const [index, step] of stepsIn(source, view)) {
    const from = Math.max(left, left + (step.from - view.from) * scale);
    const to = Math.min(width, left + (step.to - view.from) * scale);
    if (to - from < 1 && Math.floor(from) <= covered) continue;
    covered = Math.floor(from);
    context.fillStyle = index % 2 ? theme.stepOdd : theme.stepEven;
    context.fillRect(from, y, Math.max(1, to - from - (to - from > 3 ? 1 : 0)), inner);
    const text = String(step.number);
    const name = source.steps.length > 1 && to - from > context.measureText(`step ${text}`).width + 8 ? `step ${text}` : text;
    context.fillStyle = theme.text;
    if (context.measureText(name).width + 6 <= to - from) context.fillText(name, (from + to) / 2, y + inner / 2 + 0.5);
  }
  if (source.stepsCount > source.steps.length) {
    context.fillStyle = theme.muted;
    context.textAlign = "right";
    context.fillText(`the first ${source.steps.length.toLocaleString("en-US")} of ${source.stepsCount.toLocaleString("en-US")} steps`, width - 4, y + inner / 2);
  }
}

/**
 * The steps that overlap the visible range, with their places in order.
 * @param {FrameSource} source
 * @param {View} view
 * @returns {Iterable<[number, StepBand]>}
 */
function* stepsIn({ steps, longestStep }, { from, to }) {
  let [low, high] = [0, steps.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle].from < from - longestStep) low = middle + 1;
    else high = middle;
  }
  for (let index = low; index < steps.length && steps[index].from < to; index += 1) {
    if (steps[index].to > from) yield [index, steps[index]];
  }
}

/**
 * The innermost of the steps at a time; undefined if there is none.
 * @param {FrameSource} source
 * @param {number} time
 */
export const stepAt = (source, time) => [...stepsIn(source, /** @type {View} */ ({ from: time, to: time + 1e-3 }))].at(-1)?.[1];

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Picture} picture
 * @param {{ y: number, left: number, ratio: number, theme: Theme }} place
 */
function drawLaunches(context, picture, { y, left, ratio, theme }) {
  const { frame, width } = picture;
  const inner = LAUNCHES - GAP - 2;
  const image = imageOf(context, width - left, inner, ratio, theme.back);
  const pixels = new Uint32Array(image.data.buffer);
  const columns = columnsOf(picture, image.width);
  const counts = Float64Array.from({ length: image.width }, (_, x) => frame.between(frame.launches, columns[x], columns[x + 1]));
  const most = counts.reduce((largest, value) => Math.max(largest, value), 0);
  const color = packed(theme.launch);
  for (let x = 0; x < image.width; x += 1) {
    const level = counts[x] > 0 ? Math.max(1, Math.round((counts[x] / most) * image.height)) : 0;
    for (let up = 0; up < level; up += 1) pixels[(image.height - 1 - up) * image.width + x] = color;
  }
  context.putImageData(image, Math.round(left * ratio), Math.round(y * ratio));
  drawLabel(context, "Launches", y + inner / 2, left, theme);
}

/**
 * Draw the chosen window and the line below the pointer.
 * @param {CanvasRenderingContext2D} context
 * @param {Picture} picture
 * @param {{ left: number, theme: Theme }} place
 */
function drawMarks(context, { view, width, height, chosen, pointer }, { left, theme }) {
  const x = (/** @type {number} */ time) => left + ((time - view.from) / view.span) * (width - left);
  if (chosen && chosen.to > view.from && chosen.from < view.to) {
    const [from, to] = [Math.max(left, x(chosen.from)), Math.min(width, x(chosen.to))];
    context.fillStyle = theme.surface;
    context.globalAlpha = 0.55;
    context.fillRect(left, RULER, from - left, height - RULER);
    context.fillRect(to, RULER, width - to, height - RULER);
    context.globalAlpha = 0.12;
    context.fillStyle = theme.accent;
    context.fillRect(from, 0, Math.max(1, to - from), height);
    context.globalAlpha = 1;
    if (chosen.from >= view.from) context.fillRect(Math.round(from) - 1, 0, 2, height);
    if (chosen.to <= view.to) context.fillRect(Math.round(to) - 1, 0, 2, height);
  }
  if (pointer !== null && pointer >= view.from && pointer <= view.to) {
    context.globalAlpha = 0.6;
    context.fillStyle = theme.muted;
    context.fillRect(Math.round(x(pointer)), 0, 1, height);
    context.globalAlpha = 1;
  }
}

// -- colors --------------------------------------------------------------------------------------------------------------

/**
 * @typedef {{
 *   surface: string, text: string, muted: string, line: string, accent: string, stepEven: string, stepOdd: string,
 *   back: Color, compute: Color, comm: Color, mem: Color, other: Color, host: Color, launch: Color, memory: Color,
 * }} Theme
 */

/** @type {{ scheme: boolean, theme: Theme } | null} */
let kept = null;
const dark = matchMedia("(prefers-color-scheme: dark)");

/**
 * The colors of the style sheet.
 * @param {HTMLElement} element
 * @returns {Theme}
 */
export function themeOf(element) {
  if (kept?.scheme === dark.matches) return kept.theme;
  const style = getComputedStyle(element);
  const text = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
  const color = (/** @type {string} */ name) => rgb(text(name));
  const theme = {
    surface: text("surface"), text: text("text"), muted: text("muted"), line: text("line"), accent: text("accent"),
    stepEven: text("overview-step-even"), stepOdd: text("overview-step-odd"), back: color("sunk"), compute: color("compute"),
    comm: color("comm"), mem: color("mem"), other: color("other"), host: color("host"), launch: color("c5"), memory: color("c3"),
  };
  kept = { scheme: dark.matches, theme };
  return theme;
}

/**
 * @param {string} text `#rrggbb`
 * @returns {Color}
 */
function rgb(text) {
  const value = Number.parseInt(text.slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

/** @param {Color} color */
const packed = ([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;

/**
 * @param {Color} color
 * @param {Color} other
 * @param {number} share of the first color
 * @returns {Color}
 */
function mixed(color, other, share) {
  const [red, green, blue] = color.map((value, index) => Math.round(value * share + other[index] * (1 - share)));
  return [red, green, blue];
}
