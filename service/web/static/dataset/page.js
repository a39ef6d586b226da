// The page of a dataset: how far its ingests are, its runs, and the sources that failed.
import { Problem, api, getJson } from "../api.js";
import { byId, el, setText, table } from "../dom.js";
import { bytes, clock, count } from "../format.js";
import { poll } from "../poll.js";
import { hideProblem, showProblem } from "../problem.js";
import { runPageOf } from "./address.js";
import { ProgressView, badgeOf } from "./progress.js";

const FAILURES = 50; // of a page
const name = byId("dataset").dataset.name ?? "";
const progress = new ProgressView();
let after = ""; // the failure before those that are shown
/** @type {Map<string, string>} */
const shown = new Map();

byId("dataset-progress").append(progress.element);

const refresh = poll(async () => {
  try {
    /** @type {Dataset} */
    const dataset = await getJson(`${api("datasets", name)}?${new URLSearchParams({ limit: String(FAILURES), after })}`);
    show(dataset);
    hideProblem(byId("dataset-problem"));
    return dataset.state === "ingesting" || dataset.state === "reading";
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    showProblem(byId("dataset-problem"), error);
    return error.code === "unknown_dataset" ? null : false;
  }
});

byId("failures-next").addEventListener("click", () => turn(byId("failures-next").dataset.after ?? ""));
byId("failures-first").addEventListener("click", () => turn(""));

/** @param {string} next */
function turn(next) {
  after = next;
  refresh();
}

/** @param {Dataset} dataset */
function show(dataset) {
  const { state, reason, read_at: readAt, unread, progress: now } = dataset;
  byId("dataset-known").hidden = false;
  replace("state", state, () => byId("dataset-state").replaceChildren(badgeOf(state)));
  setText(byId("dataset-location"), dataset.location);
  progress.element.hidden = readAt === null;
  progress.update(now);
  const why = state === "stopped" || state === "ingesting" ? now.reason : reason;
  byId("dataset-reason").hidden = why === null;
  byId("dataset-reason").classList.toggle("bad", state === "stopped" || state === "unavailable");
  setText(byId("dataset-reason"), why ?? "");
  setText(byId("dataset-unread"), Number(unread) > 0 ? `${count(unread)} records are not read yet; the numbers grow.` : "");
  replace("facts", [now, dataset.runs_count, dataset.ranks], () => showFacts(dataset));
  replace("runs", dataset.runs, () => showRuns(dataset.runs));
  replace("ingests", dataset.ingests, () => showIngests(dataset.ingests));
  replace("failures", [dataset.failures, dataset.next], () => showFailures(dataset));
}

/**
 * Change a part of the page only if its content has changed, so that a text selection and the focus stay.
 * @param {string} part
 * @param {unknown} content
 * @param {() => void} change
 */
function replace(part, content, change) {
  const text = JSON.stringify(content, (_key, value) => (typeof value === "bigint" ? String(value) : value));
  if (shown.get(part) === text) return;
  shown.set(part, text);
  change();
}

/** @param {Dataset} dataset */
function showFacts({ progress: now, runs_count: runs, ranks }) {
  /** @type {[string, Children][]} */
  const facts = [
    ["Done", now.sources === null ? count(now.done) : `${count(now.done)} of ${count(now.sources)}`],
    ["Failed", count(now.failed)],
    ["Bytes", now.bytes_total === null ? `${bytes(now.bytes_done)} of an unknown total` : `${bytes(now.bytes_done)} of ${bytes(now.bytes_total)}`],
    ["Rate", now.bytes_per_s === null ? el("span", { class: "muted" }, "unknown") : `${bytes(now.bytes_per_s)}/s`],
    ["Time left", now.left_s === null ? el("span", { class: "muted" }, "unknown") : clock(Math.ceil(now.left_s))],
    ["Last record", now.last_record_at === null ? "none" : moment(now.last_record_at)],
    ["Runs", count(runs)],
    ["Ranks", count(ranks)],
  ];
  byId("dataset-facts").replaceChildren(...facts.map(([title, value]) => el("div", {}, el("dt", {}, title), el("dd", {}, value))));
}

/** @param {DatasetRun[]} runs */
function showRuns(runs) {
  if (runs.length === 0) return byId("dataset-runs").replaceChildren(el("p", { class: "muted" }, "No source has been read so far."));
  const headings = [
    { text: "Run", class: "name" }, { text: "Ranks", class: "number" }, { text: "World size", class: "number" }, { text: "Done", class: "number" },
    { text: "Failed", class: "number" }, { text: "Size", class: "number" }, { text: "Events", class: "number" }, { text: "Last record" },
  ];
  const rows = runs.map((run) => [
    run.done === 0 ? run.name : el("a", { href: runPageOf(name, run.name) }, run.name),
    count(run.ranks),
    run.world_size === null ? "–" : count(run.world_size),
    count(run.done),
    count(run.failed),
    bytes(run.size),
    count(run.events),
    moment(run.last_record_at),
  ]);
  byId("dataset-runs").replaceChildren(table(headings, rows, { "data-testid": "runs-table" }));
}

/** @param {string} iso */
const moment = (iso) => el("time", { datetime: iso }, `${iso.replace("T", " ").slice(0, 19)} UTC`);

/** @param {DatasetIngest[]} ingests */
function showIngests(ingests) {
  byId("dataset-ingests-panel").hidden = ingests.length === 0;
  const headings = [{ text: "State" }, { text: "Host", class: "name" }, { text: "Started" }, { text: "Last sign" }, { text: "Done", class: "number" }, { text: "Failed", class: "number" }, { text: "Bytes", class: "number" }, { text: "", class: "words" }];
  const rows = ingests.map((ingest) => [
    badgeOf(ingest.state),
    `${ingest.host}, process ${ingest.process}`,
    moment(ingest.started_at),
    moment(ingest.beat_at),
    `${count(ingest.done)} of ${count(ingest.sources)}`,
    count(ingest.failed),
    `${bytes(ingest.bytes_done)} of ${bytes(ingest.bytes_total)}`,
    el("span", { class: "small" }, ingest.reason ?? ""),
  ]);
  byId("dataset-ingests").replaceChildren(table(headings, rows, { "data-testid": "ingests-table" }));
}

/** @param {Dataset} dataset */
function showFailures({ failures, next }) {
  byId("dataset-failures-panel").hidden = failures.length === 0 && after === "";
  const headings = [{ text: "Run" }, { text: "Source", class: "name" }, { text: "Reason", class: "words" }, { text: "Attempts", class: "number" }, { text: "Worker" }];
  const rows = failures.map(({ run, source, error, attempts, worker }) => [
    run,
    el("span", { class: "mono" }, source),
    [el("span", {}, `${error.title} `), el("code", { class: "code" }, error.code ?? ""), el("span", { class: "muted" }, ` ${error.detail}`)],
    count(attempts),
    worker,
  ]);
  byId("dataset-failures").replaceChildren(table(headings, rows, { "data-testid": "failures-table" }));
  byId("failures-next").hidden = next === null;
  byId("failures-next").dataset.after = next ?? "";
  byId("failures-first").hidden = after === "";
}
