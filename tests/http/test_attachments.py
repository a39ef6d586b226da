"""Attachments over HTTP: files of a trace or a run are attached, listed, read and deleted."""

import gzip
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from service.http import shapes
from service.http.digests import repr_digest
from tests.http.test_groups import StartServer, group_of, grouped
from tests.server import Server

REPORT = b"\n------ DeepSpeed Flops Profiler ------\nProfile Summary at step 10:\n"


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def attach(server: Server, owner: str, name: str = "notes.txt", content: bytes = b"notes") -> dict[str, Any]:
    answer = server.api.put(f"/{owner}/attachments/{name}", content=content)
    assert answer.status_code == 201, answer.text
    attachment: dict[str, Any] = answer.json()
    return attachment


def stored(server: Server) -> set[str]:
    """Return the names of the files of all attachments, and of unfinished ones."""
    return {path.name for part in ("attachments", "incoming") for path in (server.data / part).iterdir()}


@pytest.fixture(scope="module")
def run(server: Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[str]]:
    """A group of two ready ranks, and their ids."""
    ids = grouped(server, tmp_path_factory.mktemp("attachments"), "run of attachments")
    return group_of(server, ids[0]), ids


def test_file_is_attached_listed_read_and_deleted(server: Server, run: tuple[str, list[str]]) -> None:
    group, [trace, _] = run
    of_run = attach(server, f"groups/{group}", "flops.txt.gz", gzip.compress(REPORT))
    of_trace = attach(server, f"traces/{trace}")
    assert (of_run["kind"], of_run["group"], of_run["trace"]) == ("deepspeed_flops", group, None)
    assert (of_trace["kind"], of_trace["group"], of_trace["trace"]) == ("text", None, trace)
    listed = server.api.get(f"/groups/{group}/attachments").json()
    shapes.Attachments.model_validate(listed)
    assert listed == {"attachments": [of_trace, of_run], "next": None}
    assert server.api.get(f"/traces/{trace}/attachments").json()["attachments"] == [of_trace]
    assert server.api.get(f"/attachments/{of_run['id']}").json() == of_run

    file = server.api.get(f"/attachments/{of_trace['id']}/file")
    assert (file.content, file.headers["content-type"]) == (b"notes", "application/octet-stream")
    assert "notes.txt" in file.headers["content-disposition"]
    assert file.headers["repr-digest"] == repr_digest(hashlib.sha256(b"notes").hexdigest())
    part = server.api.get(f"/attachments/{of_trace['id']}/file", headers={"Range": "bytes=1-2"})
    assert (part.status_code, part.content) == (206, b"ot")
    lacking = server.api.get(f"/attachments/{of_trace['id']}/file", headers={"Range": "bytes=5-"})
    assert (code_of(lacking), lacking.headers["content-range"]) == ((416, "bad_range"), "bytes */5")
    current = server.api.get(f"/attachments/{of_trace['id']}/file", headers={"If-None-Match": file.headers["etag"]})
    assert (current.status_code, current.headers["repr-digest"]) == (304, file.headers["repr-digest"])
    other = server.api.get(f"/attachments/{of_trace['id']}/file", headers={"If-Match": '"another"'})
    assert code_of(other) == (412, "precondition_failed")

    for attachment in (of_run, of_trace):
        assert server.api.delete(f"/attachments/{attachment['id']}").status_code == 204
        for path in ("", "/file"):
            gone = server.api.get(f"/attachments/{attachment['id']}{path}")
            assert code_of(gone) == (404, "unknown_attachment")
        assert attachment["id"] not in stored(server)


def test_repeated_attach_returns_the_first_attachment(server: Server, run: tuple[str, list[str]]) -> None:
    group, _ = run
    first = attach(server, f"groups/{group}", "same.txt")
    again = server.api.put(f"/groups/{group}/attachments/same.txt", content=b"notes")
    assert (again.status_code, again.json()) == (200, first)
    assert attach(server, f"groups/{group}", "same.txt", b"other notes")["id"] != first["id"]


def test_attachments_are_listed_in_pages(server: Server) -> None:
    group = server.api.post("/groups", json={"name": "pages of attachments"}).json()["id"]
    ids = [attach(server, f"groups/{group}", f"{number}.txt")["id"] for number in range(3)]
    page = server.api.get(f"/groups/{group}/attachments", params={"limit": 2}).json()
    rest = server.api.get(f"/groups/{group}/attachments", params={"limit": 2, "cursor": page["next"]}).json()
    assert [entry["id"] for entry in (*page["attachments"], *rest["attachments"])] == ids[::-1]
    assert rest["next"] is None


def test_attachments_go_with_their_owner(server: Server, tmp_path: Path) -> None:
    [trace] = grouped(server, tmp_path, "short-lived", ranks=1)
    group = group_of(server, trace)
    of_trace, of_run = attach(server, f"traces/{trace}"), attach(server, f"groups/{group}")
    assert {of_trace["id"], of_run["id"]} <= stored(server)
    server.api.delete(f"/traces/{trace}")
    assert server.api.get(f"/groups/{group}/attachments").json()["attachments"] == [of_run]
    server.api.delete(f"/groups/{group}")
    assert not {of_trace["id"], of_run["id"]} & stored(server)


@pytest.mark.parametrize("owner", ["traces/nowhere", "groups/nowhere"])
def test_unknown_owner_is_refused(server: Server, owner: str) -> None:
    before = stored(server)
    code = "unknown_trace" if owner.startswith("traces") else "unknown_group"
    assert code_of(server.api.put(f"/{owner}/attachments/a.txt", content=b"a")) == (404, code)
    assert code_of(server.api.get(f"/{owner}/attachments")) == (404, code)
    assert stored(server) == before


@pytest.mark.parametrize("name", ["%2E%2E", "a%2Fb", "a%5Cb", "a%0Ab", "%00", "x" * 256, "%20", "%E2%80%AE"])
def test_hostile_names_are_refused(server: Server, run: tuple[str, list[str]], name: str) -> None:
    group, [trace, _] = run
    before = stored(server)
    for owner in (f"groups/{group}", f"traces/{trace}"):
        answer = httpx.put(
            httpx.URL(server.url, raw_path=f"/api/v1/{owner}/attachments/{name}".encode()),
            content=b"a",
            trust_env=False,
        )
        assert answer.status_code in {400, 404, 405}, answer.text
    assert stored(server) == before


@pytest.mark.parametrize("name", ["<b>.txt", "ü 1.txt", "'; DROP TABLE attachment; --", "a%b?c#d", ".hidden"])
def test_odd_names_are_kept_as_they_are(server: Server, run: tuple[str, list[str]], name: str) -> None:
    attachment = attach(server, f"groups/{run[0]}", quote(name, safe=""))
    assert attachment["name"] == name
    assert server.api.get(f"/attachments/{attachment['id']}/file").content == b"notes"


def test_traces_binary_files_and_empty_bodies_are_refused(
    server: Server, run: tuple[str, list[str]], step_trace: Path
) -> None:
    path, before = f"/groups/{run[0]}/attachments/x", stored(server)
    assert code_of(server.api.put(path, content=step_trace.read_bytes())) == (422, "bad_attachment")
    assert code_of(server.api.put(path, content=bytes(100))) == (422, "bad_attachment")
    assert code_of(server.api.put(path, content=b"")) == (400, "empty_body")
    wrong = {"Repr-Digest": repr_digest(hashlib.sha256(b"b").hexdigest())}
    assert code_of(server.api.put(path, content=b"a", headers=wrong)) == (400, "digest_mismatch")
    assert stored(server) == before


def test_upload_of_a_report_is_refused_with_the_command_that_attaches_it(server: Server) -> None:
    trace = server.api.put("/traces/flops.txt", params={"wait": 60}, content=REPORT).json()
    assert (trace["state"], trace["error"]["code"]) == ("failed", "not_a_trace")
    assert "`tracedock attach" in trace["error"]["detail"]
    server.api.delete(f"/traces/{trace['id']}")


def test_sizes_are_bounded_and_count_towards_the_quota(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(max_attachment_bytes=1000, quota_bytes=3 << 20)
    group = server.api.post("/groups", json={"name": "g"}).json()["id"]
    path = f"/groups/{group}/attachments/a.txt"
    assert code_of(server.api.put(path, content=b"a" * 1001)) == (413, "too_large")
    chunks = (b"a" * 500 for _ in range(3))  # a body of unknown length
    assert code_of(server.api.put(path, content=chunks)) == (413, "too_large")
    assert stored(server) == set()
    server = start_server(quota_bytes=2 << 20)
    group = server.api.post("/groups", json={"name": "h"}).json()["id"]
    first = attach(server, f"groups/{group}", "a.txt", b"a" * (1 << 20))
    path = f"/groups/{group}/attachments/b.txt"
    assert code_of(server.api.put(path, content=b"b" * (1 << 20))) == (507, "no_room")
    server.api.delete(f"/attachments/{first['id']}")
    attach(server, f"groups/{group}", "b.txt", b"b" * (1 << 20))


def test_attaching_while_the_owner_is_deleted_leaves_nothing(server: Server) -> None:
    for number in range(10):
        group = server.api.post("/groups", json={"name": f"deleted {number}"}).json()["id"]
        before = stored(server)
        with ThreadPoolExecutor(5) as threads:
            answers = [
                threads.submit(server.api.put, f"/groups/{group}/attachments/{name}", content=bytes(name, "ascii") * 99)
                for name in "abcd"
            ]
            assert threads.submit(server.api.delete, f"/groups/{group}").result().status_code == 204
            statuses = [answer.result().status_code for answer in answers]
        assert set(statuses) <= {201, 404}
        assert stored(server) <= before


def test_attachments_survive_a_kill(start_server: StartServer) -> None:
    server = start_server()
    group = server.api.post("/groups", json={"name": "g"}).json()["id"]
    kept, deleted = attach(server, f"groups/{group}"), attach(server, f"groups/{group}", "b.txt")
    server.api.delete(f"/attachments/{deleted['id']}")
    server.kill()
    (server.data / "attachments" / "0123456789ab").write_bytes(b"killed before its record was written")
    server.start()
    assert server.api.get(f"/groups/{group}/attachments").json()["attachments"] == [kept]
    assert stored(server) == {kept["id"]}


# -- tables ----------------------------------------------------------------------------------------------------------

NSYS = b'Time (%),Total Time (ns),Name\n70.0,2000,"gemm<float, 1>"\n'


def test_tables_of_a_report_are_json_or_csv(server: Server, run: tuple[str, list[str]]) -> None:
    report = attach(server, f"groups/{run[0]}", "kern.csv", NSYS)
    path = f"/attachments/{report['id']}/tables"
    content = server.api.get(path).json()
    shapes.AttachmentTables.model_validate(content)
    assert [table["rows"] for table in content["tables"]] == [[["70.0", "2000", "gemm<float, 1>"]]]
    assert (content["text"], content["truncated"], content["reason"]) == (NSYS.decode(), False, None)
    csv = server.api.get(path, params={"format": "csv"})
    assert (csv.text, csv.headers["content-type"]) == (NSYS.decode().replace("\n", "\r\n"), "text/csv; charset=utf-8")
    assert code_of(server.api.get(path, params={"format": "csv", "table": 1})) == (404, "unknown_table")


def test_text_is_text(server: Server, run: tuple[str, list[str]]) -> None:
    hostile = "<script>alert(1)</script>\n=cmd()"
    text = attach(server, f"groups/{run[0]}", "hostile.html", hostile.encode())
    answer = server.api.get(f"/attachments/{text['id']}/tables")
    assert answer.headers["content-type"] == "application/json"
    assert (answer.json()["tables"], answer.json()["text"]) == ([], hostile)
    file = server.api.get(f"/attachments/{text['id']}/file")
    assert file.headers["content-type"] == "application/octet-stream"
    assert file.headers["content-disposition"].startswith("attachment;")
    assert file.headers["x-content-type-options"] == "nosniff"


# -- execution traces ------------------------------------------------------------------------------------------------


def operators_trace(rank: int) -> bytes:
    """Return a trace with operators that have ids but no shapes."""
    events = [
        {
            "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": number * 10, "dur": 5,
            "args": {"External id": number},
        }
        for number in range(1, 21)
    ]  # fmt: skip
    return json.dumps({"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events}).encode()


def execution_trace(name: str) -> bytes:
    """Return an execution trace of 20 operators with a name, with their shapes."""
    shapes = {"input_shapes": [[2, 3]], "input_types": ["Tensor(float)"]}
    nodes = [
        {"id": number + 1, "rf_id": number, "parent": 1, "name": name if number > 2 else "aten::mm", **shapes}
        for number in range(1, 21)
    ]
    return json.dumps({"schema": "1.0.1", "nodes": nodes}).encode()


@pytest.fixture(scope="module")
def operators(server: Server) -> tuple[str, list[str]]:
    """A group of two ranks whose operators have no shapes, and their ids."""
    params: dict[str, str | int] = {"group": "without shapes", "wait": 600}
    ids = [
        server.api.put(f"/traces/rank{rank}.json", params=params, content=operators_trace(rank)).json()["id"]
        for rank in (0, 1)
    ]
    return group_of(server, ids[0]), ids


def test_execution_traces_of_a_run_give_their_ranks_shapes(server: Server, operators: tuple[str, list[str]]) -> None:
    group, [first, second] = operators
    path, params = f"/groups/{group}/analysis/operators", {"group_by": "shapes"}
    before = server.api.get(path, params=params)
    assert (before.json()["notes"], before.json()["tables"]["execution_traces"]["rows"]) == ([], [])
    fitting = attach(server, f"groups/{group}", "et_rank0.json", execution_trace("aten::mm"))
    other = attach(server, f"groups/{group}", "et_rank1.json", execution_trace("aten::add"))
    unnamed = attach(server, f"groups/{group}", "et.json", execution_trace("aten::mm"))
    assert (fitting["kind"], fitting["rank"], unnamed["rank"]) == ("execution_trace", 0, None)

    answer = server.api.get(path, params=params, headers={"If-None-Match": before.headers["etag"]})
    [used, refused_note] = answer.json()["notes"]
    assert used.startswith("Rank 0: 20 of 20 operators have their shapes from the execution trace et_rank0.json")
    assert refused_note.startswith("Rank 1: the execution trace et_rank1.json is not used. It is of another capture: 2")
    table = answer.json()["tables"]["operators"]
    names = [column["name"] for column in table["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in table["rows"]]
    assert sorted((row["rank"], row["shapes"], row["calls"]) for row in rows) == [(0, "[[2, 3]]", 20), (1, "[]", 20)]
    args = "SELECT count(*) AS n FROM args WHERE flat_key LIKE 'args.Input%'"
    assert server.api.post(f"/traces/{first}/query", json={"sql": args}).json()["rows"] == [[0]]  # events never change

    match = server.api.get(f"/attachments/{fitting['id']}/match").json()
    shapes.AttachmentMatches.model_validate(match)
    assert [(entry["trace"], entry["used"], entry["gained"]) for entry in match["matches"]] == [(first, True, 20)]
    [refused] = server.api.get(f"/attachments/{other['id']}/match").json()["matches"]
    assert (refused["trace"], refused["joined"], refused["same_name"]) == (second, 20, 2)
    unmatched = server.api.get(f"/attachments/{unnamed['id']}/match").json()
    assert (unmatched["matches"], "attach it to a trace" in unmatched["reason"]) == ([], True)

    of_trace = attach(server, f"traces/{second}", "et.json", execution_trace("aten::mm"))
    [own] = server.api.get(f"/attachments/{of_trace['id']}/match").json()["matches"]
    assert (own["trace"], own["used"]) == (second, True)
    notes = server.api.get(f"/traces/{second}/analysis/operators", params=params).json()["notes"]
    assert [note.partition(" operators")[0] for note in notes] == ["Rank 1: 20 of 20"]
    for attachment in (fitting, other, unnamed, of_trace):
        server.api.delete(f"/attachments/{attachment['id']}")
    assert server.api.get(path, params=params).json()["notes"] == []


def test_only_execution_traces_are_matched(server: Server, operators: tuple[str, list[str]]) -> None:
    text = attach(server, f"groups/{operators[0]}", "text.txt")
    assert code_of(server.api.get(f"/attachments/{text['id']}/match")) == (422, "bad_attachment")


def test_damaged_execution_trace_is_a_reason(server: Server, operators: tuple[str, list[str]]) -> None:
    _, [trace, _] = operators
    damaged = attach(server, f"traces/{trace}", "damaged.json", execution_trace("aten::mm")[:-7])
    [match] = server.api.get(f"/attachments/{damaged['id']}/match").json()["matches"]
    assert (match["used"], match["nodes"], "no valid JSON" in match["reason"]) == (False, None, True)
    server.api.delete(f"/attachments/{damaged['id']}")
