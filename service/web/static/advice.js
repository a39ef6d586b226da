// What to try first, by the analysis `recommendations`: advice with its reason, its figures and its place, and the other checks.
import { groupPageOf } from "./api.js";
import { el } from "./dom.js";
import { duration, plural } from "./format.js";
import { recordsOf } from "./records.js";
import { perfettoOf } from "./selection.js";
import { readable } from "./units.js";

/** @import { Row } from "./records.js" */
/** @typedef {{ id: string, bounds?: Span | null, group?: { id: string, name: string } | null }} Place a trace to look at */

const MARGIN = 0.25; // of the length of a place, shown on each side of it

/** @type {Record<string, string>} */
const RULES = {
  dataloader: "Time of steps that waits for data",
  communication: "Time of steps in exposed communication",
  late_rank: "Time lost to late ranks",
  utilization: "Time of steps with a kernel",
  tensor_cores: "Time of kernels on tensor cores",
  memory: "Peak memory of the GPU",
  data_parallel: "GPUs that one process uses",
  nccl: "GPUs that could use NCCL",
};

/**
 * What to try first, and the checks that found nothing.
 * @param {AnalysisAnswer} answer
 * @param {(row: Row) => Place | null} traceOf returns the trace in whose timeline to look
 */
export function adviceOf({ tables }, traceOf) {
  const advice = recordsOf(tables.recommendations);
  const evidence = recordsOf(tables.evidence);
  const items = advice.map((row) => {
    const figures = evidence.filter(({ rule, device }) => rule === row.rule && (row.device === null || device === row.device)); // advice on a run is about all devices
    const isOfSeveral = row.device !== null && advice.some(({ rule, device }) => rule === row.rule && device !== row.device);
    const text = `${isOfSeveral ? `GPU ${row.device}: ` : ""}${row.advice}`;
    return el("li", { "data-rule": String(row.rule) }, el("p", {}, el("strong", {}, text)), el("p", { class: "reason" }, String(row.reason), " ", ...linksOf(row, traceOf(row))), ...figuresOf(figures, row.rank));
  });
  const first = items.length > 0
    ? [el("h3", {}, "What to try first"), el("ol", { class: "advice", "data-testid": "advice" }, items)]
    : [el("p", { "data-testid": "no-advice" }, "No check found anything to improve.")];
  return [...first, checksOf(recordsOf(tables.checks).filter(({ found }) => found !== "yes"))];
}

/**
 * Links to the place of some advice in Perfetto, and to the run of a trace for advice that needs all of its ranks.
 * @param {Row} row
 * @param {Place | null} trace
 */
function linksOf({ rule, name, start_ns, end_ns }, trace) {
  const links = [];
  if (trace && typeof name === "string" && start_ns !== null && end_ns !== null) {
    const [start, end] = [BigInt(/** @type {Int} */ (start_ns)), BigInt(/** @type {Int} */ (end_ns))];
    const margin = BigInt(Math.ceil(MARGIN * Number(end - start)));
    const href = perfettoOf(trace.id, { window: { start_ns: start - margin, end_ns: end + margin } });
    links.push(el("a", { href, target: "_blank", rel: "noopener", title: name, "data-testid": "advice-place" }, `Show ${duration(end - start)} of it in Perfetto`));
  }
  if (rule === "communication" && trace?.group) links.push(links.length > 0 ? " · " : "", el("a", { href: groupPageOf(trace.group.id) }, `The run ${trace.group.name}`));
  return links;
}

/** @param {Row[]} rows */
const haveSeveralRanks = (rows) => new Set(rows.map(({ rank }) => rank)).size > 1;

/**
 * The figures of some advice. If several ranks have figures, those of the other ranks are folded.
 * @param {Row[]} figures
 * @param {Row[string]} adviceRank the rank that the advice names
 */
function figuresOf(figures, adviceRank) {
  if (!haveSeveralRanks(figures)) return figures.length > 0 ? [figureList(figures, "")] : [];
  const byRank = Map.groupBy(figures, ({ rank }) => rank);
  const [first] = byRank.has(adviceRank) ? [adviceRank] : byRank.keys();
  const lists = [...byRank].map(([rank, ownFigures]) => ({ rank, list: figureList(ownFigures, `rank ${rank}: `) }));
  const others = lists.filter(({ rank }) => rank !== first).map(({ list }) => list);
  const summary = el("summary", {}, `Figures of ${plural(others.length, "other rank")}`);
  return [...lists.filter(({ rank }) => rank === first).map(({ list }) => list), el("details", { class: "small", "data-testid": "advice-others" }, summary, others)];
}

/**
 * @param {Row[]} figures
 * @param {string} prefix
 */
function figureList(figures, prefix) {
  return el("dl", { class: "figures small" }, figures.map(({ measure, value, unit }) => el("div", {}, el("dt", {}, `${prefix}${measure}`), el("dd", {}, readable(/** @type {Int} */ (value), /** @type {string} */ (unit))))));
}

/** @param {Row[]} checks */
function checksOf(checks) {
  const several = haveSeveralRanks(checks);
  const items = checks.map(({ rank, rule, device, value, limit, unit, found }) => {
    const of = [rank === null || !several ? "" : `rank ${rank}`, device === null ? "" : `GPU ${device}`].filter(Boolean).join(", ");
    const what = `${RULES[String(rule)] ?? rule}${of && ` (${of})`}`;
    const figure = value === null ? "the trace does not show it" : `${readable(/** @type {Int} */ (value), String(unit))}, limit ${readable(/** @type {Int} */ (limit), String(unit))}`;
    return el("li", { "data-found": String(found) }, `${what}: ${figure}`);
  });
  if (items.length === 0) return "";
  return el("details", { class: "checks" }, el("summary", {}, `${items.length} other ${items.length === 1 ? "check" : "checks"}`), el("ul", { class: "small" }, items));
}
