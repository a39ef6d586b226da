// The page of one trace: what ingest found, and what can be done with it.
import { startAnalyses } from "./analyses.js";
import { Problem, api, getJson, root } from "./api.js";
import { confirmDelete } from "./confirm.js";
import { startCut } from "./cut.js";
import { announce, byId, el } from "./dom.js";
import { startEngine } from "./engine.js";
import { showFacts } from "./facts.js";
import { startListener } from "./listener.js";
import { showChildren, showPanels } from "./panels.js";
import { poll } from "./poll.js";
import { hideProblem, showProblem } from "./problem.js";
import { perfettoOf } from "./selection.js";
import { startSql } from "./sql.js";
import { StateView, isFinal } from "./state.js";

const id = byId("trace").dataset.id;
const state = new StateView();
byId("state").append(state.badge);
byId("progress").append(state.progress);
let last = null;

// While ingest goes on the trace is asked for again; once it is ready or failed nothing of it changes any more.
poll(async () => {
  try {
    const trace = await getJson(api("traces", id));
    hideProblem(byId("trace-problem"));
    const [parent, children] = isFinal(trace) ? await Promise.all([parentOf(trace), childrenOf(trace)]) : [null, []];
    show({ ...trace, parent_trace: parent });
    showChildren(children, trace);
    return isFinal(trace) ? null : true;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    showProblem(byId("trace-problem"), error);
    if (error.code === "unknown_trace") leaveNothing();
    return error.status >= 400 && error.status < 500 ? null : false;
  }
});

/** The trace that this one was cut out of; null where there is none, or no longer. */
async function parentOf({ parent }) {
  if (parent === null) return null;
  try {
    return await getJson(api("traces", parent));
  } catch (error) {
    if (error.code !== "unknown_trace") throw error;
    return null;
  }
}

/** The traces that were cut out of this one, all pages of them. */
async function childrenOf(trace) {
  const found = [];
  for (let next = ""; next !== null; ) {
    const page = await getJson(`${api("traces")}?${new URLSearchParams({ parent: trace.id, limit: 500, ...(next && { cursor: next }) })}`);
    found.push(...page.traces);
    next = page.next;
  }
  return found;
}

/** The trace does not exist, or no longer. */
function leaveNothing() {
  byId("known").hidden = true;
  byId("actions").hidden = true;
  byId("state").hidden = true;
  byId("trace-problem").append(el("p", {}, el("a", { href: `${root}/` }, "All traces")));
}

function show(trace) {
  const changed = last?.state !== trace.state;
  document.title = `${trace.name} · Tracedock`;
  byId("name").textContent = trace.name;
  byId("known").hidden = false;
  state.update(trace);
  byId("progress").hidden = state.progress.hidden;
  showFacts(byId("facts"), trace, last);
  if (changed) settle(trace);
  last = trace;
}

/** What changes only with the state. */
function settle(trace) {
  if (last) announce(`${trace.name} is ${trace.state}`);
  showActions(trace);
  if (trace.state === "failed" && trace.error) showProblem(byId("failure"), trace.error);
  showPanels(trace);
  if (trace.state === "ready") {
    startEngine(trace);
    startAnalyses(trace);
    byId("sql").hidden = false;
    startSql(trace);
    startCut(trace, { onMade: async () => showChildren(await childrenOf(trace), trace) });
    startListener(trace);
  }
}

function showActions(trace) {
  const perfetto = el(
    "a",
    { class: "button primary", href: perfettoOf(id), target: "_blank", rel: "noopener", "data-testid": "open-perfetto" },
    "Open in Perfetto",
  );
  const made = trace.sha256 === null;
  const download = el(
    "a",
    { class: "button", href: api("traces", id, "download"), download: made ? "" : trace.name, "data-testid": "download-trace" },
    made ? "Download .json.gz" : "Download original",
  );
  const remove = el("button", { type: "button", class: "danger", "data-testid": "delete-trace" }, "Delete");
  remove.addEventListener("click", async () => {
    if (await confirmDelete(trace)) location.assign(`${root}/`);
  });
  byId("actions").replaceChildren(...(trace.state === "ready" ? [perfetto] : []), download, remove);
  byId("actions").hidden = false;
}
