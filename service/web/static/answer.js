// Answers of analyses.
import { api, getJson } from "./api.js";

const FOR_GPU_WORK = new Set(["overview", "temporal_breakdown", "recommendations"]); // apply to each trace with streams

/** @type {Map<string, Promise<Analysis[]>>} */
const lists = new Map();

/**
 * The analyses of a trace, with the reasons why some do not apply. They are requested once.
 * @param {string} id
 * @returns {Promise<Analysis[]>}
 */
export function analysesOf(id) {
  const list = lists.get(id) ?? getJson(api("traces", id, "analysis")).then(({ analyses }) => analyses);
  lists.set(id, list);
  list.catch(() => lists.delete(id)); // so that it can be requested again
  return list;
}

/**
 * The reason why an analysis does not apply to a trace; null if it does.
 * @param {Trace} trace
 * @param {string} name
 * @returns {Promise<string | null>}
 */
export async function reasonAgainst(trace, name) {
  if (trace.streams.length > 0 && FOR_GPU_WORK.has(name)) return null; // the list takes long: it reads the trace
  const analysis = (await analysesOf(trace.id)).find((other) => other.name === name);
  return analysis && !analysis.applies ? (analysis.reason ?? "It does not apply to this trace.") : null;
}

/**
 * Request an analysis of a trace; null if it does not apply.
 * @param {Trace} trace
 * @param {string} name
 * @returns {Promise<AnalysisAnswer | null>}
 */
export async function answerFor(trace, name) {
  return (await reasonAgainst(trace, name)) === null ? answerOf(api("traces", trace.id, "analysis", name)) : null;
}

/**
 * Request an analysis; null if it does not apply to the trace, or to any trace of the run.
 * @param {string} address
 * @param {{ signal?: AbortSignal }} options
 * @returns {Promise<AnalysisAnswer | null>}
 */
export async function answerOf(address, { signal } = {}) {
  try {
    return await getJson(address, { signal });
  } catch (error) {
    if (error.code === "not_applicable") return null;
    throw error;
  }
}
