// Follows a job to its end: by its events, or by polling where events are not available.
import { Problem, api, getJson, pause } from "./api.js";
import { clock } from "./format.js";
import { parseExact } from "./exact.js";

const OVER = new Set(["done", "failed", "cancelled"]);
const SILENT_MS = 5000; // a stream without an event for so long is one that a proxy buffers
const POLL_MS = 1000;

/**
 * Wait until a job is over, and return it. Until then call `onJob(job)` for each change, and `onTrouble(problem)` when
 * the server does not answer, which may be a restart. Throws a Problem if there is no such job.
 * @param {string} id
 * @param {(job: Job) => void} onJob
 * @param {(problem: Problem) => void} onTrouble
 * @returns {Promise<Job>}
 */
export async function follow(id, onJob, onTrouble = () => {}) {
  for (;;) {
    const job = (await streamed(id, onJob, onTrouble)) ?? (await polled(id, onTrouble));
    if (job && OVER.has(job.state)) return job;
    if (job) onJob(job);
    await pause(POLL_MS);
  }
}

/**
 * "12 s left", or an empty text if that is not known.
 * @param {Job} job
 */
export const left = ({ eta_s: seconds }) => (seconds === null ? "" : `${clock(Math.ceil(Number(seconds)))} left`);

/**
 * Follow the events of a job until it is over. Resolves to null if events are not available, or if the tab is hidden:
 * tabs share few connections.
 * @param {string} id
 * @param {(job: Job) => void} onJob
 * @param {(problem: Problem) => void} onTrouble
 * @returns {Promise<Job | null> | null}
 */
function streamed(id, onJob, onTrouble) {
  if (document.visibilityState === "hidden") return null;
  return new Promise((resolve) => {
    const source = new EventSource(api("jobs", id, "events"));
    const silence = setTimeout(() => end(null), SILENT_MS);
    const hide = () => document.visibilityState === "hidden" && end(null);
    /** @param {Job | null} job */
    function end(job) {
      clearTimeout(silence);
      document.removeEventListener("visibilitychange", hide);
      source.close();
      resolve(job);
    }
    source.onmessage = ({ data }) => {
      clearTimeout(silence);
      const job = parseExact(data);
      if (OVER.has(job.state)) end(job);
      else onJob(job);
    };
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) end(null);
      else onTrouble(new Problem({ title: "The server does not answer", code: "unreachable" }));
    };
    document.addEventListener("visibilitychange", hide);
  });
}

/**
 * Request the state of a job; null if the server does not answer.
 * @param {string} id
 * @param {(problem: Problem) => void} onTrouble
 * @returns {Promise<Job | null>}
 */
async function polled(id, onTrouble) {
  try {
    return await getJson(api("jobs", id));
  } catch (error) {
    if (!(error instanceof Problem) || (error.status >= 400 && error.status < 500)) throw error;
    onTrouble(error);
    return null;
  }
}
