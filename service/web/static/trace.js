// The page of a trace: its properties, and actions on it.
import { startAnalyses } from "./analyses.js";
import { Problem, api, comparePageOf, getJson, readJson, root, send, sqlPageOf } from "./api.js";
import { showAttachments } from "./attachments.js";
import { confirmDelete } from "./confirm.js";
import { startCut } from "./cut.js";
import { announce, byId, el, setText } from "./dom.js";
import { startEngine } from "./engine.js";
import { headlineOf, showFacts } from "./facts.js";
import { openFold } from "./folds.js";
import { follow, left } from "./follow.js";
import { startListener } from "./listener.js";
import { showChildren, showPanels } from "./panels.js";
import { startOverview } from "./overview/overview.js";
import { poll } from "./poll.js";
import { hideProblem, showProblem } from "./problem.js";
import { perfettoOf } from "./selection.js";
import { StateView, isFinal } from "./state.js";
import { startVerdict } from "./verdict.js";

const id = byId("trace").dataset.id ?? "";
const state = new StateView();
byId("state").append(state.badge, " ", state.reason);
byId("progress").append(state.progress);
/** @type {ShownTrace | null} */
let last = null;

// Follows the job of ingest while it runs. A trace that is ready or failed no longer changes.
poll(async () => {
  try {
    let trace = await getJson(api("traces", id));
    hideProblem(byId("trace-problem"));
    if (!isFinal(trace) && trace.job !== null) {
      show({ ...trace, parent_trace: null });
      await follow(trace.job, (job) => showIngest(trace, job), (problem) => showProblem(byId("trace-problem"), problem));
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
    if (error.code === "unknown_trace") showNothing();
    return error.status >= 400 && error.status < 500 ? null : false;
  }
});

/**
 * Show the trace while its job runs.
 * @param {Trace} trace
 * @param {Job} job
 */
function showIngest(trace, job) {
  hideProblem(byId("trace-problem"));
  const state = job.state === "running" ? "ingesting" : "queued";
  show({ ...trace, state, progress: job.progress, left: left(job), parent_trace: null });
}

/**
 * The trace that this one was cut from; null if there is none, or it is deleted.
 * @param {Trace} trace
 * @returns {Promise<Trace | null>}
 */
async function parentOf({ parent }) {
  if (parent === null) return null;
  try {
    return await getJson(api("traces", parent));
  } catch (error) {
    if (error.code !== "unknown_trace") throw error;
    return null;
  }
}

/**
 * All traces that were cut from this one.
 * @param {Trace} trace
 * @returns {Promise<TraceSummary[]>}
 */
async function childrenOf(trace) {
  const children = [];
  for (let next = ""; next !== null; ) {
    const page = await getJson(`${api("traces")}?${new URLSearchParams({ parent: trace.id, limit: "500", ...(next && { cursor: next }) })}`);
    children.push(...page.traces);
    next = page.next;
  }
  return children;
}

/** Show that the trace does not exist, or was deleted. */
function showNothing() {
  byId("known").hidden = true;
  byId("actions").hidden = true;
  byId("state").hidden = true;
  byId("trace-problem").append(el("p", {}, el("a", { href: `${root}/` }, "All traces")));
}

/** @param {ShownTrace} trace */
function show(trace) {
  const changed = last?.state !== trace.state;
  document.title = `${trace.name} · Tracedock`;
  byId("name").textContent = trace.name;
  byId("known").hidden = false;
  state.update(trace);
  byId("progress").hidden = state.progress.hidden;
  setText(byId("headline"), headlineOf(trace));
  byId("headline").hidden = false;
  showFacts(byId("facts"), trace, last);
  if (changed) settle(trace);
  last = trace;
}

/**
 * Update the parts that change only with the state.
 * @param {ShownTrace} trace
 */
function settle(trace) {
  if (last) announce(`${trace.name} is ${trace.state}`);
  showActions(trace);
  if (trace.state === "failed" && trace.error) showProblem(byId("failure"), trace.error);
  showPanels(trace);
  showAttachments("traces", id, new Map([[id, trace.name]])).catch((error) => {
    if (!(error instanceof Problem)) throw error; // the trace was just deleted
  });
  byId("contents").open = trace.state !== "ready"; // without an analysis, the facts are what the page has
  if (trace.state === "ready") {
    if (hasEvents(trace)) {
      startOverview(trace);
      startAnalyses(trace, { after: startVerdict(trace) });
      startCut(trace, { onMade: async () => showChildren(await childrenOf(trace), trace) });
    } else {
      setText(byId("no-events-kinds"), unreadOf(trace)?.examples.map(({ text }) => text).join(", ") ?? "");
      byId("no-events").hidden = false;
      byId("contents").open = true;
    }
    startEngine(trace);
    startListener(trace);
    openFold();
  }
}

/**
 * The note on packets that are no events.
 * @param {Trace} trace
 */
const unreadOf = ({ health }) => health.notes?.find(({ code }) => code === "unread_packets");

/**
 * Whether the trace has events; without them, the engine loads only its original.
 * @param {Trace} trace
 */
const hasEvents = ({ sources }) => sources.includes("columns");

/**
 * Make the button that pins a trace, so that it is not deleted with age, or unpins it.
 * @param {Trace} trace
 */
function pinOf(trace) {
  let pinned = trace.pinned;
  const pin = el("button", { type: "button", "data-write": true, "data-testid": "pin-trace", title: "A pinned trace stays, however old it is" });
  const showState = () => {
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
    showState();
  });
  showState();
  return pin;
}

/** @param {Trace} trace */
function showActions(trace) {
  const perfetto = el(
    "a",
    { class: "button primary", href: perfettoOf(id), target: "_blank", rel: "noopener", "data-testid": "open-perfetto" },
    "Open in Perfetto",
  );
  const original = trace.sources.length > 1 && unreadOf(trace)
    ? [el(
        "a",
        {
          class: "button", href: `${api("traces", id, "perfetto")}?source=original`, target: "_blank", rel: "noopener", "data-testid": "open-original",
          title: "All packets of the file, also those that are no events here",
        },
        "Open the original in Perfetto",
      )]
    : [];
  const download = el(
    "a",
    { class: "button", href: api("traces", id, "download"), download: trace.has_original ? trace.name : "", "data-testid": "download-trace" },
    trace.has_original ? "Download original" : "Download .json.gz",
  );
  const remove = el("button", { type: "button", class: "danger", "data-write": true, "data-testid": "delete-trace" }, "Delete");
  remove.addEventListener("click", async () => {
    if (await confirmDelete(trace)) location.assign(`${root}/`);
  });
  const sql = el("a", { class: "button", href: sqlPageOf(id), "data-testid": "open-sql" }, "SQL");
  const report = el("a", { class: "button", href: api("traces", id, "report"), target: "_blank", rel: "noopener", "data-testid": "open-report" }, "Report");
  const compare = el("a", { class: "button", href: comparePageOf(id), "data-testid": "compare-with" }, "Compare with…");
  const questions = hasEvents(trace) ? [report, compare] : [];
  byId("actions").replaceChildren(...(trace.state === "ready" ? [perfetto, ...original, sql, ...questions] : []), download, pinOf(trace), remove);
  byId("actions").hidden = false;
}
