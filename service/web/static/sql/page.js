// The SQL page of a trace: an editor with completion, queries to choose from, and the result as a chart and a table.
import { Problem, api, getJson, pageOf } from "../api.js";
import { chooseArgs, chooseSource, chosenSource } from "../args.js";
import { byId, copy, el } from "../dom.js";
import { showProblem } from "../problem.js";
import { startCompletion } from "./completion.js";
import { startLibrary } from "./library.js";
import { startSql } from "./run.js";
import { firstExample } from "./examples.js";

const id = byId("trace").dataset.id ?? "";
const argsChoice = byId("sql-args");
const sourceChoice = byId("sql-source");

start();

async function start() {
  try {
    const trace = await getJson(api("traces", id));
    document.title = `SQL on ${trace.name} · Tracedock`;
    byId("name").textContent = `SQL on ${trace.name}`;
    byId("trace-link").textContent = trace.name;
    byId("trace-link").href = pageOf(id);
    if (trace.state === "ready") startQueries(trace);
    else showProblem(byId("trace-problem"), trace.error ?? { title: `The trace is ${trace.state}`, detail: "You can run queries once the trace is ready. The page of the trace shows its progress." });
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    showProblem(byId("trace-problem"), error);
  }
}

/** @param {Trace} trace */
function startQueries(trace) {
  const input = byId("sql-input");
  const parameters = new URLSearchParams(location.search);
  const args = parameters.get("args") ?? "all";
  if ([...argsChoice.options].some(({ value }) => value === args)) argsChoice.value = args;
  chooseArgs(argsChoice.value);
  argsChoice.addEventListener("change", () => chooseArgs(argsChoice.value));
  startSources(trace, parameters.get("source"));
  input.value = parameters.get("q") ?? sessionStorage.getItem(`sql of ${id}`) ?? firstExample(trace).sql;
  byId("sql").hidden = false;
  const completion = startCompletion(trace, input);
  const library = startLibrary(input);
  const run = startSql(trace, {
    onRun: (sql) => {
      library.remember(sql);
      history.replaceState(null, "", addressOf(sql));
    },
    onAnswer: completion.readSchema,
  });
  byId("sql-link").addEventListener("click", () => copy(addressOf(input.value)));
  // A link on another site may fill the field, but must not start an engine.
  if (parameters.has("q") && document.referrer.startsWith(`${location.origin}/`)) run();
}

/**
 * Offer the sources of a trace that has several, and choose that of the address, or the default.
 * @param {Trace} trace
 * @param {string | null} wanted
 */
function startSources({ sources }, wanted) {
  sourceChoice.replaceChildren(...sources.map((source) => el("option", { value: source }, source)));
  sourceChoice.value = sources.find((source) => source === wanted) ?? sources[0];
  byId("sql-source-label").hidden = sources.length === 1;
  const choose = () => {
    chooseSource(/** @type {Source} */ (sourceChoice.value));
    argsChoice.disabled = chosenSource() === "original"; // it has all arguments
  };
  sourceChoice.addEventListener("change", choose);
  choose();
}

/**
 * Return the address of this page with a query, and the chosen arguments or source.
 * @param {string} sql
 */
function addressOf(sql) {
  const url = new URL(location.href);
  const parameters = new URLSearchParams({ q: sql });
  if (chosenSource() === "original") parameters.set("source", "original");
  else if (argsChoice.value !== "all") parameters.set("args", argsChoice.value);
  url.search = parameters.toString();
  return url.href;
}
