"""The tables and columns that are read from an export. Others may hold secrets, such as environment variables."""

from collections.abc import Mapping

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSETS = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
WAITS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
NVTX = "NVTX_EVENTS"
STRINGS = "StringIds"
THREADS = "ThreadNames"
GPUS = "TARGET_INFO_GPU"
DEVICES = "TARGET_INFO_CUDA_DEVICE"
START_TIME = "TARGET_INFO_SESSION_START_TIME"
EXPORT = "META_DATA_EXPORT"

_PLACE = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")

ALLOWED: Mapping[str, tuple[str, ...]] = {
    KERNELS: (
        *_PLACE, "demangledName", "shortName", "registersPerThread", "gridX", "gridY", "gridZ", "blockX", "blockY",
        "blockZ", "staticSharedMemory", "dynamicSharedMemory", "graphNodeId", "graphId",
    ),
    COPIES: (*_PLACE, "bytes", "copyKind", "srcKind", "dstKind", "srcDeviceId", "dstDeviceId", "graphNodeId"),
    MEMSETS: (*_PLACE, "bytes", "memKind", "graphNodeId"),
    GRAPHS: (*_PLACE, "graphId", "graphExecId"),
    WAITS: (*_PLACE, "syncType", "eventId"),
    CALLS: ("start", "end", "globalTid", "correlationId", "nameId", "returnValue"),
    NVTX: ("start", "end", "eventType", "globalTid", "domainId", "category", "textId", "text"),
    STRINGS: ("id", "value"),
    THREADS: ("nameId", "globalTid"),
    GPUS: (
        "id", "cuDevice", "name", "totalMemory", "smCount", "computeMajor", "computeMinor", "maxThreadsPerBlock",
        "maxWarpsPerSm", "threadsPerWarp", "maxRegistersPerBlock", "maxRegistersPerSm", "maxShmemPerBlock",
        "maxShmemPerBlockOptin", "maxShmemPerSm",
    ),
    DEVICES: ("gpuId", "cudaId", "pid"),
    START_TIME: ("utcEpochNs",),
    EXPORT: ("name", "value"),
}  # fmt: skip
"""The columns that are read, by table. Of `EXPORT`, only the row with the version of the schema is read."""

EVENT_TABLES = (CALLS, KERNELS, COPIES, MEMSETS, GRAPHS, WAITS, NVTX)
"""The tables of events, in the order in which they are read."""

REQUIRED: Mapping[str, tuple[str, ...]] = {
    KERNELS: ("start", "end", "deviceId", "streamId"),
    COPIES: ("start", "end", "deviceId", "streamId"),
    MEMSETS: ("start", "end", "deviceId", "streamId"),
    GRAPHS: ("start", "end", "deviceId", "streamId"),
    WAITS: ("start", "end", "deviceId", "streamId", "syncType"),
    CALLS: ("start", "end", "globalTid", "nameId"),
    NVTX: ("start", "eventType", "globalTid"),
    STRINGS: ("id", "value"),
    THREADS: ("nameId", "globalTid"),
    GPUS: ("id",),
    DEVICES: ("gpuId", "cudaId", "pid"),
    START_TIME: ("utcEpochNs",),
    EXPORT: ("name", "value"),
}
"""The columns without which a table is not read."""
