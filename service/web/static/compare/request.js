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
function parametersOf({ by, threshold_pct: percent, least_ms: least, base_steps: baseSteps, steps }) {
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
 * The address of the comparison; that of two memory snapshots takes no parameters.
 * @param {Target} base
 * @param {Target} other
 * @param {Choice} choice
 */
export function addressOfAnswer(base, other, choice) {
  const [analysis, parameters] = areSnapshots(base, other) ? ["compare_snapshots", {}] : ["compare", parametersOf(choice)];
  return `${api(other.kind === "run" ? "groups" : "traces", other.id, "analysis", analysis)}?${new URLSearchParams({ base: base.id, ...parameters })}`;
}

/**
 * @param {Target} base
 * @param {Target} other
 */
export const areSnapshots = (base, other) => base.isSnapshot && other.isSnapshot;
