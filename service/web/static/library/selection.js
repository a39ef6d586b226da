// The bar of the selected rows: compare them, merge them, make a run of them, or delete them.
import { Problem, api, comparePageOf, postJson, send } from "../api.js";
import { announce, byId, setText } from "../dom.js";
import { count, plural } from "../format.js";
import { JobView } from "../job.js";
import { idOf } from "./entry_row.js";

/**
 * Wire the bar. `onChange` is called when there are new traces or runs, `onClear` when nothing is selected any longer.
 * @param {{ onChange: () => void, onClear: () => void, onDelete: (entries: LibraryEntry[]) => void }} handlers
 */
export function startSelection({ onChange, onClear, onDelete }) {
  /** @type {Map<string, LibraryEntry>} */
  const chosen = new Map(); // in the order in which they were selected, of any page of the list
  const merge = byId("merge-run");
  const job = new JobView("job of a merge", {
    onMade: () => {
      clear();
      onChange();
    },
    onBusy: (busy) => {
      merge.setAttribute("aria-disabled", String(busy));
      queueMicrotask(show);
    },
  });
  byId("merge-job").replaceChildren(job.element);

  function show() {
    const entries = [...chosen.values()];
    const areTraces = entries.every(({ run }) => run === null);
    const areReady = entries.every(({ states, traces }) => Number(states.ready ?? 0) === Number(traces));
    setText(byId("chosen-count"), `${count(chosen.size)} selected`);
    byId("chosen-compare").hidden = chosen.size !== 2 || !areReady;
    if (chosen.size === 2) byId("chosen-compare").href = comparePageOf(sideOf(entries[0]), sideOf(entries[1]));
    setText(merge, `Merge ${count(chosen.size)} traces`);
    byId("chosen-group").hidden = chosen.size < 2 || !areTraces;
    merge.hidden = byId("merge-clocks").hidden = chosen.size < 2 || !areTraces || !areReady;
    byId("chosen").hidden = chosen.size === 0;
    byId("merge").hidden = chosen.size === 0 && job.element.hidden;
  }

  function clear() {
    chosen.clear();
    onClear();
    show();
  }

  merge.addEventListener("click", () => {
    if (merge.getAttribute("aria-disabled") === "true") return;
    job.start(api("traces", "merge"), { traces: [...chosen.keys()], align: byId("merge-align").value });
    show();
  });
  byId("chosen-delete").addEventListener("click", () => onDelete([...chosen.values()]));
  byId("merge-clear").addEventListener("click", () => {
    if (!job.busy) job.element.hidden = true;
    clear();
    byId("search").focus(); // the button that had it is gone
  });
  wireNames(() => [...chosen.keys()], (name) => {
    announce(`${name} is a run`);
    clear();
    onChange();
  });
  job.resume();
  show();

  return {
    /** @param {string} id */
    has: (id) => chosen.has(id),
    /**
     * Take the current state of a selected entry.
     * @param {LibraryEntry} entry
     */
    update(entry) {
      if (!chosen.has(idOf(entry))) return;
      chosen.set(idOf(entry), entry);
      show();
    },
    /**
     * @param {LibraryEntry} entry
     * @param {boolean} on
     */
    set(entry, on) {
      if (on) chosen.set(idOf(entry), entry);
      else chosen.delete(idOf(entry));
      show();
    },
  };
}

/**
 * Wire the dialog that makes a run of the selected traces. A run that has this name already receives them.
 * @param {() => string[]} idsOf
 * @param {(name: string) => void} onMade
 */
function wireNames(idsOf, onMade) {
  const dialog = byId("name-run");
  const name = byId("name-run-name");
  const failure = byId("name-run-error");
  byId("chosen-group").addEventListener("click", () => {
    failure.hidden = true;
    dialog.showModal();
    name.select();
  });
  byId("name-run-cancel").addEventListener("click", () => dialog.close());
  byId("name-run-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await makeRun(name.value.trim(), idsOf());
      dialog.close();
      onMade(name.value.trim());
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      setText(failure, `${error.title}. ${error.detail}`);
      failure.hidden = false;
    }
  });
}

/**
 * @param {string} name
 * @param {string[]} traces
 */
async function makeRun(name, traces) {
  try {
    await postJson(api("groups"), { name, traces });
  } catch (error) {
    if (error.code !== "group_exists") throw error;
    for (const trace of traces) await send("PATCH", api("traces", trace), { json: { group: name } });
  }
  announce(`${plural(traces.length, "trace")} in the run ${name}`);
}

/**
 * A side of a comparison, as its page's address has it.
 * @param {LibraryEntry} entry
 */
const sideOf = (entry) => `${entry.run ? "run:" : ""}${idOf(entry)}`;
