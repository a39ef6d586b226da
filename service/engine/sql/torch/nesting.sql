-- Nesting of slices on the host, by the rules of torch's `key_averages`. Private.

INCLUDE PERFETTO MODULE torch.trace;

-- Kinds of categories. The capitalised categories are from before April 2022.
CREATE OR REPLACE PERFETTO TABLE _torch_category AS
SELECT
  category,
  CASE
    WHEN category IN ('kernel', 'Kernel', 'mtia_ccp_events') THEN 'kernel'
    WHEN category IN ('gpu_memcpy', 'Memcpy') THEN 'memcpy'
    WHEN category IN ('gpu_memset', 'Memset') THEN 'memset'
    WHEN category IN ('cpu_op', 'Operator') THEN 'op'
    WHEN category IN ('user_annotation', 'User') THEN 'annotation'
    WHEN category = 'python_function' THEN 'python'
    WHEN category = 'Runtime' OR category GLOB '*_runtime' OR category GLOB '*_driver' THEN 'launch'
  END AS kind
FROM (SELECT DISTINCT category FROM slice)
WHERE kind IS NOT NULL;

-- Slices that torch ignores in its nesting. It also ignores instants, but these enclose nothing.
CREATE OR REPLACE PERFETTO TABLE _torch_left_out AS
SELECT id
FROM slice
WHERE name IN (
  'profiler::_record_function_enter',
  'profiler::_record_function_enter_new',
  'profiler::_record_function_exit',
  'aten::is_leaf',
  'aten::output_nr',
  'aten::_version'
)
ORDER BY id;

-- True if a slice is an op by its category and name. Until 2022, annotations and steps had the category of ops.
CREATE OR REPLACE PERFETTO MACRO _torch_is_op(category Expr, name Expr)
RETURNS Expr AS (
  $category IN (SELECT category FROM _torch_category WHERE kind = 'op') AND $name NOT GLOB 'ProfilerStep#*'
);

-- Slices of the host that can enclose others. Within a thread, the enclosing slice has the smaller id.
CREATE OR REPLACE PERFETTO MACRO _torch_host_slice()
RETURNS TableOrSubquery AS (
  SELECT s.id, s.ts, s.dur, s.category, s.name, s.parent_id, s.arg_set_id, c.kind, l.*
  FROM slice AS s
  JOIN _torch_lane AS l USING (track_id)
  JOIN _torch_category AS c USING (category)
  WHERE
    l.device IS NULL
    AND c.kind IN ('op', 'annotation', 'python', 'launch')
    AND s.id NOT IN (SELECT id FROM _torch_left_out)
);

-- True if a slice can enclose others by its category and id.
CREATE OR REPLACE PERFETTO MACRO _torch_can_enclose(category Expr, id Expr)
RETURNS Expr AS (
  $category IN (SELECT category FROM _torch_category WHERE kind IN ('op', 'annotation', 'python', 'launch'))
  AND $id NOT IN (SELECT id FROM _torch_left_out)
);

-- Slices of the host on further lanes, since they overlap other slices of their thread without nesting.
CREATE OR REPLACE PERFETTO TABLE _torch_stray AS
SELECT id, ts, dur, parent_id, track_id, thread
FROM _torch_host_slice!()
WHERE lane > 1
ORDER BY id;

-- Slices of the host's threads that can't enclose others by torch's rules, although others may lie within their time.
CREATE OR REPLACE PERFETTO TABLE _torch_transparent AS
SELECT s.id
FROM slice AS s
JOIN _torch_lane AS l USING (track_id)
WHERE l.device IS NULL AND s.dur > 0 AND NOT coalesce(_torch_can_enclose!(s.category, s.id), FALSE);

-- Starting points of the search for the enclosing slice: the parent, if it can't enclose others; for slices on further
-- lanes, also the slice before on the first lane.
CREATE OR REPLACE PERFETTO TABLE _torch_climb AS
SELECT h.id, h.ts + h.dur AS end_ts, h.parent_id AS at
FROM _torch_host_slice!() AS h
-- The + prevents a scan of all slices for each row.
WHERE +h.parent_id IN (SELECT id FROM _torch_transparent)
UNION ALL
SELECT
  x.id,
  x.ts + x.dur AS end_ts,
  -- In nearly all traces, the slice before has an id only slightly smaller.
  coalesce(
    (SELECT max(b.id) FROM slice AS b WHERE b.id BETWEEN x.id - 1000 AND x.id - 1 AND b.track_id = first.track_id),
    (SELECT max(b.id) FROM slice AS b WHERE b.id < x.id - 1000 AND b.track_id = first.track_id)
  ) AS at
FROM _torch_stray AS x
JOIN _torch_lane AS first ON first.thread = x.thread AND first.lane = 1;

-- Slices of the host whose enclosing slice is not `slice.parent_id`. The enclosing slice is the last to begin of those
-- that contain the slice; `parent_id` is NULL if there is none.
CREATE OR REPLACE PERFETTO TABLE _torch_reparented AS
WITH RECURSIVE
  up(id, end_ts, at) AS (
    SELECT id, end_ts, at FROM _torch_climb
    UNION ALL
    SELECT up.id, up.end_ts, s.parent_id
    FROM up
    JOIN slice AS s ON s.id = up.at
    WHERE NOT (s.ts + s.dur >= up.end_ts AND _torch_can_enclose!(s.category, s.id))
  ),
  candidate AS (
    -- The results of the search.
    SELECT up.id, s.id AS parent_id
    FROM up
    JOIN slice AS s ON s.id = up.at
    WHERE s.ts + s.dur >= up.end_ts AND _torch_can_enclose!(s.category, s.id)
    UNION ALL
    -- NULL, for slices without any other candidate.
    SELECT id, NULL FROM _torch_climb
    UNION ALL
    -- For slices on further lanes, the parent on the same lane.
    SELECT x.id, s.id
    FROM _torch_stray AS x
    JOIN slice AS s ON s.id = x.parent_id
    WHERE _torch_can_enclose!(s.category, s.id)
    UNION ALL
    -- Slices on further lanes that enclose slices of other lanes, and began after the parents of these.
    SELECT y.id, x.id
    FROM _torch_stray AS x
    CROSS JOIN _torch_lane AS l
    CROSS JOIN slice AS y
    WHERE
      l.thread = x.thread
      AND l.track_id <> x.track_id
      AND y.track_id = l.track_id
      AND y.ts >= x.ts
      AND y.ts < x.ts + x.dur
      AND y.ts + y.dur <= x.ts + x.dur
      AND y.id > x.id
      AND _torch_can_enclose!(y.category, y.id)
      AND (coalesce(y.parent_id, -1) < x.id OR +y.parent_id IN (SELECT id FROM _torch_transparent))
  )
SELECT id, max(parent_id) AS parent_id
FROM candidate
GROUP BY id
ORDER BY id;

-- The slice that encloses a slice of the host; NULL if there is none.
CREATE OR REPLACE PERFETTO FUNCTION _torch_parent(id LONG)
RETURNS LONG AS
SELECT iif(r.id IS NULL, s.parent_id, r.parent_id)
FROM slice AS s
LEFT JOIN _torch_reparented AS r USING (id)
WHERE s.id = $id;

-- External id of an event; NULL if the event has none. Before April 2022, the key was in lower case.
CREATE OR REPLACE PERFETTO MACRO _torch_external_id(arg_set_id Expr)
RETURNS Expr AS (
  nullif(
    coalesce(_torch_integer!($arg_set_id, 'args.External id'), _torch_integer!($arg_set_id, 'args.external id')), 0
  )
);
