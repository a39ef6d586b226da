// Numbers as text for people. Exact values stay exact: integers that may exceed 2^53 arrive as BigInt.

const grouped = new Intl.NumberFormat("en-US");
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 3 });
const BYTE_UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

export const UNKNOWN = "unknown";

/**
 * An integer with thousands separators.
 * @param {Int} n
 */
export const count = (n) => grouped.format(n);

/**
 * A count that changes on the screen: three digits and a letter once it is long.
 * @param {Int} n
 */
export const roughly = (n) => (n < 100_000 ? count(n) : compact.format(n));

/**
 * "1 event", "2 events".
 * @param {Int} n
 * @param {string} noun
 * @param {string} nouns the plural
 */
export const plural = (n, noun, nouns = `${noun}s`) => `${count(n)} ${Number(n) === 1 ? noun : nouns}`;

/**
 * Bytes in decimal units, three digits or so.
 * @param {Int} n
 */
export function bytes(n) {
  let value = Number(n);
  let unit = 0;
  while (Math.abs(value) >= 999.5 && unit < BYTE_UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const digits = unit === 0 || Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${BYTE_UNITS[unit]}`;
}

/**
 * Nanoseconds (number or BigInt) in the unit that fits, four digits.
 * @param {Int} ns
 */
export function duration(ns) {
  const value = Number(ns);
  const size = Math.abs(value);
  if (size < 1e3) return `${digits(value)} ns`;
  if (size < 1e6) return `${digits(value / 1e3)} µs`;
  if (size < 1e9) return `${digits(value / 1e6)} ms`;
  if (size < 120e9) return `${digits(value / 1e9)} s`;
  return clock(Math.round(value / 1e9));
}

/** @param {number} value */
const digits = (value) => Number(value.toPrecision(4)).toString();

/**
 * Whole seconds as "3 min 07 s" or "2 h 05 min"; short ones as "12 s".
 * @param {number} seconds
 */
export function clock(seconds) {
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${pad(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${pad(Math.floor((seconds % 3600) / 60))} min`;
}

/** @param {number} n */
const pad = (n) => String(n).padStart(2, "0");

/**
 * end - start, exactly.
 * @param {Span} span
 */
export const span = ({ start_ns, end_ns }) => BigInt(end_ns) - BigInt(start_ns);

/**
 * Epoch nanoseconds as ISO 8601 with all nine digits.
 * @param {Int} epochNs
 */
export function isoNs(epochNs) {
  const ns = BigInt(epochNs);
  const fraction = ((ns % 1_000_000_000n) + 1_000_000_000n) % 1_000_000_000n;
  const seconds = new Date(Number((ns - fraction) / 1_000_000n));
  return `${seconds.toISOString().slice(0, 19)}.${String(fraction).padStart(9, "0")}Z`;
}

/**
 * Time since then, rounded down to one unit.
 * @param {string} iso
 * @param {number} now
 */
export function age(iso, now = Date.now()) {
  const seconds = Math.max(0, Math.round((now - Date.parse(iso)) / 1000));
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

/**
 * Rank of world size; "unknown" where the trace has no number.
 * @param {{ rank: Int | null, world_size: Int | null }} trace
 */
export function rank({ rank, world_size: world }) {
  if (rank === null && world === null) return UNKNOWN;
  if (world === null) return `${rank} of ${UNKNOWN}`;
  return `${rank ?? UNKNOWN} of ${world}`;
}

/**
 * The title of a row of the analysis `steps`, whose one row is the whole trace if there are no steps.
 * @param {unknown} step
 */
export const stepTitle = (step) => (step === null ? "Whole trace" : `Step ${step}`);
