// Tables of analyses as records.

/** @typedef {Record<string, Value>} Row */

/**
 * Return the rows of a table as objects with the names of its columns.
 * @param {Table} table
 * @returns {Row[]}
 */
export const recordsOf = ({ columns, rows }) => rows.map((row) => Object.fromEntries(row.map((value, index) => [columns[index].name, value])));

/**
 * Return the number in a column of a row; null if it is unknown.
 * @param {Row} row
 * @param {string} column
 * @returns {Int | null}
 */
export function numberOf(row, column) {
  const value = row[column];
  return typeof value === "number" || typeof value === "bigint" ? value : null;
}

/**
 * The table with some of its columns, in this order; those that it lacks are left out.
 * @param {Table} table
 * @param {string[]} names
 * @returns {Table}
 */
export function chosenColumns({ columns, rows }, names) {
  const indices = names.map((name) => columns.findIndex((column) => column.name === name)).filter((index) => index >= 0);
  return { columns: indices.map((index) => columns[index]), rows: rows.map((row) => indices.map((index) => row[index])) };
}
