// From a row of a comparison to its slices on each side: as a list in SQL, and in Perfetto.
import { sqlPageOf } from "../api.js";
import { el } from "../dom.js";
import { perfettoOf } from "../selection.js";

/** @import { Row } from "../records.js" */
/** @import { Target } from "./target.js" */

const ROWS_MAX = 1000;
const PATTERN_MAX = 1000; // characters of a name with * or ?, which a selection reads as a pattern

/** @typedef {{ target: Target, steps: string, word: string, nameColumn: string, countColumn: string, stepColumn: string }} Side */

/**
 * The sides of a comparison, with the columns that are theirs.
 * @param {Target} base
 * @param {Target} other
 * @param {{ base_steps: string, steps: string }} choice
 * @returns {[Side, Side]}
 */
export const sidesOf = (base, other, choice) => [
  { target: base, steps: choice.base_steps, word: "Base", nameColumn: "base_name", countColumn: "base_count", stepColumn: "base_step" },
  { target: other, steps: choice.steps, word: "Other", nameColumn: "name", countColumn: "count", stepColumn: "step" },
];

/**
 * Address of the slices of a row on a side; null if it has none there.
 * @param {string} table
 * @param {Row} row
 * @param {Side} side
 */
export function slicesOf(table, row, { target, steps, nameColumn, countColumn }) {
  const name = row[nameColumn] ?? row.name;
  if (!["kernels", "ops", "calls"].includes(table) || Number(row[countColumn]) === 0 || name === null) return null;
  return sqlPageOf(target.trace, sqlOf(table, String(name), steps));
}

/**
 * Address at which Perfetto opens what a row is about on a side; null if the side lacks it.
 * @param {string} table
 * @param {Row} row
 * @param {Side} side
 */
function viewOf(table, row, { target, steps, nameColumn, countColumn, stepColumn }) {
  const ofSteps = steps ? { steps: [Number(steps)] } : {};
  if (table === "steps") return perfettoOf(target.trace, ofSteps);
  if (table === "each_step") {
    const trace = target.traceOf(row.rank);
    return row[stepColumn] === null || trace === null ? null : perfettoOf(trace, { steps: [Number(row[stepColumn])] });
  }
  const name = row[nameColumn] ?? row.name;
  if (Number(row[countColumn]) === 0 || name === null || (String(name).length > PATTERN_MAX && /[*?]/.test(String(name)))) return null;
  return perfettoOf(target.trace, { ...ofSteps, names: [String(name)] });
}

/**
 * The links of a row: for each side that has it, its slices in SQL and in Perfetto.
 * @param {string} table
 * @param {Row} row
 * @param {Side[]} sides
 */
export function linksOf(table, row, sides) {
  return sides.flatMap((side) => {
    const { word, target } = side;
    const rank = table === "each_step" && target.rank !== "" ? String(row.rank) : target.rank;
    const of = rank === "" ? word : `${word}, rank ${rank}`;
    const [slices, view] = [slicesOf(table, row, side), viewOf(table, row, side)];
    const links = [
      slices && el("a", { href: slices, "aria-label": `Slices of ${of.toLowerCase()}`, "data-testid": `slices-${word.toLowerCase()}` }, "slices"),
      view && el("a", { href: view, target: "_blank", rel: "noopener", "aria-label": `Perfetto, ${of.toLowerCase()}`, "data-testid": `perfetto-${word.toLowerCase()}` }, "Perfetto"),
    ].filter(Boolean);
    return links.length === 0 ? [] : [el("span", { class: "side-links", title: of }, el("span", { class: "muted" }, `${word}: `), ...links)];
  });
}

/**
 * The slices of a name, those of a step alone if there is one.
 * @param {string} table
 * @param {string} name
 * @param {string} step
 */
function sqlOf(table, name, step) {
  const isOfWork = table === "kernels";
  const module = step === "" ? "" : `INCLUDE PERFETTO MODULE ${isOfWork ? "torch.kernels" : "torch.steps"};\n`;
  const within = isOfWork
    ? `\n  AND id IN (SELECT id FROM torch_kernel WHERE step = ${step})`
    : `\n  AND EXISTS (SELECT 1 FROM torch_step AS s WHERE s.step = ${step} AND slice.ts >= s.ts AND slice.ts < s.ts + s.dur)`;
  return `${module}SELECT id, ts, dur, category, name
FROM slice
WHERE name = '${name.replaceAll("'", "''")}'${step === "" ? "" : within}
ORDER BY dur DESC
LIMIT ${ROWS_MAX}`;
}
