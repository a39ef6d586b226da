// The page of a group: the ranks of a run, and actions on all of them.
import { Problem, api, getJson, pageOf, root } from "./api.js";
import { showAttachments } from "./attachments.js";
import { confirmDissolve, confirmDeleteGroup } from "./confirm.js";
import { byId, el, setText, table } from "./dom.js";
import { bytes, count, plural } from "./format.js";
import { JobView } from "./job.js";
import { poll } from "./poll.js";
import { hideProblem, showProblem } from "./problem.js";
import { startAnalyses } from "./run/analyses.js";
import { chooseCycle, fillCycles, mergedOf, namedCycle, ranksOf as numberOfRanks, shownTraces } from "./run/cycle.js";
import { isFinal } from "./state.js";

const MISSING_MAX = 24; // missing ranks that are listed
const id = byId("group").dataset.id ?? "";
/** @param {GroupRank} rank */
const isReady = (rank) => rank.state === "ready";
const unknown = () => el("span", { class: "muted" }, "unknown");
/** @type {Group | null} */
let group = null;
let shown = "";
let analysed = ""; // ids of the traces that the panels show
let analysing = new AbortController();

const refresh = poll(async () => {
  try {
    /** @type {Group} */
    const now = await getJson(api("groups", id));
    show(now);
    hideProblem(byId("group-problem"));
    return now.ranks.some((rank) => !isFinal(rank));
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    showProblem(byId("group-problem"), error);
    if (error.code !== "unknown_group") return false;
    byId("known").hidden = true;
    byId("actions").hidden = true;
    byId("group-problem").append(el("p", {}, el("a", { href: `${root}/` }, "All traces")));
    return null;
  }
});

const job = new JobView(`merge of group ${id}`, {
  onMade: refresh,
  onBusy: (busy) => byId("merge-run").setAttribute("aria-disabled", String(busy)),
});
byId("merge-job").replaceChildren(job.element);
byId("merge-run").addEventListener("click", () => {
  if (group && byId("merge-run").getAttribute("aria-disabled") !== "true") {
    job.start(api("groups", id, "merge"), { align: byId("merge-align").value, cycle: mergedOf(group).cycle });
  }
});
byId("cycle").addEventListener("change", () => {
  chooseCycle(byId("cycle").value);
  if (group) showCycle(group);
});
window.addEventListener("popstate", () => {
  if (group) showCycle(group);
});
byId("dissolve").addEventListener("click", async () => {
  if (group && (await confirmDissolve(group))) location.assign(`${root}/`);
});
byId("delete").addEventListener("click", async () => {
  if (group && (await confirmDeleteGroup(group))) location.assign(`${root}/`);
});
job.resume();

/** @param {Group} now */
function show(now) {
  const text = JSON.stringify(now, (_key, value) => (typeof value === "bigint" ? String(value) : value));
  if (text === shown) return; // so that a text selection and the focus stay
  shown = text;
  group = now;
  document.title = `${now.name} · Tracedock`;
  setText(byId("name"), now.name);
  const ready = now.ranks.filter(isReady).length;
  const failed = now.ranks.filter((rank) => rank.state === "failed").length;
  byId("report").hidden = ready === 0 || ready + failed < now.ranks.length;
  byId("facts").replaceChildren(...FACTS.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value(now) ?? unknown()))));
  byId("ranks").replaceChildren(now.ranks.length > 0 ? ranksOf(now.ranks, now.cycles) : el("p", { class: "muted" }, "No trace is in this group."));
  byId("known").hidden = false;
  byId("actions").hidden = false;
  setText(byId("headline"), headlineOf(now));
  byId("headline").hidden = false;
  if (ready === 0) byId("files").open = true;
  showAttachments("groups", id, new Map(now.ranks.map(({ trace, name }) => [trace, name]))).catch((error) => {
    if (!(error instanceof Problem)) throw error; // the group was just deleted, as the next poll says
  });
  showCycle(now);
}

/**
 * Show what concerns one cycle: the panels, and the links and buttons above them.
 * @param {Group} now
 */
function showCycle(now) {
  const [traces, merged] = [shownTraces(now).filter(isReady), mergedOf(now).traces.filter(({ state }) => state !== "failed")];
  const unread = now.ranks.filter((rank) => !isReady(rank));
  fillCycles(byId("cycle"), now);
  const ranks = new Set(merged.map(({ rank }) => (rank === null ? null : String(rank))));
  setText(byId("merge-run"), `Merge ${ranks.has(null) ? plural(merged.length, "trace") : plural(ranks.size, "rank")}`);
  byId("merge-run").disabled = merged.length < 2 || unread.length > 0;
  byId("merge-run").title = unread.length > 0 ? "A merge needs all traces of the run." : "";
  const named = namedCycle(now);
  byId("report").href = `${api("groups", id, "report")}${named === null ? "" : `?cycle=${named}`}`;
  byId("compare-with").href = `${root}/compare?base=run:${id}${named === null ? "" : `&base_cycle=${named}`}`;
  const ids = traces.map(({ trace }) => trace).join();
  if (!unread.every(isFinal)) return;
  showLeftOut(unread);
  if (traces.length > 0 && ids !== analysed) {
    analysed = ids;
    analysing.abort();
    analysing = new AbortController();
    startAnalyses({ id, traces, cycle: named }, analysing.signal);
  }
}

/**
 * Name the traces that no panel counts.
 * @param {GroupRank[]} unread those that could not be read
 */
function showLeftOut(unread) {
  const names = unread.slice(0, MISSING_MAX).flatMap(({ name, trace }, index) => [index > 0 ? ", " : "", el("a", { href: pageOf(trace) }, name)]);
  const more = unread.length > MISSING_MAX ? ` and ${count(unread.length - MISSING_MAX)} more` : "";
  byId("left-out").hidden = unread.length === 0;
  byId("left-out").replaceChildren(`${plural(unread.length, "trace")} could not be read, and ${unread.length === 1 ? "is" : "are"} left out: `, ...names, more);
}

/**
 * "8 of 64 ranks · 2 cycles · 16 traces · 12 MB · missing 3, 5".
 * @param {Group} group
 */
function headlineOf({ ranks, cycles, world_size: world, size, missing }) {
  const known = numberOfRanks(cycles);
  const present = known === 0 ? null : world === null ? plural(known, "rank") : `${count(known)} of ${plural(world, "rank")}`;
  const turns = cycles.length < 2 ? null : plural(cycles.length, "cycle");
  const traces = known === ranks.length ? null : plural(ranks.length, "trace");
  const ready = ranks.filter(isReady).length;
  const lacking = missing.length > 0 ? `missing ${missing.slice(0, MISSING_MAX).join(", ")}${missing.length > MISSING_MAX ? ` and ${count(missing.length - MISSING_MAX)} more` : ""}` : null;
  return [present, turns, traces, ready < ranks.length ? `${count(ready)} ready` : null, bytes(size), lacking].filter(Boolean).join(" · ");
}

/** @type {Record<string, string>} */
const RULES = { steps: "their steps", time: "their times", order: "the order of each rank's traces" };

/** @type {[string, (group: Group) => Children][]} */
const FACTS = [
  ["Traces", ({ traces, size }) => `${plural(traces, "trace")}, ${bytes(size)}`],
  ["World size", ({ world_size: world }) => (world === null ? null : count(world))],
  ["Cycles", ({ cycles, cycles_by: rule }) => (cycles.length < 2 ? count(cycles.length) : `${count(cycles.length)}, distinguished by ${RULES[rule]}`)],
  ["Missing ranks", ({ world_size: world, cycles, missing }) => (world === null ? null : cycles.length < 2 ? missingOf(missing) : missingByCycle(cycles))],
  ["Run id", ({ run_id: run }) => run ?? el("span", { class: "muted" }, "none")],
  ["Here since", ({ created_at: at }) => el("time", { datetime: at }, `${at.replace("T", " ").slice(0, 19)} UTC`)],
];

/** @param {Int[]} missing */
function missingOf(missing) {
  if (missing.length === 0) return "none";
  return el("span", { class: "warm" }, missing.slice(0, MISSING_MAX).join(", ") + (missing.length > MISSING_MAX ? `, … ${count(missing.length)} in all` : ""));
}

/** @param {Cycle[]} cycles */
function missingByCycle(cycles) {
  const lacking = cycles.filter(({ missing }) => missing.length > 0);
  if (lacking.length === 0) return "none";
  return el("ul", {}, lacking.map(({ cycle, missing }) => el("li", {}, `cycle ${cycle}: `, missingOf(missing))));
}

/**
 * @param {GroupRank[]} ranks
 * @param {Cycle[]} cycles
 */
function ranksOf(ranks, cycles) {
  /**
   * @param {string} text
   * @param {string} [kind]
   */
  const column = (text, kind) => ({ text, class: kind });
  const several = cycles.length > 1;
  const headings = [column("Rank", "number"), ...(several ? [column("Cycle", "number")] : []), column("Name", "name"), column("State"), column("Host"), column("Events", "number"), column("Size", "number"), column("")];
  const rows = ranks.map((rank) => {
    const badge = el("span", { class: "badge" }, rank.state);
    badge.dataset.state = rank.state;
    const ready = isReady(rank);
    return [
      rank.rank === null ? unknown() : String(rank.rank),
      ...(several ? [rank.cycle === null ? unknown() : String(rank.cycle)] : []),
      el("a", { href: pageOf(rank.trace) }, rank.name),
      badge,
      rank.host ?? "",
      ready ? count(rank.events) : "",
      bytes(rank.size),
      ready ? el("a", { class: "button quiet", href: api("traces", rank.trace, "perfetto"), target: "_blank", rel: "noopener", "aria-label": `Open ${rank.name} in Perfetto` }, "Perfetto") : "",
    ];
  });
  return table(headings, rows, { "data-testid": "group-table" });
}
