// The page that compares two traces, two steps or two runs.
import { Problem, getJson } from "../api.js";
import { divergingBars } from "../charts/diverging_bars.js";
import { announce, byId, el, setText } from "../dom.js";
import { count, duration, plural } from "../format.js";
import { hideProblem, showProblem } from "../problem.js";
import { chosenColumns, recordsOf } from "../records.js";
import { showTable } from "../table.js";
import { linksOf, sidesOf, slicesOf } from "./links.js";
import { showMemory } from "./memory.js";
import { startPicker } from "./picker.js";
import { addressOf, choiceInAddress, withBothCycles } from "./place.js";
import { addressOfAnswer, areSnapshots } from "./request.js";
import { sentenceOf, stepsOf } from "./sentence.js";
import { readTarget } from "./target.js";
import { VIEWS, barOf, changesOf, columnsOf, drawnOf, seriesOf, signed, tally, withWords } from "./views.js";

/** @import { Choice } from "./place.js" */
/** @import { Change } from "./views.js" */
/** @import { Target } from "./target.js" */
/** @typedef {{ base: Target, other: Target, address: string, answer: AnalysisAnswer }} Comparison */

const SKIPPED_MAX = 20;

let choice = choiceInAddress();
let request = new AbortController();
/** @type {Map<string, Target>} */
const targets = new Map(); // that are read, by id and cycle
/** @type {Comparison | null} */
let comparison = null;

for (const side of /** @type {const} */ (["base", "other"])) {
  startPicker(byId(`compare-${side}`), byId(`compare-${side}-list`), (id) => choose({ [side]: id, [stepsField(side)]: "", [cycleField(side)]: "" }));
  byId(`compare-${side}-steps`).addEventListener("change", () => choose({ [stepsField(side)]: byId(`compare-${side}-steps`).value }));
  byId(`compare-${side}-cycle`).addEventListener("change", () => chooseCycle(side, byId(`compare-${side}-cycle`).value));
}
byId("compare-swap").addEventListener("click", () => choose({ base: choice.other, other: choice.base, base_steps: choice.steps, steps: choice.base_steps, base_cycle: choice.cycle, cycle: choice.base_cycle }));
byId("compare-by").addEventListener("change", () => choose({ by: byId("compare-by").value }));
byId("compare-pct").addEventListener("change", () => choose({ threshold_pct: byId("compare-pct").value.trim() }));
byId("compare-ms").addEventListener("change", () => choose({ least_ms: byId("compare-ms").value.trim() }));
byId("compare-cancel").addEventListener("click", () => {
  request.abort();
  byId("compare-waiting").hidden = true;
  byId("compare-result").hidden = true;
  setText(byId("compare-said"), "Cancelled. Change a side or the threshold to compare again.");
});
window.addEventListener("popstate", () => {
  choice = choiceInAddress();
  show();
});
show();

/** @param {"base" | "other"} side */
function stepsField(side) {
  return side === "base" ? "base_steps" : "steps";
}

/** @param {"base" | "other"} side */
function cycleField(side) {
  return side === "base" ? "base_cycle" : "cycle";
}

/**
 * Compare a cycle of a side; all cycles of a side are compared with all of the other.
 * @param {"base" | "other"} side
 * @param {string} cycle
 */
function chooseCycle(side, cycle) {
  choose({ ...(cycle === "" ? { base_cycle: "", cycle: "" } : { [cycleField(side)]: cycle }), [stepsField(side)]: "" });
}

/** @param {Partial<Choice>} change */
function choose(change) {
  choice = { ...choice, ...change };
  const address = addressOf(choice);
  if (address !== location.href) history.pushState(null, "", address);
  show();
}

/** Show what the address names: both sides, and then what changed between them. */
async function show() {
  request.abort();
  request = new AbortController();
  const { signal } = request;
  byId("compare-by").value = choice.by;
  byId("compare-pct").value = choice.threshold_pct;
  byId("compare-ms").value = choice.least_ms;
  byId("compare-swap").disabled = !choice.base || !choice.other;
  hideProblem(byId("compare-problem"));
  setText(byId("compare-said"), "");
  const [base, other] = await Promise.all([sideOf("base", signal), sideOf("other", signal)]);
  if (signal.aborted) return;
  if (base && other) {
    const { base_cycle: baseCycle, cycle } = withBothCycles(choice, base, other);
    if (baseCycle !== choice.base_cycle || cycle !== choice.cycle) {
      choice = { ...choice, base_cycle: baseCycle, cycle };
      history.replaceState(null, "", addressOf(choice));
      return show();
    }
  }
  byId("compare-options").hidden = !base || !other || areSnapshots(base, other);
  if (base && other) await compare(base, other, signal);
  else {
    byId("compare-result").hidden = true;
    if (!choice.base || !choice.other) setText(byId("compare-said"), choice.base || choice.other ? "Choose the other side." : "Choose two traces or runs. One trace may be on both sides, to compare its steps.");
  }
}

/**
 * Show a side, and wait until it is read; null if it is not chosen, or can't be compared.
 * @param {"base" | "other"} side
 * @param {AbortSignal} signal
 * @returns {Promise<Target | null>}
 */
async function sideOf(side, signal) {
  const id = choice[side];
  const [problem, name, about, steps] = [byId(`compare-${side}-problem`), byId(`compare-${side}-name`), byId(`compare-${side}-about`), byId(`compare-${side}-steps`)];
  hideProblem(problem);
  byId(`compare-${side}-steps-label`).hidden = true;
  byId(`compare-${side}-cycle-label`).hidden = true;
  if (!id) {
    name.replaceChildren(el("span", { class: "muted" }, "not chosen"));
    setText(about, "");
    return null;
  }
  try {
    const cycle = choice[cycleField(side)];
    const key = `${id} ${cycle}`;
    const target = targets.get(key) ?? (await readTarget(id, cycle, (known, progress) => showProgress(name, about, known, progress), signal));
    targets.set(key, target);
    if (signal.aborted) return null;
    name.replaceChildren(el("a", { href: target.href }, target.name));
    setText(about, `${target.kind === "run" ? "Run" : "Trace"} · ${target.about}`);
    showCycles(byId(`compare-${side}-cycle`), target, cycle);
    byId(`compare-${side}-cycle-label`).hidden = target.cycles.length < 2;
    showSteps(steps, target, choice[stepsField(side)]);
    byId(`compare-${side}-steps-label`).hidden = steps.options.length < 2;
    return target;
  } catch (error) {
    if (error.name === "AbortError") return null;
    if (!(error instanceof Problem)) throw error;
    name.replaceChildren(el("span", { class: "mono muted" }, id));
    setText(about, "");
    showProblem(problem, error);
    return null;
  }
}

/**
 * @param {HTMLElement} name
 * @param {HTMLElement} about
 * @param {string} known
 * @param {string} progress
 */
function showProgress(name, about, known, progress) {
  setText(name, known);
  setText(about, `Being read: ${progress}. It is compared once it is ready.`);
}

/**
 * @param {HTMLSelectElement} select
 * @param {Target} target
 * @param {string} chosen
 */
function showCycles(select, { cycles, cycleNames }, chosen) {
  select.replaceChildren(new Option("all", ""), ...cycles.map((cycle, index) => new Option(cycleNames[index], cycle)));
  select.value = chosen;
}

/**
 * @param {HTMLSelectElement} select
 * @param {Target} target
 * @param {string} chosen
 */
function showSteps(select, { steps }, chosen) {
  const numbers = chosen && !steps.includes(chosen) ? [...steps, chosen] : steps;
  select.replaceChildren(el("option", { value: "" }, steps.length > 0 ? "all steps" : "all of it"), ...numbers.map((number) => el("option", { value: number }, `step ${number}`)));
  select.value = chosen;
}

/**
 * @param {Target} base
 * @param {Target} other
 * @param {AbortSignal} signal
 */
async function compare(base, other, signal) {
  document.title = `${base.name} and ${other.name} · Tracedock`;
  for (const field of ["compare-pct", "compare-ms"]) byId(field).removeAttribute("aria-invalid");
  try {
    const address = addressOfAnswer(base, other, choice);
    if (comparison?.address !== address) {
      byId("compare-waiting").hidden = false;
      byId("compare-result").classList.add("stale");
      comparison = { base, other, address, answer: await getJson(address, { signal }) };
    }
    if (signal.aborted) return;
    showComparison(comparison);
  } catch (error) {
    if (error.name === "AbortError") return;
    byId("compare-result").hidden = true;
    if (error instanceof RangeError) {
      for (const field of ["compare-pct", "compare-ms"]) byId(field).setAttribute("aria-invalid", "true");
      showProblem(byId("compare-problem"), { title: "The threshold is no number", detail: `${error.message} Write a percentage like 5 and milliseconds like 0.1.` });
    } else if (error instanceof Problem) showProblem(byId("compare-problem"), error);
    else throw error;
  } finally {
    if (!signal.aborted) {
      byId("compare-waiting").hidden = true;
      byId("compare-result").classList.remove("stale");
    }
  }
}

/** @param {Comparison} comparison */
function showComparison({ base, other, address, answer }) {
  byId("compare-notes").replaceChildren(...answer.notes.map((note) => el("p", { class: "small" }, withCode(note))), ...skippedOf(answer));
  byId("compare-result").hidden = false;
  if (areSnapshots(base, other)) showMemory(address, answer);
  else showTime(base, other, address, answer);
  announce(byId("compare-sentence").textContent ?? "");
}

/**
 * Show what changed in time.
 * @param {Target} base
 * @param {Target} other
 * @param {string} address
 * @param {AnalysisAnswer} answer
 */
function showTime(base, other, address, { tables }) {
  const view = VIEWS.find(({ name }) => name === choice.show) ?? VIEWS.find(({ name }) => tables[name].rows.length > 0) ?? VIEWS[0];
  setText(byId("compare-sentence"), sentenceOf(tables));
  setText(byId("compare-means"), stepsOf(tables));
  byId("compare-views").replaceChildren(...VIEWS.map((each) => linkTo(each, each === view, tables[each.name])));

  const sides = sidesOf(base, other, choice);
  const changes = changesOf(view, tables[view.name], choice.by);
  const largest = drawnOf(view, changes);
  setText(byId("compare-tally"), changes.length === 0 ? view.none : `Of ${count(changes.length)} ${view.noun}: ${tally(changes)}.`);
  byId("compare-chart").hidden = largest.length === 0;
  byId("compare-chart").replaceChildren();
  if (largest.length > 0) {
    const hrefs = largest.map(({ row }) => slicesOf(view.name, row, sides[1]) ?? slicesOf(view.name, row, sides[0]) ?? undefined);
    const bars = largest.map((change, index) => barOf(change, hrefs[index]));
    byId("compare-chart").append(divergingBars({ title: titleOf(view.name, largest), name: "compare", series: seriesOf(largest), bars, text: (value) => (value === 0 ? duration(0) : signed(value)) }));
  }
  const table = withWords(chosenColumns(tables[view.name], columnsOf(view, tables[view.name], choice.by)));
  const [csv, arrow] = ["csv", "arrow"].map((format) => `${address}&${new URLSearchParams({ format, table: view.name })}`);
  byId("compare-table").hidden = table.rows.length === 0;
  if (table.rows.length > 0) showTable(byId("compare-table"), table, { label: view.title, csv, arrow, actions: (row) => linksOf(view.name, recordsOf({ columns: table.columns, rows: [row] })[0], sides) });
}

/**
 * @param {string} view
 * @param {Change[]} drawn
 */
function titleOf(view, drawn) {
  const measure = view === "steps" ? "in a mean step" : view === "each_step" ? "of each step" : { total: "in total", mean: "per call" }[choice.by] ?? "per step";
  const which = view === "steps" || view === "each_step" ? "" : drawn[0].verdict === "same" ? ", all within the threshold" : "";
  return `${which || view === "steps" || view === "each_step" ? "Differences" : "Largest differences"} from the base, ${measure}${which}`;
}

/**
 * @param {{ name: string, title: string }} view
 * @param {boolean} isCurrent
 * @param {Table} table
 */
function linkTo({ name, title }, isCurrent, table) {
  const verdict = table.columns.findIndex((column) => column.name === "verdict");
  const changed = table.rows.filter((row) => row[verdict] !== "same").length;
  const words = table.rows.length === 0 ? "none" : changed === 0 ? "no change" : `${count(changed)} changed`;
  const link = el("a", { href: addressOf({ ...choice, show: name }), "aria-current": isCurrent ? "page" : null, "data-testid": `view-${name}` }, el("span", {}, title), el("span", { class: "muted small" }, words));
  link.addEventListener("click", (event) => {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    choose({ show: name });
    /** @type {HTMLElement | null} */ (byId("compare-views").querySelector("[aria-current]"))?.focus(); // the link is drawn anew
  });
  return link;
}

/**
 * A text in which what is between backticks is code.
 * @param {string} text
 */
const withCode = (text) => text.split("`").map((part, index) => (index % 2 ? el("code", {}, part) : part));

/** @param {AnalysisAnswer} answer */
function skippedOf({ skipped }) {
  if (skipped.length === 0) return [];
  const items = skipped.slice(0, SKIPPED_MAX).map(({ name, reason }) => el("li", {}, el("span", { class: "mono" }, name), ` ${reason}`));
  const more = skipped.length > SKIPPED_MAX ? [el("li", {}, `and ${count(skipped.length - SKIPPED_MAX)} more`)] : [];
  return [el("details", { class: "small" }, el("summary", {}, `${plural(skipped.length, "trace")} left out`), el("ul", {}, ...items, ...more))];
}
