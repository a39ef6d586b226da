// Describes what ingest refused and repaired in a trace.
import { el } from "./dom.js";
import { count, plural } from "./format.js";

const KINDS = [["refused", "Refused"], ["repaired", "Repaired"], ["oddity", "Odd, and left as it is"]];

/**
 * Describe in a few words what was refused and repaired; null if the file was read unchanged.
 * @param {Health} health
 */
export function damage({ refused = 0, repaired = 0, notes = [] }) {
  const parts = [];
  if (Number(refused) > 0) parts.push(`${count(refused)} refused`);
  else if (notes.some((note) => note.kind === "refused")) parts.push("incomplete");
  if (Number(repaired) > 0) parts.push(plural(repaired, "repair"));
  return parts.length > 0 ? parts.join(" · ") : null;
}

/**
 * Make the report: open if there is damage, else one line; null if the trace is not ready.
 * @param {Trace} trace
 */
export function healthOf({ state, health }) {
  if (state !== "ready") return null;
  const damaged = damage(health);
  const title = damaged ?? "Nothing lost, nothing repaired";
  if (health.notes.length === 0) return el("p", { class: "muted" }, `${title}.`);
  const odd = health.notes.filter((note) => note.kind === "oddity").length;
  const oddities = odd > 0 ? el("span", { class: "muted" }, ` · ${odd === 1 ? "1 oddity" : `${odd} oddities`}`) : null;
  const summary = el("summary", {}, damaged ? el("strong", { class: "warm" }, title) : title, oddities);
  return el("details", { open: damaged !== null }, summary, ...KINDS.flatMap(([kind, title]) => notesOf(health.notes, kind, title)));
}

/**
 * @param {HealthNote[]} notes
 * @param {string} kind
 * @param {string} title
 */
function notesOf(notes, kind, title) {
  const matching = notes.filter((note) => note.kind === kind);
  if (matching.length === 0) return [];
  return [el("h3", {}, title), el("ul", { class: "notes" }, matching.map(noteOf))];
}

/** @param {HealthNote} note */
function noteOf({ code, detail, count: times, examples }) {
  const many = Number(times) > 1 ? [el("strong", {}, `${count(times)} ×`), " "] : [];
  const shown = examples.length > 0 ? el("ul", { class: "examples" }, examples.map(exampleOf)) : null;
  return el("li", {}, ...many, detail, " ", el("code", { class: "code" }, code), shown);
}

/** @param {{ offset: Int | null, text: string | null }} example */
function exampleOf({ offset, text }) {
  const place = offset === null ? null : el("span", { class: "muted small" }, `byte ${count(offset)} `);
  return el("li", {}, place, text === null ? null : el("code", {}, visible(text.trim())));
}

/**
 * Write a text on one line, with control characters as JSON escapes them.
 * @param {string} text
 */
// eslint-disable-next-line no-control-regex -- these are what it escapes
const visible = (text) => text.replace(/[\0-\x1f]/g, (sign) => JSON.stringify(sign).slice(1, -1));
