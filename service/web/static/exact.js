// JSON with exact integers: those beyond 2^53 become BigInt, all other values are as JSON.parse returns them.

const INTEGER = /^-?\d+$/;
const LONG_DIGITS = /\d{16}/;
const STRING_OR_NUMBER = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/**
 * JSON.parse with a reviver that also gets the source text of the value. Older browsers pass the reviver no context.
 * @type {(text: string, reviver: (key: string, value: any, context: { source: string }) => any) => any}
 */
const parseWithSource = /** @type {any} */ (JSON.parse);

/** True if this browser passes the source text. */
const readsSource = (() => {
  let isPassed = false;
  parseWithSource("1", (_key, value, context) => {
    isPassed = context?.source === "1";
    return value;
  });
  return isPassed;
})();

/**
 * Parse JSON text; integers that a double cannot hold become BigInt.
 * @param {string} text
 * @returns {any}
 */
export function parseExact(text) {
  if (!LONG_DIGITS.test(text)) return JSON.parse(text); // no integer can be beyond 2^53
  return readsSource ? parseWithSource(text, exactFromSource) : parseExactBySpelling(text);
}

/**
 * @param {string} _key
 * @param {unknown} value
 * @param {{ source: string }} context
 */
function exactFromSource(_key, value, context) {
  const tooLong = typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value);
  return tooLong && INTEGER.test(context.source) ? BigInt(context.source) : value;
}

/**
 * Parse JSON text in browsers that pass no source text: long integers outside strings are wrapped in an object first.
 * @param {string} text
 * @returns {any}
 */
export function parseExactBySpelling(text) {
  const box = `int:${crypto.getRandomValues(new Uint32Array(2)).join("-")}`; // a key that the data does not have
  const boxed = text.replace(STRING_OR_NUMBER, (token) =>
    INTEGER.test(token) && !Number.isSafeInteger(Number(token)) ? `{"${box}":"${token}"}` : token,
  );
  return JSON.parse(boxed, (_key, value) =>
    value !== null && typeof value === "object" && Object.hasOwn(value, box) ? BigInt(value[box]) : value,
  );
}

/**
 * Write a value as JSON text; a BigInt becomes an integer.
 * @param {unknown} value
 * @returns {string}
 */
export function writeExact(value) {
  if (typeof value === "bigint") return String(value);
  if (Array.isArray(value)) return `[${value.map(writeExact).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  return `{${members.map(([key, member]) => `${JSON.stringify(key)}:${writeExact(member)}`).join(",")}}`;
}
