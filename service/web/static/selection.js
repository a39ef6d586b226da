// A selection of events of a trace. Its times are exact: BigInt here, text in form fields and in requests.
import { api } from "./api.js";
import { chosenArgs } from "./args.js";
import { el } from "./dom.js";
import { writeExact } from "./exact.js";
import { duration } from "./format.js";

const VALUES_MAX = 12; // values of a criterion that are listed before "and 858 more"
const DECIMAL = /^(\d*)\.?(\d*)$/;

export const MS = { name: "ms", decimals: 6 };
export const US = { name: "µs", decimals: 3 };
export const MB = { name: "MB", decimals: 6 };
export const WHOLE = { name: "", decimals: 0 };

/**
 * Address at which the Perfetto UI opens a selection of a trace, or all of it.
 * @param {string} id
 * @param {TraceSelection} selection
 */
export function perfettoOf(id, selection = {}) {
  const wanted = [selectionIn(selection), chosenArgs() && `args=${chosenArgs()}`].filter(Boolean);
  return `${api("traces", id, "perfetto")}${wanted.length > 0 ? "?" : ""}${wanted.join("&")}`;
}

/**
 * Address of a selection of a trace as a file.
 * @param {string} id
 * @param {TraceSelection} selection
 * @param {string} format
 */
export const downloadOf = (id, selection = {}, format = "json.gz") => `${api("traces", id, "download")}?${[`format=${format}`, selectionIn(selection)].filter(Boolean).join("&")}`;

/**
 * Make a link that opens a selection in the Perfetto UI.
 * @param {string} id
 * @param {TraceSelection} selection
 * @param {string} what
 */
export function openLink(id, selection, what) {
  return el("a", { href: perfettoOf(id, selection), target: "_blank", rel: "noopener", "aria-label": `Open ${what} in Perfetto` }, "Open");
}

/** @param {TraceSelection} selection */
const selectionIn = (selection) => (isEmpty(selection) ? "" : `selection=${encodeURIComponent(writeExact(selection))}`);

/** @param {object} selection */
export const isEmpty = (selection) => Object.keys(selection).length === 0;

/**
 * Parse decimals of a unit as an integer of its smallest part; null if the text is empty. Throws a RangeError.
 * @param {string} text
 * @param {{ name: string, decimals: number }} unit
 */
export function exactly(text, { name, decimals }) {
  const trimmed = text.trim();
  const shown = trimmed.length > 40 ? `${trimmed.slice(0, 40)}…` : trimmed;
  if (trimmed === "") return null;
  const [, whole, fraction] = DECIMAL.exec(trimmed) ?? [];
  if (whole === undefined || whole + fraction === "") throw new RangeError(`“${shown}” is no ${name ? `number of ${name}` : "whole number"}.`);
  const kept = fraction.replace(/0+$/, "");
  if (kept.length > decimals) throw new RangeError(`“${shown}” has more than ${decimals} decimals: there is nothing smaller.`);
  return BigInt(whole + kept.padEnd(decimals, "0"));
}

/**
 * Format an integer of the smallest part as decimals of the unit: the reverse of `exactly`.
 * @param {Int} value
 * @param {{ decimals: number }} unit
 */
export function inUnit(value, { decimals }) {
  const big = BigInt(value);
  const digits = String(big < 0n ? -big : big).padStart(decimals + 1, "0");
  const [whole, fraction] = [digits.slice(0, -decimals), digits.slice(-decimals).replace(/0+$/, "")];
  return `${big < 0n ? "−" : ""}${whole}${fraction && "."}${fraction}`;
}

/** @type {[Exclude<keyof Criteria, "window" | "min_dur_ns">, string, string?][]} */
const CRITERIA = [
  ["ranks", "rank"], ["steps", "step"], ["devices", "device"], ["streams", "stream"], ["threads", "thread"],
  ["processes", "process", "processes"], ["categories", "category", "categories"], ["names", "name"], ["phases", "phase"],
];

/** @type {Record<string, string>} */
const EDGES = { start: "only what begins in the window", clip: "slices cut to the window" };

const LEFT_OUT = {
  metadata: "no names of processes and threads", flows: "no arrows", launches: "no launches of kernels",
  kernels: "no kernels of launches", annotations: "no annotations of steps and around the window",
};

/**
 * Describe a selection in words; `bounds` are those of the trace that it was cut from, if known.
 * @param {TraceSelection} selection
 * @param {Span | null} bounds
 */
export function wordsOf(selection, bounds = null) {
  const words = criteriaOf(selection, bounds);
  if (selection.exclude) words.push(`without ${criteriaOf(selection.exclude, bounds).join(", ")}`);
  if (selection.straddle && selection.straddle in EDGES) words.push(EDGES[selection.straddle]);
  for (const [name, text] of Object.entries(LEFT_OUT)) if (selection.closure?.[name] === false) words.push(text);
  return words.length > 0 ? words : ["all of it"];
}

/**
 * @param {Criteria} criteria
 * @param {Span | null} bounds
 */
function criteriaOf(criteria, bounds) {
  const words = [];
  for (const [key, singular, plural = `${singular}s`] of CRITERIA) {
    const values = criteria[key];
    if (values) words.push(`${values.length === 1 ? singular : plural} ${listed(values)}`);
  }
  if (criteria.window) words.push(windowOf(criteria.window, bounds));
  if (criteria.min_dur_ns) words.push(`at least ${duration(criteria.min_dur_ns)} long`);
  return words;
}

/** @param {unknown[]} values */
function listed(values) {
  const shown = values.slice(0, VALUES_MAX).map((value) => (value === "" ? "none" : String(value))).join(", ");
  return values.length > VALUES_MAX ? `${shown} and ${values.length - VALUES_MAX} more` : shown;
}

/**
 * @param {TimeWindow} window
 * @param {Span | null} bounds
 */
function windowOf({ start_ns: start, end_ns: end, relative, from, to }, bounds) {
  /** @param {Int} ns */
  const at = (ns) => {
    if (relative) return `${inUnit(ns, MS)} ms`;
    return bounds ? `${inUnit(BigInt(ns) - BigInt(bounds.start_ns), MS)} ms` : `${ns} ns of its clock`;
  };
  const edges = [];
  if (from) edges.push(`from “${from}”`);
  else if (start !== null && start !== undefined) edges.push(`from ${at(start)}`);
  if (to) edges.push(`to “${to}”`);
  else if (end !== null && end !== undefined) edges.push(`to ${at(end)}`);
  return edges.join(" ") || "any time";
}
