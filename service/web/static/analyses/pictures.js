// The pictures of each analysis, drawn from its tables and nothing else.
import { annotations, callStacks, memory, modules, operators } from "./host_pictures.js";
import { collectives, gpuSummary, kernelBreakdown, kernelSequences, launchStats, memoryBandwidth, queueLength } from "./kernel_pictures.js";
import { memorySnapshot } from "./snapshot_pictures.js";
import { commOverlap, criticalPath, dataloader, idleBreakdown, steps, temporalBreakdown } from "./time_pictures.js";

/** @typedef {Record<string, import("../records.js").Row[]>} Tables by name, with records as rows */
/** @typedef {(tables: Tables, start: bigint) => (HTMLElement | null)[]} Picture null where the tables have nothing to draw; times count from `start` */

/** @type {Record<string, Picture>} */
const PICTURES = {
  annotations,
  call_stacks: callStacks,
  collectives,
  comm_overlap: commOverlap,
  critical_path: criticalPath,
  dataloader,
  gpu_summary: gpuSummary,
  idle_breakdown: idleBreakdown,
  kernel_breakdown: kernelBreakdown,
  kernel_sequences: kernelSequences,
  launch_stats: launchStats,
  memory,
  memory_bandwidth: memoryBandwidth,
  memory_snapshot: memorySnapshot,
  modules,
  operators,
  queue_length: queueLength,
  steps,
  temporal_breakdown: temporalBreakdown,
};

/**
 * Draw the pictures of an analysis; none if its tables have nothing to draw.
 * @param {string} name
 * @param {Tables} tables
 * @param {bigint} start of the trace, in ns on its clock
 */
export const picturesOf = (name, tables, start) => (PICTURES[name]?.(tables, start) ?? []).filter((picture) => picture !== null);
