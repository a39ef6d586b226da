-- Memory, as `profile_memory=True` records it.

INCLUDE PERFETTO MODULE torch.trace;

-- Allocations and frees: the `[memory]` events.
CREATE OR REPLACE PERFETTO TABLE torch_memory(
  -- Slice of the event.
  id JOINID(slice.id),
  -- Time of the event.
  ts TIMESTAMP,
  -- Bytes allocated; negative for bytes freed.
  bytes LONG,
  -- Bytes allocated on the device after this event; NULL in traces from before 2022.
  total_allocated LONG,
  -- Bytes reserved on the device after this event; NULL in traces from before 2022.
  total_reserved LONG,
  -- `c10::DeviceType`: 0 is the CPU, 1 a GPU of CUDA or ROCm.
  device_type LONG,
  -- Index of the device among the devices of its type; -1 for the CPU.
  device_id LONG,
  -- Address of the memory; NULL in traces from before 2022.
  addr LONG,
  -- Thread of the allocation or free.
  utid JOINID(thread.id),
  -- Rank in the job.
  rank LONG
) AS
SELECT
  s.id,
  s.ts,
  _torch_integer!(s.arg_set_id, 'args.Bytes') AS bytes,
  _torch_integer!(s.arg_set_id, 'args.Total Allocated') AS total_allocated,
  _torch_integer!(s.arg_set_id, 'args.Total Reserved') AS total_reserved,
  _torch_integer!(s.arg_set_id, 'args.Device Type') AS device_type,
  _torch_integer!(s.arg_set_id, 'args.Device Id') AS device_id,
  _torch_integer!(s.arg_set_id, 'args.Addr') AS addr,
  l.utid,
  l.rank
FROM slice AS s
LEFT JOIN _torch_lane AS l USING (track_id)
WHERE s.name = '[memory]'
ORDER BY s.id;
