-- Kernels and copies: what a GPU does, which call launched it, for which op, in which step.

INCLUDE PERFETTO MODULE torch.nesting;
INCLUDE PERFETTO MODULE torch.steps;

-- What GPUs do, with what its arguments tell.
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
  _torch_integer!(s.arg_set_id, 'args.bytes') AS bytes
FROM slice AS s
JOIN _torch_lane AS l USING (track_id)
JOIN _torch_category AS c USING (category)
WHERE c.kind IN ('kernel', 'memcpy', 'memset')
ORDER BY s.id;

-- The first call of each rank and correlation, of those that launched something.
CREATE OR REPLACE PERFETTO TABLE _torch_call AS
SELECT correlation, rank, min(id) AS id
FROM (
  SELECT _torch_integer!(h.arg_set_id, 'args.correlation') AS correlation, h.rank, h.id
  FROM _torch_host_slice!() AS h
  WHERE h.kind = 'launch'
)
WHERE correlation IN (SELECT correlation FROM _torch_work)
GROUP BY correlation, rank
ORDER BY correlation;

-- What encloses each call.
CREATE OR REPLACE PERFETTO TABLE _torch_call_parent AS
SELECT
  c.id,
  p.id AS parent_id,
  _torch_is_op!(p.category, p.name) AS is_op
FROM _torch_call AS c
JOIN slice AS s ON s.id = c.id
LEFT JOIN _torch_reparented AS r ON r.id = c.id
JOIN slice AS p ON p.id = iif(r.id IS NULL, s.parent_id, r.parent_id)
ORDER BY c.id;

-- The innermost op around each call.
CREATE OR REPLACE PERFETTO TABLE _torch_call_op AS
WITH RECURSIVE
  up(id, at) AS (
    SELECT id, parent_id FROM _torch_call_parent WHERE NOT is_op
    UNION ALL
    SELECT up.id, _torch_parent(up.at)
    FROM up
    JOIN slice AS s ON s.id = up.at
    WHERE NOT _torch_is_op!(s.category, s.name)
  )
SELECT id, parent_id AS op_id FROM _torch_call_parent WHERE is_op
UNION ALL
SELECT up.id, up.at
FROM up
JOIN slice AS s ON s.id = up.at
WHERE _torch_is_op!(s.category, s.name)
ORDER BY id;

-- What GPUs do, by the call that launched it.
CREATE OR REPLACE PERFETTO TABLE _torch_launched AS
SELECT
  w.id,
  c.id AS launch_id,
  o.op_id,
  coalesce(w.external_id, _torch_external_id!(s.arg_set_id)) AS external_id
FROM _torch_work AS w
LEFT JOIN _torch_call AS c ON c.correlation = w.correlation AND c.rank IS w.rank
LEFT JOIN slice AS s ON s.id = c.id
LEFT JOIN _torch_call_op AS o ON o.id = c.id
ORDER BY w.id;

-- Ops by their External id, of those ids that are left to look for.
CREATE OR REPLACE PERFETTO TABLE _torch_external_op AS
SELECT external_id, rank, min(id) AS id
FROM (
  SELECT _torch_external_id!(h.arg_set_id) AS external_id, h.rank, h.id
  FROM _torch_host_slice!() AS h
  WHERE
    _torch_is_op!(h.category, h.name)
    AND EXISTS (SELECT 1 FROM _torch_launched WHERE op_id IS NULL AND external_id IS NOT NULL)
)
WHERE external_id IN (SELECT external_id FROM _torch_launched WHERE op_id IS NULL)
GROUP BY external_id, rank
ORDER BY external_id;

-- Kernels, copies and memsets: all that GPUs do.
CREATE OR REPLACE PERFETTO TABLE torch_kernel(
  -- Its slice.
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
  -- What it has in common with its launch.
  correlation LONG,
  -- External id of what it was launched for.
  external_id LONG,
  -- The call that launched it: the runtime's or driver's, of the same rank and correlation. A graph's kernels share one.
  launch_id JOINID(slice.id),
  -- Start of that call.
  launch_ts TIMESTAMP,
  -- Duration of that call.
  launch_dur DURATION,
  -- From the end of that call, 0 where it began sooner.
  delay DURATION,
  -- The op that launched it: the innermost around the call on its thread, else that of its External id.
  op_id JOINID(slice.id),
  -- Name of that op.
  op_name STRING,
  -- Step of the call; of its own start where there is none.
  step LONG,
  -- Bytes copied or set.
  bytes LONG
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
  torch_step_at(coalesce(c.ts, s.ts), w.rank) AS step,
  w.bytes
FROM _torch_work AS w
JOIN slice AS s USING (id)
JOIN _torch_launched AS l USING (id)
LEFT JOIN slice AS c ON c.id = l.launch_id
LEFT JOIN _torch_external_op AS e ON l.op_id IS NULL AND e.external_id = l.external_id AND e.rank IS w.rank
LEFT JOIN slice AS op ON op.id = coalesce(l.op_id, e.id)
ORDER BY w.id;

DROP TABLE _torch_work;

DROP TABLE _torch_call;

DROP TABLE _torch_call_parent;

DROP TABLE _torch_call_op;

DROP TABLE _torch_launched;

DROP TABLE _torch_external_op;
