// The chosen window of the trace, and the visible range of the overview. Both are in the page's address, so that a link
// shows them again; `start_ns` and `end_ns` mean the same there as in a request to the API.

/** @typedef {{ start_ns: bigint, end_ns: bigint }} TraceWindow in ns on the trace's own clock; the end is exclusive */

const NANOSECONDS = /^-?\d{1,19}$/;
const CHOSEN = ["start_ns", "end_ns"];
const VISIBLE = ["from_ns", "to_ns"];

/** @type {Set<(window: TraceWindow | null) => void>} */
const listeners = new Set();
let chosen = inAddress(CHOSEN);

/** The window that is chosen; null if none is. */
export const chosenWindow = () => chosen;

/**
 * Choose a window, or none, and tell all listeners.
 * @param {TraceWindow | null} window
 */
export function chooseWindow(window) {
  if (chosen?.start_ns === window?.start_ns && chosen?.end_ns === window?.end_ns) return;
  chosen = window;
  putIntoAddress(CHOSEN, window);
  for (const listener of listeners) listener(window);
}

/**
 * Call a function each time another window is chosen.
 * @param {(window: TraceWindow | null) => void} listener
 */
export function onWindowChange(listener) {
  listeners.add(listener);
}

/** The visible range in the page's address; null for the whole trace. */
export const visibleInAddress = () => inAddress(VISIBLE);

/**
 * Put the visible range into the page's address; null for the whole trace.
 * @param {TraceWindow | null} range
 */
export const putVisibleIntoAddress = (range) => putIntoAddress(VISIBLE, range);

/**
 * @param {string[]} names
 * @returns {TraceWindow | null}
 */
function inAddress([first, last]) {
  const parameters = new URLSearchParams(location.search);
  const [start, end] = [parameters.get(first) ?? "", parameters.get(last) ?? ""];
  if (!NANOSECONDS.test(start) || !NANOSECONDS.test(end) || BigInt(start) >= BigInt(end)) return null;
  return { start_ns: BigInt(start), end_ns: BigInt(end) };
}

/**
 * @param {string[]} names
 * @param {TraceWindow | null} window
 */
function putIntoAddress([first, last], window) {
  const address = new URL(location.href);
  for (const [name, time] of [[first, window?.start_ns], [last, window?.end_ns]]) {
    if (time === undefined) address.searchParams.delete(String(name));
    else address.searchParams.set(String(name), String(time));
  }
  if (address.href !== location.href) history.replaceState(history.state, "", address);
}
