// Queries to choose from: examples, those that the user saved, and those that ran before. The last two are in this browser.
import { byId, el } from "../dom.js";
import { EXAMPLES } from "./examples.js";

const HISTORY = "sql history";
const SAVED = "sql saved";
const HISTORY_MAX = 30;

/** @typedef {{ label: string, sql: string }} Query */

/**
 * Show the queries. Returns a function that adds one to those that ran.
 * @param {HTMLTextAreaElement} input
 */
export function startLibrary(input) {
  /** @param {string} sql */
  const choose = (sql) => {
    write(input, sql);
    byId("sql-output").hidden = true; // it belongs to the query before
    byId("sql-said").textContent = "";
  };

  function showSaved() {
    const saved = stored(SAVED);
    const items = saved.map((query, index) => {
      const remove = el("button", { type: "button", class: "quiet", "aria-label": `Remove the query ${query.label}` }, "×");
      remove.addEventListener("click", () => {
        localStorage.setItem(SAVED, JSON.stringify(saved.filter((_, other) => other !== index)));
        showSaved();
        byId("sql-save-name").focus();
      });
      return el("li", {}, itemOf(query, choose), remove);
    });
    byId("sql-saved").replaceChildren(...listOf("Saved", items));
  }

  function showHistory() {
    const items = stored(HISTORY).map((query) => el("li", {}, itemOf(query, choose)));
    byId("sql-history").replaceChildren(...listOf("History", items));
  }

  byId("sql-save").addEventListener("submit", (event) => {
    event.preventDefault();
    const label = byId("sql-save-name").value.trim();
    const others = stored(SAVED).filter((query) => query.label !== label);
    localStorage.setItem(SAVED, JSON.stringify([{ label, sql: input.value }, ...others]));
    byId("sql-save-name").value = "";
    showSaved();
  });
  byId("sql-samples").replaceChildren(...EXAMPLES.flatMap(({ topic, queries }) => listOf(topic, queries.map((query) => el("li", {}, itemOf(query, choose))))));
  showSaved();
  showHistory();
  return {
    /** @param {string} sql */
    remember(sql) {
      const others = stored(HISTORY).filter((query) => query.sql !== sql);
      localStorage.setItem(HISTORY, JSON.stringify([{ label: sql.replace(/\s+/g, " ").slice(0, 120), sql }, ...others].slice(0, HISTORY_MAX)));
      showHistory();
    },
  };
}

/**
 * @param {string} key
 * @returns {Query[]}
 */
const stored = (key) => JSON.parse(localStorage.getItem(key) ?? "[]");

/**
 * @param {Query} query
 * @param {(sql: string) => void} choose
 */
const itemOf = ({ label, sql }, choose) => el("button", { type: "button", title: sql, onclick: () => choose(sql) }, label);

/**
 * @param {string} title
 * @param {HTMLElement[]} items
 */
const listOf = (title, items) => (items.length > 0 ? [el("h3", {}, title), el("ul", {}, items)] : []);

/**
 * Replace the text so that the browser can undo it.
 * @param {HTMLTextAreaElement} input
 * @param {string} sql
 */
function write(input, sql) {
  input.focus();
  input.select();
  // undo covers only edits by execCommand; a browser without it gets the text set
  if (!document.execCommand?.("insertText", false, sql)) input.value = sql;
}
