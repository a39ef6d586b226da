// Values with units, as people read them. Exact values stay in titles and in CSV.
import { bytes, count, duration } from "./format.js";

const short = new Intl.NumberFormat("en-US", { maximumFractionDigits: 3 });
const share = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 });
const smallShare = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 2 });

const PLURAL_ENDING = /(?<=[a-z]{3})s$/; // of a unit that is a noun, like "steps"

/**
 * Format a number in the unit of its column: ns as "7.57 ms", bytes as "12.5 MB", percentages as "1.63 %".
 * @param {Int} value
 * @param {string | null | undefined} unit
 */
export function readable(value, unit) {
  if (unit === "ns") return duration(value);
  if (unit === "bytes") return bytes(value);
  if (unit === "%") return `${(Math.abs(Number(value)) < 1 ? smallShare : share).format(value)} %`;
  const number = typeof value === "bigint" || Number.isInteger(value) ? count(value) : short.format(value);
  return unit ? `${number} ${Number(value) === 1 ? unit.replace(PLURAL_ENDING, "") : unit}` : number;
}
