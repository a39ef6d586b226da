// The comparison of two memory snapshots: what the peak gained and lost, by where it was allocated.
import { deviceOf, siteLabel } from "../analyses/snapshot_pictures.js";
import { divergingBars } from "../charts/diverging_bars.js";
import { byId, setText } from "../dom.js";
import { bytes, plural } from "../format.js";
import { chosenColumns, numberOf, recordsOf } from "../records.js";
import { showTable } from "../table.js";
import { readable } from "../units.js";
import { seriesOf, signed, tally } from "./views.js";

/** @import { Row } from "../records.js" */
/** @import { Verdict } from "./views.js" */

const BARS_MAX = 15;

/** @type {Record<string, Verdict>} */
const VERDICTS = {
  more: { kind: "alarm", label: "with more" },
  less: { kind: "mem", label: "with less" },
  new: { kind: "comm", label: "new" },
  gone: { kind: "overlap", label: "gone" },
  same: { kind: "idle", label: "the same" },
};

/**
 * Fill the result of the page.
 * @param {string} address of the answer
 * @param {AnalysisAnswer} answer of the analysis `compare_snapshots`
 */
export function showMemory(address, { tables }) {
  const [devices, stacks] = [recordsOf(tables.devices), recordsOf(tables.stacks)];
  setText(byId("compare-sentence"), devices.filter(({ measure }) => measure === "peak").map(sentenceOf).join(" "));
  setText(byId("compare-means"), "Blocks that are alive at the peak, by the site of their allocation.");
  byId("compare-views").replaceChildren();
  setText(byId("compare-tally"), stacks.length === 0 ? "Neither side holds memory." : `Of ${plural(stacks.length, "site")}: ${tally(stacks, VERDICTS)}.`);
  const largest = stacks.filter(({ difference_bytes: difference }) => Number(difference) !== 0).slice(0, BARS_MAX);
  const several = new Set(devices.map(deviceOf)).size > 1;
  byId("compare-chart").hidden = largest.length === 0;
  byId("compare-chart").replaceChildren(divergingBars({ title: "Largest differences from the base", name: "compare", series: seriesOf(largest, VERDICTS), bars: largest.map((row) => barOf(row, several)), text: signedBytes }));
  const [csv, arrow] = ["csv", "arrow"].map((format) => `${address}&${new URLSearchParams({ format, table: "stacks" })}`);
  byId("compare-table").hidden = false;
  showTable(byId("compare-table"), chosenColumns(tables.stacks, tables.stacks.columns.map(({ name }) => name).filter((name) => name !== "frames")), { label: "Sites", csv, arrow });
}

/**
 * "The peak of GPU 0 grew by 12.3 %, from 1.00 GB to 1.12 GB."
 * @param {Row} row
 */
function sentenceOf(row) {
  const [base, value, difference] = ["base_value_bytes", "value_bytes", "difference_bytes"].map((column) => Number(row[column]));
  const subject = `The peak of ${deviceOf(row)}`;
  if (difference === 0) return `${subject} is ${bytes(base)} on both sides.`;
  const percent = numberOf(row, "difference_pct");
  const by = percent === null ? bytes(Math.abs(difference)) : readable(Math.abs(Number(percent)), "%");
  return `${subject} ${difference > 0 ? "grew" : "shrank"} by ${by}, from ${bytes(base)} to ${bytes(value)}.`;
}

/**
 * @param {Row} row
 * @param {boolean} several whether rows are of several devices
 */
function barOf(row, several) {
  const [base, value, difference] = ["base_held_bytes", "held_bytes", "difference_bytes"].map((column) => Number(row[column]));
  const { kind, label } = VERDICTS[String(row.verdict)];
  return {
    label: `${several ? `${deviceOf(row)} · ` : ""}${siteLabel(row.site)}`,
    value: difference,
    kind,
    text: signedBytes(difference),
    note: [...(row.site === null ? [] : [String(row.site)]), `base ${bytes(base)}, other ${bytes(value)}, ${label}`],
    data: { verdict: row.verdict, base, other: value },
  };
}

/** @param {number} value */
const signedBytes = (value) => signed(value, bytes);
