// The page of SQL on a trace: an editor with completion, queries to choose from, and the result as a chart and a table.
import { Problem, api, getJson, pageOf } from "../api.js";
import { chooseArgs } from "../args.js";
import { announce, byId } from "../dom.js";
import { showProblem } from "../problem.js";
import { startCompletion } from "./completion.js";
import { startLibrary } from "./library.js";
import { startSql } from "./run.js";
import { firstExample } from "./examples.js";

const id = byId("trace").dataset.id ?? "";

start();

async function start() {
  try {
    const trace = await getJson(api("traces", id));
    document.title = `SQL on ${trace.name} · Tracedock`;
    byId("name").textContent = `SQL on ${trace.name}`;
    byId("trace-link").textContent = trace.name;
    byId("trace-link").href = pageOf(id);
    if (trace.state === "ready") startQueries(trace);
    else showProblem(byId("trace-problem"), trace.error ?? { title: `The trace is ${trace.state}`, detail: "Queries run once it is ready. The page of the trace shows its progress." });
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    showProblem(byId("trace-problem"), error);
  }
}

/** @param {Trace} trace */
function startQueries(trace) {
  const input = byId("sql-input");
  const wanted = new URLSearchParams(location.search);
  const args = wanted.get("args") ?? "all";
  if ([...byId("sql-args").options].some(({ value }) => value === args)) byId("sql-args").value = args;
  chooseArgs(byId("sql-args").value);
  byId("sql-args").addEventListener("change", () => chooseArgs(byId("sql-args").value));
  input.value = wanted.get("q") ?? sessionStorage.getItem(`sql of ${id}`) ?? firstExample(trace).sql;
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
  byId("sql-link").addEventListener("click", async () => {
    await navigator.clipboard?.writeText(addressOf(input.value));
    announce("The link is copied");
  });
  // A link of another site may fill the field, but must not start an engine.
  if (wanted.has("q") && document.referrer.startsWith(`${location.origin}/`)) run();
}

/**
 * The address of this page with a query in it.
 * @param {string} sql
 */
function addressOf(sql) {
  const url = new URL(location.href);
  url.search = new URLSearchParams({ q: sql, ...(byId("sql-args").value !== "all" && { args: byId("sql-args").value }) }).toString();
  return url.href;
}
