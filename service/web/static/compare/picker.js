// A field that finds traces and runs by name: a combobox with a list of those that fit.
import { Problem, api, getJson } from "../api.js";
import { announce, el } from "../dom.js";
import { age, plural } from "../format.js";

/** @typedef {{ id: string, name: string, about: string }} Entry */

const RUNS_MAX = 5;
const TRACES_MAX = 10;
const PAUSE_MS = 150; // after the last key
const ID = /^[0-9a-f]{12}$/;

/**
 * Wire a field and its list. `onChoice` is called with the id of what is chosen.
 * @param {HTMLInputElement} input
 * @param {HTMLElement} list
 * @param {(id: string) => void} onChoice
 */
export function startPicker(input, list, onChoice) {
  /** @type {Entry[]} */
  let entries = [];
  let chosen = 0;
  let timer = 0;
  let request = new AbortController();

  async function search() {
    request.abort();
    request = new AbortController();
    const { signal } = request;
    try {
      const matches = await entriesOf(input.value.trim(), signal);
      if (!signal.aborted && document.activeElement === input) show(matches);
    } catch (error) {
      if (error.name !== "AbortError" && !(error instanceof Problem)) throw error; // the next key asks again
    }
  }

  /** @param {Entry[]} matches */
  function show(matches) {
    entries = matches;
    chosen = 0;
    const options = matches.map(({ name, about }, index) => {
      const option = el("li", { role: "option", id: `${list.id}-${index}`, "aria-selected": "false" }, el("span", { class: "name" }, name), el("span", { class: "of" }, about));
      option.addEventListener("pointerdown", (event) => {
        event.preventDefault(); // the field keeps the focus
        accept(index);
      });
      return option;
    });
    list.replaceChildren(...(options.length > 0 ? options : [el("li", { class: "muted" }, "No trace and no run has this name.")]));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    announce(matches.length === 0 ? "No trace and no run has this name" : `${matches.length} found`);
    mark();
  }

  function mark() {
    [...list.children].forEach((option, index) => option.setAttribute("aria-selected", String(index === chosen)));
    if (entries.length === 0) return input.removeAttribute("aria-activedescendant");
    list.children[chosen].scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", `${list.id}-${chosen}`);
  }

  function hide() {
    clearTimeout(timer);
    request.abort();
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  /** @param {number} index */
  function accept(index) {
    const entry = entries[index];
    if (!entry) return;
    hide();
    input.value = "";
    onChoice(entry.id);
  }

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(search, PAUSE_MS);
  });
  input.addEventListener("click", search);
  input.addEventListener("blur", hide);
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined && list.hidden) search();
    else if (step !== undefined && entries.length > 0) {
      chosen = (chosen + step + entries.length) % entries.length;
      mark();
    } else if (event.key === "Enter" && !list.hidden) accept(chosen);
    else if (event.key === "Escape" && !list.hidden) hide();
    else return;
    event.preventDefault();
  });
}

/**
 * The runs and traces whose names contain a text, newest first; or the one with this id.
 * @param {string} name
 * @param {AbortSignal} signal
 * @returns {Promise<Entry[]>}
 */
async function entriesOf(name, signal) {
  /** @param {number} limit */
  const wanted = (limit) => new URLSearchParams({ limit: String(limit), ...(name && { name }) });
  const [{ groups }, { traces }] = await Promise.all([
    getJson(`${api("groups")}?${wanted(RUNS_MAX)}`, { signal }),
    getJson(`${api("traces")}?${wanted(TRACES_MAX)}`, { signal }),
  ]);
  return [
    ...groups.map((/** @type {Group} */ run) => ({ id: `run:${run.id}`, name: run.name, about: `run · ${plural(run.traces, "trace")} · ${age(run.created_at)}` })),
    ...traces.map((/** @type {TraceSummary} */ trace) => ({ id: trace.id, name: trace.name, about: ["trace", trace.rank === null ? null : `rank ${trace.rank}`, trace.state === "ready" ? null : trace.state, age(trace.created_at)].filter(Boolean).join(" · ") })),
    ...(ID.test(name) ? [{ id: name, name, about: "by its id" }] : []),
  ];
}
