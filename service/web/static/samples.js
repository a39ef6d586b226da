// Sample queries. They need no SQL package, so they run on every trace. A category that the trace lacks gives no rows.

const TOP_KERNELS = {
  label: "Top kernels",
  sql: `select name, count(*) as n, sum(dur) as dur_ns, cast(avg(dur) as int) as avg_ns, max(dur) as max_ns
from slice
where category = 'kernel'
group by name
order by dur_ns desc
limit 50`,
};

const TOP_OPERATORS = {
  label: "Top operators",
  sql: `select name, count(*) as n, sum(dur) as dur_ns, max(dur) as max_ns
from slice
where category = 'cpu_op'
group by name
order by dur_ns desc
limit 50`,
};

export const SAMPLES = [
  TOP_KERNELS,
  {
    label: "Time by thread and stream",
    sql: `select process.pid, process.name as process, thread.tid, thread.name as thread,
       count(*) as slices, sum(slice.dur) as dur_ns
from slice
join thread_track on slice.track_id = thread_track.id
join thread using (utid)
left join process using (upid)
group by utid
order by dur_ns desc`,
  },
  TOP_OPERATORS,
  {
    label: "Steps",
    sql: `select slice.name, process.pid, thread.tid, slice.category, slice.ts, slice.dur
from slice
join thread_track on slice.track_id = thread_track.id
join thread using (utid)
left join process using (upid)
where slice.name glob 'ProfilerStep#*'
order by slice.ts`,
  },
  {
    label: "Copies",
    sql: `select category, name, count(*) as n, sum(dur) as dur_ns,
       sum(extract_arg(arg_set_id, 'args.bytes')) as bytes
from slice
where category in ('gpu_memcpy', 'gpu_memset')
group by category, name
order by dur_ns desc`,
  },
  {
    label: "Longest launch latencies",
    sql: `select kernel.name as kernel, launch.name as launch,
       kernel.ts - launch.ts as latency_ns, kernel.dur as kernel_ns
from flow
join slice launch on launch.id = flow.slice_out
join slice kernel on kernel.id = flow.slice_in
where kernel.category = 'kernel'
order by latency_ns desc
limit 50`,
  },
  {
    label: "Import issues",
    sql: `select name, severity, value, description
from stats
where value > 0 and severity != 'info'
order by value desc`,
  },
];

/**
 * The first sample to show: the kernels of a trace, or its operators if it has no kernels.
 * @param {Trace} trace
 */
export const firstSample = ({ counts }) => (Number(counts["X|kernel"] ?? 0) > 0 ? TOP_KERNELS : TOP_OPERATORS);
