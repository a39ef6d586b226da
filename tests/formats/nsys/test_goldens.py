"""Real exports of Nsight Systems have the kernels, copies, calls, links and ranges of their golden tables."""

import json
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SHARED, needs_shared
from tests.formats.nsys.conftest import Ingested
from tests.nsys import oracle

INPUTS = SHARED.parent / "inputs"
GOLDENS = sorted(INPUTS.glob("nsys_*.golden.json"))
pytestmark = [
    needs_shared,
    pytest.mark.parametrize("golden", GOLDENS, ids=lambda path: path.name.split(".")[0]),
]
IS_KERNEL = "ph = 'X' AND cat = 'kernel' AND name NOT LIKE 'CUDA graph %'"


def loaded(golden: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(golden.read_text())
    return content


def export_of(golden: Path) -> Path:
    return golden.with_name(golden.name.replace(".golden.json", ".sqlite"))


def test_kernels_have_the_golden_count_time_and_names(golden: Path, read: Callable[[Path], Ingested]) -> None:
    kernels, trace = loaded(golden)["kernels"], read(export_of(golden))

    ((count, ns, first, last, names),) = trace.rows(
        "SELECT count(*), sum(dur_ns), min(ts_ns), max(ts_ns + dur_ns), count(DISTINCT name)"
        f" FROM events WHERE {IS_KERNEL}"
    )
    assert (count, ns, first, last, names) == (
        kernels["count"], kernels["ns"], kernels["first_start"], kernels["last_end"], kernels["distinct_demangled"],
    )  # fmt: skip
    by_name = {
        name: (calls, total)
        for name, calls, total in trace.rows(
            f"SELECT name, count(*), sum(dur_ns) FROM events WHERE {IS_KERNEL} GROUP BY name"
        )
    }
    for entry in kernels["top10_by_demangled"]:
        assert by_name[entry["name"]] == (entry["count"], entry["ns"])


def test_copies_have_the_golden_counts_bytes_and_times(golden: Path, read: Callable[[Path], Ingested]) -> None:
    names = {"1": "HtoD", "2": "DtoH", "8": "DtoD", "10": "PtoP"}
    expected = {
        f"Memcpy {names[kind]}": (entry["count"], entry["bytes"], entry["ns"])
        for kind, entry in loaded(golden)["memcpy_by_copyKind"].items()
    }
    rows = read(export_of(golden)).rows(
        "SELECT regexp_extract(name, '^Memcpy \\w+'), count(*), sum(bytes), sum(dur_ns) FROM events"
        " WHERE cat = 'gpu_memcpy' GROUP BY ALL"
    )
    assert {name: tuple(map(int, values)) for name, *values in rows} == expected


def test_calls_have_the_golden_counts_and_times(golden: Path, read: Callable[[Path], Ingested]) -> None:
    expected: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for entry in loaded(golden)["runtime_top10"]:
        name = re.sub(r"(_v\d+|_ptsz)+$", "", entry["name"])
        expected[name] = expected[name][0] + entry["count"], expected[name][1] + entry["ns"]
    rows = read(export_of(golden)).rows(
        "SELECT name, count(*), sum(dur_ns) FROM events WHERE cat IN ('cuda_runtime', 'cuda_driver') GROUP BY name"
    )
    calls = {name: (count, int(ns)) for name, count, ns in rows}
    assert {name: calls[name] for name in expected} == expected


def test_work_is_linked_to_the_calls_of_its_own_process(golden: Path, read: Callable[[Path], Ingested]) -> None:
    links, trace = loaded(golden)["links"], read(export_of(golden))
    graphs = loaded(golden).get("graph_trace", {"rows": 0})["rows"]

    rules = trace.summary.attribution["rules"]
    linked = sum(count for rule, count in rules.items() if rule != "no_launch")
    assert linked - graphs == links["linked_by_pid_and_correlation"]
    assert rules.get("no_launch", 0) == links["unlinked"]
    ((ends, pairs),) = trace.rows(
        "SELECT (SELECT count(*) FROM events WHERE ph = 'f'), (SELECT count(*) FROM events w JOIN events c USING"
        " (correlation) WHERE w.cat IN ('kernel', 'gpu_memcpy', 'gpu_memset')"
        " AND c.cat IN ('cuda_runtime', 'cuda_driver'))"
    )
    assert ends - graphs == pairs - graphs == links["pairs_by_pid_and_correlation"]


def test_waits_have_the_golden_types(golden: Path, read: Callable[[Path], Ingested]) -> None:
    names = {"1": "Event Sync", "2": "Stream Wait Event", "3": "Stream Sync", "4": "Context Sync"}
    expected = {names[kind]: count for kind, count in loaded(golden)["synchronization_by_type"].items()}
    rows = read(export_of(golden)).rows("SELECT name, count(*) FROM events WHERE cat = 'cuda_sync' GROUP BY name")
    assert dict(rows) == expected


def test_ranges_have_the_golden_counts_and_times(golden: Path, read: Callable[[Path], Ingested]) -> None:
    nvtx, trace = loaded(golden)["nvtx"], read(export_of(golden))

    rows = trace.rows(
        "SELECT name, count(*), sum(dur_ns) FROM events"
        " WHERE ph = 'X' AND cat IN ('user_annotation', 'cpu_op') GROUP BY name"
    )
    ranges = {name: (count, int(ns)) for name, count, ns in rows}
    kinds = nvtx["by_type"]
    assert sum(count for count, _ in ranges.values()) == kinds.get("59", 0) + kinds.get("60", 0)
    for entry in nvtx["top10_by_base_name"]:
        assert ranges[entry["name"]] == (entry["count"], entry["ns"])
    assert trace.notes.get("open_ranges", 0) == nvtx["open_ranges"]


def test_busy_time_of_each_stream_is_golden(golden: Path, read: Callable[[Path], Ingested]) -> None:
    rows = read(export_of(golden)).rows(
        "SELECT device, stream, count(*) FILTER (cat = 'kernel'), count(*) FILTER (cat = 'gpu_memcpy'), sum(dur_ns)"
        " FROM events WHERE ph = 'X' AND cat IN ('kernel', 'gpu_memcpy', 'gpu_memset')"
        " AND name NOT LIKE 'CUDA graph %' GROUP BY ALL"
    )
    expected = {
        (entry["device"], entry["stream"], entry["kernels"], entry["memcpys"], entry["sum_ns"])
        for entry in loaded(golden)["streams"]
    }
    assert {(device, stream, kernels, copies, int(ns)) for device, stream, kernels, copies, ns in rows} == expected


def test_clock_and_gpus_are_golden(golden: Path, read: Callable[[Path], Ingested]) -> None:
    content, summary = loaded(golden), read(export_of(golden)).summary

    clock = content.get("clock")
    assert summary.base_ns == (clock and clock["utcEpochNs"])
    if clock:
        assert summary.base_ns + content["kernels"]["first_start"] == clock["first_kernel_unix_ns"]
    named = [(device["id"], device["name"]) for device in summary.devices if device["name"]]
    assert named == [(gpu["id"], gpu["name"]) for gpu in content["gpus"]]


def test_graphs_that_were_traced_as_a_whole_are_work(golden: Path, read: Callable[[Path], Ingested]) -> None:
    expected = loaded(golden).get("graph_trace", {"rows": 0, "ns": None})
    rows = read(export_of(golden)).rows(
        "SELECT count(*), sum(dur_ns) FROM events WHERE cat = 'kernel' AND name LIKE 'CUDA graph %'"
    )
    assert rows == [(expected["rows"], expected["ns"])]


def test_every_allowed_row_is_an_event(golden: Path, read: Callable[[Path], Ingested]) -> None:
    trace, path = read(export_of(golden)), export_of(golden)

    tables = {name for (name,) in oracle(path, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    rows = 0
    for table in tables & {
        *("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"),
        *("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_RUNTIME"),
    }:
        ((count,),) = oracle(path, f"SELECT count(*) FROM {table}")
        rows += count
    ((events,),) = trace.rows(
        "SELECT count(*) FROM events WHERE ph = 'X' AND cat NOT IN ('cpu_op', 'user_annotation', 'gpu_user_annotation')"
    )
    assert events == rows
    assert trace.summary.events["refused"] == 0
