// The panel "Cut": a selection of a trace, its size, and the ways to open, download or split it.
import { Problem, api, postJson } from "./api.js";
import { Choices } from "./choices.js";
import { byId, setText } from "./dom.js";
import { bytes, count, duration, plural, span } from "./format.js";
import { JobView } from "./job.js";
import { MB, MS, US, WHOLE, downloadOf, exactly, inUnit, isEmpty, openLink, perfettoOf } from "./selection.js";

const TYPED_MS = 250; // pause in typing after which the selection is counted
const CLOSURE = ["metadata", "flows", "launches", "kernels", "annotations"];

/**
 * Ways to split that take a value: its unit, its label, and one to begin with.
 * @type {Record<string, { unit: { name: string, decimals: number }, label: string, first: string }>}
 */
const VALUED = {
  parts: { unit: WHOLE, label: "Number of parts", first: "10" },
  duration: { unit: MS, label: "ms of each piece", first: "100" },
  size: { unit: MB, label: "MB of each piece, at most", first: "100" },
};

/**
 * Wire the panel for a ready trace; `onMade` is called when a job has made traces of it.
 * @param {Trace} trace
 * @param {{ onMade: (ids: string[]) => unknown }} handlers
 */
export function startCut(trace, { onMade }) {
  const lists = listsOf(trace, changed);
  byId("cut-lists").replaceChildren(...Object.values(lists).map(({ element }) => element));
  const excluded = categoriesOf(trace, "Leave out categories", "cut-without", changed);
  byId("cut-excluded").replaceChildren(...(excluded ? [excluded.element] : []));
  byId("cut-end").placeholder = trace.bounds ? inUnit(span(trace.bounds), MS) : "";

  const job = new JobView(`job of ${trace.id}`, { onMade, onBusy: () => showActions() });
  byId("cut-job").replaceChildren(job.element);

  /** @type {TraceSelection} */
  let selection = {};
  /** @type {{ events: Int, pieces: { size: Int }[] } | null} */
  let keeps = null; // the result of a dry run of the selection
  /** @type {string | null} */
  let fault = null; // why there is no result

  /** Read the selection from the form, without defaults. Throws a RangeError if a field can't be read. */
  function read() {
    /** @type {Record<string, any>} */
    const wanted = {};
    for (const [name, list] of Object.entries(lists)) if (list.chosen) wanted[name] = list.chosen;
    const [start, end] = [field("cut-start", MS), field("cut-end", MS)];
    if (start !== null || end !== null) wanted.window = { start_ns: start ?? undefined, end_ns: end ?? undefined, relative: true };
    const least = field("cut-least", US);
    if (least !== null) wanted.min_dur_ns = least;
    if (byId("cut-name").value) wanted.names = [byId("cut-name").value];
    if (byId("cut-straddle").value !== "keep") wanted.straddle = byId("cut-straddle").value;
    const off = CLOSURE.filter((name) => !byId(`cut-${name}`).checked);
    if (off.length > 0) wanted.closure = Object.fromEntries(off.map((name) => [name, false]));
    const exclude = {};
    if (excluded?.chosen) exclude.categories = excluded.chosen;
    if (byId("cut-without-name").value) exclude.names = [byId("cut-without-name").value];
    if (!isEmpty(exclude)) wanted.exclude = exclude;
    return wanted;
  }

  function changed() {
    keeps = null;
    fault = null;
    try {
      selection = read();
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      fault = error.message;
    }
    showActions();
    showKeeps();
    countEvents();
  }

  function showActions() {
    const usable = fault === null;
    setHref(byId("cut-open"), usable ? perfettoOf(trace.id, selection) : null);
    setHref(byId("cut-download"), usable ? downloadOf(trace.id, selection) : null);
    setHref(byId("cut-download-pftrace"), usable ? downloadOf(trace.id, selection, "pftrace") : null);
    byId("cut-make").setAttribute("aria-disabled", String(!usable || isEmpty(selection) || job.busy));
    byId("cut-split").setAttribute("aria-disabled", String(!usable || job.busy));
  }

  function showKeeps() {
    const line = byId("cut-keeps");
    line.classList.toggle("bad", fault !== null);
    const whole = count(trace.events.kept);
    line.classList.toggle("stale", false);
    if (fault !== null) setText(line, fault);
    else if (isEmpty(selection)) setText(line, `Nothing is chosen here: the selection is the whole trace, ${plural(trace.events.kept, "event")}.`);
    else if (keeps) setText(line, `${plural(keeps.events, "event")} of ${whole} · about ${bytes(keeps.pieces.reduce((sum, { size }) => sum + Number(size), 0))}`);
    else if (line.textContent === "") setText(line, "Counting…");
    else line.classList.toggle("stale", true); // the line still describes the selection before
  }

  const countEvents = oneAtATime(async () => {
    if (fault !== null || isEmpty(selection)) return;
    const counted = selection;
    /** @type {[typeof keeps, string | null]} */
    let [result, reason] = [null, null];
    try {
      result = await postJson(api("traces", trace.id, "split"), { selection: counted, dry_run: true });
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      reason = error.detail || error.title;
    }
    if (counted !== selection || fault !== null) return; // the form has changed since
    [keeps, fault] = [result, reason];
    showActions();
    showKeeps();
  });

  /**
   * @param {string | null} by
   * @param {bigint | null} value
   */
  function make(by, value) {
    job.start(api("traces", trace.id, "split"), { selection, by, value });
  }

  for (const name of ["start", "end", "least", "name", "straddle", "without-name"]) byId(`cut-${name}`).addEventListener("input", changed);
  for (const name of CLOSURE) byId(`cut-${name}`).addEventListener("change", changed);
  byId("cut-make").addEventListener("click", (event) => isUsable(event) && make(null, null));
  startSplit(trace, make);
  changed();
  job.resume();
  byId("cut").hidden = false;
}

/**
 * The choice of a way to split, and its button.
 * @param {Trace} trace
 * @param {(by: string, value: bigint | null) => void} make
 */
function startSplit(trace, make) {
  const [by, value, problem] = [byId("cut-by"), byId("cut-value"), byId("cut-split-problem")];
  const distinct = new Set(trace.steps.map(({ number }) => String(number))).size;
  /** @type {Record<string, number>} */
  const pieces = { step: distinct, stream: trace.streams.length, device: usedDevices(trace).length, rank: trace.ranks.length };
  for (const option of [...by.options]) if (pieces[option.value] === 0) option.remove();
  const showValue = () => {
    const valued = VALUED[by.value];
    value.disabled = !valued;
    value.value = valued?.first ?? "";
    value.setAttribute("aria-label", valued?.label ?? "Value");
    setText(problem, "");
  };
  by.addEventListener("change", showValue);
  value.addEventListener("input", () => setText(problem, ""));
  byId("cut-split").addEventListener("click", (event) => {
    if (!isUsable(event)) return;
    try {
      const valued = VALUED[by.value];
      const size = valued ? exactly(value.value, valued.unit) : null;
      if (valued && !size) throw new RangeError(`${valued.label}: more than 0.`);
      make(by.value, size);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      setText(problem, error.message);
      value.focus();
    }
  });
  showValue();
}

/** @param {Event} event */
const isUsable = ({ currentTarget }) => /** @type {Element} */ (currentTarget).getAttribute("aria-disabled") !== "true";

/**
 * Read a field of decimals, and mark it as invalid if it can't be read.
 * @param {`cut-${string}`} id
 * @param {{ name: string, decimals: number }} unit
 */
function field(id, unit) {
  const input = byId(id);
  try {
    const value = exactly(input.value, unit);
    input.removeAttribute("aria-invalid");
    return value;
  } catch (error) {
    input.setAttribute("aria-invalid", "true");
    throw error;
  }
}

/**
 * Set the address of a link; null disables it.
 * @param {HTMLAnchorElement} link
 * @param {string | null} href
 */
function setHref(link, href) {
  if (href === null) link.removeAttribute("href");
  else link.href = href;
  link.setAttribute("aria-disabled", String(href === null));
}

/**
 * Return a function that calls `work` after a pause in its own calls. Calls do not overlap: one that comes during the
 * work repeats it afterwards.
 * @param {() => Promise<void>} work
 */
function oneAtATime(work) {
  let timer = 0;
  let working = false;
  let again = false;
  async function run() {
    if (working) {
      again = true;
      return;
    }
    working = true;
    try {
      do {
        again = false;
        await work();
      } while (again);
    } finally {
      working = false;
    }
  }
  return () => {
    clearTimeout(timer);
    timer = setTimeout(run, TYPED_MS);
  };
}

// -- the lists -----------------------------------------------------------------------------------------------------------

/**
 * @param {Trace} trace
 * @param {() => void} onChange
 * @returns {Record<string, Choices>}
 */
function listsOf(trace, onChange) {
  /**
   * @param {string} title
   * @param {string} testid
   * @param {import("./choices.js").Item[]} items
   */
  const make = (title, testid, items) => (items.length > 0 ? new Choices({ title, testid, items, onChange }) : null);
  const lists = {
    ranks: make("Ranks", "cut-ranks", trace.ranks.map(({ rank, name }) => ({ value: rank, text: `Rank ${rank}`, more: name }))),
    steps: make("Steps", "cut-steps", stepsOf(trace)),
    streams: make("Streams", "cut-streams", streamsOf(trace)),
    devices: make("Devices", "cut-devices", usedDevices(trace).map(({ id, name, events }) => ({ value: id, text: `Device ${id}`, more: [name, plural(events ?? 0, "event")].filter(Boolean).join(", ") }))),
    categories: categoriesOf(trace, "Categories", "cut-categories", onChange),
  };
  return Object.fromEntries(Object.entries(lists).flatMap(([name, list]) => (list ? [[name, list]] : [])));
}

/**
 * Steps by number; steps of the same number are one item.
 * @param {Trace} trace
 */
function stepsOf({ id, steps }) {
  /** @type {Map<string, Step[]>} */
  const byNumber = new Map();
  for (const step of steps) {
    const key = String(step.number);
    if (!byNumber.has(key)) byNumber.set(key, []);
    byNumber.get(key)?.push(step);
  }
  return [...byNumber.values()].map((same) => {
    const [{ number }] = same;
    const longest = same.map(span).reduce((a, b) => (a > b ? a : b));
    const more = same.length > 1 ? `${count(same.length)} times, up to ${duration(longest)}` : duration(longest);
    return { value: number, text: `Step ${number}`, more, link: openLink(id, { steps: [number] }, `step ${number}`) };
  });
}

/** @param {Trace} trace */
function streamsOf({ id, streams, threads }) {
  const events = new Map(threads.map((thread) => [`${thread.pid}/${thread.tid}`, thread.events]));
  return streams.map((stream) => ({
    value: stream,
    text: stream,
    more: events.has(stream) ? plural(events.get(stream) ?? 0, "event") : null,
    link: openLink(id, { streams: [stream] }, `stream ${stream}`),
  }));
}

/**
 * The devices that have a number and events.
 * @param {Trace} trace
 */
const usedDevices = ({ devices }) => devices.filter(({ id, events }) => typeof id !== "string" && Number(events) > 0);

/**
 * @param {Trace} trace
 * @param {string} title
 * @param {string} testid
 * @param {() => void} onChange
 */
function categoriesOf({ counts }, title, testid, onChange) {
  const sums = new Map();
  for (const [key, n] of Object.entries(counts)) {
    const category = key.slice(key.indexOf("|") + 1);
    sums.set(category, (sums.get(category) ?? 0n) + BigInt(n));
  }
  if (sums.size === 0) return null;
  const items = [...sums].sort(([, a], [, b]) => (a < b ? 1 : a > b ? -1 : 0));
  return new Choices({ title, testid, onChange, items: items.map(([value, n]) => ({ value, text: value || "none", more: plural(n, "event") })) });
}
