// Axes: round numbers for ticks.

const FACTORS = [1, 2, 5, 10];

/**
 * Return round values from 0 to at most `max`, about `count` of them.
 * @param {number} max
 * @param {number} count
 */
export function ticks(max, count = 5) {
  if (!(max > 0)) return [0];
  const rough = max / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * (FACTORS.find((factor) => factor * power >= rough) ?? 10);
  const length = Math.floor(max / step + 1e-9);
  return Array.from({ length: length + 1 }, (_, index) => index * step);
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
