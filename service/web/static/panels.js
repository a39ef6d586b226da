// The tables of a trace: steps, counts, devices and processes; and its health.
import { pageOf } from "./api.js";
import { bar, byId, el, table } from "./dom.js";
import { bytes, count, duration, plural, span } from "./format.js";
import { healthOf } from "./health.js";
import { US, inUnit, openLink, wordsOf } from "./selection.js";

const SHORT = 12; // rows of a table before "Show all"

/** @type {Record<string, string>} */
const PHASES = {
  X: "complete", B: "begin", E: "end", i: "instant", I: "instant", C: "counter", M: "metadata",
  s: "flow start", t: "flow step", f: "flow end", b: "async begin", n: "async instant", e: "async end",
  N: "object created", O: "object snapshot", D: "object destroyed", P: "sample",
};

/**
 * Fill and show each panel that has content.
 * @param {Trace} trace
 */
export function showPanels(trace) {
  panel("health", healthOf(trace));
  if (trace.state !== "ready") return;
  panel("ranks", ranksOf(trace));
  panel("steps", stepsOf(trace));
  panel("counts", countsOf(trace));
  panel("devices", devicesOf(trace));
  panel("processes", processesOf(trace));
}

/**
 * Fill the table of the traces that were cut out of one.
 * @param {TraceSummary[]} children
 * @param {Trace} trace
 */
export function showChildren(children, { bounds }) {
  if (children.length === 0) {
    panel("children", null);
    return;
  }
  const rows = children.map((child) => [
    el("a", { href: pageOf(child.id) }, child.name),
    el("span", { class: "small" }, wordsOf(child.selection ?? {}, bounds).join(" · ")),
    count(child.events.kept),
    bytes(child.size),
  ]);
  const headings = [column("Name", "name"), column("Keeps", "words"), column("Events", "number"), column("Size", "number")];
  panel("children", long(rows, (part) => table(headings, part), "traces"));
}

/**
 * @param {string} name
 * @param {Node | null} content
 */
function panel(name, content) {
  byId(name).hidden = content === null;
  if (content !== null) byId(`${name}-body`).replaceChildren(content);
}

/**
 * @param {string} text
 * @param {string} [kind]
 */
const column = (text, kind) => ({ text, class: kind });
const unknown = () => el("span", { class: "muted" }, "unknown");

/** @param {Trace} trace */
function stepsOf({ id, steps, bounds }) {
  if (steps.length === 0) return el("p", { class: "muted" }, "No ProfilerStep annotations in this trace.");
  const lengths = steps.map((step) => span(step));
  const longest = Number(lengths.reduce((a, b) => (a > b ? a : b)));
  const rows = steps.map((step, index) => [
    String(step.number),
    step.name,
    startOf(step, bounds),
    exact(lengths[index]),
    bar(Number(lengths[index]), longest),
    openLink(id, { steps: [step.number] }, `step ${step.number}`),
  ]);
  const headings = [column("Step", "number"), column("Name"), column("Start", "number"), column("Duration", "number"), column("", "bar"), column("")];
  return long(rows, (part) => table(headings, part), "steps");
}

/**
 * The shift of each rank to the common clock; null for a trace that was not merged.
 * @param {Trace} trace
 */
function ranksOf({ ranks }) {
  if (ranks.length === 0) return null;
  /** @param {Int | null} ns */
  const micros = (ns) => (ns === null ? unknown() : el("span", { title: `${ns} ns` }, inUnit(ns, US)));
  /** @param {Int | null} ns */
  const base = (ns) => (ns === null ? unknown() : el("span", { class: "mono" }, String(ns)));
  const rows = ranks.flatMap(({ rank, name, shift_ns, collectives, residual_ns: residual, base_ns, beside = [] }) => [
    [String(rank), name, micros(shift_ns), count(collectives), ...["median", "p95", "max"].map((key) => (residual ? micros(residual[key]) : "–")), base(base_ns)],
    ...beside.map((input) => [String(rank), `${input.name} (${input.kind.replaceAll("_", " ")})`, micros(input.shift_ns), "–", "–", "–", "–", base(input.base_ns)]),
  ]);
  /** @param {string} text */
  const number = (text) => column(text, "number");
  const headings = [number("Rank"), column("Trace", "name"), number("Clock shift, µs"), number("Collectives"), number("Apart, µs: median"), number("p95"), number("most"), number("Base time, ns")];
  return long(rows, (part) => table(headings, part), "ranks");
}

/**
 * The start of a step, relative to the trace's first event.
 * @param {Step} step
 * @param {Span | null} bounds
 */
function startOf({ start_ns }, bounds) {
  if (!bounds) return String(start_ns);
  return el("span", { title: `${start_ns} ns on the trace's clock` }, `+${duration(BigInt(start_ns) - BigInt(bounds.start_ns))}`);
}

/** @param {Int} ns */
const exact = (ns) => el("span", { title: `${ns} ns` }, duration(ns));

/** @param {Trace} trace */
function countsOf({ counts }) {
  const entries = Object.entries(counts).sort(([, a], [, b]) => Number(b) - Number(a));
  if (entries.length === 0) return el("p", { class: "muted" }, "No events.");
  const most = Number(entries[0][1]);
  const rows = entries.map(([key, n]) => {
    const cut = key.indexOf("|");
    const [phase, category] = [key.slice(0, cut), key.slice(cut + 1)];
    return [
      el("span", { class: "phase" }, el("code", {}, phase || "–"), " ", el("span", { class: "muted small" }, PHASES[phase] ?? "")),
      category || el("span", { class: "muted" }, "none"),
      count(n),
      bar(Number(n), most),
    ];
  });
  const headings = [column("Phase"), column("Category"), column("Events", "number"), column("", "bar")];
  return long(rows, (part) => table(headings, part), "kinds");
}

/** @param {Trace} trace */
function devicesOf({ devices, streams }) {
  const ofDevice = group(streams, deviceOf);
  const known = new Set(devices.map((device) => String(device.id)));
  const unnamed = [...ofDevice.keys()].filter((id) => !known.has(id)).map((id) => ({ id, name: null, memory_bytes: null, events: null }));
  const all = [...devices, ...unnamed];
  if (all.length === 0) return el("p", { class: "muted" }, "No device took part in this trace.");
  const used = all.filter((device) => device.events !== 0);
  const idle = all.filter((device) => device.events === 0);
  const rows = used.map((device) => [
    String(device.id),
    device.name ?? unknown(),
    device.memory_bytes === null ? unknown() : bytes(device.memory_bytes),
    device.events === null ? unknown() : count(device.events),
    el("span", { class: "chips" }, (ofDevice.get(String(device.id)) ?? []).map((stream) => el("code", {}, stream))),
  ]);
  const headings = [column("Device", "number"), column("Name"), column("Memory", "number"), column("Events", "number"), column("Streams")];
  const shown = rows.length > 0 ? long(rows, (part) => table(headings, part), "devices") : null;
  return el("div", { class: "stack" }, shown, idleOf(idle, used.length > 0));
}

/**
 * The devices without events: of eight GPUs that a process sees, often seven.
 * @param {Device[]} idle
 * @param {boolean} others
 */
function idleOf(idle, others) {
  if (idle.length === 0) return null;
  const names = new Set(idle.map((device) => device.name ?? "unknown"));
  const ids = idle.map((device) => device.id).join(", ");
  const which = idle.length === 1 ? "device" : "devices";
  return el("p", { class: "muted" }, `No event on ${others ? "the other " : ""}${which} ${ids} (${[...names].join(", ")}).`);
}

/** @param {string} stream */
const deviceOf = (stream) => stream.slice(0, stream.lastIndexOf("/"));

/**
 * @template Item
 * @param {Item[]} items
 * @param {(item: Item) => string} keyOf
 */
function group(items, keyOf) {
  /** @type {Map<string, Item[]>} */
  const groups = new Map();
  for (const item of items) {
    const key = keyOf(item);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key)?.push(item);
  }
  return groups;
}

/** @param {Trace} trace */
function processesOf({ processes, threads }) {
  if (processes.length === 0) return el("p", { class: "muted" }, "No processes in this trace.");
  const threadsOf = group(threads, (thread) => String(thread.pid));
  /** @param {Process} process */
  const detailsOf = (process) => processOf(process, threadsOf.get(String(process.pid)) ?? []);
  return long(processes, (part) => el("div", {}, part.map(detailsOf)), "processes");
}

/**
 * @param {Process} process
 * @param {Thread[]} threads
 */
function processOf(process, threads) {
  const summary = el(
    "summary",
    {},
    el("span", { class: "mono" }, idText(process.pid)),
    " ",
    process.name ?? "unnamed",
    process.labels ? el("span", { class: "tag" }, process.labels) : null,
    el("span", { class: "muted small" }, ` ${plural(threads.length, "thread")} · ${plural(process.events, "event")}`),
  );
  const details = el("details", {}, summary);
  // a trace may have thousands of threads: their rows are made when the process is opened
  details.addEventListener("toggle", () => details.append(threadsOf(threads)), { once: true });
  return details;
}

/**
 * An id as the trace has it; profilers also write empty ones.
 * @param {Int | string} id
 */
const idText = (id) => (id === "" ? '""' : String(id));

/** @param {Thread[]} threads */
function threadsOf(threads) {
  if (threads.length === 0) return el("p", { class: "muted" }, "No threads of its own.");
  const rows = threads.map(({ tid, name, events }) => [el("span", { class: "mono" }, idText(tid)), name ?? unknown(), count(events)]);
  return long(rows, (part) => table([column("Thread"), column("Name"), column("Events", "number")], part), "threads");
}

/**
 * Render the first rows, with a button that shows all where there are more.
 * @template Item
 * @param {Item[]} rows
 * @param {(rows: Item[]) => HTMLElement} render
 * @param {string} noun
 */
function long(rows, render, noun) {
  if (rows.length <= SHORT) return scrolled(render(rows));
  const shown = scrolled(render(rows.slice(0, SHORT)));
  const button = el("button", { type: "button", class: "quiet", "aria-expanded": "false" });
  /** @param {boolean} all */
  const show = (all) => {
    shown.replaceChildren(render(all ? rows : rows.slice(0, SHORT)));
    button.setAttribute("aria-expanded", String(all));
    button.textContent = all ? `Show the first ${SHORT}` : `Show all ${count(rows.length)} ${noun}`;
  };
  show(false);
  button.addEventListener("click", () => show(button.getAttribute("aria-expanded") === "false"));
  return el("div", {}, shown, button);
}

/** @param {HTMLElement} content */
const scrolled = (content) => el("div", { class: "scroll" }, content);
