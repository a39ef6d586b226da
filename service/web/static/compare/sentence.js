// What changed, in a sentence.
import { duration, plural } from "../format.js";
import { numberOf, recordsOf } from "../records.js";
import { readable } from "../units.js";
import { KINDS, signed, signedPercent } from "./views.js";

/** @import { Row } from "../records.js" */

const MOST = 0.8; // of the difference, that "most of it" names
const PARTS_MAX = 3;

/**
 * "Step time grew by 12.3 %, from 101 ms to 113 ms; most of it: communication +8.1 ms."
 * @param {Record<string, Table>} tables
 */
export function sentenceOf(tables) {
  const [total, ...parts] = recordsOf(tables.steps);
  const [base, other, difference] = ["base_mean_ns", "mean_ns", "difference_ns"].map((column) => Number(total[column]));
  const subject = Number(total.base_steps) + Number(total.steps) > 0 ? "Step time" : "The time of the trace";
  if (isUnchanged(tables)) return `No change: ${subject === "Step time" ? "step time" : "the time of the trace"} is ${duration(base)} on both sides, and nothing else differs.`;
  if (difference === 0) return `${subject} is ${duration(base)} on both sides.`;
  const relative = numberOf(total, "difference_pct");
  if (total.verdict === "same") {
    return `${subject} is the same within the threshold: ${duration(base)} and ${duration(other)}${relative === null ? "" : ` (${signedPercent(Number(relative))})`}.`;
  }
  const by = relative === null ? duration(Math.abs(difference)) : readable(Math.abs(Number(relative)), "%");
  return `${subject} ${difference > 0 ? "grew" : "shrank"} by ${by}, from ${duration(base)} to ${duration(other)}; most of it: ${mostOf(parts, difference)}.`;
}

/**
 * Over how many steps the means are: "Means over 3 steps of the base and 5 of the other side."
 * @param {Record<string, Table>} tables
 */
export function stepsOf(tables) {
  const [{ base_steps: base, steps }] = recordsOf(tables.steps);
  if (Number(base) === 0 || Number(steps) === 0 || (Number(base) === 1 && Number(steps) === 1)) return "";
  return `Means over ${plural(Number(base), "step")} of the base and ${Number(steps)} of the other side.`;
}

/**
 * The parts of a step that make up most of its difference.
 * @param {Row[]} parts
 * @param {number} difference
 */
function mostOf(parts, difference) {
  const along = parts
    .map((row) => ({ kind: KINDS[String(row.category)] ?? String(row.category), part: Number(row.difference_ns) }))
    .filter(({ part }) => part * difference > 0)
    .sort((a, b) => Math.abs(b.part) - Math.abs(a.part));
  const named = [];
  let explained = 0;
  for (const { kind, part } of along.slice(0, PARTS_MAX)) {
    named.push(`${kind} ${signed(part)}`);
    explained += part / difference;
    if (explained >= MOST) break;
  }
  return named.join(", ");
}

/** @param {Record<string, Table>} tables */
function isUnchanged(tables) {
  return Object.values(tables).every(({ columns, rows }) => {
    const compared = columns.map(({ name }, index) => ({ name, index })).filter(({ name }) => /(^|_)difference(_ns)?$/.test(name));
    const verdict = columns.findIndex(({ name }) => name === "verdict");
    return rows.every((row) => row[verdict] === "same" && compared.every(({ index }) => row[index] === null || Number(row[index]) === 0));
  });
}
