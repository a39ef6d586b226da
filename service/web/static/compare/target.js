// What a side of a comparison is: a trace or a run, once all its traces are read.
import { reasonAgainst } from "../answer.js";
import { Problem, api, getJson, groupPageOf, pageOf, pause } from "../api.js";
import { count, plural, rank as rankOf } from "../format.js";
import { follow, left } from "../follow.js";
import { nameOf, ranksOf } from "../run/cycle.js";
import { isFinal, progressText } from "../state.js";

/**
 * @typedef {{
 *   kind: "trace" | "run", id: string, name: string, href: string, about: string, trace: string, rank: string, steps: string[],
 *   cycles: string[], cycleNames: string[], isSnapshot: boolean, traceOf: (rank: Value) => string | null,
 * }} Target `isSnapshot` is whether it is a memory snapshot. `cycles` are the numbers of a run's cycles. `trace` is the trace that rows lead to, which for a run is its first rank, `rank`. `traceOf` finds that of a rank
 */

const POLL_MS = 1000;

const RUN = "run:";

/**
 * Find a trace or a run by its id; with the prefix `run:`, only runs are searched. Throws a Problem if there is neither.
 * @param {string} id
 * @param {AbortSignal} signal
 * @returns {Promise<{ trace: Trace } | { run: Group }>}
 */
async function found(id, signal) {
  if (!id.startsWith(RUN)) {
    try {
      return { trace: await getJson(api("traces", id), { signal }) };
    } catch (error) {
      if (error.code !== "unknown_trace") throw error;
    }
  }
  try {
    return { run: await getJson(api("groups", id.replace(RUN, "")), { signal }) };
  } catch (error) {
    if (error.code !== "unknown_group") throw error;
    throw new Problem({ title: "Nothing has this id", detail: `There is no trace and no run “${id.replace(RUN, "")}”. It may have been deleted: search for another by its name.`, code: "unknown_trace" }, 404);
  }
}

/**
 * Wait until a trace or all traces of a run are read. Until then, `onProgress` is called with the name and what goes on.
 * Throws a Problem if there is nothing to compare.
 * @param {string} id
 * @param {string} cycle number of the only cycle of a run that is compared; empty for all
 * @param {(name: string, progress: string) => void} onProgress
 * @param {AbortSignal} signal
 * @returns {Promise<Target>}
 */
export async function readTarget(id, cycle, onProgress, signal) {
  for (;;) {
    const side = await found(id, signal);
    if ("run" in side) {
      const { run } = side;
      if (run.ranks.every(isFinal)) return targetOfRun(run, cycle, signal);
      onProgress(run.name, `${count(run.ranks.filter(isFinal).length)} of ${plural(run.ranks.length, "trace")} read`);
    } else {
      const { trace } = side;
      if (isFinal(trace)) return targetOfTrace(trace);
      onProgress(trace.name, trace.state);
      if (trace.job !== null) await follow(trace.job, (job) => onProgress(trace.name, [progressText(job.progress), left(job)].filter(Boolean).join(" · ")));
    }
    await pause(POLL_MS, signal);
  }
}

/**
 * @param {Trace} trace
 * @returns {Promise<Target>}
 */
async function targetOfTrace(trace) {
  if (trace.state === "failed") throw new Problem({ ...trace.error, title: `${trace.name} could not be read: ${trace.error?.title ?? "it failed"}` });
  const steps = stepsOf(trace);
  const about = [trace.rank === null ? null : `rank ${rankOf(trace)}`, steps.length === 0 ? "no steps" : plural(trace.steps_count, "step"), plural(trace.events.kept, "event")];
  return { kind: "trace", id: trace.id, name: trace.name, href: pageOf(trace.id), about: about.filter(Boolean).join(" · "), trace: trace.id, rank: "", steps, cycles: [], cycleNames: [], isSnapshot: await isSnapshot(trace), traceOf: () => trace.id };
}

/**
 * @param {Group} run
 * @param {string} cycle
 * @param {AbortSignal} signal
 * @returns {Promise<Target>}
 */
async function targetOfRun(run, cycle, signal) {
  const cycles = run.cycles.map((each) => String(each.cycle));
  if (cycle !== "" && !cycles.includes(cycle)) throw new Problem({ title: `${run.name} has no cycle ${cycle}`, detail: `It has ${run.cycles.map((each) => `cycle ${nameOf(each)}`).join("; ")}.` });
  const chosen = run.cycles.filter((each) => cycle === "" || String(each.cycle) === cycle);
  const ready = run.ranks.filter((member) => member.state === "ready" && (cycle === "" || String(member.cycle) === cycle));
  if (ready.length === 0) throw new Problem({ title: `${run.name} has no traces that can be compared`, detail: "None of its traces could be read. The page of the run says why." });
  const [{ trace, rank }] = ready;
  const steps = stepsOf(await getJson(api("traces", trace), { signal }));
  const isDistinct = chosen.length < 2; // else a rank has several traces
  /** @param {Value} wanted */
  const traceOf = (wanted) => (isDistinct && wanted !== null ? ready.find((member) => member.rank === wanted)?.trace : undefined) ?? null;
  const failed = run.ranks.filter(({ state }) => state === "failed").length;
  const about = [plural(ranksOf(chosen) || ready.length, "rank"), chosen.length < 2 ? null : plural(chosen.length, "cycle"), failed > 0 ? `${plural(failed, "trace")} unreadable` : null, steps.length === 0 ? "no steps" : `${plural(steps.length, "step")} each`];
  return { kind: "run", id: run.id, name: run.name, href: groupPageOf(run.id), about: about.filter(Boolean).join(" · "), trace, rank: rank === null ? "" : String(rank), steps, cycles, cycleNames: run.cycles.map(nameOf), isSnapshot: false, traceOf };
}

/** @param {Trace} trace */
const stepsOf = ({ steps }) => [...new Set(steps.map(({ number }) => String(number)))];

/** @param {Trace} trace */
const isSnapshot = async (trace) => trace.streams.length === 0 && (await reasonAgainst(trace, "memory_snapshot")) === null;
