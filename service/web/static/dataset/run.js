// The page of a run of a dataset: what the facts of all its ranks say about ranks, hosts, steps and kernels.
import { Problem, api, getJson } from "../api.js";
import { StepGrid } from "../charts/step_grid.js";
import { byId, copyButton, el, setText } from "../dom.js";
import { count, plural } from "../format.js";
import { hideProblem, showProblem } from "../problem.js";
import { showTable } from "../table.js";
import { commandOf, datasetPageOf, questionOf } from "./address.js";
import { gridOf, ordersOf } from "./step_matrix.js";

/** @import { Order } from "./step_matrix.js" */

const CELLS_MAX = 2_000_000; // of the picture
const ROWS_MAX = 20_000; // of a table; its CSV has all
const { dataset, run } = /** @type {{ dataset: string, run: string }} */ (byId("run").dataset);

/**
 * What each panel shows: a question, its tables with their titles, and the analysis of the events that says more.
 * @typedef {{ question: string, tables: Record<string, string>, analysis: string }} Panel
 */

/** @type {Record<string, Panel>} */
const PANELS = {
  slow: { question: "slow_ranks", tables: { ranks: "Ranks", hosts: "Hosts" }, analysis: "temporal_breakdown" },
  outliers: { question: "step_outliers", tables: { outliers: "Ranks that are outliers in a step", steps: "Steps" }, analysis: "steps" },
  kernels: { question: "kernel_outliers", tables: { kernels: "Kernels" }, analysis: "kernel_breakdown" },
  last: { question: "last_ranks", tables: { ranks: "Ranks" }, analysis: "collectives" },
  drift: { question: "drift", tables: { kernels: "Kernels that have changed", runs: "All runs" }, analysis: "compare" },
};

/** @type {StepGrid | null} */
let picture = null;
let store = ""; // location of the dataset

start();

async function start() {
  try {
    /** @type {Dataset} */
    const { location: place, runs } = await getJson(`${api("datasets", dataset)}?limit=1`);
    store = place;
    showHeadline(runs);
    fillBases(runs);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    showProblem(byId("run-problem"), error, el("p", {}, el("a", { href: datasetPageOf(dataset) }, "The dataset")));
    return;
  }
  byId("run-known").hidden = false;
  byId("grid-value").addEventListener("change", showPicture);
  byId("grid-order").addEventListener("change", arrangePicture);
  byId("grid-shade").addEventListener("change", () => picture?.color(shadeOf()));
  byId("drift-base").addEventListener("change", showDrift);
  await Promise.all([showPicture(), showDrift(), ...Object.keys(PANELS).filter((panel) => panel !== "drift").map((panel) => showPanel(panel, {}))]);
}

/** @param {DatasetRun[]} runs */
function showHeadline(runs) {
  const own = runs.find(({ name }) => name === run);
  if (!own) return;
  const ranks = own.world_size === null ? plural(own.ranks, "rank") : `${count(own.ranks)} of ${plural(own.world_size, "rank")}`;
  const failed = Number(own.failed) > 0 ? ` · ${count(own.failed)} failed` : "";
  setText(byId("run-headline"), `${ranks} · ${plural(own.events, "event")}${failed}`);
}

/** @param {DatasetRun[]} runs */
function fillBases(runs) {
  const others = runs.filter(({ name, done }) => name !== run && Number(done) > 0);
  byId("drift-base").append(...others.map(({ name }) => el("option", { value: name }, name)));
  const wanted = new URLSearchParams(location.search).get("base");
  if (others.some(({ name }) => name === wanted)) byId("drift-base").value = wanted ?? "";
}

/**
 * Request the answer to a question. Until it is there, and if it fails, the panel says so.
 * @param {string} panel
 * @param {string} address
 * @returns {Promise<any>}
 */
async function answerIn(panel, address) {
  hideProblem(byId(`${panel}-problem`));
  setText(byId(`${panel}-said`), "Reading the facts …");
  try {
    return await getJson(address);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    byId(`${panel}-body`).replaceChildren();
    showProblem(byId(`${panel}-problem`), error);
    return null;
  } finally {
    setText(byId(`${panel}-said`), "");
  }
}

/**
 * Show the tables of a panel with their definition, and the commands that give the same and more.
 * @param {string} panel
 * @param {Record<string, string>} parameters
 */
async function showPanel(panel, parameters) {
  const { question, tables, analysis } = PANELS[panel];
  const address = (/** @type {Record<string, string>} */ more) => questionOf(dataset, run, question, { ...parameters, ...more });
  const query = new URLSearchParams([...Object.entries(parameters), ["limit", String(ROWS_MAX)], ...Object.keys(tables).map((name) => ["table", name])]);
  /** @type {FleetAnswer | null} */
  const answer = await answerIn(panel, `${questionOf(dataset, run, question)}?${query}`);
  if (answer === null) return;
  const parts = Object.entries(tables).map(([name, title]) => {
    const box = el("div", { "data-testid": `${panel}-${name}` });
    const part = el("div", {}, ...(Object.keys(tables).length > 1 ? [el("h3", {}, title)] : []), box);
    const rest = answer.tables[name].truncated ? el("p", { class: "small muted" }, `The first ${count(ROWS_MAX)} rows of ${count(answer.tables[name].total)}; the CSV has all.`) : null;
    showTable(box, answer.tables[name], { label: title, csv: address({ format: "csv", table: name }), arrow: address({ format: "arrow", table: name }) });
    if (rest) part.append(rest);
    return part;
  });
  byId(`${panel}-body`).replaceChildren(...parts);
  const base = parameters.base === undefined ? [] : ["--base", parameters.base];
  const isPossible = analysis !== "compare" || base.length > 0;
  showSource(panel, answer, address({}), isPossible ? commandOf("tracedock", "fleet", "analyze", store, analysis, "--run", run, ...base) : null);
}

/**
 * Show the definition of an answer, its parameters, a link to its JSON, and commands.
 * @param {string} panel
 * @param {FleetAnswerFacts} answer
 * @param {string} address
 * @param {string | null} analyze the command that analyses the events
 */
function showSource(panel, answer, address, analyze) {
  const options = Object.entries(answer.parameters).filter(([, value]) => value !== null);
  const values = options.map(([name, value]) => `${name} = ${value}`).join(", ");
  const sets = options.flatMap(([name, value]) => ["--set", `${name}=${value}`]);
  const ask = commandOf("tracedock", "fleet", "ask", store, answer.question, "--run", run, ...sets);
  byId(`${panel}-about`).replaceChildren(
    el("p", { class: "small muted" }, ...withCode(answer.definition), answer.source === null ? null : ` (${answer.source})`, values === "" ? null : ` Here: ${values}.`),
    commandLine("The same", ask, el("a", { href: address }, "JSON")),
    ...(analyze === null ? [] : [commandLine("From the events", analyze)]),
  );
}

/**
 * The parts of a text; those between backticks are code.
 * @param {string} text
 */
const withCode = (text) => text.split("`").map((part, index) => (index % 2 ? el("code", {}, part) : part));

/**
 * @param {string} title
 * @param {string} command
 * @param {...Node} links
 */
const commandLine = (title, command, ...links) => el("div", { class: "ask small" }, el("span", { class: "muted" }, title), el("code", {}, command), copyButton(command, `Copy the command ${command}`), ...links);

async function showDrift() {
  const base = byId("drift-base").value;
  await showPanel("drift", base === "" ? {} : { base });
}

const shadeOf = () => /** @type {"over" | "time"} */ (byId("grid-shade").value);

async function showPicture() {
  const value = byId("grid-value").value;
  const query = new URLSearchParams({ value, table: "matrix", format: "columns", limit: String(CELLS_MAX) });
  /** @type {FleetAnswerInColumns | null} */
  const answer = await answerIn("grid", `${questionOf(dataset, run, "step_matrix")}?${query}`);
  if (answer === null) return;
  const { total, values } = answer.tables.matrix;
  const shown = values[0]?.length ?? 0;
  if (shown === 0) {
    byId("grid-body").replaceChildren(el("p", { class: "muted" }, "The traces of this run have no steps."));
    return;
  }
  const grid = gridOf(answer.tables.matrix);
  picture = new StepGrid(grid, { label: "Times of all ranks in each step" });
  picture.color(shadeOf());
  byId("grid-body").replaceChildren(picture.element);
  setText(byId("grid-said"), `${picture.summary}${shown < Number(total) ? `; the first ${count(shown)} cells of ${count(total)}` : ""}`);
  showSource("grid", answer, questionOf(dataset, run, "step_matrix", { value }), commandOf("tracedock", "fleet", "analyze", store, "steps", "--run", run));
  byId("grid-csv").href = questionOf(dataset, run, "step_matrix", { value, table: "matrix", format: "csv" });
  arrangePicture();
}

function arrangePicture() {
  if (picture) picture.arrange(ordersOf(picture.grid)[/** @type {Order} */ (byId("grid-order").value)]());
}
