// What the analyses say about all ranks of a run together: their time, steps, waits and collectives.
import { adviceOf } from "../advice.js";
import { answerOf } from "../answer.js";
import { Problem, api, pageOf } from "../api.js";
import { heatmap } from "../charts/heatmap.js";
import { byId, el } from "../dom.js";
import { duration } from "../format.js";
import { deviceTime } from "../gpu_time.js";
import { showProblem } from "../problem.js";
import { chosenColumns, recordsOf } from "../records.js";
import { perfettoOf } from "../selection.js";
import { showTable } from "../table.js";
import { measureOf, nameOfStep } from "./measures.js";

const BARS_MAX = 128; // GPUs
const MARGIN = 2n; // lengths of a collective that its link shows on each side of it
const RANK_COLUMNS = ["rank", "straggler", "late_ns", "late_at_launch_ns", "late_cause", "waited_for_ns", "wait_ns", "transfer_ns", "times_last", "last_pct", "collectives"];
const COLLECTIVE_COLUMNS = ["step", "seq", "collective", "dtype", "size_bytes", "duration_ns", "mean_wait_ns", "start_skew_ns", "last_rank", "late_cause", "bus_gb_per_s", "group_description", "group_size", "note"];

/** @typedef {{ id: string, traces: GroupRank[], cycle: Int | null }} Run `traces` are those of a cycle; `cycle` is its number if the run has several */

/**
 * Fill the panels of a run, or of a cycle of it, whose traces are ready.
 * @param {Run} run
 * @param {AbortSignal} signal
 */
export async function startAnalyses(run, signal) {
  const traces = new Map(run.traces.toReversed().map(({ rank, trace }) => [String(rank), trace])); // not the memory snapshot of a rank
  /** @param {Value} rank */
  const traceOf = (rank) => traces.get(String(rank)) ?? (run.traces.length === 1 ? run.traces[0].trace : null);
  for (const panel of ["run-waits-notes", "run-collectives-body"]) byId(panel).replaceChildren(); // those of another cycle
  try {
    const [steps, collectives] = await Promise.all([
      fill("run-steps-body", run, "steps", ["steps"], signal),
      fill("run-waits-body", run, "collectives", ["collectives", "ranks", "steps"], signal),
      showTime(run, traceOf, signal),
      showAdvice(run, traceOf, signal),
    ]);
    const show = () => showMeasure(byId("run-measure").value, { steps, collectives }, traceOf);
    byId("run-measure").addEventListener("change", show, { signal });
    show();
    showWaits(collectives, traceOf);
  } catch (error) {
    if (error.name !== "AbortError") throw error; // another cycle was chosen
  }
}

/**
 * Request an analysis of the run. Until it is there, and if it fails, the panel says so.
 * @param {string} panel
 * @param {Run} run
 * @param {string} name
 * @param {string[]} tables the tables that the panel shows
 * @param {AbortSignal} signal
 */
async function fill(panel, { id, cycle }, name, tables, signal) {
  byId(panel).replaceChildren(el("p", { class: "muted" }, "Reading all ranks …"));
  try {
    const wanted = new URLSearchParams(tables.map((table) => ["table", table]));
    if (cycle !== null) wanted.set("cycle", String(cycle));
    const answer = await answerOf(`${api("groups", id, "analysis", name)}?${wanted}`, { signal });
    byId(panel).replaceChildren();
    return answer;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    const note = el("div", { class: "note bad", role: "alert" });
    showProblem(note, error);
    byId(panel).replaceChildren(note);
    return null;
  }
}

/**
 * @param {Run} run
 * @param {(rank: Value) => string | null} traceOf
 * @param {AbortSignal} signal
 */
async function showTime(run, traceOf, signal) {
  const answer = await fill("run-time", run, "temporal_breakdown", ["breakdown"], signal);
  if (answer === null) return none("run-time", "No work ran on a GPU in these traces.");
  const devices = recordsOf(answer.tables.breakdown);
  byId("run-time").replaceChildren(deviceTime(devices, { barsMax: BARS_MAX, hrefOf: ({ rank }) => pageOf(traceOf(rank) ?? "") }));
}

/**
 * @param {Run} run
 * @param {(rank: Value) => string | null} traceOf
 * @param {AbortSignal} signal
 */
async function showAdvice(run, traceOf, signal) {
  const answer = await fill("run-advice", run, "recommendations", ["recommendations", "evidence", "checks"], signal);
  if (answer === null) return;
  byId("run-advice").replaceChildren(
    ...adviceOf(answer, ({ rank }) => {
      const id = traceOf(rank);
      return id === null ? null : { id };
    }),
  );
}

/**
 * @param {string} name
 * @param {{ steps: AnalysisAnswer | null, collectives: AnalysisAnswer | null }} answers
 * @param {(rank: Value) => string | null} traceOf
 */
function showMeasure(name, answers, traceOf) {
  const body = byId("run-steps-body");
  if (body.querySelector("[role=alert]")) return; // the request failed
  const measure = measureOf(name, answers, traceOf);
  if (measure === null) none("run-steps-body", name === "total" ? "These traces have no steps." : "The ranks have no collectives whose waits can be measured.");
  else body.replaceChildren(heatmap({ ...measure, name: "run-steps", text: duration, nameOfColumn: nameOfStep }));
}

/**
 * @param {AnalysisAnswer | null} collectives
 * @param {(rank: Value) => string | null} traceOf
 */
function showWaits(collectives, traceOf) {
  if (collectives === null) {
    if (!byId("run-waits-body").querySelector("[role=alert]")) none("run-waits-body", "The ranks have no collectives.");
    none("run-collectives-body", "The ranks have no collectives.");
    return;
  }
  const { ranks, collectives: all } = collectives.tables;
  byId("run-waits-notes").replaceChildren(...collectives.notes.map((text) => el("p", { class: "note", "data-testid": "waits-note" }, text)));
  showTable(byId("run-waits-body"), chosenColumns(ranks, RANK_COLUMNS), {
    label: "Ranks",
    fileName: "ranks.csv",
    actions: ([rank]) => el("a", { href: pageOf(traceOf(rank) ?? "") }, "Open rank"),
  });
  const shown = chosenColumns(all, [...COLLECTIVE_COLUMNS, "start_ns", "end_ns"]);
  const [last, start, end] = ["last_rank", "start_ns", "end_ns"].map((name) => shown.columns.findIndex((column) => column.name === name));
  showTable(byId("run-collectives-body"), shown, {
    label: "Collectives",
    fileName: "collectives.csv",
    actions: (row) => {
      const id = traceOf(row[last]);
      if (id === null || row[start] === null || row[end] === null) return "";
      const [from, to] = [BigInt(/** @type {Int} */ (row[start])), BigInt(/** @type {Int} */ (row[end]))];
      const margin = MARGIN * (to - from);
      return el("a", { href: perfettoOf(id, { window: { start_ns: from - margin, end_ns: to + margin } }), target: "_blank", rel: "noopener" }, `Perfetto, rank ${row[last]}`);
    },
  });
}

/**
 * @param {string} panel
 * @param {string} text
 */
function none(panel, text) {
  byId(panel).replaceChildren(el("p", { class: "muted" }, text));
}
