"""Each table of an export becomes the events that Kineto writes for the same activity."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.formats.nsys.calls import api_name
from service.formats.nsys.identifiers import Processes
from service.formats.nsys.projection import smallest
from tests.formats.nsys.conftest import Ingested
from tests.nsys import START_NS, Export, call_row, gpu_row, range_row, thread

Made = Callable[[Export], Ingested]
KERNEL, COPY, MEMSET = (f"CUPTI_ACTIVITY_KIND_{name}" for name in ("KERNEL", "MEMCPY", "MEMSET"))
GRAPH, WAIT, CALL = (f"CUPTI_ACTIVITY_KIND_{name}" for name in ("GRAPH_TRACE", "SYNCHRONIZATION", "RUNTIME"))
NVTX = "NVTX_EVENTS"


def alone(**rows: list[dict[str, Any]]) -> Export:
    """An export with these rows alone."""
    return Export(kernels=0, rows=rows)


def arguments(event: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(event["args"])
    return values


def test_kernel_has_the_place_name_and_arguments_of_kineto(made: Made) -> None:
    values = {
        "demangledName": 101, "shortName": 201, "correlationId": 9, "registersPerThread": 40, "gridX": 3, "gridY": 2,
        "gridZ": 1, "blockX": 128, "blockY": 1, "blockZ": 1, "staticSharedMemory": 100, "dynamicSharedMemory": 28,
    }  # fmt: skip
    (kernel,) = made(alone(**{KERNEL: [gpu_row(5000, 7000, **values)]})).dicts("cat = 'kernel'")

    assert (kernel["ph"], kernel["pid"], kernel["tid"]) == ("X", 0, 7)
    assert (kernel["device"], kernel["stream"], kernel["correlation"]) == (0, 7, 9)
    assert (kernel["ts_ns"], kernel["dur_ns"]) == (5000, 2000)
    assert kernel["name"] == "void at::native::kernel_1<float, (int)1>(int, T1)"
    assert arguments(kernel) == {
        "device": 0, "context": 1, "stream": 7, "process": 111, "registers per thread": 40, "shared memory": 128,
        "grid": [3, 2, 1], "block": [128, 1, 1], "correlation": 9,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "source", "target", "name"),
    [
        (1, 1, 2, "Memcpy HtoD (Pinned -> Device)"),
        (2, 2, 0, "Memcpy DtoH (Device -> Pageable)"),
        (8, 2, 2, "Memcpy DtoD (Device -> Device)"),
        (10, 2, 2, "Memcpy PtoP (Device -> Device)"),
        (99, 7, 7, "Memcpy Unknown"),
        (1, None, None, "Memcpy HtoD"),
    ],
)
def test_copy_is_named_after_its_direction_and_memories(
    made: Made, kind: int, source: int | None, target: int | None, name: str
) -> None:
    row = gpu_row(0, 2000, bytes=4096, copyKind=kind, srcKind=source, dstKind=target)
    (copy,) = made(alone(**{COPY: [row]})).dicts("cat = 'gpu_memcpy'")

    assert (copy["name"], copy["bytes"]) == (name, 4096)
    assert arguments(copy)["memory bandwidth (GB/s)"] == 2.048


def test_memset_has_its_bytes_and_memory(made: Made) -> None:
    (memset,) = made(alone(**{MEMSET: [gpu_row(0, 0, bytes=512, value=0, memKind=2)]})).dicts("cat = 'gpu_memset'")

    assert (memset["name"], memset["bytes"], memset["dur_ns"]) == ("Memset (Device)", 512, 0)
    assert "memory bandwidth (GB/s)" not in arguments(memset)


def test_graph_that_was_traced_as_a_whole_is_a_kernel(made: Made) -> None:
    trace = made(alone(**{GRAPH: [gpu_row(100, 900, graphId=8, graphExecId=9, correlationId=5)]}))

    (graph,) = trace.dicts("cat = 'kernel'")
    assert (graph["name"], graph["dur_ns"]) == ("CUDA graph 8", 800)
    assert trace.summary.devices[0]["bounds"] == {"start_ns": 100, "end_ns": 900}


@pytest.mark.parametrize(
    ("kind", "stream", "name", "track"),
    [
        (1, 7, "Event Sync", 1_000_007),
        (2, 7, "Stream Wait Event", 1_000_007),
        (3, 7, "Stream Sync", 1_000_007),
        (4, (1 << 32) - 1, "Context Sync", -1),
    ],
)
def test_wait_is_a_synchronization_of_kineto(made: Made, kind: int, stream: int, name: str, track: int) -> None:
    row = gpu_row(0, 50, stream=stream, syncType=kind, eventId=3, correlationId=4)
    (wait,) = made(alone(**{WAIT: [row]})).dicts("cat = 'cuda_sync'")

    assert (wait["name"], wait["tid"], wait["correlation"]) == (name, track, 4)
    assert arguments(wait)["cuda_sync_kind"] == name


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("cudaLaunchKernel_v7000", "cudaLaunchKernel"),
        ("cudaLaunchKernel_ptsz_v7000", "cudaLaunchKernel"),
        ("cuLaunchKernelEx_ptsz", "cuLaunchKernelEx"),
        ("cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync"),
        ("cuModuleGetLoadingMode", "cuModuleGetLoadingMode"),
    ],
)
def test_name_of_a_call_has_no_version(raw: str, name: str) -> None:
    assert api_name(raw) == name


def test_calls_of_runtime_and_driver_have_their_categories_and_links(made: Made) -> None:
    rows = [call_row(0, 10, 5), call_row(20, 30, 6, name=2), call_row(40, 50, 7, tid=112)]
    work = [
        gpu_row(100, 200, correlationId=5, demangledName=100),
        gpu_row(300, 400, correlationId=6, demangledName=100),
    ]
    trace = made(alone(**{CALL: rows, KERNEL: work}))

    calls = trace.dicts("cat IN ('cuda_runtime', 'cuda_driver')")
    assert [(call["cat"], call["name"], call["pid"], call["tid"]) for call in calls] == [
        ("cuda_runtime", "cudaLaunchKernel", 111, 111),
        ("cuda_driver", "cuLaunchKernelEx", 111, 111),
        ("cuda_runtime", "cudaLaunchKernel", 111, 112),
    ]
    flows = trace.dicts("cat = 'ac2g'")
    assert [(flow["ph"], flow["id"], flow["ts_ns"], flow["pid"]) for flow in flows] == [
        ("s", 5, 0, 111), ("s", 6, 20, 111), ("f", 5, 100, 0), ("f", 6, 300, 0),
    ]  # fmt: skip
    assert trace.summary.attribution["rules"] == {"launch_outside_operators": 2}


def test_correlations_of_several_processes_do_not_meet(made: Made) -> None:
    trace = made(Export(kernels=60, pids=(111, 222)))

    work = trace.dicts("cat = 'kernel'")
    assert len({event["correlation"] for event in work}) == 60
    assert trace.summary.attribution["rules"] == {"launch_outside_operators": 60}
    assert {arguments(event).get("nsys correlation", event["correlation"]) for event in work} == set(
        range(1000, 1090, 3)
    )
    pids = trace.rows(
        "SELECT DISTINCT w.device, c.pid FROM events w JOIN events c USING (correlation) WHERE w.cat = 'kernel'"
        " AND c.cat LIKE 'cuda_%' ORDER BY ALL"
    )
    assert pids == [(0, 111), (1, 222)]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), min_size=1, max_size=60))
def test_unique_correlations_keep_apart_exactly_what_differs(pairs: list[tuple[int, int]]) -> None:
    processes, correlations = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    everywhere = np.ones(len(pairs), np.bool_)

    unique, present = Processes().unique_correlations(processes, everywhere, correlations, everywhere)

    assert present.all()
    assert len(set(unique.tolist())) == len(set(pairs))
    assert all(
        (a == b) == (left == right)
        for a, left in zip(unique, pairs, strict=True)
        for b, right in zip(unique, pairs, strict=True)
    )


@given(st.data(), st.lists(st.integers(-100, 100), min_size=1, max_size=70))
def test_smallest_of_each_interval_is_that_of_a_search(data: st.DataObject, values: list[int]) -> None:
    bounds = data.draw(
        st.lists(
            st.integers(0, len(values) - 1).flatmap(
                lambda low: st.tuples(st.just(low), st.integers(low + 1, len(values)))
            ),
            max_size=20,
        )
    )
    first, after = (np.array([bound[side] for bound in bounds], np.int64) for side in (0, 1))
    assert smallest(np.array(values), first, after).tolist() == [min(values[low:high]) for low, high in bounds]


def test_work_without_a_process_is_linked_if_there_is_one_process(made: Made) -> None:
    export = Export(kernels=10, lacking={KERNEL: ["globalPid"]})
    assert made(export).summary.attribution["rules"] == {"launch_outside_operators": 10}


def test_work_without_a_process_is_not_linked_among_several_processes(made: Made) -> None:
    export = Export(kernels=10, pids=(111, 222), lacking={KERNEL: ["globalPid"]})
    assert made(export).summary.attribution["rules"] == {"no_launch": 10}


# -- ranges ----------------------------------------------------------------------------------------------------------


def test_range_spans_the_work_that_was_launched_inside(made: Made) -> None:
    calls = [call_row(start, start + 5, start) for start in (10, 20, 30, 40)]
    work = [
        gpu_row(100, 150, stream=7, correlationId=10, demangledName=100),
        gpu_row(160, 190, stream=7, correlationId=20, demangledName=100),
        gpu_row(120, 500, stream=9, correlationId=30, demangledName=100),
        gpu_row(600, 700, stream=7, correlationId=40, demangledName=100),
    ]
    ranges = [range_row(0, 35, "outer"), range_row(15, 25, "inner"), range_row(50, 60, "idle")]
    trace = made(alone(**{CALL: calls, KERNEL: work, NVTX: ranges}))

    spans = trace.rows(
        "SELECT name, pid, tid, ts_ns, dur_ns FROM events WHERE cat = 'gpu_user_annotation' ORDER BY name, tid"
    )
    assert spans == [("inner", 0, 7, 160, 30), ("outer", 0, 7, 100, 90), ("outer", 0, 9, 120, 380)]
    assert [event["name"] for event in trace.dicts("cat = 'user_annotation'")] == ["outer", "inner", "idle"]


def test_work_beyond_the_limit_of_streams_is_in_no_span(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.formats.nsys.projection.STREAMS_MAX", 2)
    calls = [call_row(start, start + 5, start) for start in (10, 20, 30)]
    work = [
        gpu_row(100 * start, 100 * start + 50, stream=start, correlationId=start, demangledName=100)
        for start in (10, 20, 30)
    ]
    trace = made(alone(**{CALL: calls, KERNEL: work, NVTX: [range_row(0, 40, "all")]}))

    spans = trace.rows("SELECT tid, ts_ns, dur_ns FROM events WHERE cat = 'gpu_user_annotation' ORDER BY tid")
    assert spans == [(10, 1000, 50), (20, 2000, 50)]
    assert trace.notes["spans_left_out"] == 1


def test_range_of_another_thread_spans_nothing(made: Made) -> None:
    work = [gpu_row(100, 150, correlationId=10, demangledName=100)]
    ranges = [range_row(0, 35, "elsewhere") | {"globalTid": thread(111, 112)}]
    trace = made(alone(**{CALL: [call_row(10, 15, 10)], KERNEL: work, NVTX: ranges}))
    assert trace.dicts("cat = 'gpu_user_annotation'") == []


def test_range_that_was_never_closed_ends_with_the_last_event(made: Made) -> None:
    trace = made(alone(**{KERNEL: [gpu_row(100, 900, demangledName=100)], NVTX: [range_row(50, None, "open")]}))

    (annotation,) = trace.dicts("cat = 'user_annotation'")
    assert (annotation["ts_ns"], annotation["dur_ns"]) == (50, 850)
    assert trace.notes["open_ranges"] == 1


def test_name_of_a_range_may_be_a_registered_string(made: Made) -> None:
    rows = [range_row(0, 10, None, textId=500), range_row(20, 30, None, textId=777), range_row(40, 50, None)]
    trace = made(Export(kernels=0, rows={NVTX: rows}, strings=[(500, "ncclAllReduce")]))

    names = [event["name"] for event in trace.dicts("cat = 'user_annotation'")]
    assert names == ["ncclAllReduce", "unknown", "unknown"]
    assert trace.notes["unknown_names"] == 2


def test_domain_and_category_of_a_range_are_named(made: Made) -> None:
    rows = [
        range_row(10, 20, "all reduce", domainId=1, category=7),
        range_row(0, None, "NCCL", kind=75, domainId=1),
        range_row(0, None, "phase", kind=33, domainId=1, category=7),
    ]
    (annotation,) = made(alone(**{NVTX: rows})).dicts("cat = 'user_annotation'")
    assert arguments(annotation) == {"domain": "NCCL", "category": "phase"}


@pytest.mark.parametrize("kind", [59, 60, 70, 71])
def test_all_types_of_ranges_are_annotations(made: Made, kind: int) -> None:
    assert len(made(alone(**{NVTX: [range_row(0, 10, "a", kind=kind)]})).dicts("cat = 'user_annotation'")) == 1


def test_mark_is_an_instant_event(made: Made) -> None:
    (mark,) = made(alone(**{NVTX: [range_row(5, None, "checkpoint", kind=34), range_row(0, 10, "a")]})).dicts(
        "ph = 'i'"
    )
    assert (mark["name"], mark["cat"], mark["ts_ns"], mark["rest"]) == (
        "checkpoint",
        "cpu_instant_event",
        5,
        '{"s": "t"}',
    )


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("aten::mm, op_id = 7", "aten::mm", {"Record function id": 7}),
        ("aten::mm, seq = 5, op_id = 7", "aten::mm", {"Record function id": 7, "Sequence number": 5}),
        (
            "aten::mm, seq = 5, op_id = 7, sizes = [[2, 3], [3, 4]], input_op_ids = [(6,0)]", "aten::mm",
            {"Record function id": 7, "Sequence number": 5, "Input Dims": [[2, 3], [3, 4]]},
        ),
        ("a, b, op_id = 7", "a, b", {"Record function id": 7}),
    ],
)  # fmt: skip
def test_range_of_emit_nvtx_is_an_operator(made: Made, text: str, name: str, expected: dict[str, Any]) -> None:
    (operator,) = made(alone(**{NVTX: [range_row(0, 10, text)]})).dicts("cat = 'cpu_op'")
    assert operator["name"] == name
    assert arguments(operator) == expected


def test_long_name_is_no_operator(made: Made) -> None:
    text = "a" + ", op_id = 1, sizes = []" * 40_000 + "x"
    (annotation,) = made(alone(**{NVTX: [range_row(0, 10, text)]})).dicts("cat = 'user_annotation'")
    assert annotation["name"] == text


def test_missing_name_is_not_that_of_string_0(made: Made) -> None:
    work = [gpu_row(0, 10, demangledName=None), gpu_row(20, 30, demangledName=0)]
    trace = made(alone(**{KERNEL: work, "StringIds": [{"id": 0, "value": "zero"}]}))
    assert [event["name"] for event in trace.dicts("cat = 'kernel'")] == ["unknown", "zero"]


def test_open_range_beside_an_absurd_time_ends_with_the_last_event(made: Made) -> None:
    ranges = [range_row(50, None, "open"), range_row(900, 950, "last"), range_row(1 << 62, None, "absurd")]
    trace = made(alone(**{NVTX: ranges}))
    assert [(event["name"], event["dur_ns"]) for event in trace.dicts("cat = 'user_annotation'")] == [
        ("open", 900),
        ("last", 50),
    ]


# -- the document ----------------------------------------------------------------------------------------------------


def test_clock_counts_from_the_start_of_the_session(made: Made) -> None:
    summary = made(Export(kernels=10)).summary
    assert summary.base_ns == START_NS
    assert summary.bounds == {"start_ns": 10_000_000, "end_ns": 10_000_000 + 9 * 3000 + 2509}


def test_gpus_are_described_as_in_kineto(made: Made) -> None:
    gpu = {"vmId": 1, "id": 3, "cuDevice": 0, "name": "NVIDIA H100", "totalMemory": 85_899_345_920, "smCount": 132}
    (device,) = made(Export(kernels=10, rows={"TARGET_INFO_GPU": [gpu]})).summary.devices
    assert (device["id"], device["name"], device["memory_bytes"], device["events"]) == (
        0,
        "NVIDIA H100",
        85_899_345_920,
        10,
    )


def test_devices_that_processes_number_differently_are_kept_apart(made: Made) -> None:
    rows = [gpu_row(0, 10, pid=pid, device=0, demangledName=100) for pid in (111, 222)]
    devices = [{"gpuId": gpu, "cudaId": 0, "pid": pid} for gpu, pid in ((4, 111), (5, 222))]
    trace = made(alone(**{KERNEL: rows, "TARGET_INFO_CUDA_DEVICE": devices}))
    assert [device["id"] for device in trace.summary.devices] == [4, 5]


def test_processes_threads_and_streams_have_names(made: Made) -> None:
    summary = made(Export(kernels=9)).summary
    assert [(process["pid"], process["name"], process["labels"]) for process in summary.processes] == [
        (0, "GPU 0", "GPU 0"), (111, "pt_main_thread", "CPU"),
    ]  # fmt: skip
    names = {(thread["pid"], thread["tid"]): thread["name"] for thread in summary.threads}
    assert names == {
        (0, 7): "stream 7 ", (0, 8): "stream 8 ", (0, 9): "stream 9 ", (111, 111): "thread 111 (pt_main_thread)",
    }  # fmt: skip
