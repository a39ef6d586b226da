// The panel "Engine": the engines on this trace and on parts of it, what they take, and how much of it they show.
import { Problem, api, getJson, readJson, send } from "./api.js";
import { chooseArgs, chosenArgs } from "./args.js";
import { announce, byId, el, setText } from "./dom.js";
import { writeExact } from "./exact.js";
import { bytes, count, plural } from "./format.js";
import { poll } from "./poll.js";
import { hideProblem, showProblem } from "./problem.js";
import { wordsOf } from "./selection.js";

const ARGS = { all: "", essential: "essential arguments", none: "no arguments" };
const BEGUN = new Set(["waiting", "loading"]);
const MILLION = 1e6;

/** Wire the panel for a ready trace. */
export function startEngine(trace) {
  const views = new Map();
  const remembered = `args of ${trace.id}`;
  const [choice, start] = [byId("engine-args"), byId("engine-start")];
  let sessions = [];

  function show() {
    const alive = new Map(sessions.map((session) => [keyOf(session), session]));
    for (const [key, view] of views) {
      if (alive.has(key)) continue;
      if (view.element.contains(document.activeElement)) choice.focus();
      view.element.remove();
      views.delete(key);
    }
    for (const [key, session] of alive) {
      if (!views.has(key)) {
        views.set(key, new EngineView(trace, act));
        byId("engine-list").append(views.get(key).element);
      }
      views.get(key).update(session);
    }
    byId("engine-none").hidden = sessions.length > 0;
    const running = sessions.some(({ selection, args, state }) => selection === null && args === chosenArgs() && state !== "failed");
    if (running && document.activeElement === start) choice.focus(); // the button goes away
    start.hidden = running;
  }

  const refresh = poll(async () => {
    try {
      sessions = (await getJson(api("sessions"))).sessions.filter((session) => session.trace === trace.id);
      setText(byId("engine-problem"), "");
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      setText(byId("engine-problem"), `${error.title}. Trying again.`);
      return false;
    }
    show();
    return sessions.some(({ state }) => BEGUN.has(state));
  });

  /** Open (POST) or close (DELETE) an engine; what is refused is shown. */
  async function act(method, session) {
    hideProblem(byId("engine-refused"));
    try {
      const answer = await send(method, addressOf(trace.id, session));
      if (answer.status !== 204) await readJson(answer);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      showProblem(byId("engine-refused"), error);
    }
    refresh();
  }

  choice.value = sessionStorage.getItem(remembered) ?? "all";
  chooseArgs(choice.value);
  choice.addEventListener("change", () => {
    sessionStorage.setItem(remembered, choice.value);
    chooseArgs(choice.value);
    show();
  });
  start.addEventListener("click", () => act("POST", { args: chosenArgs(), selection: null }));
  byId("engine").hidden = false;
}

const keyOf = ({ args, selection }) => writeExact([args, selection]);

function addressOf(id, { args, selection }) {
  const wanted = new URLSearchParams({ args, ...(selection !== null && { selection: writeExact(selection) }) });
  return `${api("traces", id, "session")}?${wanted}`;
}

/** One engine, made once and updated in place. */
class EngineView {
  constructor({ bounds }, act) {
    this.bounds = bounds;
    this.badge = el("span", { class: "badge", "data-testid": "engine-state" });
    this.what = el("span");
    this.facts = el("span", { class: "muted small", "data-testid": "engine-facts" });
    this.close = el("button", { type: "button", class: "quiet", "data-testid": "engine-close" }, "Close");
    this.close.addEventListener("click", () => act("DELETE", this.session));
    this.again = el("button", { type: "button", class: "quiet", "data-testid": "engine-again" }, "Try again");
    this.again.addEventListener("click", () => act("POST", this.session));
    this.said = el("span", { class: "small muted" });
    this.progress = el("div", { class: "progress" }, el("progress", { "aria-label": "Engine loading" }), this.said);
    this.failure = el("div", { class: "note bad" });
    this.account = el("div", { class: "account", "data-testid": "engine-account" });
    const head = el("div", { class: "buttons" }, this.badge, this.what, this.facts, el("span", { class: "buttons split" }, this.again, this.close));
    this.element = el("li", { "data-testid": "engine-row" }, head, this.progress, this.failure, this.account);
  }

  update(session) {
    const { state, args, selection, engine, error, account } = session;
    if (this.session && this.session.state !== state && !BEGUN.has(state)) announce(`The engine is ${state}`);
    this.session = session;
    setText(this.badge, state);
    this.badge.dataset.state = state;
    const what = selection === null ? "All of this trace" : wordsOf(selection, this.bounds).join(" · ");
    setText(this.what, [what, ARGS[args]].filter(Boolean).join(", "));
    this.close.setAttribute("aria-label", `Close the engine on: ${this.what.textContent}`);
    setText(this.facts, factsOf(session));
    this.facts.title = engine.peak_bytes === null ? "" : `at most ${bytes(engine.peak_bytes)} so far; ${bytes(engine.predicted_bytes)} were expected`;
    this.again.hidden = state !== "failed";
    this.progress.hidden = !BEGUN.has(state);
    setText(this.said, progressOf(session));
    if (error === null) hideProblem(this.failure);
    else if (this.told !== error.detail) showProblem(this.failure, error);
    this.told = error?.detail ?? null;
    this.showAccount(account);
  }

  /** Shown once: nothing of it changes, and a selection in it stays. */
  showAccount(account) {
    const key = account === null ? "" : writeExact(account);
    this.account.hidden = account === null;
    if (account !== null && this.accounted !== key) this.account.replaceChildren(...accountOf(account));
    this.accounted = key;
  }
}

/** How far an engine is that is not ready yet; how long the document is that it takes, nobody knows before its end. */
export function progressOf({ state, progress }) {
  if (state === "waiting") return "It waits until engines that make room for it have ended.";
  return `It takes in ${plural(progress.events_total, "event")}: ${bytes(progress.bytes)} so far.`;
}

function factsOf({ engine, load_s: seconds, clients, queries, waiting }) {
  const facts = [];
  if (engine.rss_bytes !== null) facts.push(`${bytes(engine.rss_bytes)} of memory`);
  if (seconds !== null) facts.push(`loaded in ${Number(seconds).toFixed(2)} s`);
  if (Number(clients) > 0) facts.push(`open in ${plural(clients, "tab")}`);
  if (Number(queries) > 0) facts.push(Number(queries) === 1 ? "1 query" : `${count(queries)} queries`);
  if (Number(waiting) > 0) facts.push(`${count(waiting)} waiting`);
  if (Number(engine.restarts) > 0) facts.push(`died ${plural(engine.restarts, "time")} lately`);
  return facts.join(" · ");
}

function accountOf(account) {
  const { complete, lanes, base_ns: base, notes, stats } = account;
  const exactly = [`${count(account.shown)} of ${count(account.events)} events`, ...["slices", "flows", "counters"].map((kind) => partOf(kind, account[kind]))];
  const shown = el("strong", { class: complete ? null : "bad", title: exactly.join("; ") }, `${shownOf(account)} events shown`);
  const more = [];
  if (Number(lanes) > 0) more.push(`${plural(lanes, "lane")} added for slices that overlap`);
  more.push(["its time 0 is ", el("span", { class: "mono" }, String(base)), " ns on the trace's clock"]);
  const line = el("p", {}, shown, el("span", { class: "muted small" }, more.flatMap((part) => [" · ", part].flat())));
  const missing = complete ? null : el("p", { class: "bad" }, `Not all has come through: ${exactly.slice(1).join("; ")}.`);
  const listed = [...notes.map(noteOf), ...stats.map(complaintOf)];
  return [line, missing, listed.length > 0 ? el("ul", { class: "notes small" }, listed) : null].filter(Boolean);
}

const WORDS = { slices: "slices", flows: "arrows", counters: "values of counters" };
const partOf = (kind, { expected, engine }) => `${count(engine)} of ${count(expected)} ${WORDS[kind]}`;

/** "54,906 of 54,906"; "12 of 12 M" where none is missing, for then no digit is needed to tell. */
function shownOf({ events, shown }) {
  if (Number(events) < MILLION || String(events) !== String(shown)) return `${count(shown)} of ${count(events)}`;
  const millions = Number((Number(events) / MILLION).toPrecision(3));
  return `${millions} of ${millions} M`;
}

const SEVERITIES = { error: "an error", data_loss: "a loss of data", info: "a detail" };

const times = (n) => (Number(n) > 1 ? [el("strong", {}, `${count(n)} ×`), " "] : []);

const noteOf = ({ code, count: n, detail }) => el("li", {}, ...times(n), detail, " ", el("code", { class: "code" }, code));

function complaintOf({ name, value, severity, detail }) {
  return el("li", {}, ...times(value), `The engine's importer tells of ${SEVERITIES[severity] ?? severity}: ${detail ?? ""} `, el("code", { class: "code" }, name));
}
