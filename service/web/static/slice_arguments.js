// Shows all arguments of a selected slice in the Perfetto UI v52 if its engine has loaded only some: our server reads them
// from the trace's columns. Search and SQL find only those that the engine has loaded, and the page says so.
import { Problem, api, pause, readJson, send } from "./api.js";

/**
 * @typedef {{ trace: string, args: string, selection: string }} View
 * @typedef {{ key: string, value: string | number | bigint | boolean }} Argument
 */

/** The UI's query for a slice. */
const SLICE = /arg_set_id as argSetId(,\s+ABS_TIME_STR\(ts\) as absTime\s+FROM slice\s+WHERE id=\d+\s*)$/;
/** Its query for the arguments of a set. The set -1 - id stands for all arguments of the slice with that id. */
const ARGUMENTS = /^(\s*SELECT\s+id,\s+flat_key as flatKey,.+FROM args\s+WHERE arg_set_id = )-(\d+)(\s+ORDER BY id\s*)$/s;
const SLICE_SETS = "-1 - id as argSetId$1";
const COLUMNS = "id, arg_set_id, flat_key, key, int_value, string_value, real_value, value_type, display_value";
/** A query that may read arguments: a search, and SQL that names their table, a key of theirs or our package `torch`. */
const READS_ARGUMENTS = /\bargs\b|\btorch/i;

/** @type {Record<string, string>} */
export const LOADED = { essential: "essential arguments", none: "no arguments" };

/**
 * Show all arguments of selected slices of each trace that the UI opens from our server.
 * @param {PerfettoApp} app
 * @param {View} view
 * @param {(text: string, ...more: Node[]) => void} report shows a text to the user
 */
export function showAllArguments(app, view, report) {
  const shared = Object.getPrototypeOf(app);
  const activate = shared.setActiveTrace;
  shared.setActiveTrace = function (/** @type {PerfettoTrace} */ opened) {
    if (opened.traceInfo.source.type === "HTTP_RPC") {
      completeArguments(app, opened, view, report);
      const action = () => location.assign(wholeOf(view, opened)); // the UI opens the `href` of an item in another tab
      opened.sidebar.addMenuItem({ section: "current_trace", text: "Load all arguments", icon: "data_object", action });
    }
    return activate.call(this, opened);
  };
}

/**
 * Address that opens the same part of the trace with all arguments, at the slice that is selected.
 * @param {View} view
 * @param {PerfettoTrace} opened
 */
function wholeOf({ trace, selection }, opened) {
  const { trackUri, eventId } = opened.selection.selection;
  const isSlice = trackUri && opened.tracks.getTrack(trackUri)?.renderer.rootTableName === "slice";
  const slice = isSlice && eventId !== undefined && `id:${eventId}`; // the same for all arguments
  const query = new URLSearchParams({ args: "all", ...(selection && { selection }), ...(slice && { slice }) });
  return `${api("traces", trace, "perfetto")}?${query}`;
}

/**
 * @param {PerfettoApp} app
 * @param {PerfettoTrace} trace
 * @param {View} view
 * @param {(text: string, ...more: Node[]) => void} report
 */
function completeArguments(app, trace, view, report) {
  const engine = trace.engine.engine; // that of all plugins
  const query = engine.query;
  let isTold = false;
  engine.query = function (/** @type {string} */ sql, /** @type {string | undefined} */ tag) {
    const [, select, number, order] = ARGUMENTS.exec(sql) ?? [];
    if (number) {
      const id = Number(number) - 1;
      return argumentsQuery(view, id, select, order, report).then((complete) => query.call(this, complete, tag));
    }
    if (!isTold && !app.isLoadingTrace && READS_ARGUMENTS.test(sql)) {
      isTold = true;
      const link = document.createElement("a");
      link.href = wholeOf(view, trace);
      link.addEventListener("click", () => (link.href = wholeOf(view, trace)));
      link.textContent = "Load all arguments";
      link.style.color = "#9cc8f5";
      report(`Search and SQL find ${LOADED[view.args]}${view.args === "none" ? "" : " only"}. A selected slice shows all of its arguments.`, link);
    }
    return query.call(this, sql.replace(SLICE, SLICE_SETS), tag);
  };
}

/**
 * Return the query for the arguments of a slice: over those that our server has, or over the engine's if it has none.
 * @param {View} view
 * @param {number} id
 * @param {string} select the query's text before the set's number
 * @param {string} order its text after that
 * @param {(text: string) => void} report
 */
async function argumentsQuery(view, id, select, order, report) {
  try {
    const rows = (await argumentsOf(view, id)).map(rowOf);
    const values = rows.length ? `VALUES ${rows.join(", ")}` : `SELECT ${COLUMNS.replaceAll(/\w+/g, "NULL")} WHERE 0`;
    return `WITH args(${COLUMNS}) AS (${values}) ${select}0${order}`;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    report(`The selected slice shows ${LOADED[view.args]}. ${error.message}`);
    return `${select}(SELECT arg_set_id FROM slice WHERE id = ${id})${order}`;
  }
}

/**
 * @param {View} view
 * @param {number} id
 * @returns {Promise<Argument[]>}
 */
async function argumentsOf({ trace, args, selection }, id) {
  const wanted = new URLSearchParams({ slice: `id:${id}`, args, ...(selection && { selection }) });
  for (;;) {
    const response = await send("GET", `${api("traces", trace, "slice")}?${wanted}`);
    const answer = await readJson(response);
    if (response.status !== 202) return answer.args;
    await pause(Number(response.headers.get("Retry-After") ?? 1) * 1000); // the engine was ended, and loads again
  }
}

/**
 * Return a row of the table of arguments, in SQL.
 * @param {Argument} argument
 * @param {number} index
 */
function rowOf({ key, value }, index) {
  const [int, text, type] = cellsOf(value);
  return `(${index}, 0, ${quoted(key)}, ${quoted(key)}, ${int}, ${text}, NULL, '${type}', ${quoted(value)})`;
}

/**
 * Return an argument's cells for an integer and a text, in SQL, and the engine's name of its type. A real number is its
 * text, as the UI writes it: SQLite changes the last digits of some, such as 1.5e300.
 * @param {Argument["value"]} value
 */
function cellsOf(value) {
  if (typeof value === "boolean") return [Number(value), "NULL", "bool"];
  if (typeof value === "bigint" || Number.isSafeInteger(value)) return [`CAST('${value}' AS INTEGER)`, "NULL", "int"];
  return ["NULL", quoted(value), "string"];
}

/** @param {unknown} text */
const quoted = (text) => `'${String(text).replaceAll("'", "''")}'`;
