"""Imports from buckets read objects where they are: no second copy, changes are noticed, and nothing leads out."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from service.store.locations.location import Location
from tests.server import Server
from tests.store.locations.conftest import bucket, s3
from tests.store.s3 import SECRET, S3Server
from tests.traces import TraceShape, sized, write_trace
from tests.waiting import PATIENCE_S, until

__all__ = ["bucket", "s3"]

pytestmark = pytest.mark.system

Start = Callable[..., Server]
_seeds = count()


def trace_bytes(folder: Path, size: int = 20_000) -> bytes:
    """Return a trace whose bytes equal those of no other trace."""
    return write_trace(folder / "made.json", sized(TraceShape(seed=next(_seeds)), size)).read_bytes()


@pytest.fixture
def server(bucket: Location, start_server: Start, tmp_path: Path) -> Server:
    """A server with two import roots: a part of the bucket, and a folder."""
    (tmp_path / "root").mkdir()
    return start_server(import_roots=f"{bucket.url}/runs/, {tmp_path / 'root'}", import_look_s=0.2)


def imported(server: Server, path: str, **options: object) -> dict[str, Any]:
    """Import a path, and return the job once it has ended."""
    answer = server.api.post("/traces/import", params={"wait": PATIENCE_S}, json={"path": path} | options)
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    return job


def ready(server: Server, trace_id: str) -> dict[str, Any]:
    trace: dict[str, Any] = server.api.get(f"/traces/{trace_id}", params={"wait": PATIENCE_S}).json()
    assert trace["state"] == "ready", trace
    return trace


def stored_bytes(server: Server) -> int:
    return sum(path.stat().st_size for path in (server.data / "originals").iterdir())


def test_object_becomes_a_trace_and_stays_in_the_bucket(server: Server, bucket: Location, tmp_path: Path) -> None:
    content = trace_bytes(tmp_path)
    bucket.write("runs/a/rank0.json", content)
    job = imported(server, f"{bucket.url}/runs/a/rank0.json")
    [trace_id] = job["result"]["traces"]
    trace = ready(server, trace_id)
    assert trace["path"] == f"{bucket.url}/runs/a/rank0.json"
    assert trace["sha256"] == hashlib.sha256(content).hexdigest()
    assert trace["size"] == len(content)
    assert stored_bytes(server) == 0
    assert imported(server, f"{bucket.url}/runs/a/rank0.json")["result"]["traces"] == [trace_id]
    assert server.api.delete(f"/traces/{trace_id}").status_code == 204
    assert bucket.read("runs/a/rank0.json") == content


def test_prefixes_patterns_and_relative_paths_find_objects(server: Server, bucket: Location, tmp_path: Path) -> None:
    names = ["a/rank0.json", "a/rank1.json.gz", "a/notes.txt", "a/half.json.tmp", "b/rank0.json", "b/what?.json"]
    for name in names:
        content = trace_bytes(tmp_path)
        bucket.write(f"runs/{name}", gzip.compress(content) if name.endswith("gz") else content)
    bucket.write("runs-evil/rank0.json", trace_bytes(tmp_path))
    (tmp_path / "root" / "a").mkdir()
    (tmp_path / "root" / "a" / "local.json").write_bytes(trace_bytes(tmp_path))

    def found(path: str) -> set[str]:
        files = imported(server, path)["result"]["files"]
        return {file["path"].rpartition("/")[2] for file in files if file["trace"]}

    assert found(f"{bucket.url}/runs/a") == {"rank0.json", "rank1.json.gz"}
    assert found(f"{bucket.url}/runs/") == {"rank0.json", "rank1.json.gz", "what?.json"}
    assert found(f"{bucket.url}/runs/*/rank0.json") == {"rank0.json"}
    assert len(imported(server, f"{bucket.url}/runs/*/rank0.json")["result"]["files"]) == 2
    assert found(f"{bucket.url}/runs/b/what?.json") == {"what?.json"}
    assert found("a") == {"rank0.json", "rank1.json.gz", "local.json"}
    skipped = {file["why"] for file in imported(server, f"{bucket.url}/runs/a")["result"]["files"] if file["why"]}
    assert any("still being written" in why for why in skipped)
    assert any("named like a trace" in why for why in skipped)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("{root}-evil/rank0.json", 403),
        ("{root}/../runs-evil/rank0.json", 403),
        ("{root}/./rank0.json", 403),
        ("{root}//rank0.json", 403),
        ("{root}/%2e%2e/runs-evil/rank0.json", 404),
        ("{bucket}/", 403),
        ("s3://other/runs/rank0.json", 403),
        ("gs://traces/runs", 403),
        ("file:///etc/passwd", 403),
        ("{root}/nothing", 404),
    ],
)
def test_path_outside_of_the_roots_is_refused(server: Server, bucket: Location, path: str, status: int) -> None:
    bucket.write("runs-evil/rank0.json", b"{}")
    answer = server.api.post("/traces/import", json={"path": path.format(root=f"{bucket.url}/runs", bucket=bucket.url)})
    assert answer.status_code == status, answer.text


def test_replaced_and_removed_objects_are_noticed(server: Server, bucket: Location, tmp_path: Path) -> None:
    content = trace_bytes(tmp_path)
    bucket.write("runs/rank0.json", content)
    [trace_id] = imported(server, f"{bucket.url}/runs/rank0.json")["result"]["traces"]
    ready(server, trace_id)
    assert server.api.get(f"/traces/{trace_id}/download").content == content
    bucket.write("runs/rank0.json", content + b" ")
    replaced = server.api.get(f"/traces/{trace_id}/download")
    assert (replaced.status_code, replaced.json()["code"]) == (422, "original_changed")
    bucket.remove("runs/rank0.json")
    removed = server.api.get(f"/traces/{trace_id}/download")
    assert (removed.status_code, removed.json()["code"]) == (422, "original_changed")
    assert server.api.get(f"/traces/{trace_id}/download", params={"format": "json"}).status_code == 200


def test_downloads_have_ranges_tags_and_digests(server: Server, bucket: Location, tmp_path: Path) -> None:
    content = trace_bytes(tmp_path, size=3_000_000)
    bucket.write("runs/rank0.json", content)
    [trace_id] = imported(server, f"{bucket.url}/runs/rank0.json")["result"]["traces"]
    path = f"/traces/{trace_id}/download"
    whole = server.api.get(path)
    assert whole.content == content
    assert whole.headers["etag"] == f'"{hashlib.sha256(content).hexdigest()}"'
    assert whole.headers["repr-digest"].startswith("sha-256=:")
    assert server.api.head(path).headers["content-length"] == str(len(content))
    part = server.api.get(path, headers={"Range": "bytes=1000-2000999"})
    assert (part.status_code, part.content) == (206, content[1000:2_001_000])
    assert part.headers["content-range"] == f"bytes 1000-2000999/{len(content)}"
    assert server.api.get(path, headers={"Range": "bytes=-5"}).content == content[-5:]
    lacking = server.api.get(path, headers={"Range": f"bytes={len(content)}-"})
    assert (lacking.status_code, lacking.json()["size"]) == (416, len(content))
    several = server.api.get(path, headers={"Range": "bytes=0-3,2000000-2000003"})
    assert several.status_code == 206
    assert content[2_000_000:2_000_004] in several.content
    assert server.api.get(path, headers={"If-None-Match": whole.headers["etag"]}).status_code == 304
    assert server.api.get(path, headers={"If-Match": '"other"'}).status_code == 412
    stale = server.api.get(path, headers={"Range": "bytes=0-3", "If-Range": '"other"'})
    assert (stale.status_code, len(stale.content)) == (200, len(content))


def test_modes_that_copy_make_the_data_folder_independent(server: Server, bucket: Location, tmp_path: Path) -> None:
    content = trace_bytes(tmp_path)
    bucket.write("runs/rank0.json", content)
    [trace_id] = imported(server, f"{bucket.url}/runs/rank0.json", mode="copy")["result"]["traces"]
    bucket.remove("runs/rank0.json")
    assert ready(server, trace_id)["path"] is None
    assert server.api.get(f"/traces/{trace_id}/download").content == content


def test_archive_in_a_bucket_becomes_a_group(server: Server, bucket: Location, tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for rank in range(2):
            content = trace_bytes(tmp_path)
            member = tarfile.TarInfo(f"run/rank{rank}.json")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    bucket.write("runs/llama.tar.gz", packed.getvalue())
    traces = imported(server, f"{bucket.url}/runs/llama.tar.gz")["result"]["traces"]
    assert [ready(server, trace_id)["group"]["name"] for trace_id in traces] == ["llama", "llama"]


def test_watch_imports_new_objects(server: Server, bucket: Location, tmp_path: Path) -> None:
    order = imported(server, f"{bucket.url}/runs", watch=True)["result"]["import"]
    bucket.write("runs/new/rank0.json", trace_bytes(tmp_path))
    until(lambda: server.api.get(f"/imports/{order}").json()["files"])
    assert server.api.get(f"/imports/{order}").json()["files"][0]["path"] == f"{bucket.url}/runs/new/rank0.json"
    assert server.api.get("/imports").json()["roots"][1] == f"{bucket.url}/runs"


def test_refused_credentials_and_missing_buckets_are_named_without_secrets(
    start_server: Start, bucket: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = start_server(import_roots="s3://no-such-bucket/runs")
    answer = missing.api.post("/traces/import", json={"path": "s3://no-such-bucket/runs"})
    assert answer.status_code == 404, answer.text
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret-of-this-test")
    denied = start_server(import_roots=bucket.url)
    answer = denied.api.post("/traces/import", json={"path": bucket.url})
    assert (answer.status_code, answer.json()["code"]) == (502, "location_denied")
    assert denied.api.post("/traces/import", json={"path": bucket.url, "watch": True}).status_code == 202
    until(lambda: "can't scan for objects" in denied.log_text())
    for secret in ("wrong-secret-of-this-test", SECRET):
        assert secret not in answer.text + denied.log_text() + missing.log_text()


def test_unreachable_bucket_ends_the_job_and_a_second_import_goes_on(
    bucket: Location, start_server: Start, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEDOCK_BUCKET_RETRY_S", "1")
    server = start_server(import_roots=bucket.url)
    bucket.write("rank0.json", trace_bytes(tmp_path))
    s3.kill()
    try:
        answer = server.api.post("/traces/import", json={"path": f"{bucket.url}/rank0.json"})
        assert (answer.status_code, answer.json()["code"]) == (503, "location_unavailable")
    finally:
        s3.start()
    until(lambda: imported(server, f"{bucket.url}/rank0.json")["state"] == "done")
