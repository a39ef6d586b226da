// The panel "Engine": the engines on this trace and on selections of it, their resources, and how many events they show.
import { Problem, api, getJson, readJson, send } from "./api.js";
import { chooseArgs, chosenArgs } from "./args.js";
import { announce, byId, el, setText } from "./dom.js";
import { writeExact } from "./exact.js";
import { bytes, count, plural } from "./format.js";
import { poll } from "./poll.js";
import { hideProblem, showProblem } from "./problem.js";
import { wordsOf } from "./selection.js";

/** @typedef {"slices" | "flows" | "counters"} Kind */

/** @type {Kind[]} */
const KINDS = ["slices", "flows", "counters"];

/** @type {Record<string, string>} */
const ARGS = { all: "", essential: "essential arguments", none: "no arguments" };
const BEGUN = new Set(["waiting", "loading"]);
const MILLION = 1e6;

/**
 * Wire the panel for a ready trace.
 * @param {Trace} trace
 */
export function startEngine(trace) {
  /** @type {Map<string, EngineView>} */
  const views = new Map();
  const remembered = `args of ${trace.id}`;
  const [choice, start] = [byId("engine-args"), byId("engine-start")];
  /** @type {Session[]} */
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
        const view = new EngineView(trace, act);
        views.set(key, view);
        byId("engine-list").append(view.element);
      }
      views.get(key)?.update(session);
    }
    byId("engine-none").hidden = sessions.length > 0;
    const running = sessions.some(
      ({ selection, args, source, state }) => selection === null && args === chosenArgs() && source === trace.sources[0] && state !== "failed",
    );
    if (running && document.activeElement === start) choice.focus(); // the button disappears
    start.hidden = running || !choice.value; // without a choice, Perfetto and SQL may need different engines
  }

  const refresh = poll(async () => {
    try {
      /** @type {Session[]} */
      const all = (await getJson(api("sessions"))).sessions;
      sessions = all.filter((session) => session.trace === trace.id);
      setText(byId("engine-problem"), "");
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      setText(byId("engine-problem"), `${error.title}. Trying again.`);
      return false;
    }
    show();
    return sessions.some(({ state }) => BEGUN.has(state));
  });

  /**
   * Open (POST) or close (DELETE) an engine, and show a refusal.
   * @param {string} method
   * @param {EngineKey} session
   */
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

  choice.disabled = !trace.sources.includes("columns");
  choice.value = choice.disabled ? "all" : (sessionStorage.getItem(remembered) ?? "");
  chooseArgs(choice.value);
  choice.addEventListener("change", () => {
    sessionStorage.setItem(remembered, choice.value);
    chooseArgs(choice.value);
    show();
  });
  start.addEventListener("click", () => act("POST", { args: chosenArgs(), source: trace.sources[0], selection: null }));
  byId("engine").hidden = false;
}

/** @param {EngineKey} session */
const keyOf = ({ args, source, selection }) => writeExact([args, source, selection]);

/**
 * @param {string} id
 * @param {EngineKey} session
 */
function addressOf(id, { args, source, selection }) {
  const wanted = new URLSearchParams({ args, source, ...(selection !== null && { selection: writeExact(selection) }) });
  return `${api("traces", id, "session")}?${wanted}`;
}

/** One engine, made once and updated in place. */
class EngineView {
  /**
   * @param {Trace} trace
   * @param {(method: string, session: Session) => void} act
   */
  constructor({ bounds }, act) {
    this.bounds = bounds;
    /** @type {Session | null} */
    this.session = null;
    /** @type {string | null | undefined} */
    this.shownError = null;
    /** @type {string | null} */
    this.shownAccount = null;
    this.badge = el("span", { class: "badge", "data-testid": "engine-state" });
    this.title = el("span");
    this.facts = el("span", { class: "muted small", "data-testid": "engine-facts" });
    this.close = el("button", { type: "button", class: "quiet", "data-testid": "engine-close" }, "Close");
    this.close.addEventListener("click", () => this.session && act("DELETE", this.session));
    this.again = el("button", { type: "button", class: "quiet", "data-testid": "engine-again" }, "Try again");
    this.again.addEventListener("click", () => this.session && act("POST", this.session));
    this.loading = el("span", { class: "small muted" });
    this.progress = el("div", { class: "progress" }, el("progress", { "aria-label": "Engine loading" }), this.loading);
    this.failure = el("div", { class: "note bad" });
    this.account = el("div", { class: "account", "data-testid": "engine-account" });
    const head = el("div", { class: "buttons" }, this.badge, this.title, this.facts, el("span", { class: "buttons split" }, this.again, this.close));
    this.element = el("li", { "data-testid": "engine-row" }, head, this.progress, this.failure, this.account);
  }

  /** @param {Session} session */
  update(session) {
    const { state, args, source, selection, engine, error } = session;
    if (this.session && this.session.state !== state && !BEGUN.has(state)) announce(`The engine is ${state}`);
    this.session = session;
    setText(this.badge, state);
    this.badge.dataset.state = state;
    const whole = source === "original" ? "The original of this trace" : "All of this trace";
    const part = selection === null ? whole : wordsOf(selection, this.bounds).join(" · ");
    setText(this.title, [part, ARGS[args]].filter(Boolean).join(", "));
    this.close.setAttribute("aria-label", `Close the engine on: ${this.title.textContent}`);
    setText(this.facts, factsOf(session));
    this.facts.title = engine.peak_bytes === null ? "" : `at most ${bytes(engine.peak_bytes)} so far; ${bytes(engine.predicted_bytes)} were expected`;
    this.again.hidden = state !== "failed";
    this.progress.hidden = !BEGUN.has(state);
    setText(this.loading, progressOf(session));
    if (error === null) hideProblem(this.failure);
    else if (this.shownError !== error.detail) showProblem(this.failure, error);
    this.shownError = error?.detail ?? null;
    this.showAccount(session);
  }

  /**
   * Show the account, once: it does not change, and a text selection in it stays.
   * @param {Session} session
   */
  showAccount({ account, account_reason: reason, stats }) {
    const isKnown = account !== null || stats !== null;
    const key = isKnown ? writeExact([account, stats]) : "";
    this.account.hidden = !isKnown;
    if (isKnown && this.shownAccount !== key) this.account.replaceChildren(...(account === null ? factsOfOriginal(reason, stats ?? []) : accountOf(account)));
    this.shownAccount = key;
  }
}

/**
 * Describe how far an engine has loaded. The size of its document is known only at its end.
 * @param {Session} session
 */
export function progressOf({ state, progress }) {
  if (state === "waiting") return "Waiting until other engines have ended.";
  const what = progress.events_total === null ? "the original" : plural(progress.events_total, "event");
  return `Loading ${what}: ${bytes(progress.bytes)} so far.`;
}

/** @param {Session} session */
function factsOf({ engine, load_s: seconds, clients, queries, waiting }) {
  const facts = [];
  if (engine.rss_bytes !== null) facts.push(`${bytes(engine.rss_bytes)} of memory`);
  if (seconds !== null) facts.push(`loaded in ${Number(seconds).toFixed(2)} s`);
  if (Number(clients) > 0) facts.push(`open in ${plural(clients, "tab")}`);
  if (Number(queries) > 0) facts.push(Number(queries) === 1 ? "1 query" : `${count(queries)} queries`);
  if (Number(waiting) > 0) facts.push(`${count(waiting)} waiting`);
  if (Number(engine.restarts) > 0) facts.push(`died ${plural(engine.restarts, "time")} recently`);
  return facts.join(" · ");
}

/** @param {Account} account */
function accountOf(account) {
  const { complete, lanes, base_ns: base, notes, stats } = account;
  const exactly = [`${count(account.shown)} of ${count(account.events)} events`, ...KINDS.map((kind) => partOf(kind, account[kind]))];
  const shown = el("strong", { class: complete ? null : "bad", title: exactly.join("; ") }, `${shownOf(account)} events shown`);
  const more = [];
  if (Number(lanes) > 0) more.push(`${plural(lanes, "lane")} added for slices that overlap`);
  more.push(["its time 0 is ", el("span", { class: "mono" }, String(base)), " ns on the trace's clock"]);
  const line = el("p", {}, shown, el("span", { class: "muted small" }, more.flatMap((part) => [" · ", part].flat())));
  const missing = complete ? null : el("p", { class: "bad" }, `Not all events are shown: ${exactly.slice(1).join("; ")}.`);
  const listed = [...notes.map(noteOf), ...stats.map(complaintOf)];
  return [line, missing, listed.length > 0 ? el("ul", { class: "notes small" }, listed) : null].filter((node) => node !== null);
}

/**
 * Why there is no account of an original, and what the engine's importer reports.
 * @param {string | null} reason
 * @param {EngineStat[]} stats
 */
function factsOfOriginal(reason, stats) {
  const line = el("p", {}, stats.length > 0 ? "" : "The engine's importer reports no error and no loss of data. ", el("span", { class: "muted small" }, reason ?? ""));
  return stats.length > 0 ? [line, el("ul", { class: "notes small" }, stats.map(complaintOf))] : [line];
}

const WORDS = { slices: "slices", flows: "arrows", counters: "values of counters" };
/**
 * @param {Kind} kind
 * @param {Shown} shown
 */
const partOf = (kind, { expected, engine }) => `${count(engine)} of ${count(expected)} ${WORDS[kind]}`;

/**
 * "54,906 of 54,906"; rounded as in "12 of 12 M" only where no event is missing.
 * @param {Account} account
 */
function shownOf({ events, shown }) {
  if (Number(events) < MILLION || String(events) !== String(shown)) return `${count(shown)} of ${count(events)}`;
  const millions = Number((Number(events) / MILLION).toPrecision(3));
  return `${millions} of ${millions} M`;
}

/** @type {Record<string, string>} */
const SEVERITIES = { error: "an error", data_loss: "a loss of data", info: "a detail" };

/**
 * @param {Int} n
 * @returns {Child[]}
 */
const times = (n) => (Number(n) > 1 ? [el("strong", {}, `${count(n)} ×`), " "] : []);

/** @param {EngineNote} note */
const noteOf = ({ code, count: n, detail }) => el("li", {}, ...times(n), detail, " ", el("code", { class: "code" }, code));

/** @param {EngineStat} stat */
function complaintOf({ name, value, severity, detail }) {
  return el("li", {}, ...times(value), `The engine's importer reports ${SEVERITIES[severity] ?? severity}: ${detail ?? ""} `, el("code", { class: "code" }, name));
}
