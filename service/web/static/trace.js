// The page of one trace: what ingest found, and what can be done with it.
import { startAnalyses } from "./analyses.js";
import { Problem, api, getJson, readJson, root, send } from "./api.js";
import { confirmDelete } from "./confirm.js";
import { startCut } from "./cut.js";
import { announce, byId, el } from "./dom.js";
import { startEngine } from "./engine.js";
import { showFacts } from "./facts.js";
import { follow, left } from "./follow.js";
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

// While ingest goes on its job is followed; once the trace is ready or failed nothing of it changes any more.
poll(async () => {
  try {
    let trace = await getJson(api("traces", id));
    hideProblem(byId("trace-problem"));
    if (!isFinal(trace) && trace.job !== null) {
      show({ ...trace, parent_trace: null });
      await follow(trace.job, (job) => goesOn(trace, job), (problem) => showProblem(byId("trace-problem"), problem));
      trace = await getJson(api("traces", id));
      hideProblem(byId("trace-problem"));
    }
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

/** The trace while its job goes on. */
function goesOn(trace, job) {
  hideProblem(byId("trace-problem"));
  const state = job.state === "running" ? "ingesting" : "queued";
  show({ ...trace, state, progress: job.progress, left: left(job), parent_trace: null });
}

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

/** The button that keeps a trace from what removes old ones, or no longer. */
function pinOf(trace) {
  let pinned = trace.pinned;
  const pin = el("button", { type: "button", "data-testid": "pin-trace", title: "A pinned trace stays, however old it is" });
  const told = () => {
    pin.setAttribute("aria-pressed", String(pinned));
    pin.textContent = pinned ? "Unpin" : "Pin";
  };
  pin.addEventListener("click", async () => {
    try {
      pinned = (await readJson(await send("PATCH", api("traces", id), { json: { pinned: !pinned } }))).pinned;
      hideProblem(byId("trace-problem"));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      showProblem(byId("trace-problem"), error);
    }
    told();
  });
  told();
  return pin;
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
  byId("actions").replaceChildren(...(trace.state === "ready" ? [perfetto] : []), download, pinOf(trace), remove);
  byId("actions").hidden = false;
}
