// Example queries by topic. They run on every trace: what a trace lacks gives no rows.

/** @typedef {{ label: string, sql: string }} Example */

const TOP_KERNELS = {
  label: "Top kernels",
  sql: `INCLUDE PERFETTO MODULE torch.kernels;
SELECT name, count(*) AS n, sum(dur) AS dur_ns, cast(avg(dur) AS int) AS avg_ns, max(dur) AS max_ns
FROM torch_kernel
WHERE category = 'kernel'
GROUP BY name
ORDER BY dur_ns DESC
LIMIT 50`,
};

const TOP_OPERATORS = {
  label: "Operators by self time",
  sql: `INCLUDE PERFETTO MODULE torch.ops;
SELECT name, count(*) AS calls, sum(self_dur) AS self_ns, sum(kernel_dur) AS kernel_ns
FROM torch_op
GROUP BY name
ORDER BY self_ns DESC
LIMIT 50`,
};

const TIME_ON_CPUS = {
  label: "Time of threads on CPUs",
  sql: `SELECT process.pid, process.name AS process, thread.tid, thread.name AS thread,
       count(*) AS turns, sum(sched.dur) AS dur_ns
FROM sched
JOIN thread USING (utid)
LEFT JOIN process USING (upid)
WHERE sched.dur > 0 AND thread.tid > 0
GROUP BY utid
ORDER BY dur_ns DESC
LIMIT 50`,
};

/** @type {{ topic: string, queries: Example[] }[]} */
export const EXAMPLES = [
  {
    topic: "Kernels",
    queries: [
      TOP_KERNELS,
      {
        label: "Kernels by operator",
        sql: `INCLUDE PERFETTO MODULE torch.kernels;
SELECT op_name, count(*) AS n, sum(dur) AS dur_ns
FROM torch_kernel
WHERE category = 'kernel'
GROUP BY op_name
ORDER BY dur_ns DESC
LIMIT 50`,
      },
      {
        label: "Longest waits after a launch",
        sql: `INCLUDE PERFETTO MODULE torch.kernels;
SELECT name, step, stream, op_name, delay AS delay_ns, dur AS dur_ns
FROM torch_kernel
ORDER BY delay_ns DESC
LIMIT 50`,
      },
      {
        label: "Longest gaps of each stream",
        sql: `INCLUDE PERFETTO MODULE torch.kernels;
SELECT rank, device, stream, step, op_name AS ended_by,
       ts - lag(ts + dur) OVER (PARTITION BY rank, device, stream ORDER BY ts) AS gap_ns
FROM torch_kernel
ORDER BY gap_ns DESC
LIMIT 50`,
      },
      {
        label: "Copies",
        sql: `INCLUDE PERFETTO MODULE torch.kernels;
SELECT category, name, count(*) AS n, sum(dur) AS dur_ns, sum(bytes) AS bytes
FROM torch_kernel
WHERE category IN ('memcpy', 'memset')
GROUP BY category, name
ORDER BY dur_ns DESC`,
      },
    ],
  },
  {
    topic: "Steps and operators",
    queries: [
      {
        label: "Steps",
        sql: `INCLUDE PERFETTO MODULE torch.steps;
SELECT step, dur AS dur_ns, dur - lag(dur) OVER (PARTITION BY rank ORDER BY ts) AS longer_by_ns, rank
FROM torch_step
ORDER BY ts`,
      },
      {
        label: "Kernel time of each step",
        sql: `INCLUDE PERFETTO MODULE torch.kernels;
SELECT step, count(*) AS n, sum(dur) AS dur_ns, rank
FROM torch_kernel
GROUP BY rank, step
ORDER BY step, rank`,
      },
      TOP_OPERATORS,
      {
        label: "Matrix products by shape",
        sql: `INCLUDE PERFETTO MODULE torch.ops;
SELECT input_dims, count(*) AS n, sum(kernel_dur) AS kernel_ns
FROM torch_op
WHERE name IN ('aten::mm', 'aten::bmm', 'aten::addmm') AND input_dims IS NOT NULL
GROUP BY input_dims
ORDER BY kernel_ns DESC`,
      },
    ],
  },
  {
    topic: "Communication and memory",
    queries: [
      {
        label: "Collectives",
        sql: `INCLUDE PERFETTO MODULE torch.collectives;
SELECT rank, seq, step, size_bytes, dur AS dur_ns, cast(size_bytes AS real) / dur AS gb_per_s
FROM torch_collective
ORDER BY dur DESC
LIMIT 200`,
      },
      {
        label: "Memory over time",
        sql: `INCLUDE PERFETTO MODULE torch.memory;
SELECT min(ts) AS ts, max(total_allocated) AS highest_bytes, min(total_allocated) AS lowest_bytes
FROM torch_memory
WHERE device_type = 1
GROUP BY ts / ((SELECT max(ts) - min(ts) FROM torch_memory) / 2000 + 1)
ORDER BY ts`,
      },
    ],
  },
  {
    topic: "The trace itself",
    queries: [
      TIME_ON_CPUS,
      {
        label: "Time by thread and stream",
        sql: `SELECT process.pid, process.name AS process, thread.tid, thread.name AS thread,
       count(*) AS outermost_slices, sum(slice.dur) AS dur_ns
FROM slice
LEFT JOIN slice AS parent ON slice.parent_id = parent.id
JOIN thread_track ON slice.track_id = thread_track.id
JOIN thread USING (utid)
LEFT JOIN process USING (upid)
WHERE slice.category IS NOT 'gpu_user_annotation'
  AND (parent.id IS NULL OR parent.category = 'gpu_user_annotation')
GROUP BY utid
ORDER BY dur_ns DESC`,
      },
      {
        label: "Import issues",
        sql: `SELECT name, severity, value, description
FROM stats
WHERE value > 0 AND severity != 'info'
ORDER BY value DESC`,
      },
    ],
  },
];

/**
 * The first example to show: the kernels of a trace, or its operators if it has no kernels; of a trace without events,
 * what the scheduler did.
 * @param {Trace} trace
 */
export function firstExample({ counts, sources }) {
  if (!sources.includes("columns")) return TIME_ON_CPUS;
  return ["kernel", "Kernel"].some((category) => Number(counts[`X|${category}`] ?? 0) > 0) ? TOP_KERNELS : TOP_OPERATORS;
}
