"""The census counts every element of the events array, and its summary can always be stored and served."""

from dataclasses import asdict
from decimal import Decimal
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.trace.census import Census, Summary

Event = dict[str, Any]


def census(*events: Any, envelope: dict[str, Any] | None = None, name: str = "trace.json") -> Summary:
    one = Census()
    for event in events:
        one.add(event)
    return one.summary(envelope or {}, file_name=name, packed="json")


def kernel(**more: Any) -> Event:
    return {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10, "dur": 5, "args": {}} | more


def op(**more: Any) -> Event:
    return {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 42, "tid": 42, "ts": 1, "dur": 2} | more


# -- counts ---------------------------------------------------------------------------------------------------


def test_events_are_counted_by_phase_and_category() -> None:
    found = census(kernel(), kernel(), op(), {"ph": "M"}, {"ph": "s", "cat": "ac2g"}, {})

    assert found.counts == {"X|kernel": 2, "X|cpu_op": 1, "M|": 1, "s|ac2g": 1, "|": 1}
    assert found.events == {"in": 6, "kept": 6, "refused": 0}


@pytest.mark.parametrize("odd", [None, 3, [], {}, ["X"], True, Decimal("1.5")])
def test_a_phase_or_category_that_is_no_text_counts_as_absent(odd: Any) -> None:
    assert census(op(ph=odd), op(cat=odd)).counts == {"|cpu_op": 1, "X|": 1}


def test_elements_that_are_no_objects_are_refused_and_told_of() -> None:
    found = census(op(), None, 3, "x", [op()], True)

    assert found.events == {"in": 6, "kept": 1, "refused": 5}
    assert found.health["notes"] == [{"code": "not_an_event", "detail": "5 elements are no objects."}]


# -- time -----------------------------------------------------------------------------------------------------


def test_bounds_reach_from_the_first_start_to_the_last_end() -> None:
    found = census(op(ts=Decimal("5.001"), dur=Decimal("1.5")), op(ts=3, dur=9), op(ts=Decimal("4.5"), dur=1))

    assert found.bounds == {"start_ns": 3000, "end_ns": 12000}


def test_bounds_are_exact_beyond_a_double() -> None:
    found = census(op(ts=Decimal("1712195495505582.988"), dur=Decimal("0.001")))

    assert found.bounds == {"start_ns": 1712195495505582988, "end_ns": 1712195495505582989}


@pytest.mark.parametrize("phase", ["M", "s", "t", "f", "C"])
def test_metadata_flows_and_counters_stretch_no_bounds(phase: str) -> None:
    assert census(op(ts=10, dur=1), {"ph": phase, "ts": 99}, {"ph": phase, "ts": 0}).bounds == {
        "start_ns": 10_000,
        "end_ns": 11_000,
    }


def test_an_instant_stretches_the_bounds_to_itself() -> None:
    assert census({"ph": "i", "ts": 7}).bounds == {"start_ns": 7000, "end_ns": 7000}


def test_a_negative_duration_lasts_for_no_time() -> None:
    assert census(op(ts=10, dur=-5)).bounds == {"start_ns": 10_000, "end_ns": 10_000}


@pytest.mark.parametrize(
    "odd",
    [{"ts": None}, {"ts": "12"}, {"ts": True}, {"ts": 1 << 70}, {"ts": Decimal("1e400")}, {"dur": "5"}, {"dur": []}],
)
def test_an_event_without_a_usable_time_is_kept_counted_and_told_of(odd: Event) -> None:
    found = census(op(), kernel(**odd))

    assert found.bounds == {"start_ns": 1000, "end_ns": 3000}
    assert found.counts["X|kernel"] == 1
    assert found.devices == []
    assert found.health["notes"] == [{"code": "no_time", "detail": "1 events have no time that is a number."}]


def test_no_event_means_no_bounds() -> None:
    assert census().bounds is None
    assert census({"ph": "M"}).bounds is None


# -- devices and streams --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "category", ["kernel", "gpu_memcpy", "gpu_memset", "mtia_ccp_events", "Kernel", "Memcpy", "Memset"]
)
def test_work_on_a_device_is_told_by_its_category(category: str) -> None:
    found = census(kernel(cat=category, args={"device": 2, "stream": 20}))

    assert found.streams == ["2/20"]
    assert found.devices == [
        {"id": 2, "name": None, "memory_bytes": None, "events": 1, "bounds": {"start_ns": 10_000, "end_ns": 15_000}}
    ]


@pytest.mark.parametrize("category", ["cuda_sync", "gpu_user_annotation", "cuda_runtime", "overhead", None])
def test_what_merely_stands_on_a_stream_is_no_work(category: str | None) -> None:
    found = census(kernel(cat=category, args={"device": 0, "stream": 7}))

    assert (found.streams, found.devices) == ([], [])


def test_pid_and_tid_are_device_and_stream_where_args_tell_none() -> None:
    assert census(kernel(pid=3, tid=9), kernel(pid=3, tid=9, args=None), kernel(pid=3, tid=9, args=[])).streams == [
        "3/9"
    ]


def test_the_format_of_2021_names_streams_in_the_tid() -> None:
    found = census(
        kernel(cat="Kernel", tid="stream 7"),
        kernel(cat="Memset", tid="stream 7", args={"stream": 7}),
        kernel(cat="Memcpy", tid="stream 20"),
    )

    assert found.streams == ["0/7", "0/20"]


def test_streams_are_in_the_order_of_their_numbers() -> None:
    found = census(*(kernel(args={"device": d, "stream": s}) for d, s in [(1, 7), (0, 20), (0, "default"), (0, 7)]))

    assert found.streams == ["0/7", "0/20", "0/default", "1/7"]


def test_devices_have_the_names_and_memory_that_the_document_tells() -> None:
    told = [{"id": 0, "name": "NVIDIA A100", "totalGlobalMem": 85_097_971_712}, {"id": 1, "name": ""}, "x", {}]

    found = census(kernel(), envelope={"deviceProperties": told})

    assert [(one["id"], one["name"], one["memory_bytes"], one["events"]) for one in found.devices] == [
        (0, "NVIDIA A100", 85_097_971_712, 1),
        (1, None, None, 0),
    ]
    assert found.devices[1]["bounds"] is None


# -- processes and threads ------------------------------------------------------------------------------------


def test_tracks_are_counted_and_named() -> None:
    found = census(
        {"ph": "M", "name": "process_name", "pid": 42, "tid": 0, "args": {"name": "python"}},
        {"ph": "M", "name": "process_labels", "pid": 42, "tid": 0, "args": {"labels": "CPU"}},
        {"ph": "M", "name": "thread_name", "pid": 42, "tid": 42, "args": {"name": "thread 42 (python)"}},
        {"ph": "M", "name": "process_name", "pid": 9, "args": {"name": "declared, and idle"}},
        op(),
        op(tid=43),
    )

    assert found.processes == [{"pid": 42, "name": "python", "labels": "CPU", "events": 2}]
    assert found.threads == [
        {"pid": 42, "tid": 42, "name": "thread 42 (python)", "events": 1},
        {"pid": 42, "tid": 43, "name": None, "events": 1},
    ]


def test_the_name_of_a_process_is_not_that_of_its_events_without_a_thread() -> None:
    found = census(
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
        {"ph": "M", "name": "thread_name", "pid": 2, "args": {"name": "main"}},
        {"ph": "C", "pid": 1, "ts": 1},
        {"ph": "C", "pid": 2, "ts": 1},
    )

    assert [one["name"] for one in found.threads] == [None, "main"]
    assert [one["name"] for one in found.processes] == ["python", None]


@pytest.mark.parametrize("args", [None, [], {}, {"name": 3}, {"name": None}])
def test_metadata_without_a_name_names_nothing(args: Any) -> None:
    found = census({"ph": "M", "name": "process_name", "pid": 42, "args": args}, op())

    assert found.processes[0]["name"] is None


@pytest.mark.parametrize(
    ("pid", "key"),
    [
        (0, 0),
        (-1, -1),
        ("Spans", "Spans"),
        ("", ""),
        (None, ""),
        ((1 << 63) - 1, (1 << 63) - 1),
        (-(1 << 63), -(1 << 63)),
        (1 << 63, "9223372036854775808"),
        (10**40, "1" + "0" * 40),
        (Decimal("1.5"), "1.5"),
        (["x"], ""),
        ({}, ""),
    ],
)
def test_a_pid_is_a_64_bit_integer_or_text(pid: Any, key: Any) -> None:
    found = census(op(pid=pid, tid=pid))

    assert found.processes == [{"pid": key, "name": None, "labels": None, "events": 1}]
    assert found.threads == [{"pid": key, "tid": key, "name": None, "events": 1}]


def test_an_integer_and_its_text_are_two_pids() -> None:
    assert [one["pid"] for one in census(op(pid="5"), op(pid=5)).processes] == [5, "5"]


def test_a_pid_nested_without_end_is_no_pid() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    assert census(op(pid=deep)).processes[0]["pid"] == ""


# -- steps ----------------------------------------------------------------------------------------------------


def test_steps_are_those_on_the_host_in_order() -> None:
    found = census(
        op(cat="user_annotation", name="ProfilerStep#4", ts=20, dur=5),
        op(cat="user_annotation", name="ProfilerStep#3", ts=10, dur=5),
        op(cat="gpu_user_annotation", name="ProfilerStep#3", ts=12, dur=9),
        kernel(name="ProfilerStep#9"),
        op(cat="Operator", name="ProfilerStep#5", ts=30, dur=5),
    )

    assert found.steps == [
        {"number": 3, "name": "ProfilerStep#3", "start_ns": 10_000, "end_ns": 15_000},
        {"number": 4, "name": "ProfilerStep#4", "start_ns": 20_000, "end_ns": 25_000},
        {"number": 5, "name": "ProfilerStep#5", "start_ns": 30_000, "end_ns": 35_000},
    ]


@pytest.mark.parametrize(
    "name",
    ["ProfilerStep*", "ProfilerStep#", "ProfilerStep#x", "ProfilerStep#3 ", "ProfilerStep#" + "9" * 5000, 3, None],
)
def test_what_merely_reads_like_a_step_is_none(name: Any) -> None:
    assert census(op(cat="user_annotation", name=name)).steps == []


# -- what the envelope tells ----------------------------------------------------------------------------------


def test_the_envelope_tells_host_group_and_clock() -> None:
    found = census(
        envelope={
            "host_name": "node-0",
            "baseTimeNanoseconds": 1_735_689_600_000_000_000,
            "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
        }
    )

    assert (found.host, found.base_ns, found.backend) == ("node-0", 1_735_689_600_000_000_000, "nccl")
    assert (found.rank, found.world_size) == (3, 8)


@pytest.mark.parametrize("base", [None, "0", -1, 1 << 63, True, Decimal("1.5")])
def test_a_base_that_is_no_64_bit_count_is_unknown(base: Any) -> None:
    assert census(envelope={"baseTimeNanoseconds": base}).base_ns is None


# -- storable, whatever came ----------------------------------------------------------------------------------

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4)
    | st.sampled_from(
        ["X", "M", "i", "C", "kernel", "ProfilerStep#3", "stream 7", "stream " + "9" * 30, "process_name"]
    )
    | st.sampled_from([(1 << 63) // 1000, -(1 << 63) // 1000, 1 << 64])
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner))
args = st.none() | st.dictionaries(st.sampled_from(["name", "labels", "device", "stream"]), values) | values
events = st.fixed_dictionaries(
    {},
    optional={key: values for key in ("ph", "cat", "name", "pid", "tid", "ts", "dur")} | {"args": args},  # noqa: C420
)
envelopes = st.fixed_dictionaries(
    {},
    optional={
        "baseTimeNanoseconds": values,
        "host_name": values,
        "deviceProperties": values
        | st.lists(
            st.fixed_dictionaries({"id": values}, optional={"name": values, "totalGlobalMem": values}), max_size=3
        ),
        "distributedInfo": values | st.fixed_dictionaries({"rank": values, "world_size": values, "backend": values}),
    },
)


@given(st.lists(events | values, max_size=8), envelopes)
def test_a_summary_of_anything_is_json_and_adds_up(elements: list[Any], envelope: dict[str, Any]) -> None:
    found = census(*elements, envelope=envelope)

    assert orjson.loads(orjson.dumps(asdict(found))) == asdict(found)
    assert found.events["in"] == len(elements)
    assert sum(found.counts.values()) == found.events["kept"]
    assert sum(one["events"] for one in found.processes) == sum(one["events"] for one in found.threads)
    assert len(set(found.streams)) == len(found.streams)
    for bounds in (found.bounds, *(one["bounds"] for one in found.devices), *found.steps):
        assert bounds is None or bounds["start_ns"] <= bounds["end_ns"]
