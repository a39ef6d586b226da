"""A writer of Perfetto traces by the messages of the `perfetto` package, and the same work as Kineto writes it."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent

Layout = Literal["track_events", "render_stages", "categories"]
LAYOUTS: tuple[Layout, ...] = ("track_events", "render_stages", "categories")
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
CLEARED, NEEDS_STATE = 1, 2
ZERO_NS = 1_790_000_000_000_000_000
"""Time of the first activity, since 1970."""
PID = 4242
_STAGES = {"kernel": 1, "gpu_memcpy": 2, "gpu_memset": 3, "gpu_user_annotation": 4}


class Activity(NamedTuple):
    """An activity that PyTorch records; its time is in ns since `ZERO_NS`."""

    category: str
    name: str
    pid: int
    tid: int
    start: int
    end: int
    arguments: dict[str, Any]

    @property
    def is_work(self) -> bool:
        """True for work of a GPU."""
        return self.category in _STAGES


def training(steps: int = 2, launches: int = 3) -> list[Activity]:
    """Return the activities of a small training on one GPU, with exact ns."""
    found: list[Activity] = []
    for step in range(steps):
        base = step * 1_000_000
        found.append(
            Activity(
                "user_annotation", f"ProfilerStep#{step}", PID, 100, base, base + 900_001, {"External id": step + 900}
            )
        )
        for launch in range(launches):
            at, number = base + 1000 + launch * 100_000, step * launches + launch + 1
            found += [
                Activity("cpu_op", "aten::mm", PID, 100, at, at + 50_003, {
                    "External id": number, "Sequence number": number, "Fwd thread id": 0,
                    "Input Dims": [[64, 64], []], "Concrete Inputs": ["", "0.5", "[1, 2]"],
                }),
                Activity("cpu_op", "aten::inner", PID, 100, at + 10, at + 50_003, {"External id": 5000 + number}),
                Activity("cuda_runtime", "cudaLaunchKernel", PID, 100, at + 1000, at + 2007, {
                    "cbid": 211, "correlation": number,
                }),
                Activity("kernel", f"gemm<{launch}>", 0, 7, at + 9001, at + 60_017, {
                    "device": 0, "stream": 7, "context": 1, "correlation": number, "grid": [number, 1, 1],
                    "block": [128, 1, 1], "registers per thread": 32, "shared memory": 1024,
                }),
            ]  # fmt: skip
    last = steps * 1_000_000
    copy = 1 + steps * launches
    return [
        *found,
        Activity("cuda_driver", "cuMemcpyAsync", PID, 101, last, last + 5, {"cbid": 3, "correlation": copy}),
        Activity("gpu_memcpy", "Memcpy", 0, 20, last + 100, last + 300, {
            "device": 0, "stream": 20, "context": 1, "correlation": copy, "bytes": 4096,
        }),
        Activity("user_annotation", "forward", PID, 101, last, last + 500, {"External id": 7000}),
        Activity("gpu_user_annotation", "forward", 0, 20, last + 100, last + 300, {"device": 0, "stream": 20}),
        Activity("python_function", "train.py(3): step", PID, 101, last + 1, last + 400, {"Python id": 1}),
    ]  # fmt: skip


def packets(activities: Sequence[Activity], layout: Layout) -> list[TracePacket]:
    """Return the packets in which PyTorch writes activities: for each kind the begins of all, and then their ends."""
    names = {name: number for number, name in enumerate(dict.fromkeys(a.name for a in activities), 1)}
    categories = {name: number for number, name in enumerate(dict.fromkeys(a.category for a in activities), 1)}
    tracks = {place: number for number, place in enumerate(dict.fromkeys((a.pid, a.tid) for a in activities), 100)}
    as_stages = layout == "render_stages"
    found = [*_descriptions(tracks), _interned(names, categories if layout == "categories" else {}, as_stages)]
    for category, category_number in categories.items():
        listed = [a for a in activities if a.category == category and not (as_stages and a.is_work)]
        for activity in listed:
            event = begin(ZERO_NS + activity.start, tracks[activity.pid, activity.tid], **activity.arguments)
            event.track_event.name_iid = names[activity.name]
            if layout == "categories":
                event.track_event.category_iids.append(category_number)
            if correlation := activity.arguments.get("correlation"):
                if not as_stages:
                    event.track_event.flow_ids.append(correlation)
                else:  # field 3000 of a track event, with field 1: unknown to the package
                    event.track_event.MergeFromString(b"\xc2\xbb\x01\x02\x08" + bytes([correlation]))
            found.append(event)
        found += [end(ZERO_NS + a.end, tracks[a.pid, a.tid]) for a in listed]
    return [*found, *(_stage(a, names) for a in activities if as_stages and a.is_work)]


def _descriptions(tracks: dict[tuple[int, int], int]) -> Iterable[TracePacket]:
    for pid in dict.fromkeys(pid for pid, _ in tracks):
        yield process(1 + pid, pid or 1, "python" if pid else "GPU 0")
    for (pid, tid), uuid in tracks.items():
        yield thread(uuid, pid or 1, tid, f"thread {tid} (python)" if pid else f"stream {tid}", parent=1 + pid)


def _interned(names: dict[str, int], categories: dict[str, int], with_stages: bool) -> TracePacket:
    packet = TracePacket(trusted_packet_sequence_id=1, sequence_flags=CLEARED)
    for name, number in names.items():
        packet.interned_data.event_names.add(iid=number, name=name)
    for name, number in categories.items():
        packet.interned_data.event_categories.add(iid=number, name=name)
    if with_stages:
        for name, number in (("Kernel", 1), ("Memcpy", 2), ("Memset", 3), ("Annotation", 4)):
            packet.interned_data.gpu_specifications.add(iid=number, name=name)
        for number, argument in ((1, b"registers_per_thread"), (2, b"shared_mem_dynamic")):  # field 1001: unknown, too
            entry = bytes([8, number, 18, len(argument)]) + argument
            packet.interned_data.MergeFromString(b"\xca\x3e" + bytes([len(entry)]) + entry)
    return packet


def _stage(activity: Activity, names: dict[str, int]) -> TracePacket:
    given = activity.arguments
    packet = TracePacket(timestamp=ZERO_NS + activity.start, trusted_packet_sequence_id=1, sequence_flags=NEEDS_STATE)
    stage = packet.gpu_render_stage_event
    stage.event_id = given.get("correlation", 0)
    stage.duration = activity.end - activity.start
    stage.gpu_id, stage.stage_iid, stage.hw_queue_iid = activity.pid, _STAGES[activity.category], 1000 + activity.tid
    stage.name_iid = names[activity.name]
    data = {"device id": activity.pid, "context id": given.get("context"), "stream id": activity.tid}
    for name, value in (data | {name: given.get(name) for name in ("correlation", "bytes")}).items():
        if value is not None:
            stage.extra_data.add(name=name, value=str(value))
    if "grid" in given:
        for size, values in ((stage.launch.grid_size, given["grid"]), (stage.launch.workgroup_size, given["block"])):
            size.x, size.y, size.z = values
        stage.launch.args.add(name_iid=1, uint_value=given["registers per thread"])
        stage.launch.args.add(name_iid=2, uint_value=given["shared memory"])
    return packet


def document(activities: Sequence[Activity]) -> dict[str, Any]:
    """Return the document that Kineto writes for activities, with times in ns and without the names of processes."""
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": a.category, "name": a.name, "pid": a.pid, "tid": a.tid,
         "ts": a.start, "dur": a.end - a.start, "args": a.arguments}
        for a in activities
    ]  # fmt: skip
    launches = {a.arguments["correlation"]: a for a in activities if "cbid" in a.arguments}
    for work in activities:
        if work.is_work and (launch := launches.get(work.arguments.get("correlation", 0))):
            number = work.arguments["correlation"]
            for phase, at in (("s", launch), ("f", work)):
                flow = {
                    "ph": phase,
                    "cat": "ac2g",
                    "name": "ac2g",
                    "id": number,
                    "pid": at.pid,
                    "tid": at.tid,
                    "ts": at.start,
                }
                events.append(flow | ({"bp": "e"} if phase == "f" else {}))
    return {"traceEvents": events}


def content(found: Iterable[TracePacket]) -> bytes:
    """Return the bytes of a trace."""
    data: bytes = Trace(packet=found).SerializeToString()
    return data


def process(uuid: int, pid: int, name: str) -> TracePacket:
    """Return the description of a process."""
    packet = TracePacket()
    packet.track_descriptor.uuid = uuid
    packet.track_descriptor.process.pid = pid
    packet.track_descriptor.process.process_name = name
    return packet


def thread(uuid: int, pid: int, tid: int, name: str = "", parent: int = 0) -> TracePacket:
    """Return the description of a thread."""
    packet = TracePacket()
    packet.track_descriptor.uuid = uuid
    packet.track_descriptor.thread.pid = pid
    packet.track_descriptor.thread.tid = tid
    packet.track_descriptor.thread.thread_name = name
    if parent:
        packet.track_descriptor.parent_uuid = parent
    return packet


def track(uuid: int, name: str, parent: int = 0) -> TracePacket:
    """Return the description of a track that is no thread."""
    packet = TracePacket()
    packet.track_descriptor.uuid = uuid
    packet.track_descriptor.name = name
    if parent:
        packet.track_descriptor.parent_uuid = parent
    return packet


def event(time: int, uuid: int, kind: int, sequence: int = 1) -> TracePacket:
    """Return a packet with a track event."""
    packet = TracePacket(timestamp=time, trusted_packet_sequence_id=sequence)
    packet.track_event.type = kind
    packet.track_event.track_uuid = uuid
    return packet


def begin(time: int, uuid: int, name: str = "", sequence: int = 1, **arguments: Any) -> TracePacket:
    """Return the begin of a slice."""
    packet = event(time, uuid, BEGIN, sequence)
    packet.sequence_flags = NEEDS_STATE
    if name:
        packet.track_event.name = name
    annotate(packet.track_event, arguments)
    return packet


def end(time: int, uuid: int, sequence: int = 1) -> TracePacket:
    """Return the end of a slice."""
    return event(time, uuid, END, sequence)


def process_tree(time: int, sequence: int = 2) -> TracePacket:
    """Return the processes that a recorder of the system lists: one with two threads."""
    packet = TracePacket(timestamp=time, trusted_packet_sequence_id=sequence)
    packet.process_tree.processes.add(pid=PID, ppid=1, cmdline=["python", "train.py"])
    packet.process_tree.threads.add(tid=PID + 1, tgid=PID, name="loader")
    return packet


def switches(times: Sequence[int], cpu: int = 0, sequence: int = 2) -> TracePacket:
    """Return the events of the kernel's scheduler on a CPU, which alternates between two threads."""
    packet = TracePacket(trusted_packet_sequence_id=sequence)
    bundle = packet.ftrace_events
    bundle.cpu = cpu
    threads = [("python", PID), ("loader", PID + 1)]
    for turn, time in enumerate(times):
        (before, left), (after, entered) = threads[turn % 2], threads[1 - turn % 2]
        event = bundle.event.add(timestamp=time, pid=left)
        switch = event.sched_switch
        switch.prev_comm, switch.prev_pid, switch.prev_prio, switch.prev_state = before, left, 120, 0
        switch.next_comm, switch.next_pid, switch.next_prio = after, entered, 120
    return packet


def system(start: int = 1_000_000) -> list[TracePacket]:
    """Return packets that do not become events: processes, and 150 times on two CPUs."""
    return [
        process_tree(start),
        switches(range(start, start + 100_000, 1000)),
        switches(range(start, start + 50_000, 1000), cpu=1),
    ]


def program(start: int = 1_000_000) -> list[TracePacket]:
    """Return the packets of a program with one slice, ``work``."""
    return [
        process(1, PID, "python"),
        thread(2, PID, PID, "main", 1),
        TracePacket(trusted_packet_sequence_id=1, sequence_flags=CLEARED),
        begin(start + 10, 2, "work", n=1),
        end(start + 90_000, 2),
    ]


def annotate(track_event: TrackEvent, arguments: dict[str, Any]) -> None:
    """Add arguments to a track event, as PyTorch does it."""
    for name, value in arguments.items():
        _annotate(track_event.debug_annotations.add(name=name), value)


def _annotate(annotation: Any, value: Any) -> None:
    match value:
        case bool():
            annotation.bool_value = value
        case int():
            annotation.int_value = value
        case float():
            annotation.double_value = value
        case str():
            annotation.string_value = value
        case dict():
            for name, inner in value.items():
                _annotate(annotation.dict_entries.add(name=name), inner)
        case list():
            for inner in value:
                _annotate(annotation.array_values.add(), inner)


def arguments_of(text: str | None) -> dict[str, Any]:
    """Return the arguments of an event's column."""
    found: dict[str, Any] = json.loads(text or "{}")
    return found
