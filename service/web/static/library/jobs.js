// The page "/jobs": the jobs that wait or run, with their progress and a button that cancels them, and those that ended.
import { Problem, api, getJson, pageOf, send } from "../api.js";
import { announce, byId, el, setText } from "../dom.js";
import { left } from "../follow.js";
import { age, bytes, count, plural } from "../format.js";
import { poll } from "../poll.js";

const RUNNING_MAX = 200;
const ENDED_MAX = 30;

/** @type {Record<string, string>} */
const TITLES = { ingest: "Read", split: "Split", merge: "Merge", overlay: "Overlay", import: "Import" };

/** @type {Map<string, JobRow>} */
const rows = new Map();

const refresh = poll(async () => {
  try {
    const running = await getJson(`${api("jobs")}?state=queued&state=running&limit=${RUNNING_MAX}`);
    const ended = await getJson(`${api("jobs")}?state=done&state=failed&state=cancelled&limit=${ENDED_MAX}`);
    show("running", running.jobs);
    show("ended", ended.jobs);
    byId("jobs-problem").hidden = true;
    return running.jobs.length > 0;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    setText(byId("jobs-problem"), `${error.title}. ${error.detail} Trying again.`);
    byId("jobs-problem").hidden = false;
    return false;
  }
});

/**
 * @param {"running" | "ended"} part
 * @param {ListedJob[]} jobs
 */
function show(part, jobs) {
  const list = byId(part);
  const elements = jobs.map((job) => {
    const key = `${part} ${job.id}`;
    const row = rows.get(key) ?? new JobRow(job.id);
    rows.set(key, row);
    row.update(job);
    return row.element;
  });
  for (const [key, row] of rows) {
    if (!key.startsWith(part) || elements.includes(row.element)) continue;
    if (row.element.contains(document.activeElement)) byId("main").focus();
    rows.delete(key);
  }
  if (elements.length !== list.childElementCount || elements.some((element, index) => list.children[index] !== element)) list.replaceChildren(...elements);
  list.hidden = jobs.length === 0;
  byId(`${part}-none`).hidden = jobs.length > 0;
}

class JobRow {
  /** @param {string} id */
  constructor(id) {
    this.title = el("span", { class: "name" });
    this.text = el("span", { class: "small muted" });
    this.cancel = el("button", { type: "button", class: "quiet", "data-write": true, "data-testid": "job-cancel" }, "Cancel");
    this.cancel.addEventListener("click", async () => {
      try {
        await send("DELETE", api("jobs", id));
        announce("Cancelled");
        byId("main").focus();
      } catch (error) {
        if (!(error instanceof Problem)) throw error;
        setText(byId("jobs-problem"), `${error.title}. ${error.detail}`);
        byId("jobs-problem").hidden = false;
      }
      refresh();
    });
    this.bar = el("progress", { "aria-label": "Progress" });
    this.element = el("li", { "data-testid": "job-row", "data-id": id }, this.title, this.text, el("span", { class: "buttons" }, this.cancel), this.bar);
    this.titled = "";
  }

  /** @param {ListedJob} job */
  update(job) {
    const isRunning = job.state === "running" || job.state === "queued";
    this.element.dataset.state = job.state;
    this.showTitle(job);
    setText(this.text, isRunning ? progressOf(job) : outcomeOf(job));
    this.text.title = job.error?.detail ?? "";
    this.text.classList.toggle("bad", job.state === "failed");
    this.cancel.hidden = !isRunning;
    this.bar.hidden = job.state !== "running";
    const share = shareOf(job);
    if (share === null) this.bar.removeAttribute("value");
    else this.bar.value = share;
  }

  /** @param {ListedJob} job */
  showTitle({ kind, trace, trace_name: name, request }) {
    const title = TITLES[kind] ?? kind;
    const subject = request.path ?? name ?? (trace ? "a deleted trace" : plural(request.traces?.length ?? 0, "trace"));
    const text = `${title} ${subject}`;
    if (text === this.titled) return;
    this.titled = text;
    this.title.replaceChildren(el("strong", {}, title), " ", trace && name ? el("a", { href: pageOf(trace) }, name) : el("span", { class: request.path ? "mono" : null }, subject));
    this.cancel.setAttribute("aria-label", `Cancel: ${text}`);
  }
}

/** @param {ListedJob} job */
function shareOf({ progress }) {
  const { bytes: done, bytes_total: total, events, events_total: allEvents } = progress;
  if (Number(allEvents) > 0) return Number(events) / Number(allEvents);
  return Number(total) > 0 ? Number(done) / Number(total) : null;
}

/** @param {ListedJob} job */
function progressOf(job) {
  if (job.state === "queued") return "waiting for other jobs";
  const { bytes: done, bytes_total: total, events } = job.progress;
  const parts = [Number(total) > 0 ? `${bytes(done)} of ${bytes(total ?? 0)}` : null, Number(events) > 0 ? `${count(events)} events` : null, left(job)];
  return parts.filter(Boolean).join(" · ") || "running";
}

/** @param {ListedJob} job */
function outcomeOf({ state, kind, error, result, ended_at: at }) {
  const ago = at === null ? null : age(at);
  if (state === "cancelled") return ["cancelled", ago].filter(Boolean).join(" · ");
  if (state === "failed") return [`failed: ${error?.title ?? ""}`, ago].filter(Boolean).join(" · ");
  const made = kind === "ingest" ? null : `made ${plural(result?.traces.length ?? 0, "trace")}`;
  return ["done", made, ago].filter(Boolean).join(" · ");
}

addEventListener("pageshow", (event) => event.persisted && refresh());
