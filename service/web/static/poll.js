// Asking again and again, at a pace that fits.

const FASTEST = 1000;
const SLOWEST = 30_000;

/**
 * Call `ask` (async) now and then again: each second while it answers true (something goes on) or the tab is
 * seen, else at doubling distances. An `ask` that answers null ends it. `ask` handles its own errors; after one
 * it answers false. The returned function asks at once.
 */
export function poll(ask) {
  let timer = 0;
  let distance = FASTEST;
  let asking = false;
  let again = false;
  let ended = false;

  async function turn() {
    clearTimeout(timer);
    if (ended) return;
    if (asking) {
      again = true;
      return;
    }
    asking = true;
    const lively = await ask();
    asking = false;
    ended = lively === null;
    if (ended) return;
    if (again) {
      again = false;
      turn();
      return;
    }
    const eager = lively || document.visibilityState === "visible";
    distance = eager ? FASTEST : Math.min(distance * 2, SLOWEST);
    timer = setTimeout(turn, distance);
  }

  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") turn();
  });
  turn();
  return turn;
}
