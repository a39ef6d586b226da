-- Collectives: communication of ranks by NCCL, RCCL and similar libraries on GPUs, and by gloo on the host.

INCLUDE PERFETTO MODULE torch.kernels;

-- Names of kernels that communicate. The patterns are those of `service/trace/kernel_names.py`, in its order.
CREATE OR REPLACE PERFETTO TABLE _torch_communicating AS
SELECT name
FROM (SELECT DISTINCT name FROM torch_kernel WHERE category = 'kernel')
WHERE
  (
    lower(name) GLOB '*nccl*'
    OR lower(name) GLOB '*rccl*'
    OR lower(name) GLOB '*hccl*'
    OR lower(name) GLOB 'hcom_*'
    OR lower(name) GLOB '*oneccl*'
    OR lower(name) GLOB '*mscclkernel*'
    OR lower(name) GLOB '*mscclpp*'
    OR lower(name) GLOB '*nvshmem*'
    OR lower(name) GLOB '*_on_stream_kernel*'
    OR lower(name) GLOB '*deep_ep*intranode*'
    OR lower(name) GLOB '*deep_ep*internode*'
    OR lower(name) GLOB '*hybrid_ep*'
    OR lower(name) GLOB '*multimem_*'
    OR lower(name) GLOB '*symmetric_memory*'
    OR lower(name) GLOB '*symm_mem*'
    OR lower(name) GLOB '*intra_node_comm*'
    OR lower(name) GLOB '*cross_device_reduce*'
    OR lower(name) GLOB '*all_reduce*'
    OR lower(name) GLOB '*allreduce*'
    OR lower(name) GLOB '*reduce_scatter*'
    OR lower(name) GLOB '*reducescatter*'
    OR lower(name) GLOB '*all_gather*'
    OR lower(name) GLOB '*allgather*'
    OR lower(name) GLOB '*all_to_all*'
    OR lower(name) GLOB '*alltoall*'
    OR lower(name) GLOB '*moea2a*'
    OR lower(name) GLOB '*fusedmoecomm*'
    OR lower(name) GLOB '*lamport*'
    OR lower(name) GLOB '*userbuffers*'
    OR lower(name) GLOB '*epdispatchint*node*'
    OR lower(name) GLOB '*epcombineint*node*'
  )
  AND NOT lower(name) GLOB 'triton_???_fused_*';

-- Kernels with a collective's metadata or a known name, and gloo's annotations; `host_id` is the launch or annotation.
CREATE OR REPLACE PERFETTO TABLE _torch_collective AS
SELECT k.id, k.launch_id AS host_id, k.rank, k.device, k.stream, k.step
FROM torch_kernel AS k
JOIN slice AS s USING (id)
WHERE
  k.category = 'kernel'
  AND (
    k.name IN (SELECT name FROM _torch_communicating)
    OR extract_arg(s.arg_set_id, 'args.Collective name') IS NOT NULL
  )
UNION ALL
SELECT h.id, h.id AS host_id, h.rank, NULL AS device, NULL AS stream, _torch_step_of!(h.ts, h.rank, h.thread) AS step
FROM _torch_host_slice!() AS h
WHERE h.name GLOB 'gloo:*';

-- True if a slice's name is that of an annotation that has the inputs of a collective.
CREATE OR REPLACE PERFETTO MACRO _torch_is_annotation(name Expr)
RETURNS Expr AS (
  $name GLOB 'nccl:*'
  OR $name GLOB 'rccl:*'
  OR $name GLOB 'hccl:*'
  OR $name GLOB 'xccl:*'
  OR $name GLOB 'gloo:*'
  OR $name GLOB 'mpi:*'
  OR $name GLOB 'ucc:*'
  OR $name GLOB 'symm_mem::*'
);

-- The innermost slices around the launch or annotation that describe the collective, which have the largest ids:
-- `metadata_id` has the arguments of a collective, and `annotation_id` has the name of an annotation.
CREATE OR REPLACE PERFETTO TABLE _torch_collective_told AS
WITH RECURSIVE
  up(id, at) AS (
    SELECT id, host_id FROM _torch_collective
    UNION ALL
    SELECT id, _torch_parent(at) FROM up WHERE at IS NOT NULL
  )
SELECT
  up.id,
  max(iif(extract_arg(s.arg_set_id, 'args.Collective name') IS NULL, NULL, s.id)) AS metadata_id,
  max(iif(_torch_is_annotation!(s.name), s.id, NULL)) AS annotation_id
FROM up
JOIN slice AS s ON s.id = up.at
GROUP BY up.id
ORDER BY up.id;

-- Size of an element in bytes, by the name of its type.
CREATE OR REPLACE PERFETTO FUNCTION _torch_element_bytes(
  -- Name of the type.
  dtype STRING
)
RETURNS LONG AS
SELECT
  CASE
    WHEN $dtype IN ('Bool', 'Byte', 'Char', 'unsigned char', 'signed char', 'bool') THEN 1
    WHEN $dtype GLOB 'Float8*' OR $dtype GLOB 'c10::Float8*' THEN 1
    WHEN $dtype IN ('BFloat16', 'Half', 'Short', 'c10::BFloat16', 'c10::Half', 'short int', 'UInt16') THEN 2
    WHEN $dtype IN ('Float', 'Int', 'float', 'int', 'UInt32', 'unsigned int') THEN 4
    WHEN $dtype IN ('Double', 'Long', 'double', 'long int', 'ComplexFloat', 'c10::complex<float>', 'UInt64') THEN 8
    WHEN $dtype IN ('ComplexDouble', 'c10::complex<double>') THEN 16
  END;

-- Input tensors of annotations, from the lists of their dimensions and types.
CREATE OR REPLACE PERFETTO TABLE _torch_collective_input AS
WITH
  annotation AS MATERIALIZED (
    SELECT
      arg_set_id,
      extract_arg(arg_set_id, 'args.Input Dims') AS dims,
      extract_arg(arg_set_id, 'args.Input type') AS types
    FROM (
      SELECT DISTINCT arg_set_id
      FROM _torch_collective_told AS t
      JOIN slice AS s ON s.id = t.annotation_id
      WHERE s.arg_set_id IS NOT NULL
    )
  ),
  dimension AS (
    SELECT a.arg_set_id, i.key AS input, d.key AS place, d.value AS length
    FROM annotation AS a
    JOIN json_each(a.dims) AS i
    JOIN json_each(i.value) AS d
    WHERE json_valid(a.dims) AND i.type = 'array' AND d.type = 'integer'
  ),
  -- SQL has no aggregate product. Tensors with more than eight dimensions are left out.
  tensor AS (
    SELECT
      arg_set_id,
      input,
      iif(
        max(place) < 8,
        coalesce(max(iif(place = 0, length, NULL)), 1)
        * coalesce(max(iif(place = 1, length, NULL)), 1)
        * coalesce(max(iif(place = 2, length, NULL)), 1)
        * coalesce(max(iif(place = 3, length, NULL)), 1)
        * coalesce(max(iif(place = 4, length, NULL)), 1)
        * coalesce(max(iif(place = 5, length, NULL)), 1)
        * coalesce(max(iif(place = 6, length, NULL)), 1)
        * coalesce(max(iif(place = 7, length, NULL)), 1),
        NULL
      ) AS elements
    FROM dimension
    GROUP BY arg_set_id, input
  ),
  typed AS (
    SELECT a.arg_set_id, i.key AS input, i.value AS dtype
    FROM annotation AS a
    JOIN json_each(a.types) AS i
    WHERE json_valid(a.types) AND _torch_element_bytes(i.value) IS NOT NULL
  )
SELECT t.arg_set_id, t.input, t.elements, y.dtype
FROM tensor AS t
JOIN typed AS y USING (arg_set_id, input)
WHERE t.elements > 0
ORDER BY t.arg_set_id;

-- The elements and the bytes of all inputs of an annotation together, with the type of the first input.
CREATE OR REPLACE PERFETTO TABLE _torch_collective_inputs AS
SELECT
  i.arg_set_id,
  sum(i.elements) AS elements,
  sum(i.elements * _torch_element_bytes(i.dtype)) AS bytes,
  (
    SELECT f.dtype
    FROM _torch_collective_input AS f
    WHERE f.arg_set_id = i.arg_set_id
    ORDER BY f.input
    LIMIT 1
  ) AS dtype
FROM _torch_collective_input AS i
GROUP BY i.arg_set_id
ORDER BY i.arg_set_id;

-- Collectives: one row for each kernel of NCCL, RCCL and similar libraries, and for each annotation of gloo. The facts
-- come from the kernel, else from `record_param_comms` around its launch, else from an annotation around that.
CREATE OR REPLACE PERFETTO TABLE torch_collective(
  -- Its slice: a kernel, or gloo's annotation.
  id JOINID(slice.id),
  -- Name of that slice.
  name STRING,
  -- Start.
  ts TIMESTAMP,
  -- Duration.
  dur DURATION,
  -- Rank in the job.
  rank LONG,
  -- GPU; NULL for the host.
  device LONG,
  -- Stream of the GPU; NULL for the host.
  stream LONG,
  -- Step in which the annotation began; for a kernel as in `torch_kernel`.
  step LONG,
  -- Name of the collective as in the trace: `allreduce`, or `all_reduce` if only an annotation names it.
  collective STRING,
  -- Type of the elements, such as `Float`, or `float` if only an annotation names it.
  dtype STRING,
  -- Input elements.
  in_nelems LONG,
  -- Output elements.
  out_nelems LONG,
  -- Bytes as nccl-tests defines them: the whole output of an all-gather or gather, else the input of one rank.
  size_bytes LONG,
  -- Number of ranks in the process group.
  group_size LONG,
  -- Name of the process group.
  group_name STRING,
  -- Description of the process group.
  group_description STRING,
  -- Ranks of the process group as in the trace: `[0, 1]`, abbreviated if there are many.
  group_ranks STRING,
  -- Sequence number of the collective in its process group.
  seq LONG
) AS
WITH
  told AS MATERIALIZED (
    SELECT
      c.*,
      s.name,
      s.ts,
      s.dur,
      iif(
        extract_arg(s.arg_set_id, 'args.Collective name') IS NULL, coalesce(m.arg_set_id, s.arg_set_id), s.arg_set_id
      ) AS arg_set_id,
      ltrim(substr(a.name, instr(a.name, ':')), ':') AS annotated,
      -- The annotation counts only if there is no better source.
      iif(
        extract_arg(s.arg_set_id, 'args.Collective name') IS NULL AND m.id IS NULL, a.arg_set_id, NULL
      ) AS inputs_id
    FROM _torch_collective AS c
    JOIN slice AS s USING (id)
    LEFT JOIN _torch_collective_told AS t USING (id)
    LEFT JOIN slice AS m ON m.id = t.metadata_id
    LEFT JOIN slice AS a ON a.id = t.annotation_id
  ),
  described AS MATERIALIZED (
    SELECT
      t.*,
      coalesce(_torch_text!(t.arg_set_id, 'args.Collective name'), t.annotated) AS collective,
      coalesce(_torch_text!(t.arg_set_id, 'args.dtype'), i.dtype) AS dtype,
      coalesce(_torch_integer!(t.arg_set_id, 'args.In msg nelems'), i.elements) AS in_nelems,
      _torch_integer!(t.arg_set_id, 'args.Out msg nelems') AS out_nelems,
      i.bytes AS input_bytes,
      _torch_integer!(t.arg_set_id, 'args.Group size') AS own_size,
      -- Traces from the first half of 2024 have a number in place of the name.
      coalesce(
        _torch_text!(t.arg_set_id, 'args.Process Group Name'), _torch_text!(t.arg_set_id, 'args.Process Group ID')
      ) AS group_name
    FROM told AS t
    LEFT JOIN _torch_collective_inputs AS i ON i.arg_set_id = t.inputs_id
  ),
  telling AS MATERIALIZED (
    SELECT rank, max(group_name IS NOT NULL OR own_size IS NOT NULL) AS is_told
    FROM described
    GROUP BY rank
  ),
  -- Collectives with the process groups that the trace lists. If neither the list nor an event has any group, the whole
  -- job is the only group.
  grouped AS MATERIALIZED (
    SELECT
      d.*,
      coalesce(d.own_size, iif(g.is_assumed AND t.is_told, NULL, g.group_size)) AS group_size,
      coalesce(_torch_text!(d.arg_set_id, 'args.Process Group Description'), g.description) AS group_description,
      coalesce(_torch_text!(d.arg_set_id, 'args.Process Group Ranks'), g.ranks) AS group_ranks
    FROM described AS d
    LEFT JOIN _torch_group AS g ON g.rank IS d.rank AND g.name IS d.group_name
    LEFT JOIN telling AS t ON t.rank IS d.rank
  )
SELECT
  id,
  name,
  ts,
  dur,
  rank,
  device,
  stream,
  step,
  collective,
  dtype,
  in_nelems,
  out_nelems,
  -- The pattern matches both `all_gather` and `gather`, in any spelling.
  iif(
    replace(lower(collective), '_', '') GLOB '*gather*',
    coalesce(
      out_nelems * _torch_element_bytes(dtype),
      group_size * coalesce(input_bytes, in_nelems * _torch_element_bytes(dtype))
    ),
    coalesce(input_bytes, in_nelems * _torch_element_bytes(dtype))
  ) AS size_bytes,
  group_size,
  group_name,
  group_description,
  group_ranks,
  _torch_integer!(arg_set_id, 'args.Seq') AS seq
FROM grouped
ORDER BY id;

DROP TABLE _torch_communicating;

DROP TABLE _torch_collective;

DROP TABLE _torch_collective_told;

DROP TABLE _torch_collective_input;

DROP TABLE _torch_collective_inputs;
