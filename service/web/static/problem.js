// Shows errors of the service.
/** @import { Problem } from "./api.js" */
import { count } from "./format.js";
import { el } from "./dom.js";

/**
 * Fill `box` with a problem (a Problem, or the `error` object of a trace) and show it.
 * @param {HTMLElement} box
 * @param {Problem | ProblemFields} problem
 * @param {...Node} more
 */
export function showProblem(box, problem, ...more) {
  const fields = "fields" in problem ? problem.fields : problem;
  const offset = fields.offset ?? null;
  const isShown = offset === null || problem.detail?.includes(`byte ${offset}`);
  box.replaceChildren(
    el("p", {}, el("strong", {}, problem.title ?? "Failed"), " ", el("code", { class: "code" }, problem.code ?? "")),
    ...(problem.detail ? [el("p", {}, problem.detail)] : []),
    ...(isShown ? [] : [el("p", {}, `At byte ${count(offset)}.`)]),
    ...more,
  );
  box.hidden = false;
}

/** @param {HTMLElement} box */
export function hideProblem(box) {
  box.hidden = true;
  box.replaceChildren();
}
