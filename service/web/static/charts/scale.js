// Axes: round numbers and times for ticks.

const FACTORS = [1, 2, 5, 10];
const TIME_UNITS = [
  { name: "s", length: 1e9 },
  { name: "ms", length: 1e6 },
  { name: "µs", length: 1e3 },
  { name: "ns", length: 1 },
];
const PRECISION = 1000; // times of an axis that a tooltip distinguishes

/**
 * The least round number that divides a range into at most about `count` parts.
 * @param {number} range
 * @param {number} count
 */
function stepOf(range, count) {
  const rough = range / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * (FACTORS.find((factor) => factor * power >= rough * 0.999) ?? 10);
}

/**
 * Return round values from `min` to `max`, about `count` of them.
 * @param {number} max
 * @param {number} count
 * @param {number} min
 */
export function ticks(max, count = 5, min = 0) {
  if (!(max > min)) return [min];
  const step = stepOf(max - min, count);
  const [first, last] = [Math.ceil(min / step - 1e-9), Math.floor(max / step + 1e-9)];
  return Array.from({ length: last - first + 1 }, (_, index) => (first + index) * step);
}

/**
 * Return round times from `min` to `max`, in ns, about `count` of them, with their labels.
 * @param {number} max
 * @param {number} count
 * @param {number} min
 */
export function timeTicks(max, count, min) {
  const step = stepOf(Math.max(max - min, count), count);
  return ticks(max, count, min).map((time) => ({ time, text: timeText(time, step) }));
}

/**
 * A time in ns, with as many decimals as steps of that size need.
 * @param {number} time
 * @param {number} step
 */
export function timeText(time, step) {
  if (time === 0) return "0";
  const unit = TIME_UNITS.find(({ length }) => Math.abs(time) >= length) ?? TIME_UNITS[3];
  const decimals = Math.max(0, Math.min(9, Math.ceil(Math.log10(unit.length / step) - 1e-9)));
  return `${(time / unit.length).toFixed(decimals)} ${unit.name}`;
}

/**
 * Return a function for tooltips: the text of a time on an axis, in whole ns, with as many decimals as the axis needs.
 * @param {number} first time of the axis in ns
 * @param {number} last
 */
export function exactTimeText(first, last) {
  const step = Math.max(1, (last - first) / PRECISION);
  return (/** @type {number} */ time) => timeText(Math.round(time), step);
}

/**
 * Return powers of ten for the ticks of a logarithmic axis, at most about `count` of them.
 * @param {number} low exponent
 * @param {number} high exponent
 * @param {number} count
 */
export function powers(low, high, count = 5) {
  const step = Math.max(1, Math.ceil((high - low) / count));
  return Array.from({ length: Math.floor((high - low) / step) + 1 }, (_, index) => 10 ** (low + index * step));
}
