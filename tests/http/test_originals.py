"""Engines load the original of a Perfetto trace as it is: its packets of other kinds answer SQL, and open in the UI."""

import gzip
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

from service.engine.trace_processor import provision
from service.settings import Settings
from service.store.locations.location import Location
from service.streaming.zstandard import zstd
from tests.pftrace import begin, content, end, packets, program, system, training
from tests.server import Server
from tests.store.locations.conftest import bucket, s3
from tests.waiting import PATIENCE_S

__all__ = ["bucket", "s3"]

Start = Callable[..., Server]

ZERO = 1_000_000
SYSTEM, PROGRAM = system(ZERO), program(ZERO)
RUNNING = "SELECT cpu, ts, dur, tid, thread.name FROM sched JOIN thread USING (utid) ORDER BY cpu, ts"
ORIGINAL = {"source": "original"}


def ask(server: Server, trace: object, sql: str, **more: object) -> Any:
    """Run SQL, and return the answer once the engine is loaded."""
    answer = server.api.post(f"/traces/{trace}/query", json={"sql": sql} | more, params={"wait": PATIENCE_S})
    return answer.json() if answer.status_code == 200 else (answer.status_code, answer.json())


def answer_of_program(path: Path, sql: str) -> str:
    """Return what trace_processor itself answers about a file, as CSV."""
    query = path.with_suffix(".sql")
    query.write_text(f"{sql};")
    command = [str(provision.engine_path(Settings())), "-q", str(query), str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def csv_of(server: Server, trace: object, sql: str) -> str:
    """Return what the server answers about the original, as CSV in the form of trace_processor."""
    table = ask(server, trace, sql, **ORIGINAL)
    rows = [[column["name"] for column in table["columns"]], *table["rows"]]
    texts = [["[NULL]" if cell is None else cell for cell in row] for row in rows]
    cells = [[f'"{cell}"' if isinstance(cell, str) else str(cell) for cell in row] for row in texts]
    return "".join(f"{','.join(row)}\n" for row in cells)


def imported(server: Server, path: str, **options: object) -> str:
    """Import a file, and return the id of its trace once it is ready."""
    answer = server.api.post("/traces/import", params={"wait": PATIENCE_S}, json={"path": path} | options)
    [trace] = answer.json()["result"]["traces"]
    assert server.api.get(f"/traces/{trace}", params={"wait": PATIENCE_S}).json()["state"] == "ready"
    return str(trace)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("originals")


@pytest.fixture(scope="module")
def mixed_path(folder: Path) -> Path:
    """A trace with slices of a program, and packets of the system."""
    path = folder / "mixed.pftrace"
    path.write_bytes(content([*PROGRAM, *SYSTEM]))
    return path


@pytest.fixture(scope="module")
def mixed(server: Server, mixed_path: Path) -> str:
    trace = server.upload(mixed_path)
    assert (trace["state"], trace["sources"]) == ("ready", ["columns", "original"])
    return str(trace["id"])


@pytest.fixture(scope="module")
def system_trace(server: Server, folder: Path) -> dict[str, Any]:
    """A trace with packets of the system alone."""
    path = folder / "system.pftrace"
    path.write_bytes(content(SYSTEM))
    return server.upload(path)


# -- SQL -------------------------------------------------------------------------------------------------------------


def test_original_has_the_rows_of_the_scheduler_and_columns_have_not(server: Server, mixed: str) -> None:
    counts = "SELECT (SELECT count(*) FROM sched), (SELECT count(*) FROM slice WHERE name = 'work')"

    assert ask(server, mixed, counts)["rows"] == [[0, 1]]
    assert ask(server, mixed, counts, source="columns")["rows"] == [[0, 1]]
    assert ask(server, mixed, counts, **ORIGINAL)["rows"] == [[150, 1]]


@pytest.mark.parametrize(
    "sql",
    [
        RUNNING,
        "SELECT ts, dur, name, depth FROM slice ORDER BY ts",
        "SELECT pid, name FROM process ORDER BY pid",
        "SELECT name, severity, value FROM stats WHERE value > 0 ORDER BY name",
    ],
)
def test_original_answers_as_trace_processor_on_the_file(
    server: Server, mixed: str, mixed_path: Path, sql: str
) -> None:
    limited = sql.replace("WHERE value > 0", "WHERE value > 0 AND name NOT GLOB '*_ns'")  # durations differ
    assert csv_of(server, mixed, limited) == answer_of_program(mixed_path, limited)


@pytest.mark.parametrize("layout", ["track_events", "render_stages", "categories"])
def test_original_of_pytorch_is_loaded_as_it_is(server: Server, folder: Path, layout: Any) -> None:
    path = folder / f"{layout}.pftrace"
    path.write_bytes(content(packets(training(), layout)))
    trace = server.upload(path)["id"]
    sql = "SELECT ts, dur, name, category FROM slice WHERE category IS NOT NULL ORDER BY ts, dur, name"

    assert csv_of(server, trace, sql) == answer_of_program(path, sql)


@pytest.mark.parametrize(("suffix", "compress"), [("gz", gzip.compress), ("zst", zstd.compress)])
def test_compressed_original_is_decompressed_for_the_engine(
    server: Server, folder: Path, suffix: str, compress: Any
) -> None:
    path = folder / f"packed.pftrace.{suffix}"
    path.write_bytes(compress(content([*PROGRAM, *SYSTEM])))
    trace = server.upload(path)

    assert trace["format"] == f"pftrace.{suffix}"
    assert ask(server, trace["id"], "SELECT count(*) FROM sched", **ORIGINAL)["rows"] == [[150]]


def test_package_torch_says_that_it_needs_columns(server: Server, mixed: str) -> None:
    status, problem = ask(server, mixed, "INCLUDE PERFETTO MODULE torch.kernels; SELECT 1", **ORIGINAL)

    assert (status, problem["code"]) == (400, "sql_error")
    assert "the package torch reads the columns of a trace, and this is its original" in problem["detail"]


# -- sessions --------------------------------------------------------------------------------------------------------


def test_session_of_an_original_has_no_account_and_says_why(server: Server, mixed: str) -> None:
    opened = server.api.post(f"/traces/{mixed}/session", params=ORIGINAL | {"wait": PATIENCE_S}).json()

    assert (opened["source"], opened["state"], opened["args"]) == ("original", "ready", "all")
    assert (opened["account"], opened["progress"]["events_total"]) == (None, None)
    assert "not those of the trace's columns" in opened["account_reason"]
    assert opened["stats"] == []
    columns = server.api.post(f"/traces/{mixed}/session", params={"wait": PATIENCE_S}).json()
    assert (columns["source"], columns["account_reason"]) == ("columns", None)
    assert columns["account"]["stats"] == columns["stats"]
    assert (
        server.api.get(f"/traces/{mixed}/session", params=ORIGINAL).json()["engine"]["pid"] != columns["engine"]["pid"]
    )


def test_losses_that_trace_processor_reports_are_facts_of_the_session(server: Server, folder: Path) -> None:
    path = folder / "lossy.pftrace"
    lost = TracePacket(timestamp=ZERO, trusted_packet_sequence_id=1)
    lost.trace_stats.buffer_stats.add(trace_writer_packet_loss=3)
    path.write_bytes(content([*PROGRAM, *SYSTEM, lost]))
    trace = server.upload(path)["id"]

    stats = server.api.post(f"/traces/{trace}/session", params=ORIGINAL | {"wait": PATIENCE_S}).json()["stats"]

    assert [(stat["name"], stat["value"], stat["severity"]) for stat in stats] == [
        ("traced_buf_trace_writer_packet_loss", 3, "data_loss")
    ]


def test_poll_address_of_a_loading_original_names_the_source(server: Server, folder: Path) -> None:
    path = folder / "polled.pftrace"
    path.write_bytes(content([*PROGRAM, *SYSTEM]))
    trace = server.upload(path)["id"]

    answer = server.api.post(f"/traces/{trace}/session", params=ORIGINAL)

    assert answer.status_code == 202
    assert answer.headers["location"] == f"/api/v1/traces/{trace}/session?source=original"


def test_closing_the_original_keeps_the_engine_of_the_columns(server: Server, mixed: str) -> None:
    ask(server, mixed, "SELECT 1")
    ask(server, mixed, "SELECT 1", **ORIGINAL)

    assert server.api.delete(f"/traces/{mixed}/session", params=ORIGINAL).status_code == 204

    assert server.api.get(f"/traces/{mixed}/session", params=ORIGINAL).status_code == 409
    assert server.api.get(f"/traces/{mixed}/session").status_code == 200


# -- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{"selection": {"names": ["work"]}}, {"args": "none"}])
def test_original_with_a_selection_or_args_is_refused(server: Server, mixed: str, more: dict[str, object]) -> None:
    status, problem = ask(server, mixed, "SELECT 1", **ORIGINAL, **more)

    assert (status, problem["code"], problem["sources"]) == (422, "source_unavailable", ["columns", "original"])
    assert "the original is loaded as it is" in problem["detail"]


def test_original_of_another_format_is_refused_with_its_format(server: Server, trace: str) -> None:
    status, problem = ask(server, trace, "SELECT 1", **ORIGINAL)

    assert (status, problem["code"], problem["sources"]) == (422, "source_unavailable", ["columns"])
    assert "its file has the format json" in problem["detail"]
    assert server.api.get(f"/traces/{trace}/perfetto", params=ORIGINAL).status_code == 422


def test_original_of_a_trace_that_was_made_here_is_refused(server: Server, mixed: str) -> None:
    answer = server.api.post(f"/traces/{mixed}/split", json={"selection": {"names": ["work"]}})
    job = server.api.get(answer.headers["location"].removeprefix("/api/v1"), params={"wait": PATIENCE_S}).json()

    _, problem = ask(server, job["result"]["traces"][0], "SELECT 1", **ORIGINAL)

    assert "was made here, and has no file" in problem["detail"]


def test_original_that_is_gone_from_the_data_folder_is_refused(server: Server, folder: Path) -> None:
    path = folder / "gone.pftrace"
    path.write_bytes(content([*PROGRAM, *SYSTEM]))
    trace = server.upload(path)["id"]
    (server.data / "originals" / trace).unlink()

    status, problem = ask(server, trace, "SELECT 1", **ORIGINAL)

    assert (status, problem["code"]) == (422, "source_unavailable")
    assert "gone from the data folder" in problem["detail"]
    assert ask(server, trace, "SELECT count(*) FROM slice")["rows"] == [[1]]


def test_original_that_is_cut_or_damaged_names_the_damage(server: Server, folder: Path) -> None:
    times = range(ZERO, ZERO + 30_000, 10)
    work = [packet for at in times for packet in (begin(at, 2, f"n{at * 7919}"), end(at + 5, 2))]
    packed = gzip.compress(content([*PROGRAM, *SYSTEM, *work]))
    damaged = bytearray(packed)
    damaged[len(packed) // 2 : len(packed) // 2 + 40] = bytes(40)
    for name, data, code in (("cut", packed[: len(packed) // 2], "truncated"), ("damaged", damaged, "bad_compression")):
        path = folder / f"{name}.pftrace.gz"
        path.write_bytes(data)
        trace = server.upload(path)
        assert trace["events"]["kept"] > 0

        status, problem = ask(server, trace["id"], "SELECT 1", **ORIGINAL)

        assert (status, problem["code"]) == (422, code)
        assert ask(server, trace["id"], "SELECT count(*) > 0 FROM slice")["rows"] == [[1]]


def test_unknown_source_is_refused(server: Server, mixed: str) -> None:
    assert ask(server, mixed, "SELECT 1", source="file")[0] == 422
    assert server.api.post(f"/traces/{mixed}/session", params={"source": "file"}).status_code == 422


# -- the Perfetto UI -------------------------------------------------------------------------------------------------


def test_ui_of_the_original_has_a_view_of_its_own(server: Server, mixed: str) -> None:
    location = server.api.get(f"/traces/{mixed}/perfetto", params=ORIGINAL).headers["location"]

    assert location.startswith(f"/perfetto/{mixed}~")
    assert server.api.get(f"{server.url}{location}").status_code == 200


def test_slices_of_the_original_are_named_by_id_alone(server: Server, mixed: str) -> None:
    def opened(reference: str) -> Any:
        return server.api.get(f"/traces/{mixed}/perfetto", params=ORIGINAL | {"slice": reference})

    assert "slice=%7B%22id%22%3A0%7D" in opened("id:0").headers["location"]
    refused = opened("position:2")
    assert (refused.status_code, refused.json()["code"]) == (422, "source_unavailable")


# -- traces without events -------------------------------------------------------------------------------------------


def test_slice_of_the_original_is_no_event_of_the_columns(server: Server, mixed: str) -> None:
    answer = server.api.get(f"/traces/{mixed}/slice", params={"slice": "id:0", "source": "original"})
    assert (answer.status_code, answer.json()["code"]) == (422, "source_unavailable")
    assert "its engine has all arguments" in answer.json()["detail"]


def test_trace_with_packets_of_other_kinds_alone_is_ready_and_names_them(system_trace: dict[str, Any]) -> None:
    assert (system_trace["state"], system_trace["events"], system_trace["sources"]) == (
        "ready",
        {"in": 0, "kept": 0, "refused": 0},
        ["original"],
    )
    assert (system_trace["bounds"], system_trace["counts"]) == (None, {})
    [note] = [note for note in system_trace["health"]["notes"] if note["code"] == "unread_packets"]
    assert note["count"] == 3
    assert [example["text"] for example in note["examples"]] == ["ftrace_events: 2", "process_tree: 1"]


def test_default_view_of_a_trace_without_events_is_the_original(server: Server, system_trace: dict[str, Any]) -> None:
    trace = system_trace["id"]

    assert ask(server, trace, "SELECT count(*) FROM sched")["rows"] == [[150]]
    by_default, by_name = (
        server.api.get(f"/traces/{trace}/session", params=params).json() for params in ({}, ORIGINAL)
    )
    assert by_default["source"] == "original"
    assert by_default["engine"]["pid"] == by_name["engine"]["pid"]
    assert server.api.get(f"/traces/{trace}/perfetto").headers["location"] == f"/perfetto/{trace}/#!/viewer"


@pytest.mark.parametrize("more", [{"source": "columns"}, {"args": "none"}, {"selection": {"names": ["work"]}}])
def test_columns_of_a_trace_without_events_are_refused(
    server: Server, system_trace: dict[str, Any], more: dict[str, object]
) -> None:
    status, problem = ask(server, system_trace["id"], "SELECT 1", **more)

    assert (status, problem["code"], problem["sources"]) == (422, "source_unavailable", ["original"])
    assert "no event" in problem["detail"]


def test_analyses_and_cuts_of_a_trace_without_events_say_so(server: Server, system_trace: dict[str, Any]) -> None:
    trace = system_trace["id"]
    listed = server.api.get(f"/traces/{trace}/analysis").json()["analyses"]
    of_one_side = [analysis for analysis in listed if not analysis["name"].startswith("compare")]

    assert {analysis["reason"] for analysis in of_one_side} == {"This trace has no events."}
    answer = server.api.get(f"/traces/{trace}/analysis/operators").json()
    assert (answer["code"], answer["detail"]) == ("not_applicable", "This trace has no events.")
    cut = server.api.post(f"/traces/{trace}/split", json={"selection": {"names": ["work"]}, "dry_run": True}).json()
    assert (cut["code"], cut["detail"]) == (
        "nothing_selected",
        "None of the trace's 0 events, without times, matches the selection.",
    )


def test_trace_without_events_can_be_downloaded(server: Server, system_trace: dict[str, Any]) -> None:
    def download(form: str) -> Any:
        return server.api.get(f"/traces/{system_trace['id']}/download", params={"format": form})

    assert download("original").content == content(SYSTEM)
    assert download("json").json()["traceEvents"] == []
    assert download("parquet").status_code == download("pftrace").status_code == 200
    assert server.api.get(f"/traces/{system_trace['id']}/report").status_code == 200


# -- originals outside of the data folder ------------------------------------------------------------------------------


def test_original_that_was_imported_in_place_is_loaded_until_it_changes(tmp_path: Path, start_server: Start) -> None:
    root = tmp_path / "traces"
    root.mkdir()
    path = root / "mixed.pftrace"
    path.write_bytes(content([*PROGRAM, *SYSTEM]))
    server = start_server(import_roots=root)
    trace = imported(server, str(path), mode="reference")

    assert ask(server, trace, "SELECT count(*) FROM sched", **ORIGINAL)["rows"] == [[150]]
    server.api.delete(f"/traces/{trace}/session", params=ORIGINAL)
    path.write_bytes(content(PROGRAM))
    status, problem = ask(server, trace, "SELECT 1", **ORIGINAL)
    assert (status, problem["code"]) == (422, "original_changed")


@pytest.mark.system
def test_original_in_a_bucket_is_loaded_until_it_is_replaced(bucket: Location, start_server: Start) -> None:
    bucket.write("runs/mixed.pftrace.gz", gzip.compress(content([*PROGRAM, *SYSTEM])))
    server = start_server(import_roots=f"{bucket.url}/runs/")
    trace = imported(server, f"{bucket.url}/runs/mixed.pftrace.gz")

    assert ask(server, trace, "SELECT count(*) FROM sched", **ORIGINAL)["rows"] == [[150]]
    server.api.delete(f"/traces/{trace}/session", params=ORIGINAL)
    bucket.write("runs/mixed.pftrace.gz", gzip.compress(content(PROGRAM)))
    status, problem = ask(server, trace, "SELECT 1", **ORIGINAL)
    assert (status, problem["code"]) == (422, "original_changed")
