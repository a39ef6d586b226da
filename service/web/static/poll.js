// Polling at an adaptive interval.

const MIN_MS = 1000;
const MAX_MS = 30_000;

/**
 * Call `ask` (async) now and repeatedly: each second while it resolves to true (work is under way) or the tab is
 * visible, else at intervals that double. It ends when `ask` resolves to null. `ask` handles its own errors, after which
 * it resolves to false. Returns a function that calls `ask` at once.
 * @param {() => Promise<boolean | null>} ask
 */
export function poll(ask) {
  let timer = 0;
  let interval = MIN_MS;
  let asking = false;
  let again = false;
  let ended = false;

  async function refresh() {
    clearTimeout(timer);
    if (ended) return;
    if (asking) {
      again = true;
      return;
    }
    asking = true;
    const isActive = await ask();
    asking = false;
    ended = isActive === null;
    if (ended) return;
    if (again) {
      again = false;
      refresh();
      return;
    }
    const isFast = isActive || document.visibilityState === "visible";
    interval = isFast ? MIN_MS : Math.min(interval * 2, MAX_MS);
    timer = setTimeout(refresh, interval);
  }

  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") refresh();
  });
  refresh();
  return refresh;
}
