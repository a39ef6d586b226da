-- Steps: the annotations `ProfilerStep#N` of `torch.profiler`.

INCLUDE PERFETTO MODULE torch.trace;

CREATE OR REPLACE PERFETTO TABLE _torch_step_slice AS
SELECT
  s.id, CAST(substr(s.name, 14) AS INTEGER) AS step, s.name, s.ts, s.dur, max(s.dur, 1) AS lasting, l.utid, l.rank,
  l.device, l.stream, l.thread,
  -- The device of a track without work, such as of a cut, is not known.
  l.device IS NULL AND s.category IS NOT 'gpu_user_annotation' AS is_host
FROM slice AS s
JOIN _torch_lane AS l USING (track_id)
WHERE
  s.name GLOB 'ProfilerStep#*'
  AND length(s.name) BETWEEN 14 AND 31
  -- The engine's GLOB has no [^0-9].
  AND ltrim(substr(s.name, 14), '0123456789') = ''
ORDER BY s.id;

-- Steps on the host. Threads that annotate the same step at the same time share one row.
CREATE OR REPLACE PERFETTO TABLE torch_step(
  -- N of `ProfilerStep#N`.
  step LONG,
  -- Name of the annotation.
  name STRING,
  -- Time at which the first thread began the step.
  ts TIMESTAMP,
  -- Duration until the last thread ended the step.
  dur DURATION,
  -- Its first slice.
  id JOINID(slice.id),
  -- Thread of that slice.
  utid JOINID(thread.id),
  -- Rank in the job.
  rank LONG
) AS
WITH
  begun AS (
    SELECT
      *,
      ts >= max(ts + lasting) OVER (
        PARTITION BY rank, step ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) IS NOT FALSE AS is_new
    FROM _torch_step_slice
    WHERE is_host
  ),
  numbered AS (
    SELECT *, sum(is_new) OVER (PARTITION BY rank, step ORDER BY id) AS occurrence
    FROM begun
  ),
  merged AS (
    SELECT min(id) AS id, max(ts + dur) AS end_ts
    FROM numbered
    GROUP BY rank, step, occurrence
  )
SELECT s.step, s.name, s.ts, m.end_ts - s.ts AS dur, s.id, s.utid, s.rank
FROM merged AS m
JOIN _torch_step_slice AS s USING (id)
ORDER BY s.id;

-- Steps on the GPU: for each stream and step of the host, the time from the first to the last work of the step.
CREATE OR REPLACE PERFETTO TABLE torch_gpu_step(
  -- N of `ProfilerStep#N`.
  step LONG,
  -- Name of the annotation.
  name STRING,
  -- Start.
  ts TIMESTAMP,
  -- Duration.
  dur DURATION,
  -- Slice of the step.
  id JOINID(slice.id),
  -- Thread of the engine that shows the stream.
  utid JOINID(thread.id),
  -- Rank in the job.
  rank LONG,
  -- GPU; NULL if the stream has no work in the trace.
  device LONG,
  -- Stream of the GPU; NULL likewise.
  stream LONG
) AS
SELECT step, name, ts, dur, id, utid, rank, device, stream
FROM _torch_step_slice
WHERE NOT is_host
ORDER BY id;

-- The step of a rank at a time: the last step that began by then; NULL if that step has ended by then.
CREATE OR REPLACE PERFETTO FUNCTION torch_step_at(
  -- Time to look up.
  ts TIMESTAMP,
  -- Rank in the job; NULL if it is unknown.
  rank LONG
)
-- N of `ProfilerStep#N`.
RETURNS LONG AS
SELECT iif(ts + max(dur, 1) > $ts, step, NULL)
FROM torch_step
WHERE ts <= $ts AND rank IS $rank
ORDER BY id DESC
LIMIT 1;

-- The steps of threads that annotate steps, if other threads of their rank annotate steps, too.
CREATE OR REPLACE PERFETTO TABLE _torch_thread_step AS
WITH
  own AS (
    SELECT *
    FROM _torch_step_slice
    WHERE
      is_host
      AND coalesce(rank, -1) IN (
        SELECT coalesce(rank, -1) FROM _torch_step_slice WHERE is_host
        GROUP BY rank HAVING count(DISTINCT thread) > 1
      )
  ),
  begun AS (
    SELECT
      *,
      ts >= max(ts + lasting) OVER (
        PARTITION BY thread, step ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) IS NOT FALSE AS is_new
    FROM own
  ),
  numbered AS (
    SELECT *, sum(is_new) OVER (PARTITION BY thread, step ORDER BY id) AS occurrence
    FROM begun
  )
SELECT thread, step, min(id) AS id, min(ts) AS ts, max(ts + lasting) AS end_ts
FROM numbered
GROUP BY thread, step, occurrence
ORDER BY id;

-- The step of a thread at a time: one of its own steps, or of its rank's steps if the thread annotates none.
CREATE OR REPLACE PERFETTO MACRO _torch_step_of(ts Expr, rank Expr, thread Expr)
RETURNS Expr AS (
  -- Most traces have no threads in `_torch_thread_step`, and need no lookup.
  iif(
    EXISTS (SELECT 1 FROM _torch_thread_step),
    _torch_step_on($ts, $rank, $thread),
    torch_step_at($ts, $rank)
  )
);

CREATE OR REPLACE PERFETTO FUNCTION _torch_step_on(ts TIMESTAMP, rank LONG, thread LONG)
RETURNS LONG AS
SELECT
  iif(
    $thread IN (SELECT thread FROM _torch_thread_step),
    (
      SELECT iif(end_ts > $ts, step, NULL)
      FROM _torch_thread_step
      WHERE thread = $thread AND ts <= $ts
      ORDER BY id DESC
      LIMIT 1
    ),
    torch_step_at($ts, $rank)
  );
