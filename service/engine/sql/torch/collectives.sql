-- Collectives: what ranks do together, by NCCL, RCCL and the like on GPUs, and by gloo on the host.

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

-- Kernels that carry a collective's metadata or a known name, and gloo's annotations; `host_id` is the host's part.
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
SELECT h.id, h.id AS host_id, h.rank, NULL AS device, NULL AS stream, torch_step_at(h.ts, h.rank) AS step
FROM _torch_host_slice!() AS h
WHERE h.name GLOB 'gloo:*';

-- What encloses the host's part of each, as far as it tells of the collective: the innermost has the largest id.
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
  max(iif(s.name GLOB 'nccl:*' OR s.name GLOB 'gloo:*', s.id, NULL)) AS annotation_id
FROM up
JOIN slice AS s ON s.id = up.at
GROUP BY up.id
ORDER BY up.id;

-- Collectives: one row for each kernel of NCCL, RCCL and the like, and one for each annotation of gloo. What is told of
-- them is told by the kernel, else by `record_param_comms` around its launch; traces before 2024 tell less.
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
  -- GPU, NULL for the host.
  device LONG,
  -- Stream of the GPU, NULL for the host.
  stream LONG,
  -- Step.
  step LONG,
  -- Name of the collective as the trace has it: `allreduce`, or `all_reduce` where only an annotation tells.
  collective STRING,
  -- Type of its elements, such as `Float`.
  dtype STRING,
  -- Elements in.
  in_nelems LONG,
  -- Elements out.
  out_nelems LONG,
  -- Ranks in the process group.
  group_size LONG,
  -- Name of the process group.
  group_name STRING,
  -- Description of the process group.
  group_description STRING,
  -- Ranks in the process group, as the trace has them: `[0, 1]`, shortened where they are many.
  group_ranks STRING,
  -- Number of the collective in its process group.
  seq LONG
) AS
WITH
  told AS MATERIALIZED (
    SELECT
      c.*,
      s.name,
      s.ts,
      s.dur,
      iif(extract_arg(s.arg_set_id, 'args.Collective name') IS NULL, m.arg_set_id, s.arg_set_id) AS arg_set_id,
      substr(a.name, 6) AS annotated
    FROM _torch_collective AS c
    JOIN slice AS s USING (id)
    LEFT JOIN _torch_collective_told AS t USING (id)
    LEFT JOIN slice AS m ON m.id = t.metadata_id
    LEFT JOIN slice AS a ON a.id = t.annotation_id
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
  coalesce(_torch_text!(arg_set_id, 'args.Collective name'), annotated) AS collective,
  _torch_text!(arg_set_id, 'args.dtype') AS dtype,
  _torch_integer!(arg_set_id, 'args.In msg nelems') AS in_nelems,
  _torch_integer!(arg_set_id, 'args.Out msg nelems') AS out_nelems,
  _torch_integer!(arg_set_id, 'args.Group size') AS group_size,
  -- A number in the first half of 2024.
  coalesce(
    _torch_text!(arg_set_id, 'args.Process Group Name'), _torch_text!(arg_set_id, 'args.Process Group ID')
  ) AS group_name,
  _torch_text!(arg_set_id, 'args.Process Group Description') AS group_description,
  _torch_text!(arg_set_id, 'args.Process Group Ranks') AS group_ranks,
  _torch_integer!(arg_set_id, 'args.Seq') AS seq
FROM told
ORDER BY id;

DROP TABLE _torch_communicating;

DROP TABLE _torch_collective;

DROP TABLE _torch_collective_told;
