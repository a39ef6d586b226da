// Numbers as people read them. Exact values stay exact: whatever may exceed 2^53 is BigInt on its way here.

const grouped = new Intl.NumberFormat("en-US");
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 3 });
const BYTE_UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

export const UNKNOWN = "unknown";

/** An integer with thousands separators. */
export const count = (n) => grouped.format(n);

/** A count that grows while one looks: three digits and a letter once it is long. */
export const roughly = (n) => (n < 100_000 ? count(n) : compact.format(n));

/** "1 event", "2 events". */
export const plural = (n, noun) => `${count(n)} ${noun}${Number(n) === 1 ? "" : "s"}`;

/** Bytes in decimal units, three digits or so. */
export function bytes(n) {
  let value = Number(n);
  let unit = 0;
  while (value >= 999.5 && unit < BYTE_UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${BYTE_UNITS[unit]}`;
}

/** Nanoseconds (number or BigInt) in the unit that fits, four digits. */
export function duration(ns) {
  const value = Number(ns);
  const size = Math.abs(value);
  if (size < 1e3) return `${value} ns`;
  if (size < 1e6) return `${digits(value / 1e3)} µs`;
  if (size < 1e9) return `${digits(value / 1e6)} ms`;
  if (size < 120e9) return `${digits(value / 1e9)} s`;
  return clock(Math.round(value / 1e9));
}

const digits = (value) => Number(value.toPrecision(4)).toString();

/** Whole seconds as "3 min 07 s" or "2 h 05 min"; short ones as "12 s". */
export function clock(seconds) {
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${pad(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${pad(Math.floor((seconds % 3600) / 60))} min`;
}

const pad = (n) => String(n).padStart(2, "0");

/** end - start, exactly. */
export const span = ({ start_ns, end_ns }) => BigInt(end_ns) - BigInt(start_ns);

/** Epoch nanoseconds as ISO 8601 with all nine digits. */
export function isoNs(epochNs) {
  const ns = BigInt(epochNs);
  const fraction = ((ns % 1_000_000_000n) + 1_000_000_000n) % 1_000_000_000n;
  const seconds = new Date(Number((ns - fraction) / 1_000_000n));
  return `${seconds.toISOString().slice(0, 19)}.${String(fraction).padStart(9, "0")}Z`;
}

/** How long ago, coarsely. */
export function age(iso, now = Date.now()) {
  const seconds = Math.max(0, Math.round((now - Date.parse(iso)) / 1000));
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

/** Rank of world size. What is not known is said, never shown as a number. */
export function rank({ rank, world_size: world }) {
  if (rank === null && world === null) return UNKNOWN;
  if (world === null) return `${rank} of ${UNKNOWN}`;
  return `${rank ?? UNKNOWN} of ${world}`;
}
