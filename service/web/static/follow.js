// A job, followed to its end: by its events, or by asking again and again where these can't be had.
import { Problem, api, getJson, pause } from "./api.js";
import { clock } from "./format.js";
import { parseExact } from "./exact.js";

const OVER = new Set(["done", "failed", "cancelled"]);
const SILENT = 5000; // ms after which a stream that has said nothing is one that something in between holds back
const ASKED = 1000;

/**
 * The job once it is over. Until then `onJob(job)` is told of it whenever there is news, and `onTrouble(problem)` when
 * the server does not answer, which may be a restart. Throws the Problem that there is no such job.
 */
export async function follow(id, onJob, onTrouble = () => {}) {
  for (;;) {
    const job = (await streamed(id, onJob, onTrouble)) ?? (await asked(id, onTrouble));
    if (job && OVER.has(job.state)) return job;
    if (job) onJob(job);
    await pause(ASKED);
  }
}

/** "12 s left" as far as it is known. */
export const left = ({ eta_s: seconds }) => (seconds === null ? "" : `${clock(Math.ceil(Number(seconds)))} left`);

/** The job once its events say that it is over; null if there are none, or nobody looks: tabs share few connections. */
function streamed(id, onJob, onTrouble) {
  if (document.visibilityState === "hidden") return null;
  return new Promise((resolve) => {
    const source = new EventSource(api("jobs", id, "events"));
    const silence = setTimeout(() => end(null), SILENT);
    const hide = () => document.visibilityState === "hidden" && end(null);
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

/** The job as it is; null where the server does not answer. */
async function asked(id, onTrouble) {
  try {
    return await getJson(api("jobs", id));
  } catch (error) {
    if (!(error instanceof Problem) || (error.status >= 400 && error.status < 500)) throw error;
    onTrouble(error);
    return null;
  }
}
