// The actions on the chosen window of the overview.
import { sqlPageOf } from "../api.js";
import { byId, setText } from "../dom.js";
import { duration } from "../format.js";
import { MS, downloadOf, inUnit, perfettoOf } from "../selection.js";
import { chosenWindow, onWindowChange } from "./window.js";

/** @import { TraceWindow } from "./window.js" */

const ROWS_MAX = 1000; // of the first query

/**
 * Wire the toolbar.
 * @param {Trace} trace
 */
export function startToolbar(trace) {
  const bounds = trace.bounds ?? { start_ns: 0, end_ns: 0 };

  /** @param {TraceWindow | null} window */
  function show(window) {
    byId("overview-chosen").hidden = window === null;
    byId("overview-hint").hidden = window !== null;
    if (window === null) return;
    const length = byId("overview-length");
    const after = window.start_ns - BigInt(bounds.start_ns);
    setText(length, `${duration(window.end_ns - window.start_ns)} from ${duration(after)}`);
    length.title = `${window.end_ns - window.start_ns} ns, from ${window.start_ns} to ${window.end_ns} ns on the trace's clock`;
    byId("overview-perfetto").href = perfettoOf(trace.id, { window });
    byId("overview-download").href = downloadOf(trace.id, { window });
    byId("overview-sql").href = sqlPageOf(trace.id, sqlOf(window));
  }

  /**
   * Put the window into the panel that cuts, and go there.
   * @param {"cut-make" | "cut-split"} act
   */
  function cut(act) {
    const window = chosenWindow();
    const panel = document.getElementById("cut");
    if (window === null || panel === null) return;
    if (panel instanceof HTMLDetailsElement) panel.open = true;
    for (const [name, time] of /** @type {const} */ ([["cut-start", window.start_ns], ["cut-end", window.end_ns]])) {
      const after = time - BigInt(bounds.start_ns);
      byId(name).value = inUnit(after > 0n ? after : 0n, MS);
      byId(name).dispatchEvent(new Event("input", { bubbles: true }));
    }
    panel.scrollIntoView();
    byId(act).focus({ preventScroll: true });
  }

  byId("overview-make").addEventListener("click", () => cut("cut-make"));
  byId("overview-split").addEventListener("click", () => cut("cut-split"));
  onWindowChange(show);
  show(chosenWindow());
}

/**
 * The slices that run within a window.
 * @param {TraceWindow} window
 */
const sqlOf = ({ start_ns, end_ns }) => `INCLUDE PERFETTO MODULE torch.trace;
SELECT torch_ns(ts) AS start_ns, dur, name, category
FROM slice
WHERE torch_ns(ts) < ${end_ns} AND torch_ns(ts) + dur > ${start_ns}
ORDER BY ts
LIMIT ${ROWS_MAX}`;
