// The list of facts of a trace's page.
import { groupPageOf, pageOf } from "./api.js";
import { copyButton, el } from "./dom.js";
import { bytes, count, duration, isoNs, plural, rank, span } from "./format.js";
import { wordsOf } from "./selection.js";

const NOT_YET = "not known yet";

/**
 * Fill the list of facts. Facts that did not change since `last` stay as they are, so that text selected in them stays selected.
 * A trace that could not be read shows only its known facts.
 * @param {HTMLElement} list
 * @param {ShownTrace} trace
 * @param {ShownTrace | null} last
 */
export function showFacts(list, trace, last) {
  const failed = trace.state === "failed";
  const unread = trace.state === "ready" ? "unknown" : NOT_YET;
  for (const { name, value, of, optional = false } of FACTS) {
    const key = JSON.stringify([unread, failed, of(trace)], bigintAsText);
    /** @type {HTMLElement | null} */
    const old = list.querySelector(`[data-fact="${name}"]`);
    if (last && old?.dataset.key === key) continue;
    const known = value(trace);
    const fact = el("div", { "data-fact": name, "data-key": key }, el("dt", {}, name), el("dd", {}, ...[known ?? unknown(unread)].flat()));
    fact.hidden = (failed || optional) && known === null;
    if (old) old.replaceWith(fact);
    else list.append(fact);
  }
}

/**
 * The most important facts in one line: "rank 0 of 2 · 3 steps · 124.5 ms · 4,321 events · A100 · 12 MB".
 * @param {Trace} trace
 */
export function headlineOf(trace) {
  const { bounds, devices, events, ranks, size, state, steps_count: steps } = trace;
  const names = [...new Set(devices.filter((device) => Number(device.events) > 0 && device.name !== null).map(({ name }) => name))];
  const facts = [
    ranks.length > 0 ? plural(ranks.length, "rank") : trace.rank === null && trace.world_size === null ? null : `rank ${rank(trace)}`,
    state === "ready" ? plural(steps, "step") : null,
    bounds === null ? null : duration(span(bounds)),
    state === "ready" ? plural(events.kept, "event") : null,
    names.join(", "),
    trace.host,
    bytes(size),
  ];
  return facts.filter(Boolean).join(" · ");
}

/**
 * @param {string} _key
 * @param {unknown} value
 */
const bigintAsText = (_key, value) => (typeof value === "bigint" ? String(value) : value);
/** @param {string} text */
const unknown = (text) => el("span", { class: "muted" }, text);
/**
 * @param {string} text
 * @param {Record<string, string>} attributes
 */
const mono = (text, attributes = {}) => el("span", { class: "mono", ...attributes }, text);
/** @param {...Children} parts */
const lines = (...parts) => parts.map((part) => el("div", {}, part));

/** @type {{ name: string, optional?: boolean, of: (trace: ShownTrace) => unknown, value: (trace: ShownTrace) => Children | Children[] }[]} */
const FACTS = [
  {
    name: "Cut from",
    optional: true,
    of: (t) => [t.parent, t.parent_trace?.name, t.selection],
    value: ({ parent, parent_trace: whole, selection }) => {
      if (parent === null) return null;
      const words = wordsOf(selection ?? {}, whole?.bounds).map((word) => el("li", {}, word));
      return [el("div", {}, whole ? el("a", { href: pageOf(parent) }, whole.name) : [mono(parent), ", which is gone"]), el("ul", { class: "words" }, words)];
    },
  },
  {
    name: "Group",
    optional: true,
    of: (t) => t.group,
    value: ({ group }) => (group ? el("a", { href: groupPageOf(group.id) }, group.name) : null),
  },
  {
    name: "Rank",
    of: (t) => [t.rank, t.world_size, t.backend, t.ranks?.length],
    value: (t) => {
      if (t.ranks?.length > 0) {
        const all = `${t.ranks.map((merged) => merged.rank).join(", ")}${t.world_size === null ? "" : ` of ${t.world_size}`}`;
        return lines(`${t.ranks.length === 1 ? "" : "ranks "}${all}`, el("span", { class: "small muted" }, ["merged", t.backend].filter(Boolean).join(" · ")));
      }
      if (t.rank === null && t.world_size === null && t.backend === null) return null;
      return lines(rank(t), ...(t.backend ? [el("span", { class: "small muted" }, t.backend)] : []));
    },
  },
  {
    name: "Events",
    of: (t) => [t.state, t.events],
    value: ({ state, events }) => {
      if (state !== "ready" && Number(events.in) === 0) return null;
      if (state === "failed") return lines(count(events.in), el("span", { class: "small muted" }, "read before it failed"));
      const same = Number(events.refused) === 0 && String(events.in) === String(events.kept);
      const parts = same ? "all kept" : `${count(events.in)} in, ${count(events.refused)} refused`;
      return lines(count(events.kept), el("span", { class: "small muted" }, parts));
    },
  },
  {
    name: "Span",
    of: (t) => t.bounds,
    value: ({ bounds }) => {
      if (!bounds) return null;
      return lines(
        `${duration(span(bounds))}`,
        el("span", { class: "small" }, mono(`${span(bounds)} ns`)),
        el("span", { class: "small" }, "from ", mono(`${bounds.start_ns}`)),
        el("span", { class: "small" }, "to ", mono(`${bounds.end_ns}`)),
      );
    },
  },
  {
    name: "Base time",
    of: (t) => t.base_ns,
    value: ({ base_ns }) => {
      if (base_ns === null) return null;
      return lines(el("time", { datetime: isoNs(base_ns), class: "mono" }, isoNs(base_ns)), el("span", { class: "small" }, mono(`${base_ns} ns`)));
    },
  },
  {
    name: "Size and format",
    of: (t) => [t.size, t.format, t.sha256],
    value: ({ size, format, sha256 }) =>
      lines([bytes(size), " ", format === null ? "" : el("code", {}, format)], el("span", { class: "small muted" }, `${count(size)} bytes${sha256 === null ? " of columns, made here" : ""}`)),
  },
  {
    name: "SHA-256",
    optional: true,
    of: (t) => t.sha256,
    value: ({ sha256 }) =>
      sha256 ? [mono(`${sha256.slice(0, 12)}…`, { title: sha256 }), " ", copyButton(sha256, "Copy the SHA-256")] : null,
  },
  {
    name: "File on the server",
    optional: true,
    of: (t) => t.path,
    value: ({ path }) => (path ? mono(path) : null),
  },
  { name: "Host", of: (t) => t.host, value: ({ host }) => host },
  {
    name: "Here since",
    of: (t) => t.created_at,
    value: ({ created_at }) => el("time", { datetime: created_at }, `${created_at.replace("T", " ").slice(0, 19)} UTC`),
  },
];
