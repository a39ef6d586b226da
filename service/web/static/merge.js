// The bar "Merge" of the list: merges the selected traces into one.
import { api } from "./api.js";
import { byId, setText } from "./dom.js";
import { count } from "./format.js";
import { JobView } from "./job.js";

/**
 * Wire the bar. Calls `onMade` when there is a new trace, and `onClear` when the selection is cleared.
 * @param {{ onMade: (ids: string[]) => void, onClear: () => void }} handlers
 */
export function startMerge({ onMade, onClear }) {
  const chosen = new Set(); // ids in the order in which they were selected, of any page of the list
  const button = byId("merge-run");
  const job = new JobView("job of a merge", {
    onMade: (ids) => {
      clear();
      onMade(ids);
    },
    onBusy: (busy) => {
      button.setAttribute("aria-disabled", String(busy));
      queueMicrotask(show);
    },
  });
  byId("merge-job").replaceChildren(job.element);

  function show() {
    setText(button, `Merge ${count(chosen.size)} traces`);
    byId("merge-chosen").hidden = chosen.size < 2;
    byId("merge").hidden = chosen.size < 2 && job.element.hidden;
  }

  function clear() {
    chosen.clear();
    onClear();
    show();
  }

  button.addEventListener("click", () => {
    if (button.getAttribute("aria-disabled") === "true") return;
    job.start(api("traces", "merge"), { traces: [...chosen], align: byId("merge-align").value });
    show();
  });
  byId("merge-clear").addEventListener("click", () => {
    if (!job.busy) job.element.hidden = true;
    clear();
    byId("filter").focus(); // the button that had it is gone
  });
  job.resume();
  show();

  return {
    /** @param {string} id */
    has: (id) => chosen.has(id),
    /**
     * @param {string} id
     * @param {boolean} on
     */
    set(id, on) {
      if (on) chosen.add(id);
      else chosen.delete(id);
      show();
    },
  };
}
