"""Imports read each file on the server's disk once, and only below the import roots."""

import hashlib
import io
import json
import os
import shutil
import tarfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from service.http import shapes
from service.store.tokens import Scope, Tokens
from tests.server import Server
from tests.traces import TraceShape, sized, write_trace
from tests.waiting import PATIENCE_S, until

Start = Callable[..., Server]


_numbers = count()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The import root of the server that most tests share."""
    return tmp_path_factory.mktemp("imports").resolve()


@pytest.fixture(scope="module")
def server(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("importing") / "data", import_roots=root, import_look_s=0.2).start()
    yield started
    assert started.stop() == 0


@pytest.fixture
def runs(root: Path, tmp_path: Path) -> Path:
    """A folder below the root for one test."""
    folder = root / tmp_path.name
    folder.mkdir()
    return folder


@pytest.fixture
def own(start_server: Start, root: Path) -> Server:
    """A server for one test."""
    return start_server(import_roots=root, import_look_s=0.2)


def small(path: Path, rank: int = 0, size: int = 20_000) -> Path:
    """Write a small trace whose bytes equal those of no other trace."""
    path.parent.mkdir(exist_ok=True)
    return write_trace(path, sized(TraceShape(rank=rank, seed=next(_numbers)), size))


def imported(server: Server, path: Path, **options: object) -> dict[str, Any]:
    """Import a path, and return the job once it is done."""
    answer = server.api.post("/traces/import", params={"wait": PATIENCE_S}, json={"path": str(path)} | options)
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"/api/v1/jobs/{job['id']}"
    assert job["state"] == "done", job
    return job


def import_traces(server: Server, path: Path, *, ready: bool = False, **options: object) -> list[dict[str, Any]]:
    """Import a path and return its traces; with `ready`, once they are ready."""
    job = imported(server, path, **options)
    wait = {"wait": PATIENCE_S if ready else 0}
    return [server.api.get(f"/traces/{trace_id}", params=wait).json() for trace_id in job["result"]["traces"]]


def bytes_of(server: Server, trace: dict[str, Any]) -> bytes:
    answer = server.api.get(f"/traces/{trace['id']}/download", params={"format": "original"})
    assert answer.status_code == 200, answer.text
    return answer.content


# -- modes of import ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "link", "copy", "reference"])
def test_imported_file_becomes_a_trace_with_its_bytes(server: Server, runs: Path, mode: str) -> None:
    file = small(runs / "rank0.json")

    (trace,) = import_traces(server, runs / "rank0.json", mode=mode, ready=True)

    assert (trace["name"], trace["state"], trace["size"]) == ("rank0.json", "ready", file.stat().st_size)
    assert trace["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert bytes_of(server, trace) == file.read_bytes()
    assert trace["path"] == (str(file) if mode == "reference" else None)
    original = server.data / "originals" / trace["id"]
    assert original.exists() == (mode != "reference")
    if original.exists():
        assert original.samefile(file) == (mode in {"auto", "link"})


def test_deleting_an_imported_trace_keeps_the_file(server: Server, runs: Path) -> None:
    files = [small(runs / f"{mode}.json", rank) for rank, mode in enumerate(("link", "reference"))]
    for file in files:
        (trace,) = import_traces(server, file, mode=file.stem)
        assert server.api.delete(f"/traces/{trace['id']}").status_code == 204
        assert not (server.data / "originals" / trace["id"]).exists()
        assert not (server.data / "columns" / trace["id"]).exists()

    assert all(file.exists() for file in files)


@pytest.mark.parametrize("mode", ["link", "reference"])
def test_changed_file_is_not_served_as_the_original(server: Server, runs: Path, mode: str) -> None:
    file = small(runs / "a.json")
    (trace,) = import_traces(server, runs / "a.json", mode=mode, ready=True)
    with file.open("ab") as more:
        more.write(b" ")

    answer = server.api.get(f"/traces/{trace['id']}/download", params={"format": "original"})

    assert (answer.status_code, answer.json()["code"]) == (422, "original_changed")
    assert server.api.get(f"/traces/{trace['id']}/download", params={"format": "json"}).status_code == 200


def test_referenced_trace_outlives_its_file_except_for_the_original(server: Server, runs: Path) -> None:
    file = small(runs / "a.json")
    (trace,) = import_traces(server, runs / "a.json", mode="reference", ready=True)
    file.unlink()

    assert server.api.get(f"/traces/{trace['id']}/download").json()["code"] == "original_changed"
    assert server.api.get(f"/traces/{trace['id']}/download", params={"format": "json"}).status_code == 200


def test_ranges_of_a_referenced_file_are_downloaded(server: Server, runs: Path) -> None:
    file = small(runs / "a.json")
    (trace,) = import_traces(server, runs / "a.json", mode="reference")

    part = server.api.get(f"/traces/{trace['id']}/download", headers={"Range": "bytes=100-199"})

    assert (part.status_code, part.content) == (206, file.read_bytes()[100:200])
    fds = Path(f"/proc/{server.pid}/fd")
    until(lambda: not any(os.path.realpath(path) == str(file) for path in fds.iterdir()))


def test_imported_bytes_that_are_stored_already_are_shared(server: Server, runs: Path) -> None:
    file = small(runs / "a.json")
    first = server.upload(file, "uploaded.json", wait=0)

    (second,) = import_traces(server, runs / "a.json", mode="copy")

    assert second["id"] != first["id"]
    originals = server.data / "originals"
    assert (originals / first["id"]).samefile(originals / second["id"])


def test_import_by_link_works_with_a_symlinked_data_folder(root: Path, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "way").symlink_to(tmp_path / "real")
    file = small(runs / "a.json")
    own = Server(tmp_path / "way" / "data", import_roots=root).start()
    try:
        (trace,) = import_traces(own, file, mode="link", ready=True)

        assert trace["state"] == "ready"
        assert bytes_of(own, trace) == file.read_bytes()
    finally:
        assert own.stop() == 0


# -- folders, patterns, archives ----------------------------------------------------------------------------------


def test_imported_folder_becomes_a_group_and_reports_each_file(server: Server, runs: Path) -> None:
    for rank in range(3):
        small(runs / "run" / f"rank{rank}.json", rank)
    (runs / "run" / "notes.txt").write_text("hello")
    (runs / "run" / "rank3.json.tmp").write_text("{")
    (runs / "run" / "empty.json").touch()

    job = imported(server, runs / "run", group="run 7")

    assert job["priority"] == "bulk"
    files = {Path(file["path"]).name: file for file in job["result"]["files"]}
    assert {name for name, entry in files.items() if entry["trace"]} == {"rank0.json", "rank1.json", "rank2.json"}
    assert "named like a trace" in files["notes.txt"]["why"]
    assert "being written" in files["rank3.json.tmp"]["why"]
    assert "at least one byte" in files["empty.json"]["why"]
    assert (len(job["result"]["traces"]), job["result"]["skipped"]) == (3, 3)
    (group,) = server.api.get("/groups", params={"name": "run 7"}).json()["groups"]
    assert (group["name"], group["traces"]) == ("run 7", 3)
    report = server.api.get(f"/imports/{job['result']['import']}").json()
    assert (report["taken"], report["skipped"], report["watching"]) == (3, 3, False)
    assert len(report["files"]) == 6
    shapes.Import.model_validate(report)
    shapes.Job.model_validate(job)


def test_repeated_import_returns_the_same_trace(server: Server, runs: Path) -> None:
    small(runs / "a.json")
    first = imported(server, runs / "a.json")["result"]["traces"]

    assert imported(server, runs / "*.json")["result"]["traces"] == first
    assert imported(server, runs / "a.json", group="another")["result"]["traces"] != first


def test_a_single_file_may_be_given_a_name(server: Server, runs: Path) -> None:
    small(runs / "a.json")

    (trace,) = import_traces(server, runs / "a.json", name="better.json")
    refused = server.api.post("/traces/import", json={"path": str(runs), "name": "x.json", "watch": True})

    assert trace["name"] == "better.json"
    assert (refused.status_code, refused.json()["code"]) == (400, "bad_name")
    assert server.api.get("/imports").json()["imports"] == []


@pytest.mark.parametrize("name", ["plain.tar", "packed.tar.gz"])
def test_a_tar_of_ranks_becomes_one_group(server: Server, runs: Path, name: str) -> None:
    with tarfile.open(runs / name, "w:gz" if name.endswith("gz") else "w") as archive:
        for rank in range(2):
            archive.add(small(runs / "x" / f"rank{rank}.json", rank), f"../../etc/rank{rank}.json")
        link = tarfile.TarInfo("rank2.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        readme = tarfile.TarInfo("README")
        readme.size = 2
        archive.addfile(readme, io.BytesIO(b"hi"))

    job = imported(server, runs / name)

    assert (len(job["result"]["traces"]), job["result"]["skipped"]) == (2, 2)
    (group,) = server.api.get("/groups", params={"name": name.partition(".")[0]}).json()["groups"]
    ranks = server.api.get(f"/groups/{group['id']}").json()["ranks"]
    assert (group["name"], sorted(member["name"] for member in ranks)) == (
        name.partition(".")[0],
        ["rank0.json", "rank1.json"],
    )
    for member in ranks:
        assert bytes_of(server, {"id": member["trace"]}) == (runs / "x" / member["name"]).read_bytes()


def test_truncated_tar_is_imported_up_to_the_damage_and_reported(server: Server, runs: Path) -> None:
    with tarfile.open(runs / "whole.tar", "w") as archive:
        for rank in range(2):
            archive.add(small(runs / "x" / f"rank{rank}.json", rank), f"rank{rank}.json")
    whole = (runs / "whole.tar").read_bytes()
    (runs / "cut.tar").write_bytes(whole[: len(whole) // 2])
    (runs / "none.tar").write_bytes(b"no archive" * 100)

    result = imported(server, runs / "cut.tar")["result"]
    assert len(result["traces"]) == 1
    assert result["skipped"] >= 1
    result = imported(server, runs / "none.tar")["result"]
    assert (result["traces"], result["skipped"]) == ([], 1)
    assert "archive is damaged" in result["files"][0]["why"]
    assert not list((server.data / "incoming").iterdir())


def test_undecodable_names_are_reported_and_do_not_stop_the_import(server: Server, runs: Path) -> None:
    small(runs / "good.json")
    (runs / os.fsdecode(b"caf\xe9.json")).write_bytes(b"{}")
    (runs / "new\nline.json").write_bytes(b"{}")

    result = imported(server, runs)["result"]

    assert (len(result["traces"]), result["skipped"]) == (1, 2)
    assert any("udce9" in file["path"] and "plain file name" in file["why"] for file in result["files"])


def test_file_that_others_may_write_is_never_shared(server: Server, runs: Path) -> None:
    file = small(runs / "a.json")
    (linked,) = import_traces(server, file, mode="link")
    kept = server.upload(file, "kept.json", wait=0)
    with file.open("ab") as more:
        more.write(b" ")

    assert kept["sha256"] == linked["sha256"]
    assert hashlib.sha256(bytes_of(server, kept)).hexdigest() == kept["sha256"]


def test_imported_file_that_is_no_trace_fails_like_an_upload(server: Server, runs: Path) -> None:
    (runs / "a.json").write_text("no JSON at all")

    (trace,) = import_traces(server, runs / "a.json", ready=True)

    assert (trace["state"], trace["error"]["code"]) == ("failed", "not_json")


# -- refused paths ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "/etc", "out.json", "pipe.json", "null.json", "a/../../x"])
def test_path_outside_the_roots_or_of_no_file_is_refused(server: Server, runs: Path, tmp_path: Path, path: str) -> None:
    (tmp_path / "secret.json").write_text("{}")
    (runs / "out.json").symlink_to(tmp_path / "secret.json")
    os.mkfifo(runs / "pipe.json")
    (runs / "null.json").symlink_to("/dev/null")

    before = [job["id"] for job in server.api.get("/jobs").json()["jobs"]]

    for request_path in (path, f"{runs.name}/{path}", f"{runs}/{path}") if path[0] != "/" else (path,):
        answer = server.api.post("/traces/import", json={"path": request_path})
        assert answer.status_code == (404 if request_path == path and path[0] not in "./" and ".." not in path else 403)
    assert answer.json()["code"] == "import_refused"
    assert [job["id"] for job in server.api.get("/jobs").json()["jobs"]] == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_import_of_a_device_is_refused(server: Server, runs: Path) -> None:
    os.mknod(runs / "zero.json", 0o666 | 0o020000, os.makedev(1, 5))

    assert server.api.post("/traces/import", json={"path": str(runs / "zero.json")}).status_code == 403


def test_a_server_without_roots_imports_nothing(start_server: Start) -> None:
    answer = start_server().api.post("/traces/import", json={"path": "/etc/passwd"})

    assert (answer.status_code, answer.json()["code"]) == (403, "import_refused")


def test_import_of_a_path_that_matches_no_file_is_not_found(server: Server, runs: Path) -> None:
    answer = server.api.post("/traces/import", json={"path": f"{runs}/*.json"})

    assert (answer.status_code, answer.json()["code"]) == (404, "nothing_to_import")


def test_symlink_in_place_of_a_referenced_file_is_not_followed(server: Server, runs: Path) -> None:
    small(runs / "a.json")
    (trace,) = import_traces(server, runs / "a.json", mode="reference")
    (runs / "a.json").unlink()
    (runs / "a.json").symlink_to("/etc/passwd")

    assert server.api.get(f"/traces/{trace['id']}/download").json()["code"] == "original_changed"


def test_import_needs_write_scope_and_is_logged_with_its_path(start_server: Start, root: Path, runs: Path) -> None:
    own = start_server(import_roots=root, token="0123456789abcdef")
    with closing(Tokens(own.data / "tokens.sqlite")) as tokens:
        secret = tokens.add("reader", Scope.READ)
    request = {"path": str(small(runs / "a.json"))}

    refused = own.api.post("/traces/import", headers={"Authorization": f"Bearer {secret}"}, json=request)
    assert refused.json()["code"] == "forbidden_scope"
    allowed = {"Authorization": "Bearer 0123456789abcdef"}
    job = own.api.post("/traces/import", headers=allowed, json=request).json()["id"]

    noted = [json.loads(line) for line in (own.data / "audit.log").read_text().splitlines()]
    assert [(line["did"], line.get("path"), line.get("job"), line["status"]) for line in noted] == [
        ("import", None, None, 403), ("import", str(runs / "a.json"), job, 202),
    ]  # fmt: skip


# -- watching -----------------------------------------------------------------------------------------------------


def watched(own: Server, path: Path, **options: object) -> str:
    """Start an import that watches a path, and return its id."""
    answer = own.api.post("/traces/import", json={"path": str(path), "watch": True} | options)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["request"]["import"])


def names(own: Server) -> list[str]:
    return sorted(trace["name"] for trace in own.api.get("/traces", params={"limit": 500}).json()["traces"])


def test_watching_import_takes_new_complete_files_only(own: Server, runs: Path) -> None:
    small(runs / "0.json", 0)
    order = watched(own, runs, group="live")
    until(lambda: names(own) == ["0.json"])

    small(runs / "1.json.tmp", 1)
    small(runs / "2.json", 2)
    until(lambda: names(own) == ["0.json", "2.json"])
    (runs / "1.json.tmp").rename(runs / "1.json")
    until(lambda: names(own) == ["0.json", "1.json", "2.json"])

    page = own.api.get("/imports").json()
    shapes.Imports.model_validate(page)
    (watch,) = page["imports"]
    assert (watch["id"], watch["taken"], watch["watching"], watch["group"]) == (order, 3, True, "live")
    ended = own.api.delete(f"/imports/{order}").json()
    assert (ended["watching"], own.api.get("/imports").json()["imports"]) == (False, [])


def test_watching_import_waits_until_a_file_stops_growing(
    start_server: Start, root: Path, runs: Path, tmp_path: Path
) -> None:
    own = start_server(import_roots=root, import_look_s=2)  # the writer may pause for 1 s on a busy machine
    watched(own, runs)
    content = small(tmp_path / "begun.json").read_bytes()
    done = threading.Event()

    def grow(file: io.FileIO) -> None:
        while not done.wait(0.01):
            file.write(b" ")

    with io.FileIO(runs / "a.json", "a") as file, ThreadPoolExecutor(1) as pool:
        file.write(content)
        growing = pool.submit(grow, file)
        try:
            small(runs / "b.json")
            until(lambda: "b.json" in names(own))
            assert names(own) == ["b.json"]
        finally:
            done.set()
        growing.result()

    until(lambda: names(own) == ["a.json", "b.json"])

    (trace,) = own.api.get("/traces", params={"name": "a.json"}).json()["traces"]
    assert trace["sha256"] == hashlib.sha256((runs / "a.json").read_bytes()).hexdigest()


def test_watching_import_continues_after_a_kill_and_takes_no_file_twice(own: Server, runs: Path) -> None:
    small(runs / "0.json", 0)
    watched(own, runs / "*.json")
    until(lambda: names(own) == ["0.json"])
    own.kill()
    small(runs / "1.json", 1)
    own.start()

    until(lambda: names(own) == ["0.json", "1.json"])
    small(runs / "2.json", 2)
    until(lambda: len(names(own)) == 3)

    assert names(own) == ["0.json", "1.json", "2.json"]


def test_file_of_a_deleted_trace_is_imported_again_only_if_it_changes(own: Server, runs: Path) -> None:
    small(runs / "0.json", 0)
    watched(own, runs)
    until(lambda: names(own) == ["0.json"])
    (trace,) = own.api.get("/traces").json()["traces"]
    own.api.delete(f"/traces/{trace['id']}")
    small(runs / "1.json", 1)
    until(lambda: names(own) == ["1.json"])

    small(runs / "new", 2).replace(runs / "0.json")

    until(lambda: names(own) == ["0.json", "1.json"])


# -- kills and cancels --------------------------------------------------------------------------------------------


def test_import_continues_after_a_kill_of_the_server(own: Server, runs: Path, tmp_path: Path) -> None:
    source = small(tmp_path / "source.json", size=30_000)
    for number in range(200):
        shutil.copyfile(source, runs / f"{number:03}.json")
    job = own.api.post("/traces/import", json={"path": str(runs)}).json()
    until(lambda: 3 <= len(names(own)) < 200)
    own.kill()
    own.start()

    job_done = own.api.get(f"/jobs/{job['id']}", params={"wait": PATIENCE_S}).json()

    assert (job_done["state"], len(job_done["result"]["traces"])) == ("done", 200)
    assert names(own) == [f"{number:03}.json" for number in range(200)]
    assert sorted(path.name for path in (own.data / "originals").iterdir()) == sorted(job_done["result"]["traces"])


def test_cancelled_import_leaves_no_partial_files(own: Server, runs: Path) -> None:
    write_trace(runs / "large.json", sized(TraceShape(), 60_000_000))
    job = own.api.post("/traces/import", json={"path": str(runs / "large.json"), "mode": "copy"}).json()

    job_done = own.api.delete(f"/jobs/{job['id']}").json()

    if job_done["state"] == "cancelled":
        assert names(own) in ([], ["large.json"])
    assert not list((own.data / "incoming").iterdir())
    assert len(list((own.data / "originals").iterdir())) == len(names(own))
