// A selection: what to keep of a trace. Its times are exact: BigInt here, and text in the fields and on the way.
import { api } from "./api.js";
import { chosenArgs } from "./args.js";
import { el } from "./dom.js";
import { writeExact } from "./exact.js";
import { duration } from "./format.js";

const SHOWN = 12; // values of one criterion that are told before "and 858 more"
const DECIMAL = /^(\d*)\.?(\d*)$/;

export const MS = { name: "ms", decimals: 6 };
export const US = { name: "µs", decimals: 3 };
export const MB = { name: "MB", decimals: 6 };
export const WHOLE = { name: "", decimals: 0 };

/** Where the Perfetto UI opens on what is selected of a trace; without a selection, on all of it. */
export function perfettoOf(id, selection = {}) {
  const wanted = [selectionIn(selection), chosenArgs() === "all" ? "" : `args=${chosenArgs()}`].filter(Boolean);
  return `${api("traces", id, "perfetto")}${wanted.length > 0 ? "?" : ""}${wanted.join("&")}`;
}

/** Where what is selected of a trace is had as a file. */
export const downloadOf = (id, selection = {}) => `${api("traces", id, "download")}?${["format=json.gz", selectionIn(selection)].filter(Boolean).join("&")}`;

/** A link that opens a part of a trace at once. */
export function openLink(id, selection, what) {
  return el("a", { href: perfettoOf(id, selection), target: "_blank", rel: "noopener", "aria-label": `Open ${what} in Perfetto` }, "Open");
}

const selectionIn = (selection) => (isEmpty(selection) ? "" : `selection=${encodeURIComponent(writeExact(selection))}`);

export const isEmpty = (selection) => Object.keys(selection).length === 0;

/** What a field of decimals means in the unit's smallest part, as BigInt; null of an empty one. Throws a RangeError. */
export function exactly(text, { name, decimals }) {
  const told = text.trim();
  const said = told.length > 40 ? `${told.slice(0, 40)}…` : told;
  if (told === "") return null;
  const [, whole, fraction] = DECIMAL.exec(told) ?? [];
  if (whole === undefined || whole + fraction === "") throw new RangeError(`“${said}” is no ${name ? `number of ${name}` : "whole number"}.`);
  const kept = fraction.replace(/0+$/, "");
  if (kept.length > decimals) throw new RangeError(`“${said}” has more than ${decimals} decimals: there is nothing smaller.`);
  return BigInt(whole + kept.padEnd(decimals, "0"));
}

/** The reverse: an integer of the smallest part as decimals of the unit. */
export function inUnit(value, { decimals }) {
  const big = BigInt(value);
  const digits = String(big < 0n ? -big : big).padStart(decimals + 1, "0");
  const [whole, fraction] = [digits.slice(0, -decimals), digits.slice(-decimals).replace(/0+$/, "")];
  return `${big < 0n ? "−" : ""}${whole}${fraction && "."}${fraction}`;
}

const CRITERIA = [
  ["ranks", "rank"], ["steps", "step"], ["devices", "device"], ["streams", "stream"], ["threads", "thread"],
  ["processes", "process", "processes"], ["categories", "category", "categories"], ["names", "name"], ["phases", "phase"],
];

const EDGES = { start: "only what begins in the window", clip: "slices cut to the window" };

const LEFT_OUT = {
  metadata: "no names of processes and threads", flows: "no arrows", launches: "no launches of kernels",
  kernels: "no kernels of launches", annotations: "no annotations around the window",
};

/** What a selection keeps, in words; `bounds` are those of the trace that it was cut out of, where they are known. */
export function wordsOf(selection, bounds = null) {
  const words = criteriaOf(selection, bounds);
  if (selection.exclude) words.push(`without ${criteriaOf(selection.exclude, bounds).join(", ")}`);
  if (selection.straddle in EDGES) words.push(EDGES[selection.straddle]);
  for (const [name, said] of Object.entries(LEFT_OUT)) if (selection.closure?.[name] === false) words.push(said);
  return words.length > 0 ? words : ["all of it"];
}

function criteriaOf(criteria, bounds) {
  const words = [];
  for (const [key, one, many = `${one}s`] of CRITERIA) {
    const values = criteria[key];
    if (values) words.push(`${values.length === 1 ? one : many} ${listed(values)}`);
  }
  if (criteria.window) words.push(windowOf(criteria.window, bounds));
  if (criteria.min_dur_ns) words.push(`at least ${duration(criteria.min_dur_ns)} long`);
  return words;
}

function listed(values) {
  const shown = values.slice(0, SHOWN).map((value) => (value === "" ? "none" : String(value))).join(", ");
  return values.length > SHOWN ? `${shown} and ${values.length - SHOWN} more` : shown;
}

function windowOf({ start_ns: start, end_ns: end, relative, from, to }, bounds) {
  const at = (ns) => {
    if (relative) return `${inUnit(ns, MS)} ms`;
    return bounds ? `${inUnit(BigInt(ns) - BigInt(bounds.start_ns), MS)} ms` : `${ns} ns of its clock`;
  };
  const edges = [];
  if (from ?? null) edges.push(`from “${from}”`);
  else if ((start ?? null) !== null) edges.push(`from ${at(start)}`);
  if (to ?? null) edges.push(`to “${to}”`);
  else if ((end ?? null) !== null) edges.push(`to ${at(end)}`);
  return edges.join(" ") || "any time";
}
