// The request of a comparison.
import { api } from "../api.js";
import { MS, exactly } from "../selection.js";

/** @import { Choice } from "./place.js" */
/** @import { Target } from "./target.js" */

const PERCENT = { name: "%", decimals: 6 };

/**
 * The parameters of the analysis `compare`. Throws a RangeError for a threshold that is no number.
 * @param {Choice} choice
 */
export function parametersOf({ by, threshold_pct: percent, least_ms: least, base_steps: baseSteps, steps }) {
  exactly(percent, PERCENT);
  return {
    by,
    threshold_pct: percent.trim() || "0",
    least_ns: String(exactly(least, MS) ?? 0n),
    ...(steps && { steps }),
    ...((baseSteps || steps) && { base_selection: baseSteps ? `{"steps":[${baseSteps}]}` : "{}" }),
  };
}

/**
 * @param {Target} base
 * @param {Target} other
 * @param {Record<string, string>} parameters
 */
export function addressOfAnswer(base, other, parameters) {
  return `${api(other.kind === "run" ? "groups" : "traces", other.id, "analysis", "compare")}?${new URLSearchParams({ base: base.id, ...parameters })}`;
}
