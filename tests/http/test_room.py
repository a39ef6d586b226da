"""Disk space: equal uploads, quota, floor of free space, retention, deletion, reservations and results of queries."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import tus
from tests.server import Server
from tests.traces import TraceShape, sized, write_trace
from tests.waiting import PATIENCE_S, until

Start = Callable[..., Server]

_numbers = count(1)


def body(size: int = 100_000) -> bytes:
    """Return a trace of about `size` bytes that equals no other trace."""
    return json.dumps({"traceEvents": [{"ph": "X", "ts": next(_numbers), "dur": 1, "pid": 1, "tid": 1, "name": "x"}]}
                      ).encode() + b" " * size  # fmt: skip


def put(server: Server, name: str = "t.json", content: bytes | None = None, **parameters: object) -> httpx.Response:
    content = body() if content is None else content
    return server.api.put(f"/traces/{name}", params=parameters, content=content)  # type: ignore[arg-type]


def upload_id(server: Server, name: str = "t.json", content: bytes | None = None) -> str:
    answer = put(server, name, content, wait=60)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def names(server: Server) -> list[str]:
    return [trace["name"] for trace in server.api.get("/traces").json()["traces"]]


def files_on_disk(server: Server) -> set[str]:
    """Return the paths of all files in the folders of traces."""
    return {
        str(path.relative_to(server.data))
        for part in ("originals", "columns", "incoming", "making")
        for path in (server.data / part).rglob("*")
        if path.is_file()
    }


# -- equal uploads ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without a quota or retention."""
    started = Server(tmp_path_factory.mktemp("room") / "data").start()
    yield started
    assert started.stop() == 0


def test_equal_uploads_are_stored_and_ingested_once(open_server: Server) -> None:
    content = body()
    first = upload_id(open_server, "a.json", content)

    answer = open_server.api.put("/traces/b.json", content=content)

    second = answer.json()
    assert (second["state"], second["name"], second["job"]) == ("ready", "b.json", None)
    for path in ("originals/{}", "columns/{}/events.parquet", "columns/{}/envelope.json"):
        assert (open_server.data / path.format(first)).samefile(open_server.data / path.format(second["id"]))
    traces = [open_server.api.get(f"/traces/{trace_id}").json() for trace_id in (first, second["id"])]
    own = ("id", "name", "created_at", "job")
    assert [{key: trace.pop(key) for key in own}["name"] for trace in traces] == ["a.json", "b.json"]
    assert traces[0] == traces[1]


def test_shared_bytes_live_as_long_as_their_last_trace(open_server: Server) -> None:
    content = body()
    first, second = upload_id(open_server, "a.json", content), upload_id(open_server, "b.json", content)

    open_server.api.delete(f"/traces/{first}")

    assert open_server.api.get(f"/traces/{second}/download").content == content
    assert open_server.rows(second, "select count(*) from slice") == [[1]]
    open_server.api.delete(f"/traces/{second}")
    assert not [path for path in files_on_disk(open_server) if first in path or second in path]


def test_equal_bytes_are_ingested_again_if_the_name_states_another_rank(open_server: Server) -> None:
    content = body()
    first = put(open_server, "rank3.json", content, wait=60).json()
    second = put(open_server, "rank4.json", content, wait=60).json()

    assert (first["rank"], second["rank"]) == (3, 4)
    assert (open_server.data / "originals" / first["id"]).samefile(open_server.data / "originals" / second["id"])


def test_simultaneous_equal_uploads_become_ready_and_are_stored_once(open_server: Server) -> None:
    content = body(3_000_000)
    answers = [open_server.api.put("/traces/c.json", content=content) for _ in range(4)]  # none is ingested yet
    ids = [answer.json()["id"] for answer in answers]

    for trace_id in ids:
        assert open_server.api.get(f"/traces/{trace_id}", params={"wait": PATIENCE_S}).json()["state"] == "ready"
    assert len({(open_server.data / "originals" / trace_id).stat().st_ino for trace_id in ids}) == 1


def test_bytes_that_failed_are_ingested_again(open_server: Server) -> None:
    content = b"no trace" + str(next(_numbers)).encode()
    first, second = (put(open_server, "x.json", content, wait=60).json() for _ in range(2))

    assert (first["state"], second["state"]) == ("failed", "failed")
    assert second["job"] != first["job"]


# -- quota and floor ----------------------------------------------------------------------------------------------


def test_upload_beyond_the_quota_is_refused_before_or_during_transfer(start_server: Start) -> None:
    server = start_server(quota_bytes=10_000_000)
    upload_id(server, content=body(3_000_000))

    def pieces() -> Iterator[bytes]:
        for _ in range(20):
            yield b" " * 1_000_000

    announced = put(server, content=body(9_000_000))
    unannounced = server.api.put("/traces/t.json", content=pieces())

    for answer in (announced, unannounced):
        problem = answer.json()
        assert (answer.status_code, problem["code"], problem["quota"]) == (507, "no_room", 10_000_000)
        assert problem["needed"] > 0
        assert 3_000_000 < problem["used"] <= 10_000_000
        assert problem["free"] > 0
    assert len(files_on_disk(server)) == 4  # the original, events, envelope and links of the first trace
    assert len(names(server)) == 1


def test_deletion_of_a_trace_frees_its_quota_at_once(start_server: Start) -> None:
    server = start_server(quota_bytes=18_000_000)
    trace = upload_id(server, content=body(10_000_000))
    assert put(server, content=body(10_000_000)).status_code == 507

    server.api.delete(f"/traces/{trace}")

    assert put(server, content=body(10_000_000)).status_code == 201


def test_equal_uploads_count_once_towards_the_quota(start_server: Start) -> None:
    server = start_server(quota_bytes=18_000_000)
    content = body(5_000_000)

    for _ in range(5):
        assert put(server, content=content).status_code == 201


def test_upload_below_the_floor_of_free_space_is_refused(start_server: Start, tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    server = start_server(min_free_bytes=free * 2)

    answer = put(server)

    assert (answer.status_code, answer.json()["code"], answer.json()["floor"]) == (507, "no_room", free * 2)
    assert files_on_disk(server) == set()


def test_splits_merges_and_imports_respect_the_quota(start_server: Start, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    large = write_trace(runs / "large.json", sized(TraceShape(seed=next(_numbers)), 2_000_000))
    server = start_server(import_roots=runs)
    ids = [upload_id(server, f"rank{rank}.json", large.read_bytes() + b" " * rank) for rank in range(2)]
    server.kill()
    server._settings["quota_bytes"] = 4_100_000
    server.start()

    split = server.api.post(f"/traces/{ids[0]}/split", json={})
    merge = server.api.post("/traces/merge", json={"traces": ids, "ranks": [0, 1]})
    job = server.api.post(
        "/traces/import", params={"wait": PATIENCE_S}, json={"path": "large.json", "mode": "copy"}
    ).json()

    assert [(response.status_code, response.json()["code"]) for response in (split, merge)] == [(507, "no_room")] * 2
    assert (job["state"], job["error"]["code"], job["error"]["quota"]) == ("failed", "no_room", 4_100_000)
    assert len(names(server)) == 2


def test_import_on_a_full_disk_leaves_no_partial_files_and_can_be_repeated(small_disk: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    for number in range(3):
        (runs / f"{number}.json").write_bytes(body(1_000_000))
    server = Server(small_disk / "data", import_roots=runs).start()
    ballast = small_disk / "ballast"
    try:
        ballast.write_bytes(bytes(max(shutil.disk_usage(small_disk).free - 1_700_000, 0)))
        request = {"path": "*.json", "mode": "copy"}
        job = server.api.post("/traces/import", params={"wait": PATIENCE_S}, json=request).json()
        assert (job["state"], job["error"]["code"]) == ("failed", "no_room")
        imported = names(server)
        assert len(imported) < 3
        assert {path.name for path in (server.data / "originals").iterdir()} == {
            trace["id"] for trace in server.api.get("/traces").json()["traces"]
        }
        assert not list((server.data / "incoming").iterdir())

        ballast.unlink()
        job = server.api.post("/traces/import", params={"wait": PATIENCE_S}, json=request).json()

        assert (job["state"], job["result"]["skipped"]) == ("done", 0)
        assert sorted(names(server)) == ["0.json", "1.json", "2.json"]
    finally:
        ballast.unlink(missing_ok=True)
        assert server.stop() == 0


# -- results of queries -------------------------------------------------------------------------------------------

MUCH = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 20000) SELECT hex(zeroblob(1000)) FROM c"
FORMS = ("application/json", "text/csv", "application/x-ndjson", "application/vnd.apache.arrow.stream")


@pytest.mark.parametrize("bound", ["quota_bytes", "min_free_bytes", "results_bytes"])
def test_results_beyond_a_bound_are_refused_or_cut_in_every_form(
    start_server: Start, step_trace: Path, bound: str
) -> None:
    server = start_server()
    trace = server.upload(step_trace)["id"]
    server.rows(trace, "SELECT 1")
    server.kill()
    floor = shutil.disk_usage(server.data).free * 2
    server._settings[bound] = floor if bound == "min_free_bytes" else 10_000_000
    server.start()
    for form in FORMS:
        try:
            answer = server.api.post(
                f"/traces/{trace}/query", json={"sql": MUCH, "limit": None}, headers={"Accept": form}
            )
        except httpx.RemoteProtocolError:  # the response had begun, so the connection is cut
            assert form in ("text/csv", "application/x-ndjson")
        else:
            assert (answer.status_code, answer.json()["code"]) == (507, "no_room")
            assert answer.json()["needed"] > 0
    assert server.rows(trace, "SELECT 1") == [[1]]
    assert "Traceback" not in server.log_text()


# -- retention ----------------------------------------------------------------------------------------------------


def audit_of(server: Server) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (server.data / "audit.log").read_text().splitlines()]


def test_retention_by_size_removes_the_oldest_and_keeps_pinned_traces(start_server: Start) -> None:
    server = start_server(retain_bytes=20_000_000)  # the catalog may take four million of these bytes
    pinned = upload_id(server, "pinned.json", body(5_000_000))
    server.api.patch(f"/traces/{pinned}", json={"pinned": True})
    old = upload_id(server, "old.json", body(5_000_000))
    upload_id(server, "young.json", body(5_000_000))

    upload_id(server, "new.json", body(5_000_000))

    until(lambda: len(names(server)) == 3)
    assert names(server) == ["new.json", "young.json", "pinned.json"]
    assert not [path for path in files_on_disk(server) if old in path]
    lines = [
        (line["who"], line["did"], line["trace"], line["why"])
        for line in audit_of(server)
        if line["who"] == "retention"
    ]
    assert lines == [("retention", "delete", old, "size")]


def test_retention_by_age_removes_old_and_keeps_pinned_traces(start_server: Start) -> None:
    server = start_server()
    ids = [upload_id(server, f"{number}.json") for number in range(3)]
    server.api.patch(f"/traces/{ids[0]}", json={"pinned": True})
    server.kill()
    server._settings["retain_days"] = 1e-9
    server.start()

    until(lambda: names(server) == ["0.json"])

    assert {path.name for path in (server.data / "originals").iterdir()} == {ids[0]}
    assert {line["why"] for line in audit_of(server) if line["who"] == "retention"} == {"age"}


def test_retention_removes_all_traces_that_share_bytes(start_server: Start) -> None:
    server = start_server(retain_bytes=10_000_000)
    content = body(6_000_000)
    for name in ("a.json", "b.json"):
        upload_id(server, name, content)

    upload_id(server, "c.json", body(6_000_000))

    until(lambda: names(server) == ["c.json"])


# -- deletion -----------------------------------------------------------------------------------------------------


def test_deleted_trace_is_removed_from_the_disk(start_server: Start, step_trace: Path) -> None:
    server = start_server(keep_ready=True)
    before = files_on_disk(server)
    trace = server.upload(step_trace)["id"]
    server.rows(trace, "select count(*) from slice")
    server.api.get(f"/traces/{trace}/download", params={"format": "json"})
    job = server.api.post(f"/traces/{trace}/split", params={"wait": PATIENCE_S}, json={"by": "step"}).json()
    assert job["state"] == "done"

    for trace_id in (trace, *job["result"]["traces"]):
        assert server.api.delete(f"/traces/{trace_id}").status_code == 204

    assert files_on_disk(server) == before
    held = [os.readlink(path) for path in Path(f"/proc/{server.pid}/fd").iterdir()]  # noqa: PTH115
    assert not [target for target in held if target.endswith("(deleted)") and str(server.data) in target]


# -- announced uploads -------------------------------------------------------------------------------------------------


def test_announced_uploads_reserve_their_length(start_server: Start) -> None:
    server = start_server(quota_bytes=10_000_000)
    first = tus.begin(server, 6_000_000)
    refused = tus.creation(server, 6_000_000)
    assert (refused.status_code, refused.json()["code"]) == (507, "no_room")
    assert refused.json()["reserved"] == 6_000_000
    assert put(server, "b.json", body(5_000_000)).status_code == 507

    assert tus.send(server, first, 0, b" " * 3_000_000).status_code == 204
    assert tus.creation(server, 6_000_000).json()["reserved"] == 3_000_000
    server.api.delete(first, headers=tus.VERSION)
    assert tus.creation(server, 6_000_000).status_code == 201


def test_a_reservation_outlives_a_restart(start_server: Start) -> None:
    server = start_server(quota_bytes=10_000_000)
    upload = tus.begin(server, 9_000_000)
    server.kill()
    server.start()
    assert tus.offset(server, upload) == 0
    assert tus.creation(server, 9_000_000).status_code == 507


def test_deferred_length_is_reserved_when_it_is_sent(start_server: Start) -> None:
    server = start_server(quota_bytes=10_000_000)
    late = tus.begin(server, None)
    tus.begin(server, 6_000_000)
    assert tus.send(server, late, 0, b" ", Upload_Length="6000000").status_code == 507
    assert tus.send(server, late, 0, b" ", Upload_Length="2000000").status_code == 204


def test_the_number_of_announced_uploads_is_bounded(start_server: Start) -> None:
    server = start_server(max_uploads_per_client=3)
    uploads = [tus.begin(server, 10) for _ in range(3)]
    refused = tus.creation(server, 10)
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_uploads")
    assert (refused.json()["uploads"], refused.json()["limit"]) == (3, 3)
    assert refused.headers["Retry-After"]
    server.api.delete(uploads[0], headers=tus.VERSION)
    assert tus.creation(server, 10).status_code == 201


def test_expired_uploads_do_not_count_towards_the_limit(start_server: Start) -> None:
    server = start_server(max_uploads=1, upload_expires_s=0.5)
    tus.begin(server, 10)
    until(lambda: tus.creation(server, 10).status_code == 201)
