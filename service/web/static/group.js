// The page of a group: the ranks of a run, and what can be done with all of them.
import { Problem, api, getJson, pageOf, root } from "./api.js";
import { confirmDissolve, confirmGroup } from "./confirm.js";
import { byId, el, setText, table } from "./dom.js";
import { bytes, count, plural } from "./format.js";
import { JobView } from "./job.js";
import { poll } from "./poll.js";
import { hideProblem, showProblem } from "./problem.js";
import { isFinal } from "./state.js";

const MISSING = 24; // ranks that are named
const id = byId("group").dataset.id;
const unknown = () => el("span", { class: "muted" }, "unknown");
let group = null;
let shown = "";

const refresh = poll(async () => {
  try {
    show(await getJson(api("groups", id)));
    hideProblem(byId("group-problem"));
    return group.ranks.some((one) => !isFinal(one));
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
  if (byId("merge-run").getAttribute("aria-disabled") !== "true") {
    job.start(api("groups", id, "merge"), { align: byId("merge-align").value });
  }
});
byId("dissolve").addEventListener("click", async () => {
  if (await confirmDissolve(group)) location.assign(`${root}/`);
});
byId("delete").addEventListener("click", async () => {
  if (await confirmGroup(group)) location.assign(`${root}/`);
});
job.resume();

function show(now) {
  const text = JSON.stringify(now, (_key, value) => (typeof value === "bigint" ? String(value) : value));
  if (text === shown) return; // a selection in it stays, and so does the focus
  shown = text;
  group = now;
  document.title = `${group.name} · Tracedock`;
  setText(byId("name"), group.name);
  const ready = group.ranks.filter((one) => one.state === "ready").length;
  setText(byId("merge-run"), `Merge ${count(group.ranks.length)} ranks`);
  byId("merge-run").disabled = group.ranks.length < 2 || ready < group.ranks.length;
  byId("facts").replaceChildren(...FACTS.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value(group) ?? unknown()))));
  byId("ranks").replaceChildren(group.ranks.length > 0 ? ranksOf(group.ranks, group.cycles) : el("p", { class: "muted" }, "No trace is in this group."));
  byId("known").hidden = false;
  byId("actions").hidden = false;
}

const RULES = { steps: "their steps", time: "their times", order: "the order of each rank's traces" };

const FACTS = [
  ["Traces", ({ traces, size }) => `${plural(traces, "trace")}, ${bytes(size)}`],
  ["World size", ({ world_size: world }) => (world === null ? null : count(world))],
  ["Cycles", ({ cycles, cycles_by: rule }) => (cycles.length < 2 ? count(cycles.length) : `${count(cycles.length)}, told by ${RULES[rule]}`)],
  ["Missing ranks", ({ world_size: world, cycles, missing }) => (world === null ? null : cycles.length < 2 ? missingOf(missing) : missingByCycle(cycles))],
  ["Run id", ({ run_id: run }) => run ?? el("span", { class: "muted" }, "none")],
  ["Here since", ({ created_at: at }) => el("time", { datetime: at }, `${at.replace("T", " ").slice(0, 19)} UTC`)],
];

function missingOf(missing) {
  if (missing.length === 0) return "none";
  return el("span", { class: "warm" }, missing.slice(0, MISSING).join(", ") + (missing.length > MISSING ? `, … ${count(missing.length)} in all` : ""));
}

function missingByCycle(cycles) {
  const lacking = cycles.filter(({ missing }) => missing.length > 0);
  if (lacking.length === 0) return "none";
  return el("ul", {}, lacking.map(({ cycle, missing }) => el("li", {}, `cycle ${cycle}: `, missingOf(missing))));
}

function ranksOf(ranks, cycles) {
  const column = (text, kind) => ({ text, class: kind });
  const several = cycles.length > 1;
  const headings = [column("Rank", "number"), ...(several ? [column("Cycle", "number")] : []), column("Name", "name"), column("State"), column("Host"), column("Events", "number"), column("Size", "number"), column("")];
  const rows = ranks.map((one) => {
    const badge = el("span", { class: "badge" }, one.state);
    badge.dataset.state = one.state;
    const ready = one.state === "ready";
    return [
      one.rank === null ? unknown() : String(one.rank),
      ...(several ? [one.cycle === null ? unknown() : String(one.cycle)] : []),
      el("a", { href: pageOf(one.trace) }, one.name),
      badge,
      one.host ?? "",
      ready ? count(one.events) : "",
      bytes(one.size),
      ready ? el("a", { class: "button quiet", href: api("traces", one.trace, "perfetto"), target: "_blank", rel: "noopener", "aria-label": `Open ${one.name} in Perfetto` }, "Perfetto") : "",
    ];
  });
  return table(headings, rows, { "data-testid": "group-table" });
}
