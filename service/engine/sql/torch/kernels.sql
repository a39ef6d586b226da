-- Work of GPUs: kernels, copies and memsets with their launch, op and step.

INCLUDE PERFETTO MODULE torch.nesting;
INCLUDE PERFETTO MODULE torch.steps;

-- True if the slice `s` is an op that has not ended at `time`.
CREATE OR REPLACE PERFETTO MACRO _torch_lasts_as_op(s Expr, time Expr)
RETURNS Expr AS (
  $s.ts + $s.dur > $time
  AND _torch_is_op!($s.category, $s.name)
  AND $s.id NOT IN (SELECT id FROM _torch_left_out)
);

-- Work of GPUs with its arguments.
CREATE OR REPLACE PERFETTO TABLE _torch_work AS
SELECT
  s.id,
  s.ts,
  c.kind,
  l.rank,
  l.device,
  l.stream,
  _torch_integer!(s.arg_set_id, 'args.correlation') AS correlation,
  _torch_external_id!(s.arg_set_id) AS external_id,
  _torch_integer!(s.arg_set_id, 'args.bytes') AS bytes,
  _torch_integer!(s.arg_set_id, 'args.graph node id') AS graph_node_id
FROM slice AS s
JOIN _torch_lane AS l USING (track_id)
JOIN _torch_category AS c USING (category)
WHERE c.kind IN ('kernel', 'memcpy', 'memset')
ORDER BY s.id;

-- The call that launched work: for each rank and correlation id, the first call.
CREATE OR REPLACE PERFETTO TABLE _torch_call AS
SELECT correlation, rank, min(id) AS id
FROM (
  SELECT _torch_integer!(h.arg_set_id, 'args.correlation') AS correlation, h.rank, h.id
  FROM _torch_host_slice!() AS h
  WHERE h.kind = 'launch'
)
WHERE correlation > 0 AND correlation IN (SELECT correlation FROM _torch_work)
GROUP BY correlation, rank
ORDER BY correlation;

-- Starting points of the search for ops that run when a call begins: the call's parent and, for a call on a further
-- lane, also the slice before it on the first lane. Further lanes hold slices that overlap others without nesting; see
-- nesting.sql.
CREATE OR REPLACE PERFETTO TABLE _torch_call_climb AS
SELECT c.id, s.ts, s.parent_id AS at, _torch_lasts_as_op!(p, s.ts) AS is_op
FROM _torch_call AS c
JOIN slice AS s USING (id)
JOIN slice AS p ON p.id = s.parent_id
UNION ALL
SELECT x.id, x.ts, x.at, _torch_lasts_as_op!(p, x.ts) AS is_op
FROM (
  SELECT
    x.id,
    x.ts,
    -- In nearly all traces, the slice before has an id only slightly smaller.
    coalesce(
      (SELECT max(b.id) FROM slice AS b WHERE b.id BETWEEN x.id - 1000 AND x.id - 1 AND b.track_id = first.track_id),
      (SELECT max(b.id) FROM slice AS b WHERE b.id < x.id - 1000 AND b.track_id = first.track_id)
    ) AS at
  FROM _torch_stray AS x
  JOIN _torch_lane AS first ON first.thread = x.thread AND first.lane = 1
  WHERE x.id IN (SELECT id FROM _torch_call)
) AS x
JOIN slice AS p ON p.id = x.at;

-- The innermost op that runs when a call begins, on any lane of its thread: the last op to begin.
CREATE OR REPLACE PERFETTO TABLE _torch_call_op AS
WITH RECURSIVE
  up(id, ts, at, is_op) AS (
    SELECT id, ts, at, is_op FROM _torch_call_climb WHERE NOT is_op
    UNION ALL
    SELECT up.id, up.ts, p.id, _torch_lasts_as_op!(p, up.ts)
    FROM up
    JOIN slice AS s ON s.id = up.at
    JOIN slice AS p ON p.id = s.parent_id
    WHERE NOT up.is_op
  ),
  candidate AS (
    SELECT id, at AS op_id FROM _torch_call_climb WHERE is_op
    UNION ALL
    SELECT id, at FROM up WHERE is_op
    UNION ALL
    -- Ops on further lanes that enclose calls on other lanes.
    SELECT y.id, x.id
    FROM _torch_stray AS x
    JOIN slice AS s USING (id)
    CROSS JOIN _torch_lane AS l
    CROSS JOIN slice AS y
    WHERE
      l.thread = x.thread
      AND l.track_id <> x.track_id
      AND y.track_id = l.track_id
      AND y.ts >= x.ts
      AND y.ts < x.ts + x.dur
      AND y.id > x.id
      AND _torch_lasts_as_op!(s, y.ts)
      AND y.id IN (SELECT id FROM _torch_call)
  )
SELECT id, max(op_id) AS op_id
FROM candidate
GROUP BY id
ORDER BY id;

-- Work of GPUs with the call that launched it, and with its op, External id and step.
CREATE OR REPLACE PERFETTO TABLE _torch_launched AS
SELECT
  w.id,
  c.id AS launch_id,
  o.op_id,
  coalesce(w.external_id, _torch_external_id!(s.arg_set_id)) AS external_id,
  s.name GLOB '*GraphLaunch*' AS is_graph,
  _torch_step_of!(coalesce(s.ts, w.ts), w.rank, coalesce(l.thread, -1)) AS step
FROM _torch_work AS w
LEFT JOIN _torch_call AS c ON c.correlation = w.correlation AND c.rank IS w.rank
LEFT JOIN slice AS s ON s.id = c.id
LEFT JOIN _torch_lane AS l ON l.track_id = s.track_id
LEFT JOIN _torch_call_op AS o ON o.id = c.id
ORDER BY w.id;

-- Ops by External id, where only one op of the rank has it; for work whose launch gives no op. Empty unless the trace's External ids identify ops.
CREATE OR REPLACE PERFETTO TABLE _torch_external_op AS
SELECT external_id, rank, min(id) AS id
FROM (
  SELECT _torch_external_id!(h.arg_set_id) AS external_id, h.rank, h.id
  FROM _torch_host_slice!() AS h
  WHERE
    _torch_is_op!(h.category, h.name)
    AND EXISTS (SELECT 1 FROM _torch_launched WHERE op_id IS NULL AND external_id IS NOT NULL)
)
WHERE
  external_id IN (SELECT external_id FROM _torch_launched WHERE op_id IS NULL)
  AND 'operators' = (SELECT external_ids FROM _torch_facts)
GROUP BY external_id, rank
HAVING count(*) = 1
ORDER BY external_id;

-- Kernels, copies and memsets: all work of GPUs.
CREATE OR REPLACE PERFETTO TABLE torch_kernel(
  -- Slice of the work.
  id JOINID(slice.id),
  -- Name of the kernel, or kind of the copy.
  name STRING,
  -- Start on the GPU.
  ts TIMESTAMP,
  -- Duration on the GPU.
  dur DURATION,
  -- `kernel`, `memcpy` or `memset`.
  category STRING,
  -- Rank in the job.
  rank LONG,
  -- GPU.
  device LONG,
  -- Stream of the GPU.
  stream LONG,
  -- Correlation id of the work and its launch.
  correlation LONG,
  -- External id of the op or annotation that launched it.
  external_id LONG,
  -- The runtime or driver call that launched it, of the same rank and correlation. Kernels of a graph share one call.
  launch_id JOINID(slice.id),
  -- Start of that call.
  launch_ts TIMESTAMP,
  -- Duration of that call.
  launch_dur DURATION,
  -- Time from the end of that call to the start of the work; 0 if the work started earlier.
  delay DURATION,
  -- The op that launched it: the innermost op that runs on the thread of the call when the call begins; else the op of
  -- the External id, if the trace's External ids identify ops.
  op_id JOINID(slice.id),
  -- Name of that op.
  op_name STRING,
  -- Source of the op: `launch`, `graph` (the launch of a graph) or `external_id`; or the reason why it is unknown:
  -- `launch_outside_operators`, `graph_outside_operators` or `no_launch`.
  rule STRING,
  -- Step in which the call began; without a call, the step in which the work began.
  step LONG,
  -- Bytes copied or set.
  bytes LONG,
  -- Node of the graph that launched it, if it is known.
  graph_node_id LONG
) AS
SELECT
  w.id,
  s.name,
  s.ts,
  s.dur,
  w.kind AS category,
  w.rank,
  w.device,
  w.stream,
  w.correlation,
  l.external_id,
  l.launch_id,
  c.ts AS launch_ts,
  c.dur AS launch_dur,
  max(s.ts - c.ts - c.dur, 0) AS delay,
  coalesce(l.op_id, e.id) AS op_id,
  op.name AS op_name,
  CASE
    WHEN l.op_id IS NOT NULL THEN iif(l.is_graph, 'graph', 'launch')
    WHEN e.id IS NOT NULL THEN 'external_id'
    WHEN l.launch_id IS NULL THEN 'no_launch'
    ELSE iif(l.is_graph, 'graph_outside_operators', 'launch_outside_operators')
  END AS rule,
  l.step,
  w.bytes,
  w.graph_node_id
FROM _torch_work AS w
JOIN slice AS s USING (id)
JOIN _torch_launched AS l USING (id)
LEFT JOIN slice AS c ON c.id = l.launch_id
LEFT JOIN _torch_external_op AS e ON l.op_id IS NULL AND e.external_id = l.external_id AND e.rank IS w.rank
LEFT JOIN slice AS op ON op.id = coalesce(l.op_id, e.id)
ORDER BY w.id;

DROP TABLE _torch_work;

DROP TABLE _torch_call;

DROP TABLE _torch_call_climb;

DROP TABLE _torch_call_op;

DROP TABLE _torch_launched;

DROP TABLE _torch_external_op;
