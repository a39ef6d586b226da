// What is compared, as the page's address has it.

/**
 * @typedef {{
 *   base: string, other: string, base_steps: string, steps: string, base_cycle: string, cycle: string, show: string,
 *   by: string, threshold_pct: string, least_ms: string,
 * }} Choice `base` and `other` are ids of traces or runs; steps and cycles are numbers, or empty for all
 */

/** @type {Choice} */
const DEFAULTS = { base: "", other: "", base_steps: "", steps: "", base_cycle: "", cycle: "", show: "", by: "step", threshold_pct: "5", least_ms: "0.001" };

const MEASURES = ["step", "total", "mean"];

/** @returns {Choice} */
export function choiceInAddress() {
  const wanted = new URLSearchParams(location.search);
  const choice = /** @type {Choice} */ (Object.fromEntries(Object.entries(DEFAULTS).map(([name, value]) => [name, wanted.get(name) ?? value])));
  return { ...choice, by: MEASURES.includes(choice.by) ? choice.by : DEFAULTS.by };
}

/**
 * The address of this page with another choice; values that are the defaults are left out.
 * @param {Choice} choice
 */
export function addressOf(choice) {
  const url = new URL(location.href);
  const wanted = Object.entries(choice).filter(([name, value]) => value !== DEFAULTS[/** @type {keyof Choice} */ (name)]);
  url.search = new URLSearchParams(wanted).toString();
  return url.href;
}

/**
 * The choice with a cycle of both sides if there is one of either: a cycle is compared with a cycle. Where both have the
 * number, it is the same.
 * @param {Choice} choice
 * @param {{ cycles: string[] }} base
 * @param {{ cycles: string[] }} other
 * @returns {Choice}
 */
export function withBothCycles(choice, base, other) {
  /**
   * @param {string} chosen
   * @param {{ cycles: string[] }} side
   */
  const like = (chosen, { cycles }) => (chosen === "" || cycles.length < 2 ? "" : cycles.includes(chosen) ? chosen : cycles[0]);
  const { base_cycle: baseCycle, cycle } = choice;
  return { ...choice, base_cycle: baseCycle || like(cycle, base), cycle: cycle || like(baseCycle, other) };
}
