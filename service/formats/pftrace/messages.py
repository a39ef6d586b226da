"""The messages of a Perfetto trace, with only the fields that become events or that are written.

Source: perfetto's protos/perfetto/trace/trace_packet.proto and the files that it imports; fields 1000, 1001 and 3000
are extensions that PyTorch writes. The classes are built at run time, so they have no static types. Texts are bytes
here: a damaged one then costs its own characters, and not the whole packet.
"""

from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_PACKAGE = "tracedock.pftrace"
_FIELDS = {
    "Packet": """
        8 timestamp uint64, 10 trusted_packet_sequence_id uint32, 11 track_event TrackEvent, 6 clock_snapshot Snapshot,
        5 chrome_events ChromeEvents,
        12 interned_data Interned, 13 sequence_flags uint32, 41 incremental_state_cleared bool,
        50 compressed_packets bytes, 52 gpu_counter_event GpuCounterEvent, 53 gpu_render_stage_event RenderStage,
        58 timestamp_clock_id uint32, 59 trace_packet_defaults Defaults, 60 track_descriptor Track""",
    "ChromeEvents": "2 metadata *Metadata, 5 legacy_json_trace *JsonTrace",
    "Metadata": "1 name bytes, 2 string_value bytes, 5 json_value bytes",
    "JsonTrace": "1 type int32, 2 data bytes",
    "TrackEvent": """
        3 category_iids *uint64, 4 debug_annotations *bytes, 6 legacy_event Legacy, 9 type int32, 10 name_iid uint64,
        11 track_uuid uint64, 22 categories *bytes, 23 name bytes, 30 counter_value int64,
        44 double_counter_value double, 47 flow_ids *fixed64, 48 terminating_flow_ids *fixed64,
        3000 gpu_correlation Correlation""",
    "Legacy": "2 phase int32, 6 unscoped_id uint64, 12 bind_to_enclosing bool",
    "Correlation": "1 stage_event_ids *uint64",
    "Annotation": """
        1 name_iid uint64, 2 bool_value bool, 3 uint_value uint64, 4 int_value int64, 5 double_value double,
        6 string_value bytes, 7 pointer_value uint64, 9 json_value bytes, 10 name bytes, 11 dict_entries *Annotation,
        12 array_values *Annotation, 14 proto_value bytes, 17 string_value_iid uint64""",
    "Snapshot": "1 clocks *Clock, 2 primary_trace_clock uint32",
    "Clock": "1 clock_id uint32, 2 timestamp uint64, 3 is_incremental bool, 4 unit_multiplier_ns uint64",
    "Defaults": "11 track_event_defaults EventDefaults, 58 timestamp_clock_id uint32",
    "EventDefaults": "11 track_uuid uint64",
    "Track": """
        1 uuid uint64, 2 name bytes, 3 process Process, 4 thread Thread, 5 parent_uuid uint64, 8 counter Counter,
        10 static_name bytes, 14 description bytes""",
    "Process": "1 pid int32, 6 process_name bytes, 8 process_labels *bytes",
    "Thread": "1 pid int32, 2 tid int64, 5 thread_name bytes",
    "Counter": "4 unit_multiplier int64, 5 is_incremental bool",
    "Interned": """
        1 event_categories *Name, 2 event_names *Name, 3 debug_annotation_names *Name,
        24 gpu_specifications *Name, 29 debug_annotation_string_values *Text, 47 gpu_counter_descriptors *GpuCounters,
        1000 compute_kernels *Kernel, 1001 compute_arg_names *Name""",
    "Name": "1 iid uint64, 2 name bytes",
    "Text": "1 iid uint64, 2 str bytes",
    "Kernel": "1 iid uint64, 2 name bytes, 3 demangled_name bytes",
    "GpuCounters": "1 iid uint64, 2 counter_descriptor CounterSpecs, 3 gpu_id int32",
    "CounterSpecs": "1 specs *CounterSpec",
    "CounterSpec": "1 counter_id uint32, 2 name bytes",
    "GpuCounterEvent": """
        1 counter_descriptor CounterSpecs, 2 counters *GpuCounter, 3 gpu_id int32, 4 counter_descriptor_iid uint64""",
    "GpuCounter": "1 counter_id uint32, 2 int_value int64, 3 double_value double",
    "RenderStage": """
        1 event_id uint64, 2 duration uint64, 6 extra_data *Extra, 11 gpu_id int32, 13 hw_queue_iid uint64,
        14 stage_iid uint64, 17 name bytes, 19 kernel_iid uint64, 20 name_iid uint64, 21 launch Launch""",
    "Extra": "1 name bytes, 2 value bytes",
    "Launch": "1 grid_size Size, 2 workgroup_size Size, 3 args *LaunchArgument",
    "Size": "1 x uint32, 2 y uint32, 3 z uint32",
    "LaunchArgument": """
        1 name_iid uint64, 2 name bytes, 3 int_value int64, 4 uint_value uint64, 5 double_value double,
        6 string_value bytes""",
}
"""The fields of each message: number, name and type; a star stands for ``repeated``."""

_TYPES = {
    name: getattr(FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in ("bool", "bytes", "double", "fixed64", "int32", "int64", "uint32", "uint64")
}


def _pool() -> DescriptorPool:
    file = FileDescriptorProto(name="tracedock/pftrace.proto", package=_PACKAGE, syntax="proto2")
    for message, fields in _FIELDS.items():
        descriptor = DescriptorProto(name=message)
        for text in fields.split(","):
            number, name, kind = text.split()
            bare = kind.removeprefix("*")
            descriptor.field.add(
                number=int(number),
                name=name,
                label=FieldDescriptorProto.LABEL_OPTIONAL if bare == kind else FieldDescriptorProto.LABEL_REPEATED,
                type=_TYPES.get(bare, FieldDescriptorProto.TYPE_MESSAGE),
                type_name=None if bare in _TYPES else f".{_PACKAGE}.{bare}",
            )
        file.message_type.append(descriptor)
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool


_POOL = _pool()
Packet: Any = GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.Packet"))
"""The class of ``TracePacket``."""
Annotation: Any = GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.Annotation"))
"""The class of ``DebugAnnotation``. A track event holds its annotations as bytes, because most of them repeat."""

_WIRE_TYPES = {"bool": 0, "int32": 0, "int64": 0, "uint32": 0, "uint64": 0, "double": 1, "fixed64": 1}


def tag(message: str, field: str) -> bytes:
    """Return the bytes before the value of a field: its number and its wire type."""
    for number, name, kind in map(str.split, _FIELDS[message].split(",")):
        if name == field:
            return varint(int(number) << 3 | _WIRE_TYPES.get(kind.removeprefix("*"), 2))
    raise KeyError(field)


def varint(number: int) -> bytes:
    """Return an unsigned integer as the base-128 digits of a protobuf."""
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])


def framed(content: bytes) -> bytes:
    """Return a packet as a field of the trace."""
    return b"".join((PACKET, varint(len(content)), content))


PACKET = b"\n"
"""The bytes before the size of a packet: field 1 of the message ``Trace``."""
SLICE_BEGIN, SLICE_END, INSTANT, COUNTER = 1, 2, 3, 4
"""The types of track events."""
STATE_CLEARED, NEEDS_STATE = 1, 2
"""Flags of ``sequence_flags``: the interned data of the sequence begin anew; the packet refers to them."""
USER_TRACE = 0
"""The type of a ``legacy_json_trace`` with events of a program, not of the system."""

NO_DATA = frozenset({3, 33, 34, 35, 36, 42, 45, 46, 69, 72, 79, 87, 89, 98, 107, 109, 113, 124, 126, 134, 138})
"""Other fields of a packet that say how it was recorded."""
KINDS = {
    1: "ftrace_events",
    2: "process_tree",
    4: "inode_file_map",
    7: "sys_stats",
    9: "process_stats",
    37: "profile_packet",
    38: "battery",
    39: "android_log",
    40: "power_rails",
    43: "process_descriptor",
    44: "thread_descriptor",
    47: "packages_list",
    48: "chrome_benchmark_metadata",
    49: "perfetto_metatrace",
    51: "chrome_metadata",
    54: "streaming_profile_packet",
    57: "graphics_frame_event",
    61: "module_symbols",
    62: "vulkan_memory_event",
    63: "gpu_log",
    64: "deobfuscation_mapping",
    65: "vulkan_api_event",
    66: "perf_sample",
    67: "cpu_info",
    68: "smaps_packet",
    70: "initial_display_state",
    71: "gpu_mem_total_event",
    73: "memory_tracker_snapshot",
    74: "streaming_allocation",
    75: "streaming_free",
    77: "android_energy_estimation_breakdown",
    78: "ui_state",
    82: "translation_table",
    83: "android_game_intervention_list",
    84: "statsd_atom",
    86: "android_system_property",
    90: "track_event_range_of_interest",
    91: "entity_state_residency",
    95: "etw_events",
    99: "v8_js_code",
    100: "v8_internal_code",
    101: "v8_wasm_code",
    102: "v8_reg_exp_code",
    103: "v8_code_move",
    110: "pixel_modem_events",
    111: "pixel_modem_token_database",
    115: "kernel_wakelock_data",
    117: "generic_kernel_task_state_event",
    118: "generic_kernel_cpu_freq_event",
    119: "cpu_per_uid_data",
    120: "generic_kernel_task_rename_event",
    122: "generic_kernel_process_tree",
    123: "user_list",
    125: "protovms",
    127: "android_aflags",
    128: "gpu_info",
    129: "generic_gpu_frequency_event",
    130: "interrupt_info",
    131: "art_process_metadata",
    132: "journald_event",
    133: "zstd_compressed_packets",
    135: "stack_sample",
}
"""The names of the fields of a packet that do not become events. Their values are messages."""
CHROME_EVENTS = "chrome_events"
"""The name of a field that becomes events only in the traces that Tracedock writes."""
