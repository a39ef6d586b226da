// Completion of names in the editor: keywords, and the tables, columns and modules of the trace's engine.
import { Problem, api, getJson, query, readJson } from "../api.js";
import { chosenArgs, chosenSource, chosenView } from "../args.js";
import { byId, el } from "../dom.js";

/** @typedef {{ name: string, of: string }} Word `of` says what the name is: "table", or the table of a column */

const SUGGESTIONS_MAX = 40;
const PREFIX_MIN = 2; // characters after which suggestions appear without Ctrl + Space
const CHARACTER = 7.8, LINE = 19.5, PADDING = 9; // pixels of the field's font
const LIST = 260; // pixels that the list takes
const KEYWORDS = `SELECT FROM WHERE GROUP BY ORDER LIMIT HAVING JOIN LEFT USING AS ON AND OR NOT IN LIKE GLOB BETWEEN CASE WHEN THEN ELSE END
  DISTINCT COUNT SUM AVG MIN MAX CAST NULL IS WITH RECURSIVE UNION ALL OVER PARTITION DESC ASC EXTRACT_ARG INCLUDE PERFETTO MODULE`;
const MODULES = ["backward", "collectives", "kernels", "memory", "nesting", "ops", "steps", "trace"].map((name) => `torch.${name}`);
const INCLUDES = MODULES.map((name) => `INCLUDE PERFETTO MODULE ${name};`).join("\n"); // they need the tables that come with columns
const SCHEMA = `
SELECT t.name AS tab, c.name AS col
FROM (SELECT name FROM sqlite_master WHERE type IN ('table', 'view') UNION SELECT name FROM perfetto_tables) AS t, pragma_table_info(t.name) AS c
WHERE t.name NOT GLOB '_*'`;

/**
 * Offer names while the user types. Names of the engine are known once it has answered a query.
 * @param {Trace} trace
 * @param {HTMLTextAreaElement} input
 */
export function startCompletion(trace, input) {
  const list = byId("sql-words");
  /** @type {Word[]} */
  let words = [...KEYWORDS.split(/\s+/).map((name) => ({ name, of: "keyword" })), ...MODULES.map((name) => ({ name, of: "module" }))];
  let chosen = 0;
  let readOf = ""; // the source whose names were read

  /** @param {boolean} isAsked whether the user asked for suggestions of any length */
  function suggest(isAsked = false) {
    const prefix = prefixOf(input);
    if (!isAsked && prefix.length < PREFIX_MIN) return hide();
    const lower = prefix.toLowerCase();
    if (!isAsked && words.some(({ name }) => name.toLowerCase() === lower)) return hide(); // Enter then begins a new line
    const fitting = words.filter(({ name }) => name.toLowerCase().startsWith(lower) && name.toLowerCase() !== lower);
    if (fitting.length === 0) return hide();
    chosen = 0;
    list.replaceChildren(...fitting.slice(0, SUGGESTIONS_MAX).map((word, index) => optionOf(word, index)));
    const before = input.value.slice(0, input.selectionStart - prefix.length).split("\n");
    list.style.top = `${PADDING + before.length * LINE - input.scrollTop}px`;
    const left = PADDING + (before.at(-1) ?? "").length * CHARACTER;
    list.style.left = `${Math.max(0, Math.min(left, input.clientWidth - LIST))}px`;
    list.hidden = false;
    mark();
  }

  /**
   * @param {Word} word
   * @param {number} index
   */
  function optionOf({ name, of }, index) {
    const option = el("li", { role: "option", id: `sql-word-${index}`, "data-name": name }, name, el("span", { class: "of" }, of));
    option.addEventListener("pointerdown", (event) => {
      event.preventDefault(); // the field keeps the focus
      chosen = index;
      accept();
    });
    return option;
  }

  function mark() {
    [...list.children].forEach((option, index) => option.setAttribute("aria-selected", String(index === chosen)));
    list.children[chosen]?.scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", `sql-word-${chosen}`);
  }

  function hide() {
    list.hidden = true;
    input.removeAttribute("aria-activedescendant");
  }

  function accept() {
    const name = /** @type {HTMLElement} */ (list.children[chosen]).dataset.name ?? "";
    const end = input.selectionStart;
    input.setSelectionRange(end - prefixOf(input).length, end);
    if (!document.execCommand?.("insertText", false, name)) input.setRangeText(name, input.selectionStart, end, "end");
    hide();
  }

  input.addEventListener("input", (event) => {
    const { data, inputType } = /** @type {InputEvent} */ (event);
    if (data?.length === 1 || inputType.startsWith("delete")) suggest();
    else hide(); // a whole text was pasted or chosen
  });
  input.addEventListener("blur", hide);
  input.addEventListener("click", hide);
  input.addEventListener("keydown", (event) => {
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      suggest(true);
    } else if (!list.hidden && !event.ctrlKey && !event.metaKey) {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step !== undefined) {
        chosen = (chosen + step + list.children.length) % list.children.length;
        mark();
      } else if (event.key === "Enter" || event.key === "Tab") accept();
      else if (event.key === "Escape") hide();
      else return;
      event.preventDefault();
    }
  });

  /** Read the names of the engine's tables and columns, once for each source; the engine must be ready. */
  async function readSchema() {
    if (readOf === chosenSource()) return;
    readOf = chosenSource();
    try {
      const signal = AbortSignal.timeout(60_000);
      const answer = await query(trace.id, { sql: readOf === "columns" ? INCLUDES + SCHEMA : SCHEMA, limit: null, ...chosenView() }, { signal, onLoading: () => {} });
      words = wordsOf((await readJson(answer)).rows, words);
      input.dataset.words = String(words.length);
    } catch (error) {
      if (!(error instanceof Problem) && error.name !== "TimeoutError") throw error;
      readOf = ""; // keywords are still offered, and the next answer tries again
    }
  }

  readIfReady(trace, readSchema);
  return { readSchema };
}

/**
 * Read the schema at once if an engine is ready; otherwise the first query starts one.
 * @param {Trace} trace
 * @param {() => Promise<void>} readSchema
 */
async function readIfReady({ id }, readSchema) {
  const { sessions } = await getJson(api("sessions"));
  const isReady = sessions.some((/** @type {Session} */ session) => session.trace === id && session.state === "ready" && session.selection === null && session.args === chosenArgs() && session.source === chosenSource());
  if (isReady) await readSchema();
}

/**
 * Tables first, those of the package torch before all; then columns with their tables.
 * @param {Value[][]} rows
 * @param {Word[]} others
 * @returns {Word[]}
 */
function wordsOf(rows, others) {
  const tables = [...new Set(rows.map(([table]) => String(table)))].sort((a, b) => Number(b.startsWith("torch_")) - Number(a.startsWith("torch_")) || a.localeCompare(b));
  /** @type {Map<string, string[]>} */
  const columns = new Map();
  for (const [table, column] of rows) columns.set(String(column), [...(columns.get(String(column)) ?? []), String(table)]);
  const ofTables = [...columns].map(([name, of]) => ({ name, of: of.length > 2 ? `${of.length} tables` : of.join(", ") }));
  return [...tables.map((name) => ({ name, of: "table" })), ...ofTables, ...others];
}

/**
 * The part of a name before the caret: "sli", or "torch.ker" for a module.
 * @param {HTMLTextAreaElement} input
 */
const prefixOf = (input) => /(?:\btorch\.)?\w*$/.exec(input.value.slice(0, input.selectionStart))?.[0] ?? "";
