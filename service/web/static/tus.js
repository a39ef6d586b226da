// One upload by tus 1.0, which goes on where it stopped: after a pause, a lost link, a reload, a restart of the server.
// XMLHttpRequest, because only that tells how much is sent.
import { Problem, api, getJson, pause, root } from "./api.js";

const VERSION = { "Tus-Resumable": "1.0.0" };
const CHUNK = 64 << 20; // proxies bound bodies; and after each chunk it is known what is safe
const PAUSE_MS = 1000;
const PAUSE_MAX_MS = 30_000;
const LATER = [0, 409, 423, 500, 502, 503, 504]; // no answer, not there any more, or not yet
const STORE = `tracedock.upload:${root}:`;

const keyOf = (file) => `${STORE}${file.name}:${file.size}:${file.lastModified}`;

/** What a browser remembers of uploads that it began: their file's key and name, and their URL. */
export function remembered() {
  const keys = Array.from({ length: localStorage.length }, (_, index) => localStorage.key(index));
  return keys.filter((key) => key.startsWith(STORE)).map((key) => ({ key, ...JSON.parse(localStorage.getItem(key)) }));
}

export const isOf = (upload, file) => upload.key === keyOf(file);

/** End an upload on the server, which may have forgotten it. */
export async function discard({ key, url }) {
  localStorage.removeItem(key);
  const request = await sent("DELETE", url, {}, null);
  if (request.status >= 400 && ![404, 410].includes(request.status)) throw problemOf(request);
}

/**
 * Send a file, and return the id of the trace it became. Aborting the signal stops it; the next call goes on from there.
 * `onSent(bytes)` hears how much is on its way or there, `onLost(problem, ms)` when it is tried again in so many ms.
 */
export async function upload(file, { signal, onSent, onLost }) {
  for (let wait = PAUSE_MS; ; wait = Math.min(2 * wait, PAUSE_MAX_MS)) {
    await checkReadable(file);
    try {
      const found = (await standing(file)) ?? (await begin(file, signal));
      onSent(found.offset);
      const progress = (bytes) => {
        wait = PAUSE_MS;
        onSent(bytes);
      };
      const trace = found.trace ?? (await sendFrom(found, file, progress, signal));
      localStorage.removeItem(keyOf(file));
      return trace;
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof Problem && LATER.includes(error.status))) throw error;
      onLost(error, wait);
      await Promise.race([pause(wait, signal), online()]);
    }
  }
}

/** A folder looks like a file until it is read, and a file may have changed since it was chosen. */
async function checkReadable(file) {
  try {
    await file.slice(0, 1).arrayBuffer();
  } catch (error) {
    const detail = `The browser says: ${error.message} If this is a folder, drop the files in it.`;
    throw new Problem({ title: "The file can't be read", detail, code: "unreadable_file" }, 400);
  }
}

/** How far the upload of a file is that was begun before, or null. */
async function standing(file) {
  const known = localStorage.getItem(keyOf(file));
  if (known === null) return null;
  const { url } = JSON.parse(known);
  try {
    return { url, ...(await getJson(url)) };
  } catch (error) {
    if (![404, 410].includes(error.status)) throw error;
    localStorage.removeItem(keyOf(file));
    return null;
  }
}

async function begin(file, signal) {
  const name = btoa(String.fromCharCode(...new TextEncoder().encode(file.name)));
  const told = { "Upload-Length": file.size, "Upload-Metadata": `filename ${name}` };
  const request = await sent("POST", api("uploads"), told, null, { signal });
  if (request.status !== 201) throw problemOf(request);
  const url = root + new URL(request.getResponseHeader("Location"), location.href).pathname;
  localStorage.setItem(keyOf(file), JSON.stringify({ url, name: file.name, size: file.size }));
  return { url, offset: 0, trace: null };
}

async function sendFrom({ url, offset }, file, onSent, signal) {
  for (let at = offset; ; ) {
    const told = { "Content-Type": "application/offset+octet-stream", "Upload-Offset": at };
    const chunk = file.slice(at, at + CHUNK);
    const request = await sent("PATCH", url, told, chunk, { signal, onSent: (bytes) => onSent(at + bytes) });
    if (request.status !== 204) throw problemOf(request);
    at = Number(request.getResponseHeader("Upload-Offset"));
    onSent(at);
    const trace = request.getResponseHeader("Tracedock-Trace");
    if (trace) return trace;
  }
}

/** The request once it has an answer; one without has the status 0. */
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
    for (const [name, value] of Object.entries({ ...VERSION, ...headers })) request.setRequestHeader(name, value);
    request.send(body);
  });
}

function problemOf(request) {
  if (request.status) return Problem.read(request.responseText, request.status, request.statusText);
  const detail = `The connection to ${location.host}${root} ended without an answer.`;
  return new Problem({ title: "Upload interrupted", detail, code: "interrupted" });
}

const online = () => new Promise((resolve) => window.addEventListener("online", resolve, { once: true }));
