// The analyses of a trace by theme, in the order of the gallery.

/** @type {[string, string[]][]} */
const THEMES = [
  ["Time", ["temporal_breakdown", "steps", "step_figures", "idle_breakdown", "comm_overlap"]],
  ["Kernels", ["kernel_breakdown", "kernel_sequences", "launch_stats", "queue_length", "gpu_summary", "counters"]],
  ["Operators", ["operators", "modules", "call_stacks", "annotations"]],
  ["Communication", ["collectives"]],
  ["Memory", ["memory", "memory_snapshot", "memory_bandwidth"]],
  ["Input", ["dataloader"]],
  ["Path", ["critical_path"]],
];

const ELSEWHERE = new Set(["overview", "slices", "compare", "compare_snapshots"]); // other parts of the page, or other pages, show them

/**
 * Return the analyses of each theme. Those of no theme come last, so that none is lost.
 * @param {Analysis[]} analyses
 * @returns {{ theme: string, entries: Analysis[] }[]}
 */
export function byTheme(analyses) {
  const known = new Map(analyses.map((analysis) => [analysis.name, analysis]));
  const themes = THEMES.map(([theme, names]) => ({ theme, entries: names.flatMap((name) => known.get(name) ?? []) }));
  const placed = new Set(THEMES.flatMap(([, names]) => names));
  const rest = analyses.filter(({ name }) => !placed.has(name) && !ELSEWHERE.has(name));
  return [...themes, { theme: "More", entries: rest }].filter(({ entries }) => entries.length > 0);
}

/** @param {string} name */
export const titleOf = (name) => name.replaceAll("_", " ").replace(/^./, (first) => first.toUpperCase()).replace(/^Gpu/, "GPU");
