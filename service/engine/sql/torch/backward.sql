-- The backward pass: which forward op each of its ops belongs to.

INCLUDE PERFETTO MODULE torch.nesting;

-- Ops with a sequence number; those of the backward pass tell the thread of the forward pass too.
CREATE OR REPLACE PERFETTO TABLE _torch_sequence AS
SELECT
  h.id,
  h.name,
  h.rank,
  h.thread,
  _torch_integer!(h.arg_set_id, 'args.Sequence number') AS sequence_number,
  coalesce(_torch_integer!(h.arg_set_id, 'args.Fwd thread id'), 0) > 0 AS is_backward
FROM _torch_host_slice!() AS h
WHERE h.kind = 'op' AND sequence_number IS NOT NULL
ORDER BY h.id;

-- The last forward op of each sequence number that only one thread has.
CREATE OR REPLACE PERFETTO TABLE _torch_forward AS
SELECT sequence_number, rank, max(id) AS id
FROM _torch_sequence
WHERE NOT is_backward
GROUP BY rank, sequence_number
HAVING min(thread) = max(thread)
ORDER BY sequence_number;

-- Ops of the backward pass, with their forward op: the one of the same sequence number that began last. Threads number
-- by themselves; where several have a number, nothing tells which is meant, and the op is not among these.
CREATE OR REPLACE PERFETTO TABLE torch_backward(
  -- Its slice.
  id JOINID(slice.id),
  -- Name of the op.
  name STRING,
  -- The forward op.
  forward_id JOINID(slice.id),
  -- Name of the forward op.
  forward_name STRING,
  -- What both have in common.
  sequence_number LONG,
  -- Rank in the job.
  rank LONG
) AS
SELECT b.id, b.name, f.id AS forward_id, s.name AS forward_name, b.sequence_number, b.rank
FROM _torch_sequence AS b
JOIN _torch_forward AS f ON f.sequence_number = b.sequence_number AND f.rank IS b.rank AND +f.id < +b.id
JOIN slice AS s ON s.id = f.id
WHERE b.is_backward
ORDER BY b.id;

DROP TABLE _torch_sequence;

DROP TABLE _torch_forward;
