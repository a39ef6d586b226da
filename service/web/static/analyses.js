// The panel "Analyses": a gallery of the built-in analyses of a trace by theme. Each shows its pictures, then its tables.
import { addressOf, choiceInAddress, windowInAddress } from "./analyses/place.js";
import { parameterFields } from "./analyses/options.js";
import { overlayButton } from "./analyses/overlay.js";
import { picturesOf } from "./analyses/pictures.js";
import { byTheme, titleOf } from "./analyses/themes.js";
import { analysesOf, answerOf } from "./answer.js";
import { Problem, api, getJson } from "./api.js";
import { announce, byId, el, setText } from "./dom.js";
import { count, duration, plural, span } from "./format.js";
import { chosenWindow, onWindowChange } from "./overview/window.js";
import { hideProblem, showProblem } from "./problem.js";
import { recordsOf } from "./records.js";
import { slicesOf } from "./analyses/slices.js";
import { showTable } from "./table.js";

/** @import { Choice } from "./analyses/place.js" */

const STEPS_MAX = 1000; // options of the list of parts
const SETTLED_MS = 250; // pause in changing a window after which the analyses of it run
const DASHBOARD = ["memory_snapshot", "steps", "kernel_breakdown", "idle_breakdown", "operators"];
const DASHBOARD_MAX = 3;
const ALONE = "memory_snapshot"; // says all about a trace without work on a GPU

/**
 * Wire the panel for a ready trace. If the address names an analysis, it is shown at once. Else the first request waits
 * until the panel comes into view, and until `after`, so that it does not slow down what is above it.
 * @param {Trace} trace
 * @param {{ after: Promise<void> }} options
 */
export function startAnalyses(trace, { after }) {
  const panel = byId("analyses");
  const gallery = new Gallery(trace);
  panel.hidden = false;
  if (gallery.choice.name !== null) {
    if (location.hash === "" && !restoresScroll()) panel.scrollIntoView();
    gallery.start();
    return;
  }
  const observer = new IntersectionObserver(async (entries) => {
    if (!entries.some(({ isIntersecting }) => isIntersecting)) return;
    observer.disconnect();
    await after;
    gallery.start();
  });
  observer.observe(panel);
}

class Gallery {
  /** @param {Trace} trace */
  constructor(trace) {
    this.trace = trace;
    /** @type {Map<string, Analysis>} */
    this.known = new Map();
    this.choice = choiceInAddress();
    this.request = new AbortController();
    this.settling = 0;
  }

  /** Show the analyses of the window once it rests: after a pause, and not while a pointer drags it. */
  settle() {
    clearTimeout(this.settling);
    this.settling = setTimeout(() => (document.querySelector("canvas:active") ? this.settle() : this.show()), SETTLED_MS);
  }

  async start() {
    try {
      const analyses = await analysesOf(this.trace.id);
      this.known = new Map(analyses.map((analysis) => [analysis.name, analysis]));
      this.showThemes(analyses);
      this.showParts();
      window.addEventListener("popstate", () => {
        this.choice = choiceInAddress();
        this.show();
      });
      onWindowChange(() => this.settle());
      await this.show();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      showProblem(byId("analysis-problem"), error);
    }
  }

  /** @param {Analysis[]} analyses */
  showThemes(analyses) {
    const dashboard = el("ul", {}, el("li", {}, this.linkTo(null, el("span", { class: "topic" }, "Dashboard"), el("span", { class: "question" }, "What matters most?"))));
    const themes = byTheme(analyses).map(({ theme, entries }) => {
      const items = entries.map(({ name, answers, applies, reason }) =>
        el("li", { class: applies ? null : "absent", title: reason }, this.linkTo(name, el("span", { class: "topic" }, titleOf(name)), el("span", { class: "question" }, applies ? answers : `${answers} Not for this trace.`))),
      );
      return el("div", { role: "group", "aria-label": theme }, el("h3", {}, theme), el("ul", {}, items));
    });
    byId("analysis-themes").replaceChildren(dashboard, ...themes);
  }

  /**
   * A link to an analysis, or to the dashboard, which the page follows without a load.
   * @param {string | null} name
   * @param {...Children} content
   */
  linkTo(name, ...content) {
    const link = el("a", { href: addressOf({ name, steps: this.choice.steps, options: {} }), "data-analysis": name ?? "" }, ...content.flat());
    link.addEventListener("click", (event) => {
      if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
      event.preventDefault();
      this.choose({ name, steps: this.choice.steps, options: {} });
      byId("analyses").scrollIntoView({ block: "start" });
    });
    return link;
  }

  showParts() {
    const part = byId("analysis-part");
    const numbers = [...new Set(this.trace.steps.map(({ number }) => String(number)))].slice(0, STEPS_MAX);
    part.append(...numbers.map((number) => el("option", { value: number }, `step ${number}`)));
    part.addEventListener("change", () => this.choose({ ...this.choice, steps: part.value }));
  }

  /**
   * Show which part the analyses are about: steps, the window that is chosen in the overview, or both.
   * @param {string} steps
   */
  showPart(steps) {
    const [part, window] = [byId("analysis-part"), chosenWindow()];
    part.value = steps;
    part.options[0].text = window ? `the chosen window, ${duration(span(window))}` : "all of this trace";
    byId("analysis-part-label").hidden = part.options.length < 2 && window === null;
  }

  /** @param {Choice} choice */
  choose(choice) {
    const address = addressOf(choice);
    if (address !== location.href) history.pushState(null, "", address);
    this.choice = choice;
    this.show();
  }

  /** Show the chosen analysis, or the dashboard. */
  async show() {
    const { name, steps } = this.choice;
    this.request.abort();
    const request = new AbortController();
    this.request = request;
    for (const link of byId("analysis-themes").querySelectorAll("a")) {
      if (link.dataset.analysis === (name ?? "")) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    this.showPart(steps);
    hideProblem(byId("analysis-problem"));
    setText(byId("analysis-said"), "Running …");
    byId("analysis-answer").classList.add("stale");
    try {
      const [content, said] = name === null ? await this.dashboard(request.signal) : await this.analysis(name, request.signal);
      if (request.signal.aborted) return;
      byId("analysis-answer").replaceChildren(...content);
      setText(byId("analysis-said"), said);
      announce(`${name === null ? "The dashboard" : titleOf(name)}: ${said || "does not apply"}`);
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!(error instanceof Problem)) throw error;
      setText(byId("analysis-said"), "");
      byId("analysis-answer").replaceChildren(...(name === null ? [] : [...this.head(name), this.optionsOf(name)]));
      showProblem(byId("analysis-problem"), error);
    } finally {
      if (!request.signal.aborted) byId("analysis-answer").classList.remove("stale");
    }
  }

  /**
   * @param {string} name
   * @param {Record<string, string>} more
   */
  requestOf(name, more = {}) {
    const { steps, options } = this.choice;
    const wanted = new URLSearchParams({ ...options, ...(steps && { steps }), ...windowInAddress(), ...more });
    return `${api("traces", this.trace.id, "analysis", name)}${wanted.size > 0 ? `?${wanted}` : ""}`;
  }

  /**
   * The pictures that matter most, of the analyses that apply.
   * @param {AbortSignal} signal
   * @returns {Promise<[HTMLElement[], string]>}
   */
  async dashboard(signal) {
    const applicable = DASHBOARD.filter((name) => this.known.get(name)?.applies);
    const names = this.trace.streams.length === 0 && applicable.includes(ALONE) ? [ALONE] : applicable.slice(0, DASHBOARD_MAX);
    const started = performance.now();
    const parts = await Promise.all(names.map(async (name) => ({ name, answer: await answerOf(this.requestOf(name), { signal }) })));
    const boxes = parts.flatMap(({ name, answer }) => {
      const pictures = answer === null ? [] : drawn(answer, this.trace);
      const more = el("p", { class: "more small" }, this.linkTo(name, `All of ${titleOf(name).toLowerCase()}`));
      return pictures.length === 0 ? [] : [el("div", { class: "pictures", "data-testid": `dashboard-${name}` }, ...pictures.slice(0, 2), more)];
    });
    const empty = el("p", { class: "muted" }, "Nothing in this part of the trace can be drawn. Choose an analysis, or another part.");
    return [[el("div", { class: "dashboard" }, ...(boxes.length > 0 ? boxes : [empty]))], `Answered in ${count(Math.ceil(performance.now() - started))} ms`];
  }

  /**
   * @param {string} name
   * @param {AbortSignal} signal
   * @returns {Promise<[HTMLElement[], string]>}
   */
  async analysis(name, signal) {
    const known = this.known.get(name);
    if (!known) return [[el("p", { class: "note" }, `There is no analysis “${name}”. Choose one from the list.`)], ""];
    if (!known.applies) return [[...this.head(name), el("p", { class: "note", "data-testid": "analysis-reason" }, known.reason)], ""];
    /** @type {AnalysisAnswer} */
    const answer = await getJson(this.requestOf(name), { signal });
    const pictures = drawn(answer, this.trace);
    const notes = answer.notes.map((text) => el("p", { class: "small" }, text));
    const overlay = name === "critical_path" ? [overlayButton(this.trace, this.choice.steps, byId("analysis-problem"))] : [];
    const tables = Object.entries(answer.tables).map(([table, content], index) => this.tableOf(name, table, content, pictures.length === 0 && index === 0));
    const definition = el("details", { "data-testid": "analysis-definition" }, el("summary", {}, "Definition"), el("p", { class: "small" }, answer.definition, " ", el("a", { href: answer.source, target: "_blank", rel: "noopener noreferrer" }, "Source")));
    const content = [...this.head(name), ...overlay, ...notes, ...(pictures.length > 0 ? [el("div", { class: "pictures" }, ...pictures)] : []), ...tables, this.optionsOf(name), definition];
    return [content, `Answered in ${count(Math.ceil(Number(answer.elapsed_ms)))} ms`];
  }

  /** @param {string} name */
  head(name) {
    return [el("h3", {}, titleOf(name)), el("p", { class: "lead muted" }, this.known.get(name)?.answers ?? "")];
  }

  /**
   * A table that is filled when it is opened.
   * @param {string} name
   * @param {string} table
   * @param {Table} content
   * @param {boolean} isOpen
   */
  tableOf(name, table, content, isOpen) {
    const box = el("div", { "data-testid": `analysis-${table}` });
    const fold = el("details", { "data-testid": `fold-${table}`, open: isOpen }, el("summary", {}, `Table: ${titleOf(table).toLowerCase()} `, el("span", { class: "muted small" }, plural(content.rows.length, "row"))), box);
    fold.addEventListener("toggle", () => {
      if (!fold.open || box.childElementCount > 0) return;
      const [csv, arrow] = ["csv", "arrow"].map((format) => this.requestOf(name, { format, table }));
      showTable(box, content, { label: titleOf(table), csv, arrow, actions: slicesOf(this.trace.id, table, content) });
    });
    return fold;
  }

  /** @param {string} name */
  optionsOf(name) {
    const { parameters = {} } = this.known.get(name) ?? {};
    const fields = parameterFields(parameters, this.choice.options);
    const run = el("button", { type: "button", class: "quiet", "data-testid": "analysis-run", onclick: () => this.show() }, "Run again");
    const fold = el("details", { "data-testid": "analysis-options", open: Object.keys(this.choice.options).length > 0 }, el("summary", {}, "Options"), el("div", { class: "buttons options small" }, ...fields, run));
    fold.addEventListener("change", () => this.choose({ ...this.choice, options: valuesOf(fold) }));
    return fold;
  }
}

/** Whether the browser restores how far the page was scrolled, as after a reload. */
const restoresScroll = () => performance.getEntriesByType("navigation").some((entry) => entry instanceof PerformanceNavigationTiming && entry.type !== "navigate");

/**
 * @param {AnalysisAnswer} answer
 * @param {Trace} trace
 */
const drawn = ({ analysis, tables }, { bounds }) => picturesOf(analysis, Object.fromEntries(Object.entries(tables).map(([name, table]) => [name, recordsOf(table)])), BigInt(bounds?.start_ns ?? 0));

/**
 * The values of the fields that differ from their defaults.
 * @param {HTMLElement} box
 */
function valuesOf(box) {
  /** @type {NodeListOf<HTMLInputElement>} */
  const controls = box.querySelectorAll("[name]");
  const values = [...controls].map((control) => ({ control, value: control.type === "checkbox" ? String(control.checked) : control.value }));
  return Object.fromEntries(values.filter(({ control, value }) => value !== control.dataset.default && value !== "").map(({ control, value }) => [control.name, value]));
}
