// The keys of the overview: they zoom, move, scroll, and choose a window.
import { byId, setText } from "../dom.js";
import { duration } from "../format.js";
import { LANE } from "./draw.js";
import { chooseWindow } from "./window.js";

/** @import { Acts, Overview } from "./overview.js" */

const MOVES = 50; // keys that move a window across the visible range

/**
 * Handle the keys that are pressed on the canvas.
 * @param {Overview} overview
 * @param {Acts} acts
 */
export function startKeys(overview, acts) {
  overview.canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = event.shiftKey ? shiftedAct(event.key, overview, acts) : plainAct(event.key, overview, acts);
    if (!act) return;
    event.preventDefault();
    act();
  });
}

/**
 * @param {string} key
 * @param {Overview} overview
 * @param {Acts} acts
 * @returns {(() => void) | undefined}
 */
function plainAct(key, overview, acts) {
  const { scroller } = overview;
  return {
    "+": acts.in, "=": acts.in, "-": acts.out, ArrowLeft: acts.left, ArrowRight: acts.right, Home: acts.whole,
    ArrowUp: () => scroller.scrollBy(0, -LANE), ArrowDown: () => scroller.scrollBy(0, LANE),
    Escape: () => chooseWindow(null), "[": () => overview.chooseStep(-1), "]": () => overview.chooseStep(1),
  }[key];
}

/**
 * @param {string} key
 * @param {Overview} overview
 * @param {Acts} acts
 * @returns {(() => void) | undefined}
 */
function shiftedAct(key, overview, acts) {
  return {
    "+": acts.in, _: acts.out,
    ArrowLeft: () => moveWindow(overview, -1), ArrowRight: () => moveWindow(overview, 1),
    ArrowUp: () => growWindow(overview, 1), ArrowDown: () => growWindow(overview, -1),
  }[key];
}

/**
 * Move the chosen window by a part of the visible range, or choose one in its middle.
 * @param {Overview} overview
 * @param {1 | -1} direction
 */
function moveWindow(overview, direction) {
  const { view, chosen } = overview;
  if (!chosen) {
    chooseMiddle(overview);
    return;
  }
  const by = Math.max(-chosen.from, Math.min(view.length - chosen.to, (direction * view.span) / MOVES));
  overview.choose(chosen.from + by, chosen.to + by);
  follow(overview);
}

/**
 * Make the chosen window longer or shorter, or choose one in the middle of the visible range.
 * @param {Overview} overview
 * @param {1 | -1} direction
 */
function growWindow(overview, direction) {
  const { view, chosen } = overview;
  if (!chosen) {
    chooseMiddle(overview);
    return;
  }
  const by = view.span / MOVES / 2;
  const inwards = direction > 0 ? -by : Math.min(by, (chosen.to - chosen.from) / 4);
  overview.choose(chosen.from + inwards, chosen.to - inwards);
  follow(overview);
}

/** @param {Overview} overview */
function chooseMiddle(overview) {
  const { view } = overview;
  overview.choose(view.from + view.span * 0.45, view.from + view.span * 0.55);
}

/**
 * Keep the chosen window visible, and say how long it is.
 * @param {Overview} overview
 */
function follow(overview) {
  const { chosen } = overview;
  if (!chosen) return;
  overview.reveal(chosen.from, chosen.to);
  setText(byId("overview-said"), `Window of ${duration(Math.round(chosen.to - chosen.from))}`);
}
