-- The backward pass: its ops and their forward ops.

INCLUDE PERFETTO MODULE torch.nesting;

-- Ops with a sequence number. Ops of the backward pass also have the argument `Fwd thread id`.
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

-- The last forward op of each sequence number, if only one thread uses the number.
CREATE OR REPLACE PERFETTO TABLE _torch_forward AS
SELECT sequence_number, rank, max(id) AS id
FROM _torch_sequence
WHERE NOT is_backward
GROUP BY rank, sequence_number
HAVING min(thread) = max(thread)
ORDER BY sequence_number;

-- Ops of the backward pass with their forward op: the last forward op to begin with the same sequence number. Each
-- thread counts separately. A number that several threads use is ambiguous, and its ops are left out.
CREATE OR REPLACE PERFETTO TABLE torch_backward(
  -- Slice of the op.
  id JOINID(slice.id),
  -- Name of the op.
  name STRING,
  -- The forward op.
  forward_id JOINID(slice.id),
  -- Name of the forward op.
  forward_name STRING,
  -- Sequence number of both ops.
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
