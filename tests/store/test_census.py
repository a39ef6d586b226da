"""The census counts every event of a trace, and its summary can always be stored and served."""

import json
from collections.abc import Callable
from dataclasses import asdict
from decimal import Decimal
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.jobs.ingest import ingest
from service.trace.errors import NotATrace
from service.trace.summary import Summary

Event = dict[str, Any]
Census = Callable[..., Summary]

TS = 1_712_195_495_000_000  # µs since the epoch


def text_of(value: Any) -> str:
    """Return JSON text of a value; a `Decimal` becomes a number with exactly its digits."""
    match value:
        case dict():
            return "{" + ", ".join(f"{json.dumps(key)}: {text_of(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(text_of, value)) + "]"
        case Decimal():
            return str(value)
        case _:
            return json.dumps(value)


def summary_of(folder: Path, text: str, name: str) -> Summary:
    original = folder / "original"
    original.write_text(text)
    with original.open("rb") as file:
        return ingest(file, folder / "columns", name, lambda _: None)


@pytest.fixture
def census(tmp_path: Path) -> Census:
    """Return a function that returns the summary of a document of events."""

    def take(*events: Any, envelope: dict[str, Any] | None = None, name: str = "trace.json") -> Summary:
        return summary_of(tmp_path, text_of((envelope or {}) | {"traceEvents": list(events)}), name)

    return take


def kernel(**more: Any) -> Event:
    return {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10, "dur": 5, "args": {}} | more


def op(**more: Any) -> Event:
    return {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 42, "tid": 42, "ts": 1, "dur": 2} | more


def launch(**more: Any) -> Event:
    return op(cat="cuda_runtime", name="cudaLaunchKernel", args={"correlation": 1}) | more


def notes(summary: Summary, *, excluding: tuple[str, ...] = ("unknown_rank", "unknown_base")) -> dict[str, int]:
    """Return the count of each note, without those on rank and base: most traces here have no rank and no base."""
    return {note["code"]: note["count"] for note in summary.health["notes"] if note["code"] not in excluding}


def examples(summary: Summary, code: str) -> list[str]:
    (note,) = (note for note in summary.health["notes"] if note["code"] == code)
    return [example["text"] or "" for example in note["examples"]]


# -- counts ---------------------------------------------------------------------------------------------------


def test_events_are_counted_by_phase_and_category(census: Census) -> None:
    summary = census(kernel(), kernel(), op(), {"ph": "M"}, {"ph": "s", "cat": "ac2g", "ts": 1}, {})

    assert summary.counts == {"X|kernel": 2, "X|cpu_op": 1, "M|": 1, "s|ac2g": 1, "|": 1}
    assert summary.events == {"in": 6, "kept": 6, "refused": 0}


@pytest.mark.parametrize("odd", [None, 3, [], {}, ["X"], True, Decimal("1.5")])
def test_a_phase_or_category_that_is_no_text_counts_as_absent(census: Census, odd: Any) -> None:
    assert census(op(ph=odd), op(cat=odd)).counts == {"|cpu_op": 1, "X|": 1}


def test_elements_that_are_no_objects_are_refused_and_reported(census: Census) -> None:
    summary = census(op(), None, 3, "x", ["ph"], True)

    assert summary.events == {"in": 6, "kept": 1, "refused": 5}
    assert summary.health["refused"] == 5
    assert notes(summary) == {"not_an_event": 5}


def test_trace_without_events_has_a_summary(census: Census) -> None:
    summary = census(envelope={"deviceProperties": [{"id": 0}]})

    assert (summary.counts, summary.processes, summary.threads, summary.steps, summary.streams) == ({}, [], [], [], [])
    assert [entry["events"] for entry in summary.devices] == [0]
    assert notes(summary, excluding=("unknown_rank",)) == {}


# -- time -----------------------------------------------------------------------------------------------------


def test_bounds_reach_from_the_first_start_to_the_last_end(census: Census) -> None:
    summary = census(op(ts=Decimal("5.001"), dur=Decimal("1.5")), op(ts=3, dur=9), op(ts=Decimal("4.5"), dur=1))

    assert summary.bounds == {"start_ns": 3000, "end_ns": 12000}


def test_bounds_are_exact_beyond_a_double(census: Census) -> None:
    summary = census(op(ts=Decimal("1712195495505582.988"), dur=Decimal("0.001")))

    assert summary.bounds == {"start_ns": 1712195495505582988, "end_ns": 1712195495505582989}


@pytest.mark.parametrize("phase", ["M", "s", "t", "f", "C"])
def test_metadata_flows_and_counters_do_not_extend_bounds(census: Census, phase: str) -> None:
    assert census(op(ts=10, dur=1), {"ph": phase, "ts": 99}, {"ph": phase, "ts": 0}).bounds == {
        "start_ns": 10_000,
        "end_ns": 11_000,
    }


def test_instant_extends_the_bounds(census: Census) -> None:
    assert census({"ph": "i", "ts": 7}).bounds == {"start_ns": 7000, "end_ns": 7000}


@pytest.mark.parametrize(("phase", "end_ns"), [("i", 11_000), ("X", 30_000)])
def test_end_of_the_record_window_does_not_extend_the_bounds(census: Census, phase: str, end_ns: int) -> None:
    """Kineto writes it milliseconds after the last event; a slice of that name is an event like others."""
    summary = census(op(ts=10, dur=1), op(ph=phase, name="Record Window End", ts=30, dur=0), {"ph": "i", "ts": 10.5})

    assert summary.bounds == {"start_ns": 10_000, "end_ns": end_ns}
    assert sum(summary.counts.values()) == 3


def test_negative_duration_counts_as_zero(census: Census) -> None:
    assert census(op(ts=10, dur=-5)).bounds == {"start_ns": 10_000, "end_ns": 10_000}


def test_end_beyond_64_bits_is_ignored(census: Census) -> None:
    summary = census(op(ts=8_000_000_000_000_000, dur=8_000_000_000_000_000))

    assert summary.bounds == {"start_ns": 8 * 10**18, "end_ns": 8 * 10**18}


def test_trace_without_events_has_no_bounds(census: Census) -> None:
    assert census({"ph": "M"}).bounds is None


# -- devices and streams --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "category", ["kernel", "gpu_memcpy", "gpu_memset", "mtia_ccp_events", "Kernel", "Memcpy", "Memset"]
)
def test_device_work_is_recognised_by_its_category(census: Census, category: str) -> None:
    summary = census(kernel(cat=category, args={"device": 2, "stream": 20}))

    assert summary.streams == ["2/20"]
    assert summary.devices == [
        {"id": 2, "name": None, "memory_bytes": None, "events": 1, "bounds": {"start_ns": 10_000, "end_ns": 15_000}}
    ]


@pytest.mark.parametrize("category", ["cuda_sync", "gpu_user_annotation", "cuda_runtime", "overhead", None])
def test_event_with_a_stream_alone_is_no_work(census: Census, category: str | None) -> None:
    summary = census(kernel(cat=category, args={"device": 0, "stream": 7}))

    assert (summary.streams, summary.devices) == ([], [])


def test_pid_and_tid_are_device_and_stream_without_args(census: Census) -> None:
    summary = census(kernel(pid=3, tid=9), kernel(pid=3, tid=9, args=None), kernel(pid=3, tid=9, args=[]))

    assert summary.streams == ["3/9"]


def test_format_of_2021_names_streams_in_the_tid(census: Census) -> None:
    summary = census(
        kernel(cat="Kernel", tid="stream 7"),
        kernel(cat="Memset", tid="stream 7", args={"stream": 7}),
        kernel(cat="Memcpy", tid="stream 20"),
    )

    assert summary.streams == ["0/7", "0/20"]


def test_streams_are_in_the_order_of_their_numbers(census: Census) -> None:
    summary = census(*(kernel(args={"device": d, "stream": s}) for d, s in [(1, 7), (0, 20), (0, 7)]))

    assert summary.streams == ["0/7", "0/20", "1/7"]


def test_work_without_a_time_is_counted_on_its_device(census: Census) -> None:
    (device,) = census(kernel(ts=None)).devices

    assert (device["events"], device["bounds"]) == (1, None)


def test_devices_have_names_and_memory_from_the_document(census: Census) -> None:
    properties = [{"id": 0, "name": "NVIDIA A100", "totalGlobalMem": 85_097_971_712}, {"id": 1, "name": ""}, "x", {}]

    summary = census(kernel(), envelope={"deviceProperties": properties})

    assert [(entry["id"], entry["name"], entry["memory_bytes"], entry["events"]) for entry in summary.devices] == [
        (0, "NVIDIA A100", 85_097_971_712, 1),
        (1, None, None, 0),
    ]
    assert summary.devices[1]["bounds"] is None


# -- processes and threads ------------------------------------------------------------------------------------


def test_tracks_are_counted_and_named(census: Census) -> None:
    summary = census(
        {"ph": "M", "name": "process_name", "pid": 42, "tid": 0, "args": {"name": "python"}},
        {"ph": "M", "name": "process_labels", "pid": 42, "tid": 0, "args": {"labels": "CPU"}},
        {"ph": "M", "name": "thread_name", "pid": 42, "tid": 42, "args": {"name": "thread 42 (python)"}},
        {"ph": "M", "name": "process_name", "pid": 9, "args": {"name": "declared, and idle"}},
        op(),
        op(tid=43),
    )

    assert summary.processes == [{"pid": 42, "name": "python", "labels": "CPU", "events": 2}]
    assert summary.threads == [
        {"pid": 42, "tid": 42, "name": "thread 42 (python)", "events": 1, "device": None, "host": True},
        {"pid": 42, "tid": 43, "name": None, "events": 1, "device": None, "host": True},
    ]


def test_track_may_show_device_work_host_work_or_both(census: Census) -> None:
    summary = census(op(pid=7, tid=7), kernel(pid=7, tid=7), kernel(pid=0, tid=7), op(pid=1, tid=1))

    assert [(entry["pid"], entry["device"], entry["host"]) for entry in summary.threads] == [
        (0, 0, False),
        (1, None, True),
        (7, 7, True),
    ]


def test_the_last_name_of_a_process_counts(census: Census) -> None:
    names = [{"ph": "M", "name": "process_name", "pid": 42, "args": {"name": name}} for name in ("first", "last")]

    assert census(*names, op()).processes[0]["name"] == "last"


def test_the_name_of_a_process_is_not_that_of_its_events_without_a_thread(census: Census) -> None:
    summary = census(
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
        {"ph": "M", "name": "thread_name", "pid": 2, "args": {"name": "main"}},
        {"ph": "C", "pid": 1, "ts": 1},
        {"ph": "C", "pid": 2, "ts": 1},
    )

    assert [entry["name"] for entry in summary.threads] == [None, "main"]
    assert [entry["name"] for entry in summary.processes] == ["python", None]


@pytest.mark.parametrize("args", [None, [], {}, {"name": 3}, {"name": None}])
def test_metadata_without_a_name_names_nothing(census: Census, args: Any) -> None:
    summary = census({"ph": "M", "name": "process_name", "pid": 42, "args": args}, op())

    assert summary.processes[0]["name"] is None


@pytest.mark.parametrize(
    ("pid", "key"),
    [
        (0, 0),
        (-1, -1),
        ("Spans", "Spans"),
        ("", ""),
        ("\ud800", "\ufffd"),
        (None, ""),
        (10**18 - 1, 10**18 - 1),
        (1 << 63, "9223372036854775808"),
        (10**40, "1" + "0" * 40),
        (Decimal("1.5"), "1.5"),
        (["x"], ""),
        ({}, ""),
    ],
)
def test_a_pid_is_an_integer_or_text(census: Census, pid: Any, key: Any) -> None:
    summary = census(op(pid=pid, tid=pid))

    assert summary.processes == [{"pid": key, "name": None, "labels": None, "events": 1}]
    assert [(entry["pid"], entry["tid"], entry["events"]) for entry in summary.threads] == [(key, key, 1)]


def test_an_integer_and_its_text_are_two_pids(census: Census) -> None:
    assert [entry["pid"] for entry in census(op(pid="5"), op(pid=5)).processes] == [5, "5"]


def test_a_number_and_the_string_of_it_are_one_thread(census: Census) -> None:
    (thread,) = census(op(pid=1, tid=Decimal("1.5")), op(pid=1, tid="1.5")).threads

    assert (thread["tid"], thread["events"]) == ("1.5", 2)


# -- steps ----------------------------------------------------------------------------------------------------


def test_steps_are_those_on_the_host_in_order(census: Census) -> None:
    summary = census(
        op(cat="user_annotation", name="ProfilerStep#4", ts=20, dur=5),
        op(cat="user_annotation", name="ProfilerStep#3", ts=10, dur=5),
        op(cat="gpu_user_annotation", name="ProfilerStep#3", ts=12, dur=9),
        kernel(name="ProfilerStep#9"),
        op(cat="Operator", name="ProfilerStep#5", ts=30, dur=5),
    )

    assert summary.steps == [
        {"number": 3, "name": "ProfilerStep#3", "start_ns": 10_000, "end_ns": 15_000, "pid": 42, "tid": 42},
        {"number": 4, "name": "ProfilerStep#4", "start_ns": 20_000, "end_ns": 25_000, "pid": 42, "tid": 42},
        {"number": 5, "name": "ProfilerStep#5", "start_ns": 30_000, "end_ns": 35_000, "pid": 42, "tid": 42},
    ]


@pytest.mark.parametrize(
    "name",
    ["ProfilerStep*", "ProfilerStep#", "ProfilerStep#x", "ProfilerStep#3 ", "ProfilerStep#" + "9" * 5000, 3, None],
)
def test_lookalike_of_a_step_is_no_step(census: Census, name: Any) -> None:
    assert census(op(cat="user_annotation", name=name)).steps == []


# -- facts from the envelope ----------------------------------------------------------------------------------


def test_host_group_and_clock_are_read_from_the_envelope(census: Census) -> None:
    summary = census(
        op(),
        envelope={
            "host_name": "node-0",
            "baseTimeNanoseconds": 1_735_689_600_000_000_000,
            "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
        },
    )

    assert (summary.host, summary.base_ns, summary.backend) == ("node-0", 1_735_689_600_000_000_000, "nccl")
    assert (summary.rank, summary.world_size) == (3, 8)
    assert summary.health == {"repaired": 0, "refused": 0, "notes": []}


@pytest.mark.parametrize("before", [True, False])
def test_base_is_read_from_before_or_after_the_events(tmp_path: Path, before: bool) -> None:
    members = ['"baseTimeNanoseconds": 1735689600000000000', f'"traceEvents": [{text_of(op())}]']

    summary = summary_of(tmp_path, "{" + ", ".join(members if before else reversed(members)) + "}", "rank0.json")

    assert summary.base_ns == 1_735_689_600_000_000_000
    assert notes(summary, excluding=()) == {}


@pytest.mark.parametrize("base", ["0", -1, 1 << 63, True, Decimal("1.5"), Decimal("1.7e18"), [], {}])
def test_base_that_is_no_64_bit_integer_is_reported_as_unknown(census: Census, base: Any) -> None:
    summary = census(op(ts=TS), envelope={"baseTimeNanoseconds": base})

    assert summary.base_ns is None
    assert notes(summary, excluding=("unknown_rank",)) == {"unknown_base": 1}
    expected = [] if isinstance(base, dict | list) else [f"baseTimeNanoseconds: {base}".lower()]
    assert [text.lower() for text in examples(summary, "unknown_base")] == expected


@pytest.mark.parametrize(("ts", "unknown"), [(TS, {}), (4_458_676_388_068, {"unknown_base": 1})])
def test_clock_without_a_base_is_known_only_since_1970(census: Census, ts: int, unknown: dict[str, int]) -> None:
    assert notes(census(op(ts=ts)), excluding=("unknown_rank",)) == unknown


@pytest.mark.parametrize(("name", "unknown"), [("trace.json", {"unknown_rank": 1}), ("rank3.json", {})])
def test_unknown_rank_is_noted(census: Census, name: str, unknown: dict[str, int]) -> None:
    assert notes(census(op(ts=TS), name=name), excluding=()) == unknown


# -- oddities -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ts", [None, "12", True, 1 << 70, Decimal("1e400")])
def test_event_without_usable_time_is_kept_counted_and_reported(census: Census, ts: Any) -> None:
    summary = census(op(), op(name="lost", ts=ts))

    assert summary.bounds == {"start_ns": 1000, "end_ns": 3000}
    assert summary.counts == {"X|cpu_op": 2}
    assert notes(summary) == {"no_time": 1}
    assert examples(summary, "no_time") == ["lost, dur 2000 ns"]


@pytest.mark.parametrize("dur", [None, "5", [], 1 << 70])
def test_slice_without_usable_duration_is_reported(census: Census, dur: Any) -> None:
    summary = census(op(), op(ts=9, dur=dur), {"ph": "i", "ts": 5})

    assert summary.bounds == {"start_ns": 1000, "end_ns": 9000}
    assert notes(summary) == {"no_duration": 1}


def test_metadata_needs_no_time(census: Census) -> None:
    assert notes(census(op(), {"ph": "M"}, {"ph": "M", "ts": 0})) == {}


def test_times_before_zero_and_negative_durations_are_reported(census: Census) -> None:
    summary = census(op(), op(name="early", ts=-5), op(name="backwards", dur=Decimal("-0.001")))

    assert notes(summary) == {"negative_times": 1, "negative_durations": 1}
    assert examples(summary, "negative_times") == ["early, ts -5000 ns, dur 2000 ns"]
    assert examples(summary, "negative_durations") == ["backwards, ts 1000 ns, dur -1 ns"]


def test_record_window_end_hours_after_the_rest_is_reported(census: Census) -> None:
    last = {"ph": "i", "name": "Record Window End", "ts": TS + 3 * 3600 * 10**6}

    summary = census(last, *(op(ts=TS + n * 1000) for n in range(300)))

    assert notes(summary) == {"outlier_times": 1}
    assert examples(summary, "outlier_times") == [f"Record Window End, ts {last['ts']}000 ns"]


def test_events_long_before_the_rest_are_reported(census: Census) -> None:
    early = [op(name=f"early {n}", ts=TS - 10**9 + n, dur=1) for n in range(2)]

    summary = census(*(op(ts=TS + n * 1000) for n in range(300)), *early)

    assert notes(summary) == {"outlier_times": 2}


def test_a_pause_in_a_long_trace_is_no_oddity(census: Census) -> None:
    minute = 60 * 10**6

    assert notes(census(*(op(ts=TS + n * minute) for n in range(10)), op(ts=TS + 15 * minute))) == {}


def test_a_burst_after_a_slow_start_is_no_oddity(census: Census) -> None:
    slow, fast = (op(ts=TS + n * 10**7) for n in range(20)), (op(ts=TS + 2 * 10**8 + n, dur=1) for n in range(2000))

    assert notes(census(*slow, *fast)) == {}


def test_half_the_events_at_time_zero_are_reported(census: Census) -> None:
    end = {"ph": "i", "name": "Record Window End", "ts": TS + 3 * 3600 * 10**6}

    summary = census(*(op(ts=n % 2 * (TS + n)) for n in range(400)), end)

    assert notes(summary) == {"zero_times": 200, "outlier_times": 1}


def test_a_trace_that_begins_at_zero_is_no_oddity(census: Census) -> None:
    assert notes(census(*(op(ts=n, dur=1) for n in range(10)))) == {}


@pytest.mark.parametrize("category", ["cuda_runtime", "cuda_driver", "Runtime", "xpu_runtime", "privateuse1_driver"])
def test_a_kernel_is_linked_to_its_launch_by_the_correlation(census: Census, category: str) -> None:
    assert notes(census(launch(cat=category), kernel(args={"correlation": 1}))) == {}


def test_work_without_launch_is_reported(census: Census) -> None:
    summary = census(
        launch(),
        op(args={"correlation": 2}),
        kernel(args={"correlation": 1}),
        kernel(name="other", args={"correlation": 2}),
        kernel(name="none"),
        kernel(cat="gpu_memcpy", name="copy", args={"correlation": 3}),
    )

    assert notes(summary) == {"unlinked_kernels": 3}
    assert examples(summary, "unlinked_kernels") == [
        f"{name}, ts 10000 ns, dur 5000 ns" for name in ("other", "none", "copy")
    ]


def test_work_without_launch_is_that_of_the_attribution(census: Census) -> None:
    pairs = ((launch(args={"correlation": number}), kernel(args={"correlation": number})) for number in (-1, 0, 7))

    summary = census(
        *chain.from_iterable(pairs), launch(ph="i", args={"correlation": 8}), kernel(args={"correlation": 8})
    )

    assert notes(summary) == {"unlinked_kernels": 3}
    assert summary.attribution["rules"]["no_launch"] == 3


def test_overlapping_slices_and_ties_are_reported(census: Census) -> None:
    summary = census(op(ts=1, dur=4), op(ts=3, dur=9), op(ts=20, dur=1), op(ts=20, dur=5))

    assert notes(summary) == {"overlaps": 1, "ties": 1}


def test_name_in_an_example_is_short_and_has_no_secret(census: Census) -> None:
    secret = "hf_" + "abcDEF0123456789" * 2

    summary = census(op(name=f"login {secret}", dur=-1), op(name="x" * 500, dur=-1))

    first, second = examples(summary, "negative_durations")
    assert secret[:12] not in first
    assert len(second) <= 120


# -- summaries of any events ----------------------------------------------------------------------------------

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec=None, categories=None), max_size=4)
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
def test_summary_of_any_events_is_json_and_adds_up(elements: list[Any], envelope: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        try:
            summary = summary_of(Path(folder), text_of(envelope | {"traceEvents": elements}), "trace.json")
        except NotATrace:
            assert elements
            assert not any(isinstance(element, dict) for element in elements)
            return

    assert orjson.loads(orjson.dumps(asdict(summary))) == asdict(summary)
    assert summary.events["in"] == len(elements)
    assert sum(summary.counts.values()) == summary.events["kept"]
    assert sum(entry["events"] for entry in summary.processes) == sum(entry["events"] for entry in summary.threads)
    assert len(set(summary.streams)) == len(summary.streams)
    for bounds in (summary.bounds, *(entry["bounds"] for entry in summary.devices), *summary.steps):
        assert bounds is None or bounds["start_ns"] <= bounds["end_ns"]
