"""Traces that PyTorch writes as `.pftrace` have the columns of the document that Kineto writes for the same work."""

import gzip
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from service.formats.pftrace.categories import category_of
from service.formats.pftrace.tracks import Place
from tests.conftest import DATA
from tests.formats.pftrace.reading import read
from tests.pftrace import (
    COUNTER,
    INSTANT,
    LAYOUTS,
    PID,
    ZERO_NS,
    Activity,
    Layout,
    begin,
    content,
    document,
    end,
    event,
    packets,
    process,
    thread,
    track,
    training,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

WORK = training()


def kineto_rows(activities: list[Activity], base_ns: int) -> list[dict[str, Any]]:
    """Return the rows of the document of activities, on the clock of a trace."""
    found = document(activities)
    for element in found["traceEvents"]:
        start = ZERO_NS - base_ns + element["ts"]
        element["ts"] = start // 1000 if start % 1000 == 0 else float(f"{start // 1000}.{start % 1000:03d}")
        if "dur" in element:
            element["dur"] = element["dur"] / 1000
    return ordered(read(json.dumps(found, separators=(",", ":")).encode()).rows)


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows without what the notation alone decides, in an order of their own."""
    dropped = {"position", "ts_digits", "dur_digits", "args"}
    bare = [
        {key: value for key, value in row.items() if key not in dropped}
        | {"arguments": json.loads(row.get("args", "{}"))}
        for row in rows
        if row["ph"] != "M"
    ]
    return sorted(bare, key=lambda row: (row["ts_ns"], -row.get("dur_ns", 0), row["ph"], row["name"], row.get("cat")))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstd.compress], ids=["plain", "gzip", "zstd"])
def test_each_layout_has_the_columns_of_the_same_document(layout: Layout, compress: Callable[[bytes], bytes]) -> None:
    trace = read(compress(content(packets(WORK, layout))))

    base_ns = trace.members["baseTimeNanoseconds"]
    assert 0 < base_ns <= ZERO_NS
    assert trace.format.startswith("pftrace")
    assert (trace.refused, trace.notes) == (0, {})
    assert ordered(trace.rows) == kineto_rows(WORK, base_ns)


def test_processes_and_threads_are_named_as_kineto_does_it() -> None:
    named = {
        (row["name"], row["pid"], row["tid"]): json.loads(row["args"])
        for row in read(content(packets(WORK, "track_events"))).rows
        if row["ph"] == "M"
    }

    assert named["process_name", PID, 0] == {"name": "python"}
    assert named["process_labels", PID, 0] == {"labels": "CPU"}
    assert named["process_labels", 0, 0] == {"labels": "GPU 0"}
    assert named["thread_name", PID, 101] == {"name": "thread 101 (python)"}
    assert named["thread_name", 0, 7] == {"name": "stream 7"}


@pytest.mark.parametrize("path", sorted(DATA.glob("cpu_*.json.gz")), ids=lambda path: path.name.partition(".")[0])
def test_host_events_of_real_traces_get_their_own_category_without_naming_it(path: Any) -> None:
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    host = [e for e in events if e["ph"] == "X" and e["cat"] in ("cpu_op", "user_annotation", "python_function")]

    assert len(host) > 200
    assert [
        (e["name"], e["cat"])
        for e in host
        if category_of(e["name"], e["args"], Place(0, e["pid"], e["tid"])) != e["cat"]
    ] == []


def test_work_without_a_category_is_known_by_its_arguments() -> None:
    stream = Place(0, 0, 7, device=0, stream=7)
    work = {"device": 0, "stream": 7, "correlation": 1}

    assert category_of("Memcpy HtoD (Pinned -> Device)", work, stream) == "gpu_memcpy"
    assert category_of("Memset (Device)", work, stream) == "gpu_memset"
    assert category_of("gemm", work, stream) == "kernel"
    assert category_of("Memcpy of the user", {}, stream) == "gpu_user_annotation"
    assert category_of("Stream Sync", work | {"cuda_sync_kind": "Stream Sync"}, stream) == "cuda_sync"
    assert category_of("Buffer Flush", {}, Place(0, 1, 0, is_overhead=True)) == "overhead"
    assert category_of("anything", {}, Place(0, 1, 1)) is None


def test_a_graph_launch_starts_the_flows_of_all_its_kernels() -> None:
    graph = [
        Activity("cuda_runtime", "cudaGraphLaunch", PID, 1, 0, 10, {"cbid": 311, "correlation": 5}),
        *(Activity("kernel", "node", 0, 7, at, at + 5, {"correlation": 5, "context": 1}) for at in (20, 30)),
    ]

    flows = [row for row in read(content(packets(graph, "render_stages"))).rows if row.get("cat") == "ac2g"]

    assert [(row["ph"], row["id"], row["pid"]) for row in flows] == [("s", 5, PID), ("f", 5, 0), ("f", 5, 0)]


def test_begins_and_ends_in_lists_keep_work_apart_that_touches_or_overlaps() -> None:
    touching = [Activity("kernel", name, 0, 7, start, stop, {"correlation": start + 1}) for name, start, stop in
                [("a", 0, 10), ("b", 10, 20), ("c", 15, 40), ("d", 18, 30)]]  # fmt: skip
    trace = read(content(packets(touching, "categories")))

    assert [(row["name"], row["dur_ns"]) for row in trace.slices()] == [("a", 10), ("b", 10), ("c", 25), ("d", 12)]


def test_events_of_other_programs_are_kept_on_tracks_of_their_own() -> None:
    trace = read(content([
        process(1, 77, "app"), thread(2, 77, 78, "main", parent=1), track(3, "requests", parent=1), track(4, "power"),
        begin(1000, 2, "work", bool=True, half=0.5, text="ü", inner={"list": [1, [2]]}), begin(1500, 3, "GET"),
        end(1800, 3), end(2000, 2), event(2500, 2, INSTANT), _counter(2600, 4, 17),
        begin(2700, 99, "lost"), end(2800, 99),
    ]))  # fmt: skip

    work, get, lost = trace.slices()
    assert (work["pid"], work["tid"], work["ts_ns"], work["dur_ns"]) == (77, 78, 1000, 1000)
    assert "cat" not in work
    assert json.loads(work["args"]) == {"bool": True, "half": 0.5, "text": "ü", "inner": {"list": [1, [2]]}}
    assert (get["pid"], get["dur_ns"]) == (77, 300)
    assert get["tid"] not in (77, 78)
    assert (lost["pid_text"], trace.notes["unknown_tracks"]) == ('"Tracks"', 1)
    (instant,) = (row for row in trace.rows if row["ph"] == "i")
    assert (instant["tid"], instant["ts_ns"]) == (78, 2500)
    (power,) = (row for row in trace.rows if row["ph"] == "C")
    assert (power["name"], json.loads(power["args"])) == ("power", {"value": 17})


def test_flows_of_other_programs_start_continue_and_end() -> None:
    found = [thread(1, 5, 6), *(begin(at, 1, "x") for at in (10, 30, 50)), *(end(at, 1) for at in (20, 40, 60))]
    for packet in found[1:4]:
        packet.track_event.flow_ids.append(1 << 63)

    flows = [row for row in read(content(sorted(found, key=lambda packet: packet.timestamp))).rows if "id_text" in row]

    assert [(row["ph"], row["cat"], row["id_text"]) for row in flows] == [(p, "flow", str(1 << 63)) for p in "stf"]


def test_interned_data_belong_to_their_sequence_and_end_when_its_state_is_cleared() -> None:
    def naming(sequence: int, name: str, flags: int) -> Any:
        packet = begin(0, 0)
        packet.Clear()
        packet.trusted_packet_sequence_id, packet.sequence_flags = sequence, flags
        packet.interned_data.event_names.add(iid=1, name=name)
        return packet

    def named(time: int, sequence: int, number: int = 1) -> Any:
        packet = begin(time, 9, sequence=sequence)
        packet.track_event.name_iid = number
        return packet

    trace = read(content([
        thread(9, 1, 1), naming(1, "one", 1), naming(2, "two", 1), named(10, 1), named(20, 2), naming(1, "new", 1),
        named(30, 1), named(40, 1, number=2),
    ]))  # fmt: skip

    assert [row["name"] for row in trace.slices()] == ["one", "two", "new", "unknown"]
    assert trace.notes["unknown_names"] == 1


def test_gpu_counters_have_the_process_that_kineto_gives_them() -> None:
    described, sample = begin(0, 0), begin(0, 0)
    for packet in (described, sample):
        packet.Clear()
        packet.trusted_packet_sequence_id = 1
    described.sequence_flags = 1
    counters = described.interned_data.gpu_counter_descriptors.add(iid=1, gpu_id=3)
    counters.counter_descriptor.specs.add(counter_id=0, name="Power (W)")
    sample.timestamp = 50
    sample.gpu_counter_event.counter_descriptor_iid = 1
    sample.gpu_counter_event.counters.add(counter_id=0, double_value=301.5)

    (counter,) = (row for row in read(content([described, sample])).rows if row["ph"] == "C")

    assert (counter["name"], counter["pid_text"], counter["args"]) == ("Power (W)", '"GPU 3 Counters"', '{"":301.5}')


def test_clocks_are_related_by_snapshots() -> None:
    snapshot = begin(0, 0)
    snapshot.Clear()
    snapshot.trusted_packet_sequence_id = 1
    for clock, value in ((6, 1_000_000), (1, ZERO_NS), (3, 400_000)):
        snapshot.clock_snapshot.clocks.add(clock_id=clock, timestamp=value)
    snapshot.clock_snapshot.clocks.add(clock_id=64, timestamp=500, is_incremental=True, unit_multiplier_ns=1000)
    steps = [begin(2, 9, "a"), begin(3, 9, "b"), begin(450_000, 9, "monotonic"), begin(1, 9, "unknown")]
    for packet, clock in zip(steps, (64, 64, 3, 100), strict=True):
        packet.timestamp_clock_id = clock

    trace = read(content([thread(9, 1, 1), snapshot, *steps]))

    assert [(row["name"], row["ts_ns"]) for row in trace.slices()] == [
        ("a", 1_002_000), ("b", 1_005_000), ("monotonic", 1_050_000),
    ]  # fmt: skip
    assert trace.members["baseTimeNanoseconds"] == ZERO_NS - 1_000_000
    assert (trace.refused, trace.notes["unknown_clock"]) == (1, 1)


def _counter(time: int, uuid: int, value: int) -> Any:
    packet = event(time, uuid, COUNTER)
    packet.track_event.counter_value = value
    return packet
