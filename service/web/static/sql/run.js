// Runs one query at a time, and shows its progress, its error, its chart and its rows.
import { Problem, api, query, readJson } from "../api.js";
import { chosenArgs, chosenSource, chosenView } from "../args.js";
import { byId, el, save, setText } from "../dom.js";
import { progressOf } from "../engine.js";
import { bytes, count, plural } from "../format.js";
import { hideProblem } from "../problem.js";
import { showTable } from "../table.js";
import { chartOf } from "./chart.js";

const SLICE_COLUMNS = ["id", "ts", "dur"]; // with these, `id` is that of a slice

/**
 * Wire the controls for a ready trace. `onRun` is called with each query that begins, `onAnswer` after each that succeeded.
 * Returns a function that runs the query.
 * @param {Trace} trace
 * @param {{ onRun: (sql: string) => void, onAnswer: () => void }} handlers
 */
export function startSql(trace, { onRun, onAnswer }) {
  const input = byId("sql-input");
  // a browser scrolls only to the line of the caret, and so may show no more of the field
  input.addEventListener("focus", () => input.scrollIntoView({ block: "nearest" }));
  const remembered = `sql of ${trace.id}`;

  /** @type {AbortController | null} */
  let running = null; // of the query that runs

  /** @param {(sql: string, signal: AbortSignal) => Promise<string>} work */
  async function run(work) {
    if (running || input.value.trim() === "") return;
    sessionStorage.setItem(remembered, input.value);
    onRun(input.value);
    running = new AbortController();
    const since = performance.now();
    const tick = setInterval(() => setText(byId("sql-ticking"), `${seconds(since)} s`), 100);
    begin();
    try {
      setText(byId("sql-said"), await work(input.value, running.signal));
    } catch (error) {
      byId("sql-output").hidden = true;
      if (error.name === "AbortError") setText(byId("sql-said"), `Cancelled after ${seconds(since)} s.`);
      else if (error instanceof Problem) {
        setText(byId("sql-said"), "");
        showSqlError(input, error);
      } else throw error;
    } finally {
      clearInterval(tick);
      running = null;
      end();
    }
  }

  const askRows = () =>
    run(async (sql, signal) => {
      const limit = Number(byId("sql-limit").value);
      const answer = await query(trace.id, { sql, limit, ...chosenView() }, { signal, onLoading });
      setText(byId("sql-said"), "Receiving rows…");
      const result = await readJson(answer);
      showResult(trace, result);
      onAnswer();
      return summaryOf(result);
    });

  const askCsv = () =>
    run(async (sql, signal) => {
      const answer = await query(trace.id, { sql, limit: null, ...chosenView() }, { signal, onLoading, accept: "text/csv" });
      setText(byId("sql-said"), "Receiving CSV…");
      const blob = await answer.blob();
      save(blob, `${trace.name.replace(/\.(pt\.)?(trace\.)?(json|pftrace)(\.\w+)?$/, "")}.csv`);
      return `Saved ${bytes(blob.size)} of CSV.`;
    });

  byId("sql-run").addEventListener("click", askRows);
  byId("sql-csv").addEventListener("click", askCsv);
  byId("sql-cancel").addEventListener("click", () => {
    running?.abort();
    input.focus(); // the button that had the focus is disabled now
  });
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    askRows();
  });
  return askRows;
}

/**
 * @param {Trace} trace
 * @param {QueryResult} result
 */
function showResult(trace, result) {
  byId("sql-output").hidden = false; // the table measures its columns
  const chart = chartOf(result);
  byId("sql-chart").replaceChildren(...(chart === null ? [] : [chart]));
  byId("sql-chart").hidden = chart === null;
  showTable(byId("sql-result"), result, { isExact: true, fileName: "rows.csv", actions: sliceLinks(trace, result) });
}

/**
 * Return what makes the link of a row to its slice in Perfetto, if the result has the columns of slices.
 * @param {Trace} trace
 * @param {QueryResult} result
 */
function sliceLinks(trace, { columns }) {
  const names = columns.map(({ name }) => name);
  if (chosenSource() === "original") return undefined; // many of its tables have these columns
  if (!SLICE_COLUMNS.every((name) => names.includes(name))) return undefined;
  const index = names.indexOf("id");
  return (/** @type {Value[]} */ row) => {
    const wanted = new URLSearchParams({ slice: `id:${row[index]}`, args: chosenArgs() });
    return el("a", { href: `${api("traces", trace.id, "perfetto")}?${wanted}`, target: "_blank", rel: "noopener", "data-testid": "slice-link" }, "Perfetto");
  };
}

/** @param {number} since */
const seconds = (since) => ((performance.now() - since) / 1000).toFixed(1);

function begin() {
  setText(byId("sql-said"), "Running…");
  hideProblem(byId("sql-error"));
  byId("sql-output").classList.add("stale");
  setBusy(true);
}

function end() {
  setText(byId("sql-ticking"), "");
  setText(byId("sql-loaded"), "");
  byId("sql-loading").hidden = true;
  byId("sql-output").classList.remove("stale");
  setBusy(false);
}

/**
 * Run uses aria-disabled, since it keeps the focus while it is disabled; Cancel need not keep it.
 * @param {boolean} busy
 */
function setBusy(busy) {
  byId("sql-run").setAttribute("aria-disabled", String(busy));
  byId("sql-csv").setAttribute("aria-disabled", String(busy));
  byId("sql-cancel").disabled = !busy;
}

/** @param {Session} session */
function onLoading(session) {
  // the text changes once; the numbers change in an element that screen readers ignore
  setText(byId("sql-said"), session.state === "waiting" ? "The engine can't begin yet." : "The engine is loading the trace.");
  setText(byId("sql-loaded"), progressOf(session));
  byId("sql-loading").hidden = false;
}

/** @param {QueryResult} result */
function summaryOf({ rows, truncated, elapsed_ms: elapsed }) {
  const time = elapsed >= 1000 ? `${(elapsed / 1000).toFixed(2)} s` : `${elapsed.toFixed(1)} ms`;
  const length = `${plural(rows.length, "row")} in ${time}.`;
  return truncated ? `${length} Truncated: only the first ${count(rows.length)}; ask for more rows or download the CSV.` : length;
}

/**
 * Show the engine's message in its own layout (a caret points to the error), and a button that moves to the error.
 * @param {HTMLTextAreaElement} input
 * @param {Problem} problem
 */
function showSqlError(input, problem) {
  const { message, line = NaN, column = NaN } = problem.fields;
  const box = byId("sql-error");
  const place = Number.isInteger(line) ? `line ${line}${Number.isInteger(column) ? `, column ${column}` : ""}` : null;
  box.replaceChildren(
    el("p", {}, el("strong", {}, problem.title), " ", el("code", { class: "code" }, problem.code),
      place ? el("button", { type: "button", class: "quiet", onclick: () => goTo(input, line, column || 1) }, `Go to ${place}`) : null),
    el("pre", { tabindex: 0 }, message ?? problem.detail),
  );
  const repeats = message === undefined || problem.detail.includes(message) || message.includes(problem.detail);
  if (!repeats) box.children[0].after(el("p", {}, problem.detail));
  box.hidden = false;
}

/**
 * @param {HTMLTextAreaElement} input
 * @param {number} line
 * @param {number} column
 */
function goTo(input, line, column) {
  const before = input.value.split("\n").slice(0, line - 1);
  const start = before.reduce((sum, text) => sum + text.length + 1, 0) + column - 1;
  const word = /^\w*/.exec(input.value.slice(start))?.[0] ?? "";
  input.focus();
  input.setSelectionRange(start, start + Math.max(1, word.length));
}
