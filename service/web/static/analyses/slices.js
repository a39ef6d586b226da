// Links from a row that names slices to these slices: the page of SQL lists them, and each leads to Perfetto.
import { sqlPageOf } from "../api.js";
import { el } from "../dom.js";

/** Tables whose column `name` has the names of slices. */
const TABLES = new Set(["kernels", "total_kernels", "configurations", "operators", "annotations", "nested", "launches"]);

/**
 * Return what makes the link of a row; undefined for tables whose rows name no slices.
 * @param {string} id
 * @param {string} table
 * @param {Table} content
 * @returns {((row: Value[]) => Children) | undefined}
 */
export function slicesOf(id, table, { columns }) {
  const index = columns.findIndex(({ name }) => name === "name");
  if (!TABLES.has(table) || index < 0) return undefined;
  return (row) => (row[index] === null ? "" : el("a", { href: sqlPageOf(id, sqlOf(String(row[index]))), "data-testid": "slices" }, "Slices"));
}

/** @param {string} name */
const sqlOf = (name) => `SELECT id, ts, dur, category, name
FROM slice
WHERE name = '${name.replaceAll("'", "''")}'
ORDER BY dur DESC
LIMIT 1000`;
