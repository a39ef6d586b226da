"""Groups: the ranks of a run are listed, analysed, merged and deleted together."""

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.http import shapes
from tests.server import Server
from tests.traces import TraceShape, write_trace
from tests.waiting import PATIENCE_S

StartServer = Callable[..., Server]

_numbers = count(1)


def grouped(server: Server, folder: Path, group: str, ranks: int = 2) -> list[str]:
    """Upload ranks into a group, and return their ids once they are ready."""
    ids = []
    for rank in range(ranks):
        file = write_trace(folder / f"rank{rank}.json", TraceShape(rank=rank, world_size=ranks, seed=next(_numbers)))
        answer = server.api.put(
            f"/traces/{file.name}", params={"wait": PATIENCE_S, "group": group}, content=file.read_bytes()
        )
        assert answer.status_code == 201, answer.text
        ids.append(answer.json()["id"])
    return ids


def group_of(server: Server, trace_id: str) -> str:
    return str(server.api.get(f"/traces/{trace_id}").json()["group"]["id"])


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


@pytest.fixture(scope="module")
def run(server: Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[str]]:
    """A group of two ready ranks, and their ids."""
    ids = grouped(server, tmp_path_factory.mktemp("run"), "a run")
    return group_of(server, ids[0]), ids


def test_upload_that_names_a_group_joins_it(server: Server, run: tuple[str, list[str]]) -> None:
    group_id, ids = run

    assert server.api.get(f"/traces/{ids[1]}").json()["group"] == {"id": group_id, "name": "a run"}
    listed = server.api.get("/traces", params={"group": group_id}).json()["traces"]
    assert {trace["id"] for trace in listed} == set(ids)
    (group,) = server.api.get("/groups", params={"name": "A RUN"}).json()["groups"]
    assert (group["id"], group["traces"], group["size"]) == (group_id, 2, sum(trace["size"] for trace in listed))


def test_group_lists_its_ranks_and_missing_ranks(server: Server, tmp_path: Path) -> None:
    ids = grouped(server, tmp_path, "whole", ranks=3)
    group = server.api.get(f"/groups/{group_of(server, ids[0])}").json()

    assert [(rank["rank"], rank["world_size"], rank["trace"]) for rank in group["ranks"]] == [
        (rank, 3, trace_id) for rank, trace_id in enumerate(ids)
    ]
    assert (group["world_size"], group["missing"]) == (3, [])
    shapes.Group.model_validate(group)
    shapes.Groups.model_validate(server.api.get("/groups").json())
    server.api.delete(f"/traces/{ids[1]}")
    assert server.api.get(f"/groups/{group['id']}").json()["missing"] == [1]


def test_group_is_created_changed_and_dissolved(server: Server, run: tuple[str, list[str]]) -> None:
    created = server.api.post("/groups", json={"name": "mine", "run_id": "17"})
    group_id = created.json()["id"]
    assert (created.status_code, created.headers["location"]) == (201, f"/api/v1/groups/{group_id}")
    assert code_of(server.api.post("/groups", json={"name": "mine"})) == (409, "group_exists")
    assert code_of(server.api.post("/groups", json={"name": "x", "traces": ["none"]})) == (404, "unknown_trace")

    changed = server.api.patch(f"/groups/{group_id}", json={"name": "yours"}).json()
    assert (changed["name"], changed["run_id"]) == ("yours", "17")
    path = f"/groups/{group_id}"
    assert server.api.patch(path, json={"run_id": None}).json()["run_id"] is None
    assert server.api.patch(path, json={"run_id": "17"}).json()["run_id"] == "17"
    assert code_of(server.api.patch(f"/groups/{group_id}", json={"name": "a run"})) == (409, "group_exists")

    assert server.api.delete(f"/groups/{group_id}").status_code == 204
    assert code_of(server.api.get(f"/groups/{group_id}")) == (404, "unknown_group")
    assert all(server.api.get(f"/traces/{trace_id}").status_code == 200 for trace_id in run[1])


NAMES = ["llama/70B", "llama 70B, before", "100%", "a+b", "ラマ/七十", "..", "a\\b", "?x=1&y#z", "latest"]


@pytest.mark.parametrize("name", NAMES)
def test_group_accepts_any_printable_name(name: str, server: Server, tmp_path: Path) -> None:
    file = write_trace(tmp_path / "rank0.json", TraceShape(seed=next(_numbers)))
    uploaded = server.api.put(
        "/traces/rank0.json", params={"wait": PATIENCE_S, "group": name}, content=file.read_bytes()
    ).json()
    group_id = uploaded["group"]["id"]
    assert uploaded["group"]["name"] == name
    (listed,) = server.api.get("/groups", params={"name": name}).json()["groups"]
    assert (listed["id"], listed["name"]) == (group_id, name)
    for group in (group_id, name):
        traces = server.api.get("/traces", params={"group": group}).json()["traces"]
        assert [trace["id"] for trace in traces] == [uploaded["id"]]
    assert server.api.patch(f"/traces/{uploaded['id']}", json={"group": None}).json()["group"] is None
    assert server.api.patch(f"/traces/{uploaded['id']}", json={"group": name}).json()["group"]["id"] == group_id
    assert server.api.get(f"{server.url}/groups/{group_id}").status_code == 200
    assert server.api.delete(f"/groups/{group_id}", params={"traces": True}).status_code == 204


@pytest.mark.parametrize("name", [" a", "a ", "a\nb", "a\x00b", "a\u202eb", "é" * 128])
def test_invalid_group_name_is_refused(name: str, server: Server, run: tuple[str, list[str]]) -> None:
    assert code_of(server.api.post("/groups", json={"name": name})) == (400, "bad_group_name")
    assert code_of(server.api.patch(f"/groups/{run[0]}", json={"name": name})) == (400, "bad_group_name")
    assert code_of(server.api.put("/traces/x.json", params={"group": name}, content=b"{}")) == (400, "bad_group_name")


def test_traces_of_an_unknown_group_are_not_found(server: Server) -> None:
    assert code_of(server.api.get("/traces", params={"group": "llama/7B"})) == (404, "unknown_group")
    refused = server.api.get("/groups/nothing")
    assert (code_of(refused), "GET /groups?name=" in refused.json()["detail"]) == ((404, "unknown_group"), True)


@pytest.mark.parametrize("ranks", [0, 1])
def test_a_group_of_fewer_than_two_traces_is_not_merged(ranks: int, server: Server, tmp_path: Path) -> None:
    name = f"a group of {ranks}"
    group_id = server.api.post("/groups", json={"name": name, "traces": grouped(server, tmp_path, "x", ranks)}).json()[
        "id"
    ]
    refused = server.api.post(f"/groups/{group_id}/merge", json={})
    assert code_of(refused) == (422, "cannot_merge")
    assert f"The group '{name}' has {ranks} trace" in refused.json()["detail"]
    assert len(refused.json()["traces"]) == ranks


def test_trace_is_moved_between_groups_and_removed(server: Server, tmp_path: Path) -> None:
    (trace_id,) = grouped(server, tmp_path, "first", ranks=1)

    moved = server.api.patch(f"/traces/{trace_id}", json={"group": "second"}).json()
    assert moved["group"]["name"] == "second"
    pinned = server.api.patch(f"/traces/{trace_id}", json={"pinned": True}).json()
    assert (pinned["pinned"], pinned["group"]["name"]) == (True, "second")
    loose = server.api.patch(f"/traces/{trace_id}", json={"group": None}).json()
    assert (loose["pinned"], loose["group"]) == (True, None)
    assert code_of(server.api.patch("/traces/none", json={"group": "third"})) == (404, "unknown_trace")
    assert server.api.get("/groups", params={"name": "third"}).json()["groups"] == []


def test_analysis_of_a_group_equals_that_of_its_traces(server: Server, run: tuple[str, list[str]]) -> None:
    group_id, (first, second) = run

    of_group = server.api.get(f"/groups/{group_id}/analysis/gpu_summary")
    of_traces = server.api.get(f"/traces/{first}/analysis/gpu_summary", params={"traces": second})
    assert of_group.status_code == 200
    assert of_group.json() | {"elapsed_ms": 0} == of_traces.json() | {"elapsed_ms": 0}
    as_csv = {"Accept": "text/csv"}
    of_group = server.api.get(f"/groups/{group_id}/analysis/gpu_summary", headers=as_csv)
    of_traces = server.api.get(f"/traces/{first}/analysis/gpu_summary", params={"traces": second}, headers=as_csv)
    assert (of_group.text, of_group.headers["content-type"]) == (of_traces.text, of_traces.headers["content-type"])
    assert server.api.get(f"/groups/{group_id}/analysis").json() == server.api.get(f"/traces/{first}/analysis").json()
    assert code_of(server.api.get(f"/groups/{group_id}/analysis/none")) == (404, "unknown_analysis")
    assert code_of(server.api.get("/groups/none/analysis/gpu_summary")) == (404, "unknown_group")


def test_failed_rank_is_left_out_of_an_analysis_and_reported(server: Server, tmp_path: Path) -> None:
    (good,) = grouped(server, tmp_path, "half", ranks=1)
    bad = server.api.put("/traces/rank1.json", params={"wait": PATIENCE_S, "group": "half"}, content=b"no").json()["id"]

    answer = server.api.get(f"/groups/{group_of(server, good)}/analysis/gpu_summary")

    assert (answer.status_code, answer.headers["tracedock-left-out"]) == (200, bad)
    server.api.delete(f"/traces/{good}")
    answer = server.api.get(f"/groups/{group_of(server, bad)}/analysis/gpu_summary")
    assert code_of(answer) == (409, "not_ready")


def test_merge_of_a_group_names_the_ranks_that_could_not_be_read(server: Server, tmp_path: Path) -> None:
    good = grouped(server, tmp_path, "torn")
    bad = server.api.put("/traces/torn.json", params={"wait": PATIENCE_S, "group": "torn"}, content=b"x").json()
    refused = server.api.post(f"/groups/{group_of(server, good[0])}/merge", json={})
    assert code_of(refused) == (409, "not_ready")
    assert "Of the 3 traces of the group, 1 could not be read: torn.json (failed)." in refused.json()["detail"]
    assert refused.json()["traces"] == [{"id": bad["id"], "name": "torn.json", "state": "failed"}]
    server.api.delete(f"/traces/{bad['id']}").raise_for_status()
    merging = server.api.post(f"/groups/{group_of(server, good[0])}/merge", params={"wait": PATIENCE_S}, json={})
    assert merging.json()["state"] == "done"


# -- cycles and comparisons -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cycles(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A group of two cycles: of ranks 0 and 1, and of rank 0 alone."""
    folder = tmp_path_factory.mktemp("cycles")
    for name, rank, first_step in (("b", 0, 13), ("c", 1, 3), ("a", 0, 3)):
        shape = TraceShape(rank=rank, world_size=2, steps=2, first_step=first_step, seed=next(_numbers))
        file = write_trace(folder / f"{name}.json", shape)
        answer = server.api.put(
            f"/traces/{file.name}", params={"wait": PATIENCE_S, "group": "turns"}, content=file.read_bytes()
        )
    return str(answer.json()["group"]["id"])


def test_group_lists_its_cycles_and_their_missing_ranks(server: Server, cycles: str) -> None:
    group = shapes.Group.model_validate(server.api.get(f"/groups/{cycles}").json())

    assert [(rank.rank, rank.cycle, rank.kind, rank.name) for rank in group.ranks] == [
        (0, 0, "trace", "a.json"),
        (1, 0, "trace", "c.json"),
        (0, 1, "trace", "b.json"),
    ]
    assert group.cycles_by == "steps"
    assert [(cycle.cycle, cycle.ranks, cycle.missing, cycle.first_step, cycle.last_step) for cycle in group.cycles] == [
        (0, [0, 1], [], 3, 4),
        (1, [0], [1], 13, 14),
    ]
    assert (group.world_size, group.missing) == (2, [1])


def test_analysis_of_two_cycles_has_a_cycle_column_in_every_format(server: Server, cycles: str) -> None:
    address = f"/groups/{cycles}/analysis/gpu_summary"
    answer = shapes.Answer.model_validate(server.api.get(address).json())
    assert answer.cycles == 2
    table = next(iter(answer.tables.values()))
    columns = [column.name for column in table.columns]
    assert columns[:2] == ["rank", "cycle"]
    assert [row[:2] for row in table.rows] == [[0, 0], [1, 0], [0, 1]]
    header = server.api.get(address, headers={"Accept": "text/csv"}).text.splitlines()[0]
    assert header.replace('"', "").split(",") == columns


def test_analysis_of_a_cycle_is_that_of_its_traces_alone(server: Server, cycles: str) -> None:
    traces = {rank["name"]: rank["trace"] for rank in server.api.get(f"/groups/{cycles}").json()["ranks"]}

    def tables(path: str, **parameters: Any) -> tuple[int, Any]:
        answer = server.api.get(f"{path}/analysis/temporal_breakdown", params=parameters).json()
        return answer["cycles"], answer["tables"]

    alone = tables(f"/traces/{traces['a.json']}", traces=traces["c.json"])
    assert tables(f"/groups/{cycles}", cycle=0) == alone
    assert tables(f"/groups/{cycles}", cycle=1) == tables(f"/traces/{traces['b.json']}")
    named = {"traces": [traces["b.json"], traces["c.json"]]}
    assert tables(f"/traces/{traces['a.json']}", **named, cycle=0) == alone
    answers = {cycle: server.api.get(f"/groups/{cycles}/analysis/steps", params={"cycle": cycle}) for cycle in (0, 1)}
    assert answers[0].headers["etag"] != answers[1].headers["etag"]


@pytest.mark.parametrize("path", ["analysis/steps", "analysis/compare", "report", "merge"])
def test_unknown_cycle_of_a_group_is_refused_with_those_that_it_has(server: Server, cycles: str, path: str) -> None:
    address = f"/groups/{cycles}/{path}"
    if path == "merge":
        refused = server.api.post(address, json={"cycle": 2})
    else:
        base = {"base": cycles} if path == "analysis/compare" else {}
        refused = server.api.get(address, params={"cycle": 2, **base})
    assert code_of(refused) == (422, "unknown_cycle")
    assert "the cycles 0 (steps 3 to 4), 1 (steps 13 to 14)." in refused.json()["detail"]
    assert refused.json()["known"] == [0, 1]


def test_cycles_of_a_group_are_compared_with_each_other(
    server: Server, cycles: str, run: tuple[str, list[str]]
) -> None:
    def compared(base: str, **chosen: int) -> httpx.Response:
        return server.api.get(f"/groups/{cycles}/analysis/compare", params={"base": base, **chosen})

    def steps(answer: httpx.Response) -> set[tuple[int, int | None, int | None]]:
        table = answer.json()["tables"]["each_step"]
        columns = [column["name"] for column in table["columns"]]
        places = [columns.index(name) for name in ("rank", "base_step", "step")]
        return {tuple(row[place] for place in places) for row in table["rows"]}

    second = compared(cycles, cycle=1, base_cycle=0)
    assert steps(second) == {(0, 3, 13), (0, 4, 14)}
    assert [(rank["rank"], rank["name"]) for rank in second.json()["skipped"]] == [(1, "c.json")]
    assert steps(compared(cycles, cycle=0)) == {(rank, step, step) for rank in (0, 1) for step in (3, 4)}
    assert {rank for rank, *_ in steps(compared(run[0], cycle=1))} == {0}
    ambiguous = compared(cycles, base_cycle=0)
    assert code_of(ambiguous) == (422, "bad_analysis")
    assert "the cycles 0 (steps 3 to 4), 1 (steps 13 to 14)." in ambiguous.json()["detail"]
    refused = server.api.get(f"/groups/{cycles}/analysis/steps", params={"base_cycle": 0})
    assert code_of(refused) == (422, "bad_analysis")


def test_group_of_several_cycles_is_merged_one_cycle_at_a_time(server: Server, cycles: str) -> None:
    refused = server.api.post(f"/groups/{cycles}/merge", json={})
    assert code_of(refused) == (422, "cannot_merge")
    assert "the cycles 0 (steps 3 to 4), 1 (steps 13 to 14). Choose one with `cycle`, or" in refused.json()["detail"]

    job = server.api.post(f"/groups/{cycles}/merge", params={"wait": PATIENCE_S}, json={"cycle": 0}).json()
    [merged] = job["result"]["traces"]
    trace = server.api.get(f"/traces/{merged}").json()
    assert trace["name"] == "merged-cycle0.pt.trace.json.gz"
    assert [(rank["rank"], rank["name"]) for rank in trace["ranks"]] == [(0, "a.json"), (1, "c.json")]
    alone = server.api.post(f"/groups/{cycles}/merge", json={"cycle": 1})
    assert code_of(alone) == (422, "cannot_merge")
    assert "The cycle 1 has only one trace, b.json" in alone.json()["detail"]


def test_merge_of_a_cycle_keeps_the_ranks_that_are_given(server: Server, cycles: str) -> None:
    traces = {rank["name"]: rank["trace"] for rank in server.api.get(f"/groups/{cycles}").json()["ranks"]}
    request = {"traces": [traces[name] for name in ("b.json", "c.json", "a.json")], "ranks": [5, 6, 5], "cycle": 0}
    job = server.api.post("/traces/merge", params={"wait": PATIENCE_S}, json=request).json()
    [merged] = job["result"]["traces"]
    ranks = server.api.get(f"/traces/{merged}").json()["ranks"]
    assert [(rank["rank"], rank["name"]) for rank in ranks] == [(5, "a.json"), (6, "c.json")]


def test_group_of_parts_of_its_traces_is_merged_as_a_whole(server: Server, cycles: str) -> None:
    [trace] = [
        rank["trace"] for rank in server.api.get(f"/groups/{cycles}").json()["ranks"] if rank["name"] == "a.json"
    ]
    split = {"by": "parts", "value": 2, "selection": {"straddle": "start"}}
    parts = server.api.post(f"/traces/{trace}/split", params={"wait": PATIENCE_S}, json=split).json()["result"][
        "traces"
    ]
    group = server.api.post("/groups", json={"name": "parts of a trace", "traces": parts}).json()
    job = server.api.post(f"/groups/{group['id']}/merge", params={"wait": PATIENCE_S}, json={}).json()
    [whole] = job["result"]["traces"]
    assert server.api.get(f"/traces/{whole}").json()["events"] == server.api.get(f"/traces/{trace}").json()["events"]


def test_group_of_merged_traces_has_the_cycles_of_its_analyses(server: Server, tmp_path: Path) -> None:
    merged = []
    for first_step in (3, 13):
        traces = []
        for rank in range(2):
            shape = TraceShape(rank=rank, world_size=2, steps=2, first_step=first_step, seed=next(_numbers))
            traces.append(server.upload(write_trace(tmp_path / f"merged{rank}.{first_step}.json", shape))["id"])
        job = server.api.post("/traces/merge", params={"wait": PATIENCE_S}, json={"traces": traces}).json()
        merged += job["result"]["traces"]
    group = server.api.post("/groups", json={"name": "merged cycles", "traces": merged}).json()
    assert [(cycle["ranks"], cycle["missing"]) for cycle in group["cycles"]] == [([0, 1], []), ([0, 1], [])]
    answer = server.api.get(f"/groups/{group['id']}/analysis/temporal_breakdown").json()
    assert [row[:2] for row in answer["tables"]["breakdown"]["rows"]] == [[0, 0], [1, 0], [0, 1], [1, 1]]


def test_comparison_without_a_base_is_refused(server: Server, run: tuple[str, list[str]]) -> None:
    answer = server.api.get(f"/groups/{run[0]}/analysis/compare")
    assert code_of(answer) == (422, "bad_analysis")
    assert "only one is given: the group 'a run' of 2 traces" in answer.json()["detail"]
    assert "`base`" in answer.json()["detail"]
    first, second = run[1]
    answer = server.api.get(f"/traces/{first}/analysis/compare", params={"traces": [second, first, second]})
    assert code_of(answer) == (422, "bad_analysis")
    assert "4 traces were given without a base: rank0.json, rank1.json" in answer.json()["detail"]


def test_group_is_compared_with_another_rank_by_rank(server: Server, run: tuple[str, list[str]], cycles: str) -> None:
    first, second = run[1]
    of_groups = server.api.get(f"/groups/{cycles}/analysis/compare", params={"base": run[0]})
    comparison = shapes.Answer.model_validate(of_groups.json())
    assert [(rank.rank, rank.cycle, rank.reason) for rank in comparison.skipped] == [
        (0, 1, "The base has no cycle 1 of rank 0.")
    ]
    columns = [column.name for column in comparison.tables["each_step"].columns]
    assert {
        (row[columns.index("rank")], row[columns.index("cycle")]) for row in comparison.tables["each_step"].rows
    } == {
        (0, 0),
        (1, 0),
    }
    same = server.api.get(f"/groups/{run[0]}/analysis/compare", params={"base": [first, second]}).json()
    assert same["tables"]["kernels"]["rows"]
    for table in same["tables"].values():
        at = [column["name"] for column in table["columns"]].index("verdict")
        assert {row[at] for row in table["rows"]} == {"same"}
    answer = server.api.get(f"/traces/{first}/analysis/steps", params={"base": second})
    assert code_of(answer) == (422, "bad_analysis")
    assert code_of(server.api.get(f"/groups/{run[0]}/analysis/compare", params={"base": "none"})) == (
        404,
        "unknown_trace",
    )


def test_two_steps_of_a_trace_are_compared_by_a_selection_of_each(server: Server, step_trace: Path) -> None:
    trace = server.upload(step_trace)
    [first, *_, last] = [step["number"] for step in trace["steps"]]
    address = f"/traces/{trace['id']}/analysis/compare"

    def compared(**more: Any) -> httpx.Response:
        return server.api.get(address, params={"base": trace["id"], "steps": last, **more})

    two = compared(base_selection=json.dumps({"steps": [first]}))
    same, whole = compared(), compared(base_selection="{}")
    places = {}
    for name, response in (("two", two), ("same", same), ("whole", whole)):
        table = response.json()["tables"]["each_step"]
        at = [[column["name"] for column in table["columns"]].index(side) for side in ("base_step", "step")]
        places[name] = [tuple(row[index] for index in at) for row in table["rows"]]
    assert places["two"] == [(first, last)]
    assert places["same"] == [(last, last)]
    assert [base for base, _ in places["whole"]] == [step["number"] for step in trace["steps"]]
    assert len({response.headers["etag"] for response in (two, same, whole)}) == 3
    assert code_of(server.api.get(address, params={"base_selection": "{}"})) == (422, "bad_analysis")
    assert code_of(compared(base_selection='{"step": [1]}')) == (422, "bad_selection")


def test_analysis_of_a_group_lists_unready_traces_or_waits_for_them(
    start_server: StartServer, large_trace: Path, tmp_path: Path
) -> None:
    server = start_server()
    (good,) = grouped(server, tmp_path, "late", ranks=1)
    with large_trace.open("rb") as file:
        late = server.api.put("/traces/large.json", params={"group": "late"}, content=file).json()
    address = f"/groups/{group_of(server, good)}/analysis/gpu_summary"

    answer = server.api.get(address)

    assert code_of(answer) == (409, "not_ready")
    assert "Of the 2 traces of the group, 1 are not ready: large.json (" in answer.json()["detail"]
    assert [(trace["id"], trace["name"]) for trace in answer.json()["traces"]] == [(late["id"], "large.json")]
    answer = server.api.get(address, params={"wait": 300})
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["tables"]) > 0
    assert server.api.get(f"/traces/{late['id']}").json()["state"] == "ready"


def test_group_is_merged_into_one_trace(server: Server, run: tuple[str, list[str]]) -> None:
    answer = server.api.post(f"/groups/{run[0]}/merge", params={"wait": PATIENCE_S}, json={"name": "all.json"})

    job: dict[str, Any] = answer.json()
    assert (answer.status_code, job["state"], sorted(job["request"]["traces"])) == (202, "done", sorted(run[1]))
    (merged,) = job["result"]["traces"]
    assert [rank["rank"] for rank in server.api.get(f"/traces/{merged}").json()["ranks"]] == [0, 1]


def test_group_deleted_with_its_traces_leaves_no_files(server: Server, tmp_path: Path) -> None:
    ids = grouped(server, tmp_path, "doomed")

    assert server.api.delete(f"/groups/{group_of(server, ids[0])}", params={"traces": True}).status_code == 204

    assert server.api.get("/groups", params={"name": "doomed"}).json()["groups"] == []
    files = [path for path in server.data.rglob("*") if any(trace_id in path.name for trace_id in ids)]
    assert not files


def test_pages_of_groups_are_complete(server: Server) -> None:
    for number in range(5):
        server.api.post("/groups", json={"name": f"page {number}"})

    names, cursor = [], None
    while True:
        params: dict[str, str] = {"limit": "2", "name": "page "} | ({"cursor": cursor} if cursor else {})
        page = server.api.get("/groups", params=params).json()
        names += [group["name"] for group in page["groups"]]
        if not (cursor := page["next"]):
            break

    assert names == [f"page {number}" for number in (4, 3, 2, 1, 0)]
    assert code_of(server.api.get("/groups", params={"cursor": "x"})) == (400, "bad_cursor")
