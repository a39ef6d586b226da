// The list's bar "Merge": traces that were selected there become one.
import { api } from "./api.js";
import { byId, setText } from "./dom.js";
import { count } from "./format.js";
import { JobView } from "./job.js";

/** Wire the bar; `onMade` is called when there is a new trace, `onClear` when nothing is selected any more. */
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
    has: (id) => chosen.has(id),
    set(id, on) {
      if (on) chosen.add(id);
      else chosen.delete(id);
      show();
    },
  };
}
