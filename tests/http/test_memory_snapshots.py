"""A memory snapshot over HTTP: analyses, SQL, selections, downloads, and a merge with its rank's trace."""

import json
import pickle
from pathlib import Path

import pytest

from tests.http.test_derived_traces import created_traces
from tests.http.test_groups import group_of
from tests.server import Server
from tests.snapshots import BASE, MB, SMALL, START_US, entry, pickled
from tests.snapshots import snapshot as snapshot_of


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
        json={"traces": [trace, snapshot], "align": "base"},
    )

    (merged,) = [made["id"] for made in created_traces(server, answer)]
    times = server.rows(merged, "SELECT name, ts FROM slice WHERE name IN ('step', '[memory]') ORDER BY ts")
    assert [name for name, _ in times] == ["[memory]", "step", "[memory]", "[memory]"]
    of_slices = server.rows(
        merged,
        "SELECT DISTINCT process.name FROM slice JOIN thread_track ON slice.track_id = thread_track.id"
        " JOIN thread USING (utid) JOIN process USING (upid)",
    )
    of_counters = server.rows(
        merged, "SELECT DISTINCT process.name FROM process_counter_track JOIN process USING (upid)"
    )
    title = "rank 0 · memory snapshot · GPU 0"
    assert {name for (name,) in of_slices} == {
        "rank 0 · process 7", f"{title} memory", f"{title} largest blocks", f"{title} annotations",
    }  # fmt: skip
    assert of_counters == [[f"{title} memory"]]
    [rank] = server.api.get(f"/traces/{merged}").json()["ranks"]
    assert [beside["kind"] for beside in rank["beside"]] == ["memory_snapshot"]
    refused = server.api.get(f"/traces/{merged}/analysis/memory_snapshot")
    assert (refused.status_code, "not a memory snapshot" in refused.text) == (422, True)


def test_snapshot_without_times_is_not_merged_with_the_trace_of_its_rank(server: Server, tmp_path: Path) -> None:
    paths = [tmp_path / "memory_rank5.pickle", tmp_path / "rank5.json"]
    paths[0].write_bytes(pickled(snapshot_of([entry("alloc", BASE, 512)])))
    paths[1].write_bytes(stepped(1))
    traces = [str(server.upload(path)["id"]) for path in paths]

    answer = server.api.post("/traces/merge", params={"wait": 60}, json={"traces": traces})

    error = answer.json()
    assert (error["code"], "memory_rank5.pickle does not say at which time it begins" in error["detail"]) == (
        "cannot_merge",
        True,
    )


def stepped(first_us: int) -> bytes:
    """Return a trace with two steps of 4 µs, the first of which starts so many µs after `START_US`."""
    steps = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1,
         "ts": first_us + 4 * step, "dur": 4}
        for step in range(2)
    ]  # fmt: skip
    return json.dumps({"baseTimeNanoseconds": START_US * 1000, "traceEvents": steps}).encode()


def test_steps_follow_the_traces_of_the_rank_that_come_and_go(server: Server) -> None:
    params: dict[str, str | int] = {"group": "steps of a snapshot", "wait": 60}

    def put(name: str, content: bytes) -> str:
        return str(server.api.put(f"/traces/{name}", params=params, content=content).json()["id"])

    snapshot = put("memory_rank0.pickle", pickled(SMALL))
    etags: list[str] = []

    def asked(path: str = f"/traces/{snapshot}", **values: str) -> tuple[list[object], list[str]]:
        """Return the peak of each step, and the notes; the ETag of the answer before does not match."""
        headers = {"If-None-Match": etags[-1]} if etags else {}
        answer = server.api.get(f"{path}/analysis/memory_snapshot", params=values, headers=headers)
        assert answer.status_code == 200, answer.text
        etags.append(answer.headers["etag"])
        steps = answer.json()["tables"]["steps"]
        peak = [column["name"] for column in steps["columns"]].index("peak_bytes")
        return [row[peak] for row in steps["rows"]], answer.json()["notes"]

    [none], first_us = asked()[1], 1
    assert none.endswith("No trace of the same rank is in a run with the snapshot.")
    put("rank1.json", stepped(first_us))
    assert server.api.get(
        f"/traces/{snapshot}/analysis/memory_snapshot", headers={"If-None-Match": etags[-1]}
    ).status_code == 304  # a trace of another rank changes nothing  # fmt: skip
    trace = put("rank0.json", stepped(first_us))
    peaks = [8 * MB, 8 * MB]  # both blocks are alive from 4 µs to 7 µs, in both steps
    assert asked() == (peaks, ["Rank 0: steps from trace rank0.json: 2 of its 2 overlap the snapshot's entries."])
    assert asked(f"/groups/{group_of(server, snapshot)}") == (peaks, asked()[1])

    other = put("again_rank0.json", stepped(first_us + 1))
    steps, [note] = asked()
    assert (steps, "Several traces fit: rank0.json, again_rank0.json. Name one" in note) == ([], True)
    assert asked(steps_from=other)[1] == [
        "Rank 0: steps from trace again_rank0.json: 2 of its 2 overlap the snapshot's entries."
    ]
    refused = server.api.get(f"/traces/{snapshot}/analysis/memory_snapshot", params={"steps_from": "rank7.json"})
    assert (refused.status_code, refused.json()["error" if "error" in refused.json() else "known"]) == (
        422,
        ["rank0.json", "again_rank0.json"],
    )
    for gone in (other, trace):
        server.api.delete(f"/traces/{gone}")
    assert asked() == ([], [none])
