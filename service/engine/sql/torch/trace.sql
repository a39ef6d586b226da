-- The clock and the tracks of the trace.

-- The time at which the engine's `ts` is 0, in nanoseconds since the epoch or on the profiler's clock.
CREATE OR REPLACE PERFETTO FUNCTION torch_base_ns()
RETURNS LONG AS
SELECT base_ns FROM _torch_facts;

-- A `ts` of the engine as nanoseconds since the epoch or on the profiler's clock.
CREATE OR REPLACE PERFETTO FUNCTION torch_ns(
  -- Time in the engine.
  ts TIMESTAMP
)
RETURNS LONG AS
SELECT base_ns + $ts FROM _torch_facts;

-- The engine's tracks with the threads and streams of the trace. All lanes of one `pid`, `tid`, `rank` and `device`
-- have the same `thread`.
CREATE OR REPLACE PERFETTO TABLE _torch_lane AS
SELECT
  tt.id AS track_id,
  t.*,
  min(t.utid) OVER (PARTITION BY t.pid, t.tid, t.rank, t.device) AS thread
FROM _torch_track AS t
JOIN thread_track AS tt USING (utid)
ORDER BY track_id;

-- Tracks, each with the host's thread or the GPU's stream that it shows. Slices that overlap without nesting are on
-- further lanes, which are tracks of their own.
CREATE OR REPLACE PERFETTO VIEW torch_track(
  -- Track; joins `slice.track_id`.
  track_id JOINID(track.id),
  -- Thread of the engine.
  utid JOINID(thread.id),
  -- Name of the process.
  process_name STRING,
  -- Name of the thread, stream or lane.
  thread_name STRING,
  -- The trace's own pid, as text.
  pid STRING,
  -- The trace's own tid, as text.
  tid STRING,
  -- Rank in the job; NULL if it is unknown.
  rank LONG,
  -- GPU; NULL for the host.
  device LONG,
  -- Stream of the GPU; NULL for the host.
  stream LONG,
  -- Lane of the thread or stream, from 1.
  lane LONG
) AS
SELECT
  l.track_id,
  l.utid,
  p.name AS process_name,
  t.name AS thread_name,
  l.pid,
  l.tid,
  l.rank,
  l.device,
  l.stream,
  l.lane
FROM _torch_lane AS l
JOIN thread AS t USING (utid)
LEFT JOIN process AS p USING (upid);

-- An argument as an integer, regardless of its type in the trace: a column of the engine's tables has one type.
CREATE OR REPLACE PERFETTO MACRO _torch_integer(arg_set_id Expr, key Expr)
RETURNS Expr AS (
  CAST(extract_arg($arg_set_id, $key) AS INTEGER)
);

-- An argument as text, regardless of its type in the trace.
CREATE OR REPLACE PERFETTO MACRO _torch_text(arg_set_id Expr, key Expr)
RETURNS Expr AS (
  CAST(extract_arg($arg_set_id, $key) AS TEXT)
);
