// The keys of the overview: they zoom, move, scroll, and choose a window.
import { byId, setText } from "../dom.js";
import { duration } from "../format.js";
import { LANE } from "./draw.js";
import { chooseWindow } from "./window.js";

/** @import { Acts, Overview } from "./overview.js" */

const PRESSES_ACROSS = 50; // presses of a key that move a window across the visible range

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
 * The act of a key that is pressed alone.
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
 * The act of a key that is pressed with Shift.
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
 * Move the chosen window by a part of the visible range. Without a chosen window, choose one in the middle.
 * @param {Overview} overview
 * @param {1 | -1} direction
 */
function moveWindow(overview, direction) {
  const { view, chosen } = overview;
  if (!chosen) {
    chooseMiddle(overview);
    return;
  }
  const distance = Math.max(-chosen.from, Math.min(view.length - chosen.to, (direction * view.span) / PRESSES_ACROSS));
  overview.choose(chosen.from + distance, chosen.to + distance);
  showChosen(overview);
}

/**
 * Make the chosen window longer or shorter. Without a chosen window, choose one in the middle.
 * @param {Overview} overview
 * @param {1 | -1} direction
 */
function growWindow(overview, direction) {
  const { view, chosen } = overview;
  if (!chosen) {
    chooseMiddle(overview);
    return;
  }
  const distance = view.span / PRESSES_ACROSS / 2;
  const inwards = direction > 0 ? -distance : Math.min(distance, (chosen.to - chosen.from) / 4);
  overview.choose(chosen.from + inwards, chosen.to - inwards);
  showChosen(overview);
}

/**
 * Choose a window of a tenth of the visible range, in its middle.
 * @param {Overview} overview
 */
function chooseMiddle(overview) {
  const { view } = overview;
  overview.choose(view.from + view.span * 0.45, view.from + view.span * 0.55);
}

/**
 * Keep the chosen window visible, and show its length in the status line.
 * @param {Overview} overview
 */
function showChosen(overview) {
  const { chosen } = overview;
  if (!chosen) return;
  overview.reveal(chosen.from, chosen.to);
  setText(byId("overview-said"), `Window of ${duration(Math.round(chosen.to - chosen.from))}`);
}
