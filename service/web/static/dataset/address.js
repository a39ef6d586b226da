// Addresses of datasets, and the commands that ask them.
import { api, root } from "../api.js";

/** @param {string} dataset */
export const datasetPageOf = (dataset) => `${root}/datasets/${encodeURIComponent(dataset)}`;

/**
 * @param {string} dataset
 * @param {string} run
 */
export const runPageOf = (dataset, run) => `${datasetPageOf(dataset)}/runs/${encodeURIComponent(run)}`;

/**
 * @param {string} dataset
 * @param {string} run
 * @param {string} question
 * @param {Record<string, string>} parameters
 */
export const questionOf = (dataset, run, question, parameters = {}) => {
  const query = new URLSearchParams(parameters).toString();
  return `${api("datasets", dataset, "runs", run, "questions", question)}${query && `?${query}`}`;
};

/**
 * A command line, with quotes where a shell needs them.
 * @param {string[]} words
 */
export const commandOf = (...words) => words.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
