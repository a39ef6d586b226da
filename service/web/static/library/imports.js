// Imports from the server's disk: a form, the imports under way with their progress, and the folders that are watched.
import { Problem, api, getJson, postJson, send } from "../api.js";
import { announce, byId, el, setText } from "../dom.js";
import { follow, left } from "../follow.js";
import { bytes, plural } from "../format.js";
import { hideProblem, showProblem } from "../problem.js";

const REASONS_MAX = 20; // files that became no trace, of an import

/** @typedef {{ id: string, path: string, group: string | null, taken: Int, skipped: Int }} Watch */

/**
 * Wire the panel. Calls `onTaken` when an import may have made traces.
 * @param {{ onTaken: () => void }} handlers
 */
export function startImports({ onTaken }) {
  const panel = byId("import");
  const open = byId("import-open");

  /** @param {boolean} isShown */
  function show(isShown) {
    panel.hidden = !isShown;
    open.setAttribute("aria-expanded", String(isShown));
    if (!isShown) return;
    hideProblem(byId("import-problem"));
    showWatches();
  }

  open.addEventListener("click", () => {
    show(panel.hidden);
    if (!panel.hidden) byId("import-path").focus();
  });
  byId("import-close").addEventListener("click", () => {
    show(false);
    open.focus();
  });
  byId("import-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    hideProblem(byId("import-problem"));
    try {
      const group = byId("import-group").value.trim();
      const watch = byId("import-watch").checked;
      const request = { path: byId("import-path").value.trim(), mode: byId("import-mode").value, watch, ...(group && { group }) };
      followImport(await postJson(api("traces", "import"), request), onTaken);
      if (watch) showWatches();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      showProblem(byId("import-problem"), error);
    }
  });
  showUnfinished(onTaken).then((isAny) => isAny && show(true));
}

/**
 * Show the imports that run already, such as those of an earlier page. Resolves to whether there are any.
 * @param {() => void} onTaken
 */
async function showUnfinished(onTaken) {
  try {
    /** @type {{ jobs: ImportJob[] }} */
    const { jobs } = await getJson(`${api("jobs")}?kind=import&state=queued&state=running&limit=20`);
    for (const job of jobs) followImport(job, onTaken);
    return jobs.length > 0;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    return false; // the list says that the server does not answer
  }
}

/**
 * Show an import, and follow it to its end.
 * @param {ImportJob} started
 * @param {() => void} onTaken
 */
async function followImport(started, onTaken) {
  const list = byId("import-jobs");
  const text = el("span", { class: "small muted", role: "status" });
  const bar = el("progress", { "aria-label": `Import of ${started.request.path}` });
  const leave = () => {
    if (row.contains(document.activeElement)) byId("import-path").focus();
    row.remove();
    list.hidden = list.childElementCount === 0;
  };
  const cancel = el("button", { type: "button", class: "quiet", "aria-label": `Cancel: ${started.request.path}`, "data-testid": "import-cancel" }, "Cancel");
  cancel.addEventListener("click", () => send("DELETE", api("jobs", started.id)).catch((error) => setText(text, `${error.title}. ${error.detail}`)));
  const reasons = el("ul", { class: "reasons" });
  const row = el("li", { "data-testid": "import-row" }, el("span", { class: "name mono" }, started.request.path), text, el("span", { class: "buttons" }, cancel), bar, reasons);
  list.prepend(row);
  list.hidden = false;
  let seen = -1;
  /** @param {ImportJob} job */
  const progress = (job) => {
    const { bytes: done, bytes_total: total } = job.progress;
    if (Number(total) > 0) {
      bar.max = Number(total);
      bar.value = Number(done);
    }
    const position = Number(total) > 0 ? `${bytes(done)} of ${bytes(total ?? 0)}` : "looking for files";
    setText(text, job.state === "queued" ? "waiting for other jobs" : [position, left(job)].filter(Boolean).join(" · "));
    if (Number(done) !== seen) onTaken();
    seen = Number(done);
  };
  try {
    const job = /** @type {ImportJob} */ (await follow(started.id, (job) => progress(/** @type {ImportJob} */ (job)), (problem) => setText(text, `${problem.title}. Trying again.`)));
    setText(text, outcomeOf(job));
    text.classList.toggle("bad", job.state === "failed");
    reasons.replaceChildren(...(job.result?.files ?? []).filter(({ why }) => why !== null).slice(0, REASONS_MAX).map(({ path, why }) => el("li", {}, el("span", { class: "mono" }, path), `: ${why}`)));
    announce(`Import: ${outcomeOf(job)}`);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    setText(text, `${error.title}. ${error.detail}`);
  }
  bar.hidden = true;
  cancel.replaceWith(el("button", { type: "button", class: "quiet", "aria-label": `Dismiss: ${started.request.path}`, onclick: leave }, "Dismiss"));
  onTaken();
}

/** @param {ImportJob} job */
function outcomeOf({ state, error, result }) {
  if (state === "cancelled") return "cancelled; the traces so far stay";
  if (state === "failed") return `${error?.title ?? "failed"}. ${error?.detail ?? ""}`;
  const skipped = Number(result.skipped ?? 0);
  return `${plural(result.traces.length, "trace")}${skipped > 0 ? ` · ${plural(skipped, "file")} left out` : ""}`;
}

/** Show the folders from which files may be imported, and those that are watched. */
async function showWatches() {
  const list = byId("import-watches");
  try {
    /** @type {{ imports: Watch[], roots: string[] }} */
    const { imports, roots } = await getJson(api("imports"));
    const where = roots.length > 0 ? `Folders of this server: ${roots.join(", ")}.` : "No folder is open for imports: set TRACEDOCK_IMPORT_ROOTS on the server.";
    setText(byId("import-roots"), where);
    byId("import-folders").replaceChildren(...roots.map((root) => el("option", { value: root })));
    list.replaceChildren(...imports.map((watch) => watchRow(watch)));
    list.hidden = imports.length === 0;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    showProblem(byId("import-problem"), error);
  }
}

/** @param {Watch} watch */
function watchRow({ id, path, group, taken }) {
  const end = el("button", { type: "button", class: "quiet", "aria-label": `End the watch of ${path}` }, "End");
  end.addEventListener("click", async () => {
    try {
      await send("DELETE", api("imports", id));
      byId("import-path").focus();
      showWatches();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      showProblem(byId("import-problem"), error);
    }
  });
  const text = ["watched", plural(taken, "trace"), group === null ? null : `run ${group}`].filter(Boolean).join(" · ");
  return el("li", { "data-testid": "import-watch-row" }, el("span", { class: "name mono" }, path), el("span", { class: "small muted" }, text), el("span", { class: "buttons" }, end));
}
