"""A memory snapshot over HTTP: analyses, SQL, selections, downloads, and a merge with its rank's trace."""

import json
import pickle
from pathlib import Path

import pytest

from tests.http.test_derived_traces import created_traces
from tests.server import Server
from tests.snapshots import MB, SMALL, START_US, pickled


@pytest.fixture(scope="module")
def snapshot(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("snapshots") / "memory_rank0.pickle"
    path.write_bytes(pickled(SMALL))
    return str(server.upload(path)["id"])


def test_snapshot_is_a_trace_with_its_times(server: Server, snapshot: str) -> None:
    trace = server.api.get(f"/traces/{snapshot}").json()

    assert (trace["state"], trace["format"], trace["base_ns"]) == ("ready", "pickle", (START_US + 1) * 1000)
    assert {(note["code"], note["kind"]) for note in trace["health"]["notes"]} <= {("unknown_rank", "oddity")}


def test_analysis_has_the_live_set_of_a_moment(server: Server, snapshot: str) -> None:
    answer = server.api.get(
        f"/traces/{snapshot}/analysis/memory_snapshot", params={"at_ns": 1500, "table": "live_stacks"}
    )

    assert answer.json()["tables"]["live_stacks"]["rows"][0][4:7] == ["/home/ann/model.py:10 forward", 1, 3 * MB]


def test_sql_sees_counters_instants_and_slices(server: Server, snapshot: str) -> None:
    values = "SELECT t.name, max(value) FROM counter c JOIN counter_track t ON c.track_id = t.id GROUP BY 1 ORDER BY 1"
    arguments = "SELECT extract_arg(arg_set_id, 'args.Bytes') FROM slice WHERE name = '[memory]' ORDER BY ts"

    peaks = server.rows(snapshot, values)
    blocks = server.rows(snapshot, "SELECT name, dur FROM slice WHERE category = 'memory_block' ORDER BY ts")
    sizes = server.rows(snapshot, arguments)

    assert [value for _, value in peaks] == [8 * MB, 20 * MB]
    assert blocks == [["/home/ann/model.py:10 forward", 5000], ["/home/ann/model.py:12 forward", 5000]]
    assert [int(str(size)) for (size,) in sizes] == [3 * MB, 5 * MB, -3 * MB]


def test_selection_and_original_are_downloaded(server: Server, snapshot: str) -> None:
    part = server.api.get(f"/traces/{snapshot}/download", params={"format": "json", "start_ns": 0, "end_ns": 3000})
    original = server.api.get(f"/traces/{snapshot}/download")

    events = part.json()["traceEvents"]
    assert [event["args"]["Bytes"] for event in events if event["name"] == "[memory]"] == [3 * MB]
    assert pickle.loads(original.content) == SMALL


def test_forbidden_pickle_fails_with_the_opcode(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "evil.pickle"
    path.write_bytes(pickle.dumps({"segments": print}))

    answer = server.api.put("/traces/evil.pickle", params={"wait": 60}, content=path.read_bytes())

    error = answer.json()["error"]
    assert (error["code"], "STACK_GLOBAL at byte" in error["detail"]) == ("unreadable", True)


def test_snapshot_is_merged_with_the_trace_of_its_rank_on_one_clock(
    server: Server, snapshot: str, tmp_path: Path
) -> None:
    base = (START_US + 1) * 1000 - 500_000
    event = {"ph": "X", "name": "step", "cat": "cpu_op", "pid": 7, "tid": 7, "ts": 502, "dur": 3}
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"baseTimeNanoseconds": base, "traceEvents": [event]}))
    trace = str(server.upload(path)["id"])

    answer = server.api.post(
        "/traces/merge",
        params={"wait": 60},
        json={"traces": [trace, snapshot], "ranks": [0, 1000], "align": "base"},
    )

    (merged,) = [made["id"] for made in created_traces(server, answer)]
    times = server.rows(merged, "SELECT name, ts FROM slice WHERE name IN ('step', '[memory]') ORDER BY ts")
    assert [name for name, _ in times] == ["[memory]", "step", "[memory]", "[memory]"]
