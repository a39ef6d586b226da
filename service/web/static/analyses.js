// The panel "Analyses": what is often asked of a trace. Which questions there are, their parameters and tables, the API tells.
import { Problem, api, getJson, postJson } from "./api.js";
import { announce, byId, el, setText } from "./dom.js";
import { count } from "./format.js";
import { hideProblem, showProblem } from "./problem.js";
import { legible, showResult } from "./result.js";

const OVERLAY_WAIT_S = 60;
const STEPS_MAX = 1000; // in a list that a person chooses from

/** Wire the panel for a ready trace; nothing is asked before it comes into view. */
export function startAnalyses(trace) {
  const panel = byId("analyses");
  const [question, part, run] = [byId("analysis-name"), byId("analysis-part"), byId("analysis-run")];
  let known = new Map();
  let asking = null;

  async function list() {
    try {
      const { analyses } = await getJson(api("traces", trace.id, "analysis"));
      known = new Map(analyses.map((one) => [one.name, one]));
      const apply = analyses.filter(({ applies }) => applies);
      question.replaceChildren(...apply.map(({ name, answers }) => el("option", { value: name }, `${wordsOf(name)}: ${answers}`)));
      const rest = analyses.filter(({ applies }) => !applies);
      byId("analysis-rest").hidden = rest.length === 0;
      byId("analysis-reasons").replaceChildren(...rest.map(({ name, reason }) => el("li", {}, el("strong", {}, wordsOf(name)), ` ${reason}`)));
      for (const control of [question, part, run]) control.disabled = apply.length === 0;
      chosen();
      if (apply.length > 0) await ask();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      showProblem(byId("analysis-problem"), error);
    }
  }

  /** Another question has other parameters. */
  function chosen() {
    const one = known.get(question.value);
    byId("analysis-parameters").replaceChildren(...Object.entries(one?.parameters ?? {}).map(([name, schema]) => field(name, schema)));
  }

  function address(more = {}) {
    const wanted = new URLSearchParams(more);
    for (const control of byId("analysis-parameters").querySelectorAll("[name]")) {
      const value = control.type === "checkbox" ? String(control.checked) : control.value;
      if (value !== control.dataset.default && value !== "") wanted.set(control.name, value);
    }
    if (part.value !== "") wanted.set("steps", part.value);
    return `${api("traces", trace.id, "analysis", question.value)}?${wanted}`;
  }

  async function ask() {
    asking?.abort();
    const mine = (asking = new AbortController());
    hideProblem(byId("analysis-problem"));
    setText(byId("analysis-said"), "Asking …");
    try {
      const answer = await getJson(address(), { signal: mine.signal });
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

  function show({ definition, source, notes, tables }) {
    const said = notes.map((text) => el("p", { class: "small" }, text));
    const about = el("p", { class: "small muted" }, definition, " ", el("a", { href: source, target: "_blank", rel: "noopener noreferrer" }, "Source"));
    const shown = Object.entries(tables).flatMap(([name, table]) => {
      const box = el("div", { "data-testid": `analysis-${name}` });
      showResult(box, table, { number: legible });
      box.querySelector("[role=region]").setAttribute("aria-label", wordsOf(name));
      const csv = el("a", { href: address({ format: "csv", table: name }), download: `${trace.name}.${question.value}.${name}.csv` }, "CSV");
      return [el("h3", {}, wordsOf(name), " ", el("span", { class: "small" }, csv)), box];
    });
    const overlay = question.value === "critical_path" ? [overlayButton()] : [];
    byId("analysis-answer").replaceChildren(about, ...said, ...overlay, ...shown);
  }

  /** Makes a trace with the critical path as a track of its own, and leads to it in the Perfetto UI. */
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
        const [made] = result?.traces ?? [];
        button.replaceWith(made ? el("a", { href: api("traces", made, "perfetto"), target: "_blank", "data-testid": "analysis-overlay" }, "Open it in Perfetto") : "It takes long: see the jobs.");
      } catch (problem) {
        if (!(problem instanceof Problem)) throw problem;
        button.remove();
        showProblem(byId("analysis-problem"), problem);
      }
    });
    return button;
  }

  part.append(...[...new Set(trace.steps.map(({ number }) => String(number)))].slice(0, STEPS_MAX).map((n) => el("option", { value: n }, `step ${n}`)));
  part.parentElement.hidden = part.options.length < 2;
  question.addEventListener("change", () => {
    chosen();
    ask();
  });
  part.addEventListener("change", ask);
  run.addEventListener("click", ask);
  byId("analysis-parameters").addEventListener("change", ask);
  panel.hidden = false;
  const seen = new IntersectionObserver((entries) => {
    if (!entries.some(({ isIntersecting }) => isIntersecting)) return;
    seen.disconnect();
    list();
  });
  seen.observe(panel);
}

const wordsOf = (name) => name.replaceAll("_", " ").replace(/^./, (first) => first.toUpperCase());

/** A control for a parameter, from its JSON Schema. */
function field(name, schema) {
  const { description = "", default: value = null } = schema;
  const kinds = [schema, ...(schema.anyOf ?? [])];
  const options = kinds.find((kind) => kind.enum)?.enum;
  const told = { name, title: description, "data-default": value === null ? "" : String(value) };
  if (kinds.some(({ type }) => type === "boolean")) return el("label", {}, el("input", { type: "checkbox", checked: value === true, ...told }), ` ${wordsOf(name)}`);
  const control = options
    ? el("select", told, options.map((option) => el("option", { selected: option === value }, option)))
    : el("input", { type: "text", autocomplete: "off", value: value ?? "", ...told });
  return el("label", {}, `${wordsOf(name)} `, control);
}
