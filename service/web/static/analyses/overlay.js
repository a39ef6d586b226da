// The critical path as a separate track of a derived trace.
import { Problem, api, getJson, postJson } from "../api.js";
import { el, setText } from "../dom.js";
import { showProblem } from "../problem.js";

const WAIT_S = 60;

/**
 * Make a button that makes a trace with the critical path as a separate track, and then links to it in the Perfetto UI.
 * @param {Trace} trace
 * @param {string} step the part of the trace; empty for all of it
 * @param {HTMLElement} note shows a problem
 */
export function overlayButton(trace, step, note) {
  const button = el("button", { type: "button", "data-write": true, "data-testid": "analysis-overlay" }, "Show in Perfetto");
  button.addEventListener("click", async () => {
    button.disabled = true;
    setText(button, "Making a trace of it …");
    try {
      const selection = step === "" ? {} : { steps: [Number(step)] };
      const job = await postJson(api("traces", trace.id, "overlay"), { analysis: "critical_path", selection });
      const { result, error } = await getJson(`${api("jobs", job.id)}?wait=${WAIT_S}`);
      if (error) throw new Problem(error);
      const [overlay] = result?.traces ?? [];
      button.replaceWith(overlay ? el("a", { href: api("traces", overlay, "perfetto"), target: "_blank", "data-testid": "analysis-overlay" }, "Open it in Perfetto") : "This takes long: see the jobs.");
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      button.remove();
      showProblem(note, problem);
    }
  });
  return button;
}
