// What is compared, as the page's address has it.

/**
 * @typedef {{
 *   base: string, other: string, base_steps: string, steps: string, show: string, by: string, threshold_pct: string,
 *   least_ms: string,
 * }} Choice `base` and `other` are ids of traces or runs; `base_steps` and `steps` are numbers of steps, or empty for all
 */

/** @type {Choice} */
const DEFAULTS = { base: "", other: "", base_steps: "", steps: "", show: "", by: "step", threshold_pct: "5", least_ms: "0.001" };

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
