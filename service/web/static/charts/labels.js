// Labels of bars, cut to the pixels that they have.
export const CHARACTER = 6.9; // pixels, on average
const WIDE = 7.4; // pixels, on average, of names that are cut: their capitals stay

/**
 * The name of a kernel or another part, without what the signatures of many kernels begin with.
 * @param {string} label
 */
export const nameOf = (label) => label.replace(/^void |at::native::|\(anonymous namespace\)::/g, "");

/**
 * Cut labels so that different ones stay different where that is possible: of a label that begins like another for
 * longer than fits, its first characters and the word in which both differ are kept.
 * @param {string[]} labels
 * @param {number} width in pixels
 */
export function cutLabels(labels, width) {
  const fitting = Math.floor((width - 10) / CHARACTER + 0.01); // the width may be that of the characters, rounded
  const length = Math.max(2, Math.floor((width - 10) / WIDE));
  const names = labels.map(nameOf);
  const sorted = [...new Set(names)].sort();
  /** @type {Map<string, number>} */
  const shared = new Map(); // number of characters that a name shares with the most similar other one
  sorted.forEach((name, index) => shared.set(name, Math.max(sharedBy(name, sorted[index - 1] ?? ""), sharedBy(name, sorted[index + 1] ?? ""))));
  return names.map((name) => (name.length <= fitting ? name : cut(name, shared.get(name) ?? 0, length)));
}

/**
 * @param {string} one
 * @param {string} other
 */
function sharedBy(one, other) {
  let count = 0;
  while (count < one.length && one[count] === other[count]) count++;
  return count;
}

/**
 * @param {string} name
 * @param {number} shared
 * @param {number} length
 */
function cut(name, shared, length) {
  const plain = `${name.slice(0, length - 1)}…`;
  const head = Math.floor(length / 3);
  const word = name.slice(0, shared).search(/\w*$/); // the begin of the word in which the names differ
  if (shared < length - 1 || word <= head) return plain;
  const rest = name.slice(word), room = length - head - 1;
  return `${name.slice(0, head)}…${rest.length <= room ? name.slice(-room) : `${rest.slice(0, room - 1)}…`}`;
}
