// The files that are kept beside a trace, or beside a run and its traces: their tables, their text, and which traces an execution trace describes.
import { Problem, api, getJson, pageOf, readJson, send } from "./api.js";
import { byId, el } from "./dom.js";
import { bytes, count, plural } from "./format.js";
import { showProblem } from "./problem.js";
import { showTable } from "./table.js";

const LISTED_MAX = 500;
const TEXT_MAX = 200_000; // characters that are shown

/** @type {Record<string, string>} */
const KINDS = {
  execution_trace: "execution trace",
  deepspeed_flops: "DeepSpeed, flops",
  deepspeed_comms: "DeepSpeed, communication",
  key_averages: "table of key_averages()",
  nsys_summary: "summary of nsys stats",
  text: "text",
};

/**
 * List the attachments of a group and its traces, or of a single trace; without any, the section stays hidden.
 * @param {"groups" | "traces"} owners
 * @param {string} id
 * @param {Map<string, string>} names of the traces, by their ids
 */
export async function showAttachments(owners, id, names) {
  /** @type {{ attachments: Attachment[], next: string | null }} */
  const page = await getJson(`${api(owners, id, "attachments")}?limit=${LISTED_MAX}`);
  byId("attachments").hidden = page.attachments.length === 0;
  const entries = page.attachments.map((attachment) => entryOf(attachment, names, owners === "groups"));
  const more = page.next === null ? [] : [el("p", { class: "muted small" }, `Only the ${count(LISTED_MAX)} newest are listed.`)];
  byId("attachments-body").replaceChildren(...entries, ...more);
}

/**
 * An attachment that shows its content once it is unfolded.
 * @param {Attachment} attachment
 * @param {Map<string, string>} names of traces, by their ids
 * @param {boolean} ofSeveral whether the attachments of several traces are listed
 */
function entryOf(attachment, names, ofSeveral) {
  const { id, name, kind, size, trace } = attachment;
  const facts = [KINDS[kind] ?? kind, bytes(size), ...(trace === null || !ofSeveral ? [] : [`of ${names.get(trace) ?? trace}`])];
  const content = el("div", { class: "stack" });
  const download = el("p", { class: "small" }, el("a", { href: api("attachments", id, "file"), download: name }, "Download"));
  const entry = el("details", { "data-testid": "attachment" }, el("summary", {}, el("span", { class: "mono" }, name), " ", el("span", { class: "muted small" }, facts.join(" · "))), el("div", {}, download, content));
  entry.addEventListener("toggle", () => fill(content, attachment, names), { once: true });
  return entry;
}

/**
 * @param {HTMLElement} box
 * @param {Attachment} attachment
 * @param {Map<string, string>} names
 */
async function fill(box, attachment, names) {
  box.replaceChildren(el("p", { class: "muted" }, "Reading …"));
  try {
    if (attachment.kind === "execution_trace") await showMatches(box, attachment, names);
    else await showContent(box, attachment);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    const note = el("div", { class: "note bad", role: "alert" });
    showProblem(note, error);
    box.replaceChildren(note);
  }
}

/**
 * Show the tables of a report, and its text.
 * @param {HTMLElement} box
 * @param {Attachment} attachment
 */
async function showContent(box, { id, name }) {
  /** @type {AttachmentTables} */
  const { tables, text, truncated, reason } = await readJson(await send("GET", api("attachments", id, "tables")));
  const boxes = tables.map(() => el("div"));
  const parts = tables.map((table, index) => el("div", {}, el("h3", {}, table.name), boxes[index]));
  const shown = el("pre", { class: "attached", tabindex: 0, role: "region", "aria-label": `Text of ${name}`, "data-testid": "attachment-text" }, text.slice(0, TEXT_MAX));
  const cut = truncated || text.length > TEXT_MAX ? [el("p", { class: "muted small" }, "The text goes on: download the file to read all of it.")] : [];
  const why = reason === null ? [] : [el("p", { class: "note", "data-testid": "attachment-reason" }, reason)];
  const whole = tables.length === 0 ? [shown, ...cut] : [el("details", {}, el("summary", {}, "Text of the file"), el("div", {}, shown, ...cut))];
  box.replaceChildren(...why, ...parts, ...whole);
  tables.forEach(({ name: title, columns, rows }, index) => {
    const csv = `${api("attachments", id, "tables")}?${new URLSearchParams({ format: "csv", table: String(index) })}`;
    showTable(boxes[index], { columns: columns.map(columnOf), rows }, { label: `${title} of ${name}`, csv, isExact: true });
  });
}

/**
 * A column for `showTable`. Its values are texts, so that they keep the decimals that the file has.
 * @param {AttachmentTables["tables"][0]["columns"][0]} column
 * @returns {Column}
 */
const columnOf = ({ name, unit, is_number: isNumber }) => ({ name: unit === null ? name : `${name} (${unit})`, type: isNumber ? "double" : "string" });

/**
 * Show which traces gain the shapes of an execution trace.
 * @param {HTMLElement} box
 * @param {Attachment} attachment
 * @param {Map<string, string>} names
 */
async function showMatches(box, { id }, names) {
  /** @type {{ matches: AttachmentMatch[], reason: string | null }} */
  const { matches, reason } = await getJson(api("attachments", id, "match"));
  if (reason !== null) box.replaceChildren(el("p", { class: "note", "data-testid": "attachment-reason" }, reason));
  else box.replaceChildren(el("ul", { class: "notes" }, matches.map((match) => el("li", { "data-testid": "attachment-match" }, el("a", { href: pageOf(match.trace) }, names.get(match.trace) ?? match.trace), `: ${sentenceOf(match)}`))));
}

/** @param {AttachmentMatch} match */
function sentenceOf({ used, joined, same_name: same, gained, reason }) {
  if (!used) return `it is not used. ${reason}`;
  return `${plural(gained ?? 0, "operator")} of ${count(joined ?? 0)} have their shapes from this file; ${count(same ?? 0)} of ${count(joined ?? 0)} names agree.`;
}
