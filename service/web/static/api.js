// All HTTP requests to the service, except those of tus.js: only XMLHttpRequest reports the progress of uploads.
import { parseExact, writeExact } from "./exact.js";

/** Path the service is mounted at, empty at the root of its host. */
export const root = document.documentElement.dataset.root ?? "";

/** Whether the visitor may change anything; base.css hides what only changes something from others. */
export const mayWrite = document.documentElement.dataset.scope !== "read";

/**
 * URL of an API resource; each part is escaped.
 * @param {...string} parts
 */
export const api = (...parts) => `${root}/api/v1/${parts.map(encodeURIComponent).join("/")}`;

/** @param {string} id */
export const pageOf = (id) => `${root}/traces/${encodeURIComponent(id)}`;

/**
 * Address of the page of SQL on a trace, with a query in its editor if there is one.
 * @param {string} id
 * @param {string} [sql]
 */
export const sqlPageOf = (id, sql) => `${pageOf(id)}/sql${sql === undefined ? "" : `?${new URLSearchParams({ q: sql })}`}`;

/** @param {string} id */
export const groupPageOf = (id) => `${root}/groups/${encodeURIComponent(id)}`;

/**
 * Address of the page that compares a trace or a run, as the base, with another.
 * @param {string} base
 * @param {string} [other] chosen on the page if it is left out
 */
export const comparePageOf = (base, other) => `${root}/compare?${new URLSearchParams({ base, ...(other ? { other } : {}) })}`;

/** An error: one that the service answered (RFC 9457), or a failed connection. */
export class Problem extends Error {
  /**
   * @param {ProblemFields} fields
   * @param {number} status
   */
  constructor(fields, status = 0) {
    super(fields.detail ?? fields.title);
    this.title = fields.title ?? `HTTP ${status}`;
    this.detail = fields.detail ?? "";
    this.code = fields.code ?? "unknown";
    this.status = status;
    this.fields = fields;
  }

  /**
   * Read the problem from the body of an error answer, which a proxy may have written.
   * @param {string} text
   * @param {number} status
   */
  static read(text, status, statusText = "") {
    try {
      const fields = parseExact(text);
      if (fields !== null && typeof fields === "object") return new Problem(fields, status);
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error; // the HTML page of a proxy
    }
    return new Problem({ title: `HTTP ${status} ${statusText}`.trim(), detail: text.slice(0, 300) }, status);
  }
}

/**
 * Send a request. Returns the Response of a success (2xx); throws a Problem otherwise.
 * @param {string} method
 * @param {string} url
 * @param {{ json?: unknown, accept?: string, signal?: AbortSignal }} options
 */
export async function send(method, url, { json, accept = "application/json", signal } = {}) {
  /** @type {Record<string, string>} */
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

/**
 * @param {Response} response
 * @returns {Promise<any>}
 */
export const readJson = async (response) => parseExact(await response.text());

/**
 * @param {string} url
 * @param {{ signal?: AbortSignal }} [options]
 */
export const getJson = async (url, options) => readJson(await send("GET", url, options));

/**
 * @param {string} url
 * @param {unknown} json
 */
export const putJson = async (url, json) => readJson(await send("PUT", url, { json }));

/**
 * @param {string} url
 * @param {unknown} json
 */
export const postJson = async (url, json) => readJson(await send("POST", url, { json }));

/** @param {string} id */
export const deleteTrace = (id) => send("DELETE", api("traces", id));

/**
 * Send a query to a trace's engine. While the engine loads (202), call `onLoading(session)` and send the query again.
 * Returns the Response with the answer. Aborting the signal cancels the query.
 * @param {string} id
 * @param {object} question
 * @param {{ accept?: string, signal: AbortSignal, onLoading: (session: Session) => void }} options
 */
export async function query(id, question, { accept, signal, onLoading }) {
  for (;;) {
    // a short wait, so that the page shows how far the engine has loaded
    const response = await send("POST", `${api("traces", id, "query")}?wait=1`, { json: question, accept, signal });
    if (response.status !== 202) return response;
    onLoading(await readJson(response));
    await pause(Number(response.headers.get("Retry-After") ?? 1) * 1000, signal);
  }
}

/**
 * Wait so many milliseconds. Rejects like fetch when the signal aborts.
 * @param {number} milliseconds
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
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
