// Uploads by tus 1.0, which resume after a pause, a lost connection, a reload of the page or a restart of the server.
// They use XMLHttpRequest, because fetch does not report how much is sent.
import { Problem, api, getJson, pause, root } from "./api.js";

/**
 * @typedef {{ key: string, url: string, name: string, size: number, row?: HTMLElement }} UnfinishedUpload
 * @typedef {{ url: string, offset: number, trace: string | null }} UploadState
 */

const VERSION = { "Tus-Resumable": "1.0.0" };
const CHUNK = 64 << 20; // proxies limit the size of bodies; after each chunk the offset on the server is known
const PAUSE_MS = 1000;
const PAUSE_MAX_MS = 30_000;
const RETRIED = [0, 408, 409, 423, 429, 500, 502, 503, 504]; // no answer, stalled, another offset, locked, too many, or unavailable
const STORE = `tracedock.upload:${root}:`;

/** @import { UploadItem } from "./library/folders.js" */

/** @param {UploadItem} item */
const keyOf = ({ file, path }) => `${STORE}${path}:${file.size}:${file.lastModified}`;

/**
 * List the unfinished uploads that this browser has stored.
 * @returns {UnfinishedUpload[]}
 */
export function remembered() {
  const keys = Array.from({ length: localStorage.length }, (_, index) => localStorage.key(index) ?? "");
  return keys.filter((key) => key.startsWith(STORE)).map((key) => ({ key, ...JSON.parse(localStorage.getItem(key) ?? "{}") }));
}

/**
 * @param {UnfinishedUpload} upload
 * @param {UploadItem} item
 */
export const isOf = (upload, item) => upload.key === keyOf(item);

/**
 * End an upload on the server, which may have deleted it before.
 * @param {UnfinishedUpload} upload
 */
export async function discard({ key, url }) {
  const request = await sent("DELETE", url, {}, null);
  if ((request.status === 0 || request.status >= 400) && ![404, 410].includes(request.status)) throw problemOf(request);
  localStorage.removeItem(key);
}

/**
 * Upload a file into its run, and return the id of its trace. Aborting the signal stops the upload; the next call resumes
 * it. Calls `onSent(bytes)` with the bytes that were sent, and `onLost(problem, ms)` before it retries in so many ms.
 * @param {UploadItem} item
 * @param {{ signal: AbortSignal, onSent: (bytes: number) => void, onLost: (problem: Problem, ms: number) => void }} options
 * @returns {Promise<string>}
 */
export async function upload(item, { signal, onSent, onLost }) {
  for (let wait = PAUSE_MS; ; wait = Math.min(2 * wait, PAUSE_MAX_MS)) {
    await checkReadable(item.file);
    try {
      const state = (await stateOf(item)) ?? (await begin(item, signal));
      onSent(state.offset);
      /** @param {number} bytes */
      const progress = (bytes) => {
        wait = PAUSE_MS;
        onSent(bytes);
      };
      const trace = state.trace ?? (await sendFrom(state, item.file, progress, signal));
      localStorage.removeItem(keyOf(item));
      return trace;
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof Problem && RETRIED.includes(error.status))) throw error;
      onLost(error, wait);
      await Promise.race([pause(wait, signal), online()]);
    }
  }
}

/**
 * Throw a Problem if a file can't be read: a folder looks like a file until then, and a file may have changed.
 * @param {File} file
 */
async function checkReadable(file) {
  try {
    await file.slice(0, 1).arrayBuffer();
  } catch (error) {
    const detail = `The browser says: ${error.message} If this is a folder, drop the files in it.`;
    throw new Problem({ title: "The file can't be read", detail, code: "unreadable_file" }, 400);
  }
}

/**
 * The state of an earlier upload of the file on the server, or null.
 * @param {UploadItem} item
 * @returns {Promise<UploadState | null>}
 */
async function stateOf(item) {
  const stored = localStorage.getItem(keyOf(item));
  if (stored === null) return null;
  const { url } = JSON.parse(stored);
  try {
    return { url, ...(await getJson(url)) };
  } catch (error) {
    if (![404, 410].includes(error.status)) throw error;
    localStorage.removeItem(keyOf(item));
    return null;
  }
}

/** @param {string} text */
const base64 = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text)));

/**
 * @param {UploadItem} item
 * @param {AbortSignal} signal
 * @returns {Promise<UploadState>}
 */
async function begin(item, signal) {
  const { file, path, name, group } = item;
  const metadata = [`filename ${base64(name)}`, ...(group === null ? [] : [`group ${base64(group)}`])].join(",");
  const headers = { "Upload-Length": file.size, "Upload-Metadata": metadata };
  const request = await sent("POST", api("uploads"), headers, null, { signal });
  if (request.status !== 201) throw problemOf(request);
  const url = root + new URL(request.getResponseHeader("Location") ?? "", location.href).pathname;
  localStorage.setItem(keyOf(item), JSON.stringify({ url, name: path, size: file.size }));
  return { url, offset: 0, trace: null };
}

/**
 * @param {UploadState} state
 * @param {File} file
 * @param {(bytes: number) => void} onSent
 * @param {AbortSignal} signal
 */
async function sendFrom({ url, offset }, file, onSent, signal) {
  for (let at = offset; ; ) {
    const headers = { "Content-Type": "application/offset+octet-stream", "Upload-Offset": at };
    const chunk = file.slice(at, at + CHUNK);
    const request = await sent("PATCH", url, headers, chunk, { signal, onSent: (bytes) => onSent(at + bytes) });
    if (request.status !== 204) throw problemOf(request);
    at = Number(request.getResponseHeader("Upload-Offset"));
    onSent(at);
    const trace = request.getResponseHeader("Tracedock-Trace");
    if (trace) return trace;
  }
}

/**
 * Send a request, and return it once it is over; its status is 0 if there was no answer.
 * @param {string} method
 * @param {string} url
 * @param {Record<string, string | number>} headers
 * @param {Blob | null} body
 * @param {{ signal?: AbortSignal, onSent?: (bytes: number) => void }} options
 * @returns {Promise<XMLHttpRequest>}
 */
function sent(method, url, headers, body, { signal, onSent } = {}) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const stop = () => request.abort();
    signal?.throwIfAborted();
    signal?.addEventListener("abort", stop, { once: true });
    if (onSent) request.upload.onprogress = (event) => onSent(event.loaded);
    request.onloadend = () => {
      signal?.removeEventListener("abort", stop);
      if (signal?.aborted) reject(signal.reason);
      else resolve(request);
    };
    request.open(method, url);
    for (const [name, value] of Object.entries({ ...VERSION, ...headers })) request.setRequestHeader(name, String(value));
    request.send(body);
  });
}

/** @param {XMLHttpRequest} request */
function problemOf(request) {
  if (request.status) return Problem.read(request.responseText, request.status, request.statusText);
  const detail = `The connection to ${location.host}${root} ended without an answer.`;
  return new Problem({ title: "Upload interrupted", detail, code: "interrupted" });
}

/** @returns {Promise<unknown>} */
const online = () => new Promise((resolve) => window.addEventListener("online", resolve, { once: true }));
