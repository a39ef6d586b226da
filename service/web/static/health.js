// What is wrong or odd with a trace, in words.
import { el } from "./dom.js";
import { count, plural } from "./format.js";

const KINDS = [["refused", "Refused"], ["repaired", "Repaired"], ["oddity", "Odd, and left as it is"]];

/** What was refused and repaired, in a few words; null of a file that was read as it came. */
export function damage({ refused = 0, repaired = 0, notes = [] }) {
  const parts = [];
  if (Number(refused) > 0) parts.push(`${count(refused)} refused`);
  else if (notes.some((note) => note.kind === "refused")) parts.push("incomplete");
  if (Number(repaired) > 0) parts.push(plural(repaired, "repair"));
  return parts.length > 0 ? parts.join(" · ") : null;
}

/** The report: open where there is damage, else a line; null of a trace that is not ready. */
export function healthOf({ state, health }) {
  if (state !== "ready") return null;
  const damaged = damage(health);
  const said = damaged ?? "Nothing lost, nothing repaired";
  if (health.notes.length === 0) return el("p", { class: "muted" }, `${said}.`);
  const odd = health.notes.filter((note) => note.kind === "oddity").length;
  const oddities = odd > 0 ? el("span", { class: "muted" }, ` · ${odd === 1 ? "1 oddity" : `${odd} oddities`}`) : null;
  const summary = el("summary", {}, damaged ? el("strong", { class: "warm" }, said) : said, oddities);
  return el("details", { open: damaged !== null }, summary, ...KINDS.flatMap(([kind, title]) => notesOf(health.notes, kind, title)));
}

function notesOf(notes, kind, title) {
  const some = notes.filter((note) => note.kind === kind);
  if (some.length === 0) return [];
  return [el("h3", {}, title), el("ul", { class: "notes" }, some.map(noteOf))];
}

function noteOf({ code, detail, count: times, examples }) {
  const many = Number(times) > 1 ? [el("strong", {}, `${count(times)} ×`), " "] : [];
  const shown = examples.length > 0 ? el("ul", { class: "examples" }, examples.map(exampleOf)) : null;
  return el("li", {}, ...many, detail, " ", el("code", { class: "code" }, code), shown);
}

function exampleOf({ offset, text }) {
  const place = offset === null ? null : el("span", { class: "muted small" }, `byte ${count(offset)} `);
  return el("li", {}, place, text === null ? null : el("code", {}, visible(text.trim())));
}

/** A text on one line: control characters as JSON writes them. */
const visible = (text) => text.replace(/[\0-\x1f]/g, (sign) => JSON.stringify(sign).slice(1, -1));
