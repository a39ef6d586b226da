// The cycle of a run that its page shows: the one in the address, else the first.

const PARAMETER = "cycle";

/**
 * The cycle that is shown; null before a trace is read.
 * @param {Group} run
 * @returns {Cycle | null}
 */
export function shownCycle({ cycles }) {
  const wanted = new URLSearchParams(location.search).get(PARAMETER);
  return cycles.find(({ cycle }) => String(cycle) === wanted) ?? cycles[0] ?? null;
}

/**
 * The traces of the cycle that is shown: all traces of a run of one cycle.
 * @param {Group} run
 */
export function shownTraces(run) {
  const shown = shownCycle(run);
  return run.cycles.length < 2 ? run.ranks : run.ranks.filter(({ cycle }) => cycle === shown?.cycle);
}

/**
 * The number of the cycle that requests have to name; null for a run of one cycle.
 * @param {Group} run
 */
export const namedCycle = (run) => (run.cycles.length < 2 ? null : (shownCycle(run)?.cycle ?? null));

/**
 * A cycle as people call it: "0, steps 3 to 5".
 * @param {Cycle} cycle
 */
export function nameOf({ cycle, first_step: first, last_step: last }) {
  if (first === null) return String(cycle);
  return first === last ? `${cycle}, step ${first}` : `${cycle}, steps ${first} to ${last}`;
}

/**
 * Fill the list of cycles, which is hidden for a run of one cycle.
 * @param {HTMLSelectElement} list
 * @param {Group} run
 */
export function fillCycles(list, run) {
  list.replaceChildren(...run.cycles.map((cycle) => new Option(nameOf(cycle), String(cycle.cycle))));
  list.value = String(shownCycle(run)?.cycle ?? "");
  if (list.parentElement) list.parentElement.hidden = run.cycles.length < 2;
}

/**
 * Put a cycle into the address; the first one is left out.
 * @param {string} number
 */
export function chooseCycle(number) {
  const url = new URL(location.href);
  if (number === "0") url.searchParams.delete(PARAMETER);
  else url.searchParams.set(PARAMETER, number);
  history.pushState(null, "", url);
}

/**
 * The number of the ranks of some cycles, each counted once.
 * @param {Cycle[]} cycles
 */
export const ranksOf = (cycles) => new Set(cycles.flatMap(({ ranks }) => ranks.map(String))).size;

/**
 * What a merge takes: the traces of the shown cycle. If the traces of each rank are of different kinds, such as a trace and
 * a memory snapshot, it takes all of them.
 * @param {Group} run
 * @returns {{ traces: GroupRank[], cycle: Int | null }} `cycle` is the number that the request has to name
 */
export function mergedOf(run) {
  const inputs = new Set(run.ranks.map(({ rank, kind }) => `${rank} ${kind}`));
  const isDistinct = inputs.size === run.ranks.length;
  return isDistinct ? { traces: run.ranks, cycle: null } : { traces: shownTraces(run), cycle: namedCycle(run) };
}
