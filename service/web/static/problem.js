// How a problem looks, wherever it is shown.
import { count } from "./format.js";
import { el } from "./dom.js";

/** Fill `box` with a problem (a Problem, or a trace's `error` object) and show it. */
export function showProblem(box, problem, ...more) {
  const offset = problem.fields?.offset ?? problem.offset ?? null;
  const told = offset === null || problem.detail?.includes(`byte ${offset}`);
  box.replaceChildren(
    el("p", {}, el("strong", {}, problem.title ?? "Failed"), " ", el("code", { class: "code" }, problem.code ?? "")),
    ...(problem.detail ? [el("p", {}, problem.detail)] : []),
    ...(told ? [] : [el("p", {}, `At byte ${count(offset)}.`)]),
    ...more,
  );
  box.hidden = false;
}

export function hideProblem(box) {
  box.hidden = true;
  box.replaceChildren();
}
