// JSON whose integers stay exact: those beyond 2^53 become BigInt, everything else is as JSON.parse gives it.

const INTEGER = /^-?\d+$/;
const LONG_DIGITS = /\d{16}/;
const STRING_OR_NUMBER = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

// Where the parser shows a reviver the number's own text, nothing has to be guessed.
const readsSource = (() => {
  let seen = false;
  JSON.parse("1", (_key, value, context) => {
    seen = context?.source === "1";
    return value;
  });
  return seen;
})();

/** Parse JSON text; integers that a double cannot hold come back as BigInt. */
export function parseExact(text) {
  if (!LONG_DIGITS.test(text)) return JSON.parse(text); // nothing here can be too long
  return readsSource ? JSON.parse(text, exactFromSource) : parseExactBySpelling(text);
}

function exactFromSource(_key, value, context) {
  const tooLong = typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value);
  return tooLong && INTEGER.test(context.source) ? BigInt(context.source) : value;
}

/** The same for older browsers: long integers outside strings are set in a box before JSON.parse sees them. */
export function parseExactBySpelling(text) {
  const box = `int:${crypto.getRandomValues(new Uint32Array(2)).join("-")}`; // no key of the data is this
  const boxed = text.replace(STRING_OR_NUMBER, (token) =>
    INTEGER.test(token) && !Number.isSafeInteger(Number(token)) ? `{"${box}":"${token}"}` : token,
  );
  return JSON.parse(boxed, (_key, value) =>
    value !== null && typeof value === "object" && Object.hasOwn(value, box) ? BigInt(value[box]) : value,
  );
}

/** The JSON text of a value; a BigInt is written as the integer that it is. */
export function writeExact(value) {
  if (typeof value === "bigint") return String(value);
  if (Array.isArray(value)) return `[${value.map(writeExact).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const members = Object.entries(value).filter(([, one]) => one !== undefined);
  return `{${members.map(([key, one]) => `${JSON.stringify(key)}:${writeExact(one)}`).join(",")}}`;
}
