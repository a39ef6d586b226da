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
    ...stepsOf({ base_steps: baseSteps, steps }),
  };
}

/**
 * The chosen steps of both sides as parameters.
 * @param {{ base_steps: string, steps: string }} choice
 */
const stepsOf = ({ base_steps: base, steps }) => ({
  ...(steps && { steps }),
  ...((base || steps) && { base_selection: base ? `{"steps":[${base}]}` : "{}" }),
});

/**
 * The chosen cycles of both sides as parameters.
 * @param {Choice} choice
 */
const cyclesOf = ({ base_cycle: base, cycle }) => ({ ...(base && { base_cycle: base }), ...(cycle && { cycle }) });

/**
 * The address of the comparison; that of two memory snapshots has no parameters but the steps.
 * @param {Target} base
 * @param {Target} other
 * @param {Choice} choice
 */
export function addressOfAnswer(base, other, choice) {
  const [analysis, parameters] = areSnapshots(base, other) ? ["compare_snapshots", stepsOf(choice)] : ["compare", parametersOf(choice)];
  return `${api(other.kind === "run" ? "groups" : "traces", other.id, "analysis", analysis)}?${new URLSearchParams({ base: base.id, ...cyclesOf(choice), ...parameters })}`;
}

/**
 * @param {Target} base
 * @param {Target} other
 */
export const areSnapshots = (base, other) => base.isSnapshot && other.isSnapshot;
