// The panel "Analyses": built-in analyses of a trace. The API lists them with their parameters and tables.
import { Problem, api, getJson, postJson } from "./api.js";
import { announce, byId, el, setText } from "./dom.js";
import { count } from "./format.js";
import { hideProblem, showProblem } from "./problem.js";
import { legible, showResult } from "./result.js";

const OVERLAY_WAIT_S = 60;
const STEPS_MAX = 1000; // options of the list of steps

/**
 * Wire the panel for a ready trace; the first request waits until the panel comes into view.
 * @param {Trace} trace
 */
export function startAnalyses(trace) {
  const panel = byId("analyses");
  const [question, part, run] = [byId("analysis-name"), byId("analysis-part"), byId("analysis-run")];
  /** @type {Map<string, Analysis>} */
  let known = new Map();
  /** @type {AbortController | null} */
  let asking = null;

  async function list() {
    try {
      /** @type {{ analyses: Analysis[] }} */
      const { analyses } = await getJson(api("traces", trace.id, "analysis"));
      known = new Map(analyses.map((analysis) => [analysis.name, analysis]));
      const apply = analyses.filter(({ applies }) => applies);
      question.replaceChildren(...apply.map(({ name, answers }) => el("option", { value: name }, `${wordsOf(name)}: ${answers}`)));
      const rest = analyses.filter(({ applies }) => !applies);
      byId("analysis-rest").hidden = rest.length === 0;
      byId("analysis-reasons").replaceChildren(...rest.map(({ name, reason }) => el("li", {}, el("strong", {}, wordsOf(name)), ` ${reason}`)));
      for (const control of [question, part, run]) control.disabled = apply.length === 0;
      showParameters();
      if (apply.length > 0) await ask();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      showProblem(byId("analysis-problem"), error);
    }
  }

  /** Show the parameters of the chosen analysis. */
  function showParameters() {
    const { parameters = {} } = known.get(question.value) ?? {};
    byId("analysis-parameters").replaceChildren(...Object.entries(parameters).map(([name, schema]) => field(name, schema)));
  }

  /** @param {Record<string, string>} more */
  function address(more = {}) {
    const wanted = new URLSearchParams(more);
    /** @type {NodeListOf<HTMLInputElement>} */
    const controls = byId("analysis-parameters").querySelectorAll("[name]");
    for (const control of controls) {
      const value = control.type === "checkbox" ? String(control.checked) : control.value;
      if (value !== control.dataset.default && value !== "") wanted.set(control.name, value);
    }
    if (part.value !== "") wanted.set("steps", part.value);
    return `${api("traces", trace.id, "analysis", question.value)}?${wanted}`;
  }

  async function ask() {
    asking?.abort();
    const request = new AbortController();
    asking = request;
    hideProblem(byId("analysis-problem"));
    setText(byId("analysis-said"), "Running …");
    try {
      const answer = await getJson(address(), { signal: request.signal });
      setText(byId("analysis-said"), `Answered in ${count(Math.ceil(Number(answer.elapsed_ms)))} ms.`);
      show(answer);
      announce(`${wordsOf(answer.analysis)} answered`);
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!(error instanceof Problem)) throw error;
      setText(byId("analysis-said"), "");
      byId("analysis-answer").replaceChildren();
      showProblem(byId("analysis-problem"), error);
    }
  }

  /** @param {AnalysisAnswer} answer */
  function show({ definition, source, notes, tables }) {
    const remarks = notes.map((text) => el("p", { class: "small" }, text));
    const about = el("p", { class: "small muted" }, definition, " ", el("a", { href: source, target: "_blank", rel: "noopener noreferrer" }, "Source"));
    const shown = Object.entries(tables).flatMap(([name, table]) => {
      const box = el("div", { "data-testid": `analysis-${name}` });
      showResult(box, table, { number: legible });
      box.querySelector("[role=region]")?.setAttribute("aria-label", wordsOf(name));
      const csv = el("a", { href: address({ format: "csv", table: name }), download: `${trace.name}.${question.value}.${name}.csv` }, "CSV");
      return [el("h3", {}, wordsOf(name), " ", el("span", { class: "small" }, csv)), box];
    });
    const overlay = question.value === "critical_path" ? [overlayButton()] : [];
    byId("analysis-answer").replaceChildren(about, ...remarks, ...overlay, ...shown);
  }

  /** A button that makes a trace with the critical path as a separate track, and then links to it in the Perfetto UI. */
  function overlayButton() {
    const button = el("button", { type: "button", "data-testid": "analysis-overlay" }, "Show in Perfetto");
    button.addEventListener("click", async () => {
      button.disabled = true;
      setText(button, "Making a trace of it …");
      try {
        const selection = part.value === "" ? {} : { steps: [Number(part.value)] };
        const job = await postJson(api("traces", trace.id, "overlay"), { analysis: "critical_path", selection });
        const { result, error } = await getJson(`${api("jobs", job.id)}?wait=${OVERLAY_WAIT_S}`);
        if (error) throw new Problem(error);
        const [overlay] = result?.traces ?? [];
        button.replaceWith(overlay ? el("a", { href: api("traces", overlay, "perfetto"), target: "_blank", "data-testid": "analysis-overlay" }, "Open it in Perfetto") : "This takes long: see the jobs.");
      } catch (problem) {
        if (!(problem instanceof Problem)) throw problem;
        button.remove();
        showProblem(byId("analysis-problem"), problem);
      }
    });
    return button;
  }

  part.append(...[...new Set(trace.steps.map(({ number }) => String(number)))].slice(0, STEPS_MAX).map((n) => el("option", { value: n }, `step ${n}`)));
  /** @type {HTMLElement} */ (part.parentElement).hidden = part.options.length < 2;
  question.addEventListener("change", () => {
    showParameters();
    ask();
  });
  part.addEventListener("change", ask);
  run.addEventListener("click", ask);
  byId("analysis-parameters").addEventListener("change", ask);
  panel.hidden = false;
  const observer = new IntersectionObserver((entries) => {
    if (!entries.some(({ isIntersecting }) => isIntersecting)) return;
    observer.disconnect();
    list();
  });
  observer.observe(panel);
}

/** @param {string} name */
const wordsOf = (name) => name.replaceAll("_", " ").replace(/^./, (first) => first.toUpperCase());

/**
 * A control for a parameter, from its JSON Schema.
 * @param {string} name
 * @param {ParameterSchema} schema
 */
function field(name, schema) {
  const { description = "", default: value = null } = schema;
  const kinds = [schema, ...(schema.anyOf ?? [])];
  const options = kinds.find((kind) => kind.enum)?.enum;
  const attributes = { name, title: description, "data-default": value === null ? "" : String(value) };
  if (kinds.some(({ type }) => type === "boolean")) return el("label", {}, el("input", { type: "checkbox", checked: value === true, ...attributes }), ` ${wordsOf(name)}`);
  const control = options
    ? el("select", attributes, options.map((option) => el("option", { selected: option === value }, option)))
    : el("input", { type: "text", autocomplete: "off", value: value ?? "", ...attributes });
  return el("label", {}, `${wordsOf(name)} `, control);
}
