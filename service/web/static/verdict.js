// The panel "Where the time goes": the time of each GPU as a bar, and what to try first, each with its figures and its place.
// For a memory snapshot: what held the most memory.
import { adviceOf } from "./advice.js";
import { answerFor } from "./answer.js";
import { Problem, api, getJson } from "./api.js";
import { stackedBars } from "./charts/stacked_bars.js";
import { byId, el, setText } from "./dom.js";
import { duration, stepTitle } from "./format.js";
import { deviceTime } from "./gpu_time.js";
import { poll } from "./poll.js";
import { showProblem } from "./problem.js";
import { numberOf, recordsOf } from "./records.js";
import { snapshotVerdict } from "./snapshot_verdict.js";
import { isFinal } from "./state.js";

const DEVICES_MAX = 16; // bars; the analysis has all
const OPERATORS_MAX = 5;

/** Parts of a step of a trace without work on GPUs: columns of the analysis `steps`. */
const STEP_SERIES = [
  { kind: "mem", label: "loading data", column: "dataloader_ns" },
  { kind: "host", label: "operators", column: "cpu_exec_ns" },
  { kind: "comm", label: "communication", column: "communication_ns" },
  { kind: "idle", label: "other", column: "other_ns" },
];

/**
 * Fill and show the panel: the time as soon as it is known, then the advice.
 * @param {Trace} trace
 */
export async function startVerdict(trace) {
  byId("verdict").hidden = false;
  const body = byId("verdict-body");
  body.replaceChildren(el("p", { class: "muted" }, "Reading the trace …"));
  try {
    const snapshot = trace.streams.length > 0 ? null : await answerFor(trace, "memory_snapshot");
    if (snapshot !== null) {
      setText(byId("verdict-title"), "What holds memory");
      body.replaceChildren(...snapshotVerdict(trace, snapshot));
      if (trace.group !== null && !hasSteps(snapshot)) awaitSteps(trace, trace.group.id, body);
      return;
    }
    const advising = answerFor(trace, "recommendations");
    advising.catch(() => null); // reported below, once there is the time
    const time = await answerFor(trace, "temporal_breakdown");
    const waiting = el("p", { class: "muted" }, "Looking for what to try first …");
    body.replaceChildren(...(time === null ? await hostTime(trace) : [deviceTime(recordsOf(time.tables.breakdown))]), waiting);
    const advice = await advising;
    waiting.replaceWith(...(advice === null ? [] : adviceOf(advice, () => trace)));
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    const note = el("div", { class: "note bad", role: "alert" });
    showProblem(note, error);
    body.replaceChildren(note);
  }
}

/** @param {AnalysisAnswer} snapshot */
const hasSteps = ({ tables }) => recordsOf(tables.steps).length > 0;

/**
 * Draw a memory snapshot again once a trace of its run becomes ready and has its steps.
 * @param {Trace} trace
 * @param {string} run
 * @param {HTMLElement} body
 */
function awaitSteps(trace, run, body) {
  let known = "";
  poll(async () => {
    try {
      /** @type {Group} */
      const { ranks } = await getJson(api("groups", run));
      const ready = ranks.filter(({ state }) => state === "ready").map(({ trace: id }) => id).join();
      const snapshot = ready === known ? null : await answerFor(trace, "memory_snapshot");
      known = ready;
      if (snapshot === null || !hasSteps(snapshot)) return ranks.some((rank) => !isFinal(rank));
      body.replaceChildren(...snapshotVerdict(trace, snapshot));
      return null;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      return error.status >= 400 && error.status < 500 ? null : false; // such as a run that was deleted
    }
  });
}

/**
 * The time of a trace without work on GPUs: its steps, and the operators that cost the most.
 * @param {Trace} trace
 */
async function hostTime(trace) {
  const [steps, operators] = await Promise.all([answerFor(trace, "steps"), answerFor(trace, "operators")]);
  /** @type {HTMLElement[]} */
  const parts = [el("p", { class: "verdict-sentence", "data-testid": "verdict-sentence" }, "No work ran on a GPU in this trace.")];
  if (steps !== null) {
    const bars = recordsOf(steps.tables.steps).slice(0, DEVICES_MAX).map((row) => ({
      label: stepTitle(row.step),
      values: STEP_SERIES.map(({ column }) => numberOf(row, column)),
    }));
    parts.push(stackedBars({ title: "Time of each step", name: "verdict", series: STEP_SERIES, bars, text: duration }));
  }
  if (operators !== null) {
    const rows = recordsOf(operators.tables.operators).sort((a, b) => Number(b.host_self_ns) - Number(a.host_self_ns)).slice(0, OPERATORS_MAX);
    const items = rows.map((row) => el("li", {}, el("code", {}, String(row.name)), ` ${duration(Number(row.host_self_ns))} of its own`));
    parts.push(el("h3", {}, "Operators with the most time of their own"), el("ol", {}, items));
  }
  return parts;
}
