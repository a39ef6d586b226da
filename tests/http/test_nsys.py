"""Exports of Nsight Systems over HTTP: answers as of Kineto's traces, and no original that holds secrets."""

import gzip
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.nsys import (
    PRIVATE_TOKEN,
    TOKEN,
    Export,
    call_row,
    gpu_row,
    oracle,
    range_row,
    write_export,
)  # fmt: skip
from tests.server import Server
from tests.waiting import PATIENCE_S

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
STEPS = [range_row(10_000_000 + i * 30_000, 10_000_000 + (i + 1) * 30_000 - 1, f"ProfilerStep#{i}") for i in range(10)]
EXPORT = Export(
    kernels=100,
    rows={
        "NVTX_EVENTS": [range_row(9_999_000, 10_400_000, "train"), *STEPS],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [
            gpu_row(10_350_000, 10_352_000, stream=12, correlationId=5000, bytes=4096, copyKind=1, srcKind=1, dstKind=2)
        ],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call_row(10_340_000, 10_341_000, 5000)],
        "TARGET_INFO_GPU": [{"vmId": 1, "id": 0, "cuDevice": 0, "name": "NVIDIA H100", "smCount": 132}],
    },
)


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_export(tmp_path_factory.mktemp("export") / "rank0.sqlite", EXPORT)


@pytest.fixture(scope="module")
def trace(server: Server, export: Path) -> dict[str, Any]:
    return server.upload(export)


def ask(server: Server, trace: dict[str, Any], name: str, **parameters: Any) -> dict[str, list[dict[str, Any]]]:
    """Return the tables of an answer, as lists of rows by column."""
    answer = server.api.get(f"/traces/{trace['id']}/analysis/{name}", params=parameters)
    assert answer.status_code == 200, answer.text
    tables = answer.json()["tables"]
    return {
        name: [dict(zip((column["name"] for column in table["columns"]), row, strict=True)) for row in table["rows"]]
        for name, table in tables.items()
    }


def made_by(server: Server, answer: httpx.Response) -> list[dict[str, Any]]:
    """Wait for the job of a response, and return the traces that it has made."""
    assert answer.status_code == 202, answer.text
    job = server.api.get(answer.headers["location"].removeprefix("/api/v1"), params={"wait": PATIENCE_S}).json()
    assert (job["state"], job["error"]) == ("done", None)
    return [server.api.get(f"/traces/{trace_id}").json() for trace_id in job["result"]["traces"]]


def kernel_totals(export: Path) -> dict[str, tuple[int, int]]:
    """Return the calls and the time of each kernel, as SQLite sums them."""
    sql = f"SELECT value, count(*), sum(end - start) FROM {KERNELS} JOIN StringIds ON id = demangledName GROUP BY value"
    return {name: (calls, ns) for name, calls, ns in oracle(export, sql)}


def test_export_becomes_a_ready_trace(trace: dict[str, Any], export: Path) -> None:
    assert (trace["state"], trace["format"], trace["rank"]) == ("ready", "sqlite", 0)
    assert (trace["size"], trace["sha256"]) == (export.stat().st_size, hashlib.sha256(export.read_bytes()).hexdigest())
    assert trace["devices"][0]["name"] == "NVIDIA H100"
    assert trace["steps_count"] == 10


def test_kernel_breakdown_has_the_totals_of_the_export(server: Server, trace: dict[str, Any], export: Path) -> None:
    rows = ask(server, trace, "kernel_breakdown")["kernels"]
    totals = {row["name"]: (row["count"], row["sum_ns"]) for row in rows if row["type"] != "MEM"}
    assert totals == kernel_totals(export)


def test_sql_has_the_totals_of_the_export(server: Server, trace: dict[str, Any], export: Path) -> None:
    rows = server.rows(
        trace["id"], "SELECT name, count(*), sum(dur) FROM slice WHERE category = 'kernel' GROUP BY name ORDER BY name"
    )
    assert {str(name): (calls, ns) for name, calls, ns in rows} == kernel_totals(export)


def test_steps_and_ranges_are_found(server: Server, trace: dict[str, Any]) -> None:
    steps = server.api.get(f"/traces/{trace['id']}").json()["steps"]
    assert [step["name"] for step in steps] == [f"ProfilerStep#{i}" for i in range(10)]
    spans = server.rows(
        trace["id"], "SELECT name, count(*) FROM slice WHERE category = 'gpu_user_annotation' GROUP BY name"
    )
    assert ["train", 4] in spans  # one for each stream


def test_download_as_json_has_each_kernel(server: Server, trace: dict[str, Any], export: Path) -> None:
    document = server.api.get(f"/traces/{trace['id']}/download", params={"format": "json"}).json()

    totals: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for event in document["traceEvents"]:
        if event.get("cat") == "kernel":
            calls, ns = totals[event["name"]]
            totals[event["name"]] = calls + 1, ns + round(event["dur"] * 1000)
    assert totals == kernel_totals(export)


def test_downloaded_trace_has_the_same_columns_when_it_is_read_again(
    server: Server, trace: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "rank0.json.gz"
    file.write_bytes(server.api.get(f"/traces/{trace['id']}/download").content)
    again = server.upload(file)
    for key in ("counts", "bounds", "base_ns", "streams", "steps", "attribution", "devices"):
        assert again[key] == trace[key]


def test_trace_opens_in_perfetto(server: Server, trace: dict[str, Any]) -> None:
    answer = server.api.get(f"/traces/{trace['id']}/perfetto")
    assert (answer.status_code, answer.headers["location"]) == (307, f"/perfetto/{trace['id']}/#!/viewer")


def test_trace_is_split_by_step(server: Server, trace: dict[str, Any]) -> None:
    pieces = made_by(server, server.api.post(f"/traces/{trace['id']}/split", json={"by": "step"}))
    assert sum(piece["counts"]["X|kernel"] for piece in pieces) == 100


def test_export_compares_with_the_same_work_in_a_trace_of_kineto(
    server: Server, trace: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "rank0.kineto.json.gz"
    file.write_bytes(server.api.get(f"/traces/{trace['id']}/download").content)
    kineto = server.upload(file)
    tables = ask(server, trace, "compare", base=kineto["id"])
    assert tables


# -- the original ----------------------------------------------------------------------------------------------------


def originals(server: Server) -> list[bytes]:
    return [path.read_bytes() for path in (server.data / "originals").iterdir()]


def test_original_is_not_kept_and_its_download_says_what_to_do(server: Server, trace: dict[str, Any]) -> None:
    assert not (server.data / "originals" / trace["id"]).exists()
    assert trace["has_original"] is False
    answer = server.api.get(f"/traces/{trace['id']}/download", params={"format": "original"})
    assert (answer.status_code, answer.json()["code"]) == (422, "no_such_form")
    assert "environment" in answer.json()["detail"]
    assert "TRACEDOCK_KEEP_NSYS_ORIGINALS" in answer.json()["detail"]
    assert answer.json()["formats"] == ["json", "json.gz", "pftrace", "pftrace.gz", "parquet"]


def test_default_download_is_json(server: Server, trace: dict[str, Any]) -> None:
    answer = server.api.get(f"/traces/{trace['id']}/download")
    assert "rank0.json.gz" in answer.headers["content-disposition"]
    assert json.loads(gzip.decompress(answer.content))["baseTimeNanoseconds"]


DOWNLOADS = tuple(f"/download?format={form}" for form in ("json", "pftrace", "parquet"))


def test_no_secret_is_on_the_disk_or_in_an_answer(server: Server, trace: dict[str, Any]) -> None:
    secrets = (TOKEN.encode(), PRIVATE_TOKEN.encode())
    answers = [
        server.api.get(f"/traces/{trace['id']}{path}").content
        for path in (
            "",
            "/envelope",
            "/download?format=json",
            "/download?format=pftrace",
            "/download?format=parquet",
            "/analysis/gpu_summary",
        )
    ]
    columns = server.data / "columns" / trace["id"]
    stored = [
        path.read_bytes() for path in (*columns.rglob("*"), *server.data.glob("catalog.sqlite*")) if path.is_file()
    ]
    assert not [
        secret for secret in secrets for content in (*answers, *stored, *originals(server)) if secret in content
    ]


def test_same_bytes_are_still_the_same_trace(server: Server, trace: dict[str, Any], export: Path) -> None:
    again = server.upload(export)
    assert (again["state"], again["sha256"], again["counts"]) == ("ready", trace["sha256"], trace["counts"])
    assert not (server.data / "originals" / again["id"]).exists()
    assert again["has_original"] is False


def test_same_bytes_under_another_rank_are_read_again(server: Server, trace: dict[str, Any], export: Path) -> None:
    other = server.upload(export, name="rank5.sqlite")
    assert (other["state"], other["rank"], other["has_original"]) == ("ready", 5, False)


def test_original_of_a_failed_trace_is_not_served(server: Server, tmp_path: Path) -> None:
    path = write_export(tmp_path / "empty.sqlite", Export(kernels=0))
    failed = server.upload(path)
    assert (failed["state"], failed["error"]["code"]) == ("failed", "not_a_trace")
    for parameters in ({}, {"format": "original"}):
        answer = server.api.get(f"/traces/{failed['id']}/download", params=parameters)
        assert (answer.status_code, answer.json()["code"]) == (422, "no_such_form")


def test_report_of_nsight_systems_is_refused_with_the_command_to_export_it(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "report.nsys-rep"
    path.write_bytes(b"NVIDIA Tegra Profiler Report 2026@1@1" + bytes(100))
    failed = server.upload(path)
    assert failed["state"] == "failed"
    assert "nsys export --type sqlite --output out.sqlite report.nsys-rep" in failed["error"]["detail"]


def test_original_is_kept_and_served_if_the_setting_says_so(start_server: Callable[..., Server], export: Path) -> None:
    server = start_server(keep_nsys_originals=True)
    trace = server.upload(export)
    assert trace["has_original"] is True
    answer = server.api.get(f"/traces/{trace['id']}/download")
    assert answer.content == export.read_bytes()


@pytest.mark.parametrize("mode", ["link", "copy", "reference", "auto"])
def test_imported_file_stays_with_its_owner(start_server: Callable[..., Server], tmp_path: Path, mode: str) -> None:
    root = tmp_path / "runs"
    root.mkdir()
    file = write_export(root / "rank0.sqlite", EXPORT)
    content = file.read_bytes()
    server = start_server(import_roots=root.resolve())

    order = server.api.post("/traces/import", json={"path": str(file.resolve()), "mode": mode})
    (imported,) = made_by(server, order)
    trace = server.api.get(f"/traces/{imported['id']}", params={"wait": PATIENCE_S}).json()

    assert file.read_bytes() == content
    assert file.stat().st_nlink == 1
    assert [*(server.data / "originals").iterdir()] == []
    assert trace["has_original"] is False
    assert server.api.get(f"/traces/{trace['id']}/download", params={"format": "original"}).status_code == 422
    server.api.delete(f"/traces/{trace['id']}")
    assert file.read_bytes() == content


def test_original_that_a_killed_server_left_is_removed_at_the_next_start(
    start_server: Callable[..., Server], export: Path
) -> None:
    server = start_server()
    trace = server.upload(export)
    server.kill()
    left = server.data / "originals" / trace["id"]
    left.write_bytes(export.read_bytes())

    server.start()

    assert not left.exists()
    assert server.api.get(f"/traces/{trace['id']}").json()["state"] == "ready"
