// The mouse on the overview: the wheel zooms and moves, a drag chooses a window, and a tooltip has the exact figures.
import { hideTooltip, showTooltip } from "../charts/tooltip.js";
import { RULER, STEPS, headOf, leftOf, stepAt } from "./draw.js";
import { tooltipLines } from "./tooltip_lines.js";
import { chooseWindow } from "./window.js";

/** @import { Overview } from "./overview.js" */

const WHEEL = 0.0016; // zoom of a pixel of the wheel
const CLICK = 4; // pixels that a click may move
const EDGE = 5; // pixels around an edge of the window that move it

export class Pointer {
  /** @param {Overview} overview */
  constructor(overview) {
    this.overview = overview;
    const { canvas } = overview;
    canvas.addEventListener("wheel", (event) => this.wheeled(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.pressed(event));
    canvas.addEventListener("pointermove", (event) => this.hovered(event));
    canvas.addEventListener("pointerleave", () => this.left());
  }

  /**
   * The time below the pointer.
   * @param {{ clientX: number }} event
   */
  timeAt({ clientX }) {
    const { canvas, view } = this.overview;
    const { left, width } = canvas.getBoundingClientRect();
    const start = leftOf(width);
    return view.from + Math.max(0, Math.min(1, (clientX - left - start) / (width - start))) * view.span;
  }

  /** @param {WheelEvent} event */
  wheeled(event) {
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    const [across, down] = event.shiftKey && event.deltaX === 0 ? [event.deltaY, 0] : [event.deltaX, event.deltaY];
    if (across === 0 && down === 0) return;
    event.preventDefault();
    const { view, columns } = this.overview;
    if (Math.abs(across) > Math.abs(down)) view.pan((across * unit * view.span) / columns);
    else view.zoom(Math.exp(down * unit * WHEEL), this.timeAt(event));
    this.overview.changed();
    this.hovered(event);
  }

  /** @param {PointerEvent} event */
  pressed(event) {
    if (event.button !== 0) return;
    const { canvas, view } = this.overview;
    const [first, started] = [this.timeAt(event), event.clientX];
    const [from, to] = [view.from, view.to];
    const isMove = event.shiftKey;
    const anchor = this.edgeAt(event) ?? first;
    let isDrag = false;
    canvas.setPointerCapture(event.pointerId);
    const following = new AbortController();
    const { signal } = following;
    canvas.addEventListener("pointermove", (moved) => {
      isDrag ||= Math.abs(moved.clientX - started) >= CLICK;
      if (!isDrag) return;
      if (isMove) {
        canvas.classList.add("moving");
        view.show(from, to);
        view.pan(((started - moved.clientX) * view.span) / this.overview.columns);
        this.overview.changed();
      } else {
        const [start, end] = [anchor, this.timeAt(moved)].sort((a, b) => a - b);
        this.overview.choose(start, end);
      }
    }, { signal });
    const end = (/** @type {PointerEvent} */ released) => {
      following.abort();
      canvas.classList.remove("moving");
      if (!isDrag && released.type === "pointerup") this.clicked(released);
    };
    canvas.addEventListener("pointerup", end, { signal });
    canvas.addEventListener("pointercancel", end, { signal });
  }

  /**
   * The opposite end of the chosen window if the pointer is on one of its edges.
   * @param {{ clientX: number }} event
   */
  edgeAt(event) {
    const { chosen, view, columns } = this.overview;
    if (!chosen) return undefined;
    const near = (EDGE * view.span) / columns;
    const time = this.timeAt(event);
    if (Math.abs(time - chosen.from) <= near) return chosen.to;
    return Math.abs(time - chosen.to) <= near ? chosen.from : undefined;
  }

  /** @param {PointerEvent} event */
  clicked(event) {
    const place = this.placeOf(event);
    if (place?.kind === "step" && place.step) chooseWindow({ start_ns: BigInt(place.step.start_ns), end_ns: BigInt(place.step.end_ns) });
  }

  /**
   * What is drawn below the pointer.
   * @param {{ clientX: number, clientY: number }} event
   */
  placeOf(event) {
    const { frame, source, canvas, width, rows, scroller } = this.overview;
    if (!frame) return null;
    const { left, top } = canvas.getBoundingClientRect();
    if (event.clientX - left < leftOf(width)) return null;
    let y = event.clientY - top;
    const time = this.timeAt(event);
    if (y < RULER) return { kind: "ruler", time };
    const stepsEnd = RULER + (source.stepsCount > 0 ? STEPS : 0);
    if (y < stepsEnd) return { kind: "step", time, step: stepAt(source, time) };
    const head = headOf(source, frame);
    if (y < head) return { kind: "launches", time };
    y += scroller.scrollTop - head;
    for (const row of rows) {
      if (y < row.height) return { kind: "row", time, row };
      y -= row.height;
    }
    return null;
  }

  /** @param {MouseEvent} event */
  hovered(event) {
    const { overview } = this;
    const place = this.placeOf(event);
    overview.pointer = place ? place.time : null;
    overview.canvas.classList.toggle("edge", this.edgeAt(event) !== undefined);
    overview.redraw();
    if (!place || !overview.frame) hideTooltip();
    else showTooltip(event, tooltipLines(place, overview.frame, overview.view, overview.view.span / overview.columns));
  }

  left() {
    this.overview.pointer = null;
    hideTooltip();
    this.overview.redraw();
  }
}
