// The one place that speaks HTTP to the service (but for tus.js: only XMLHttpRequest tells the progress of uploads).
import { parseExact, writeExact } from "./exact.js";

/** Path the service is mounted at, empty at the root of its host. */
export const root = document.documentElement.dataset.root ?? "";

/** URL of an API resource; each part is escaped. */
export const api = (...parts) => `${root}/api/v1/${parts.map(encodeURIComponent).join("/")}`;

export const pageOf = (id) => `${root}/traces/${encodeURIComponent(id)}`;

export const groupPageOf = (id) => `${root}/groups/${encodeURIComponent(id)}`;

/** What went wrong, as the service says it (RFC 9457) or as the connection showed it. */
export class Problem extends Error {
  constructor(fields, status = 0) {
    super(fields.detail ?? fields.title);
    this.title = fields.title ?? `HTTP ${status}`;
    this.detail = fields.detail ?? "";
    this.code = fields.code ?? "unknown";
    this.status = status;
    this.fields = fields;
  }

  /** The problem in an error answer's text, whoever in between may have written it. */
  static read(text, status, statusText = "") {
    try {
      const fields = parseExact(text);
      if (fields !== null && typeof fields === "object") return new Problem(fields, status);
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error; // a proxy's HTML page is no JSON, and that is expected
    }
    return new Problem({ title: `HTTP ${status} ${statusText}`.trim(), detail: text.slice(0, 300) }, status);
  }
}

/** Send a request; the Response comes back when it succeeded (2xx), else a Problem is thrown. */
export async function send(method, url, { json, accept = "application/json", signal } = {}) {
  const headers = { Accept: accept };
  if (json !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(url, { method, headers, signal, body: json === undefined ? undefined : writeExact(json) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({
      title: "The server does not answer",
      detail: "The connection to the service failed.",
      code: "unreachable",
    });
  }
  if (!response.ok) throw Problem.read(await response.text(), response.status, response.statusText);
  return response;
}

export const readJson = async (response) => parseExact(await response.text());

export const getJson = async (url, options) => readJson(await send("GET", url, options));

export const putJson = async (url, json) => readJson(await send("PUT", url, { json }));

export const postJson = async (url, json) => readJson(await send("POST", url, { json }));

export const deleteTrace = (id) => send("DELETE", api("traces", id));

/**
 * Ask a question of a trace's engine. While the engine loads (202) `onLoading(session)` is told and the question
 * is asked again; the Response that comes back is the answer. Aborting the signal cancels the query.
 */
export async function query(id, question, { accept, signal, onLoading }) {
  for (;;) {
    // A short wait, so that the loading's progress is seen.
    const response = await send("POST", `${api("traces", id, "query")}?wait=1`, { json: question, accept, signal });
    if (response.status !== 202) return response;
    onLoading(await readJson(response));
    await pause(Number(response.headers.get("Retry-After") ?? 1) * 1000, signal);
  }
}

/** Resolve after some milliseconds; reject as fetch does when the signal aborts. */
export function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(new DOMException("cancelled", "AbortError"));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, milliseconds);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}
