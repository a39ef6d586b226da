"""The traces of PyTorch's three layouts have the slices, times, links and arguments of their golden figures."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SHARED, needs_shared
from tests.formats.pftrace.reading import Reading, read

GOLDENS = sorted((SHARED.parent / "inputs").glob("pftrace_*.golden.json"))
pytestmark = [needs_shared, pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.name.partition(".")[0])]


def loaded(path: Path) -> tuple[dict[str, Any], Reading]:
    (trace,) = (found for found in path.parent.glob(path.name.replace(".golden.json", ".pftrace*")))
    return json.loads(path.read_text()), read(trace.read_bytes())


def totals(rows: list[dict[str, Any]], key: str) -> dict[Any, tuple[int, int]]:
    found: dict[Any, list[int]] = defaultdict(list)
    for row in rows:
        found[row[key]].append(row["dur_ns"])
    return {value: (len(times), sum(times)) for value, times in found.items()}


def test_work_has_the_golden_count_time_and_names(path: Path) -> None:
    golden, trace = loaded(path)
    work = [row for row in trace.slices() if row["cat"] == "kernel"]

    assert (len(work), sum(row["dur_ns"] for row in work)) == (golden["gpu_ops"]["count"], golden["gpu_ops"]["sum_ns"])
    by_name = {name: (entry["count"], entry["ns"]) for name, entry in golden["gpu_ops"]["by_name"].items()}
    assert totals(work, "name") == by_name
    assert {(row["pid"], row["tid"], row["device"], row["stream"]) for row in work} == {(0, 7, 0, 7)}


def test_threads_have_the_golden_slices_and_time(path: Path) -> None:
    golden, trace = loaded(path)
    threads = totals([row for row in trace.slices() if row["cat"] != "kernel"], "tid")
    expected = {
        int(name.removeprefix("cpu thread ")): (entry["slices"], entry["sum_ns"])
        for name, entry in golden["tracks"].items()
        if name.startswith("cpu")
    }
    assert threads == expected
    assert (trace.refused, trace.notes) == (0, {})


def test_categories_are_the_golden_ones_even_where_the_file_has_none(path: Path) -> None:
    _, trace = loaded(path)
    golden = json.loads(path.with_name("pftrace_categories.golden.json").read_text())

    assert {category: count for category, (count, _) in totals(trace.slices(), "cat").items()} == (
        golden["slices_by_category"]
    )


def test_launches_and_times_are_the_golden_ones(path: Path) -> None:
    golden, trace = loaded(path)
    base = trace.members["baseTimeNanoseconds"]
    ends = {(row["ph"], row["id"]): base + row["ts_ns"] for row in trace.rows if row.get("cat") == "ac2g"}

    assert len(ends) == 2 * golden["gpu_ops"]["count"]
    for link in golden["flows"]["links_launch_to_kernel"]:
        number = link["correlation"]
        assert (ends["s", number], ends["f", number]) == (link["launch_start"], link["kernel_start"])
    assert base + min(row["ts_ns"] for row in trace.slices()) == golden["time"]["first_ns"]
    assert base + max(row["ts_ns"] + row["dur_ns"] for row in trace.slices()) == golden["time"]["last_ns"]


def test_first_kernel_has_the_golden_arguments_that_its_file_has(path: Path) -> None:
    golden, trace = loaded(path)
    first = min((row for row in trace.slices() if row["cat"] == "kernel"), key=lambda row: row["ts_ns"])
    absent = {"External id", "registers per thread", "shared memory"} if golden["layout"] == 2 else set()

    expected = {key: value for key, value in golden["args"]["first_kernel"].items() if key not in absent}
    assert json.loads(first["args"]) == expected
