-- Ops: work of PyTorch on the host, with self time and GPU time.

INCLUDE PERFETTO MODULE torch.kernels;

-- The total duration of the slices that each slice of the host encloses directly. The first part takes slices whose
-- `parent_id` is the enclosing slice, the second those in `_torch_reparented`.
CREATE OR REPLACE PERFETTO TABLE _torch_enclosed AS
SELECT id, sum(dur) AS dur
FROM (
  SELECT parent_id AS id, sum(dur) AS dur
  FROM _torch_host_slice!() AS h
  WHERE parent_id IS NOT NULL AND +h.id NOT IN (SELECT id FROM _torch_reparented)
  GROUP BY parent_id
  UNION ALL
  SELECT r.parent_id, s.dur
  FROM _torch_reparented AS r
  JOIN slice AS s USING (id)
  WHERE r.parent_id IS NOT NULL
)
GROUP BY id
ORDER BY id;

-- The number and the total duration of the kernels, copies and memsets that each op launched.
CREATE OR REPLACE PERFETTO TABLE _torch_op_work AS
SELECT op_id AS id, count(*) AS kernel_count, sum(dur) AS kernel_dur
FROM torch_kernel
WHERE op_id IS NOT NULL
GROUP BY op_id
ORDER BY op_id;

-- The shapes of an op's inputs, which the profiler records with `record_shapes=True`.
CREATE OR REPLACE PERFETTO FUNCTION torch_input_dims(
  -- `slice.arg_set_id` of the op.
  arg_set_id ARGSETID
)
-- JSON such as `[[64, 3, 7, 7], []]`, where `[]` has no dimensions; NULL if shapes are not recorded.
RETURNS STRING AS
SELECT nullif(extract_arg($arg_set_id, 'args.Input Dims'), '[]');

-- Ops with the columns that are slow to compute.
CREATE OR REPLACE PERFETTO TABLE _torch_op AS
SELECT
  h.id,
  h.name,
  h.ts,
  h.dur,
  h.arg_set_id,
  h.utid,
  h.rank,
  h.thread,
  h.dur - coalesce(e.dur, 0) AS self_dur,
  coalesce(w.kernel_count, 0) AS kernel_count,
  coalesce(w.kernel_dur, 0) AS kernel_dur
FROM _torch_host_slice!() AS h
LEFT JOIN _torch_enclosed AS e USING (id)
LEFT JOIN _torch_op_work AS w USING (id)
WHERE _torch_is_op!(h.category, h.name)
ORDER BY h.id;

-- Ops, except for those that torch leaves out of its tables: `aten::is_leaf`, `aten::output_nr`, `aten::_version` and
-- the profiler's own ops.
CREATE OR REPLACE PERFETTO VIEW torch_op(
  -- Slice of the op.
  id JOINID(slice.id),
  -- Name of the op.
  name STRING,
  -- Start.
  ts TIMESTAMP,
  -- Duration.
  dur DURATION,
  -- Duration minus that of the ops, annotations, Python functions and runtime calls directly within it, on any lane of
  -- its thread. This is its part of "Self CPU" in `key_averages()`.
  self_dur DURATION,
  -- The op, annotation or Python function that encloses it; NULL if there is none.
  parent_id JOINID(slice.id),
  -- Thread of the engine.
  utid JOINID(thread.id),
  -- Name of the thread.
  thread_name STRING,
  -- Rank in the job.
  rank LONG,
  -- Step in which it began.
  step LONG,
  -- External id; the work that it launched has the same id.
  external_id LONG,
  -- Sequence number; an op of the forward pass and its op of the backward pass have the same number.
  sequence_number LONG,
  -- Shapes of its inputs as JSON; see `torch_input_dims`.
  input_dims STRING,
  -- Number of kernels, copies and memsets that it launched itself, without those of ops within it.
  kernel_count LONG,
  -- Total duration of these on the GPU.
  kernel_dur DURATION
) AS
SELECT
  id,
  name,
  ts,
  dur,
  self_dur,
  _torch_parent(id) AS parent_id,
  utid,
  (SELECT t.name FROM thread AS t WHERE t.utid = o.utid) AS thread_name,
  rank,
  _torch_step_of!(ts, rank, thread) AS step,
  _torch_external_id!(arg_set_id) AS external_id,
  _torch_integer!(arg_set_id, 'args.Sequence number') AS sequence_number,
  torch_input_dims(arg_set_id) AS input_dims,
  kernel_count,
  kernel_dur
-- Columns that a query does not use are not computed.
FROM _torch_op AS o;

DROP TABLE _torch_enclosed;

DROP TABLE _torch_op_work;
