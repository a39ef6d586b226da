"""A trace is downloaded in each of its formats, complete or visibly incomplete."""

import gzip
import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import httpx
import psutil
import pytest

from service.http.routes.download import file_name
from tests.columns import events_of, parsed, unordered, write_columns
from tests.formats.pftrace.reading import read
from tests.server import Server
from tests.traces import TraceShape, sized, write_trace
from tests.waiting import until

HF = "hf_abcdefghijklmnopqrstuvwxyz01234567"
SECRETIVE = f"""{{"schemaVersion": 1, "numbers": [1.50, {2**70}], "metadata": {{"environ": {{"HOME": "/home/me"}}}},
"traceEvents": [{{"ph": "X", "name": "late {HF}", "ts": 2.50, "dur": 1}}, {{"ph": "X", "name": "early", "ts": 1.500,
"dur": 0.5}}], "password": "sesame"}}"""


def with_columns(server: Server, path: Path) -> str:
    """Upload a trace, and return its id once it has columns."""
    trace = str(server.upload(path)["id"])
    columns = server.data / "columns" / trace
    if not (columns / "events.parquet").exists():
        raw = path.read_bytes()
        files = write_columns(columns / "made", gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
        for file in files.iterdir():
            file.replace(columns / file.name)
    return trace


@pytest.fixture(scope="module")
def trace(server: Server, step_trace: Path) -> str:
    return with_columns(server, step_trace)


@pytest.fixture(scope="module")
def secretive(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("secretive") / "rank 0 é.pt.trace.json"
    path.write_text(SECRETIVE)
    return with_columns(server, path)


@pytest.fixture(scope="module")
def large(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The id of a trace that exceeds all buffers between an export and a client."""
    path = tmp_path_factory.mktemp("large") / "large.json"
    return with_columns(server, write_trace(path, sized(TraceShape(), 30_000_000)))


def download(server: Server, trace: str, **parameters: Any) -> httpx.Response:
    return server.api.get(f"/traces/{trace}/download", params=parameters)


def exports(server: Server) -> list[psutil.Process]:
    """Return the export processes that write; an idle one is left out."""
    writers = []
    for child in server.children("tracedock export"):
        with suppress(psutil.NoSuchProcess):  # the process has just ended
            writers += [child] if any(file.path.endswith("events.parquet") for file in child.open_files()) else []
    return writers


# -- as a document -------------------------------------------------------------------------------------------------


def test_downloaded_document_has_the_uploaded_events(server: Server, trace: str, step_trace: Path) -> None:
    uploaded = parsed(gzip.decompress(step_trace.read_bytes()))
    answer = download(server, trace, format="json", order="original")
    assert answer.headers["content-type"] == "application/json"
    assert [*map(unordered, events_of(parsed(answer.content)))] == [*map(unordered, events_of(uploaded))]
    assert dict(parsed(answer.content)) | {"traceEvents": 0} == dict(uploaded) | {"traceEvents": 0}


def test_events_are_ordered_by_time_or_as_uploaded(server: Server, secretive: str) -> None:
    def names(**parameters: str) -> list[str]:
        document = download(server, secretive, format="json", **parameters).json()
        return [event["name"].split()[0] for event in document["traceEvents"]]

    assert names() == names(order="time") == ["early", "late"]
    assert names(order="original") == ["late", "early"]


def test_compressed_document_has_the_same_content(server: Server, trace: str) -> None:
    answer = download(server, trace, format="json.gz")
    assert answer.headers["content-type"] == "application/gzip"
    assert "content-encoding" not in answer.headers
    assert gzip.decompress(answer.content) == download(server, trace, format="json").content


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"format": "json"}, "rank%200%20%C3%A9.pt.trace.json"),
        ({"format": "json.gz", "redact": True}, "rank%200%20%C3%A9.pt.trace.redacted.json.gz"),
        ({"format": "pftrace"}, "rank%200%20%C3%A9.pt.trace.pftrace"),
        ({"format": "pftrace.gz", "redact": True}, "rank%200%20%C3%A9.pt.trace.redacted.pftrace.gz"),
        ({"format": "parquet"}, "rank%200%20%C3%A9.pt.trace.parquet"),
        ({"format": "original"}, "rank%200%20%C3%A9.pt.trace.json"),
        ({}, "rank%200%20%C3%A9.pt.trace.json"),
    ],
)
def test_file_name_has_the_suffix_of_its_format(
    server: Server, secretive: str, params: dict[str, Any], name: str
) -> None:
    for answer in (
        download(server, secretive, **params),
        server.api.head(f"/traces/{secretive}/download", params=params),
    ):
        assert answer.status_code == 200
        assert answer.headers["content-disposition"] == f"attachment; filename*=utf-8''{name}"


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("a.json.gz", "a"),
        ("a.pt.trace.JSON.tmp", "a.pt.trace"),
        ("a", "a"),
        (".json", "trace"),
        ("a.json.b", "a.json.b"),
    ],
)
def test_new_suffix_replaces_old_suffixes(name: str, bare: str) -> None:
    assert file_name(name, "parquet", redact=False) == f"{bare}.parquet"


@pytest.mark.parametrize(("form", "kind"), [("json", "application/json"), ("pftrace", "application/protobuf")])
def test_head_of_a_download_starts_no_process(server: Server, large: str, form: str, kind: str) -> None:
    answer = server.api.head(f"/traces/{large}/download", params={"format": form})
    assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
    assert "content-length" not in answer.headers
    assert exports(server) == []


@pytest.mark.parametrize("form", ["json", "json.gz", "pftrace"])
@pytest.mark.parametrize(
    ("selection", "status"), [({"streams": "0/9"}, 422), ({"steps": 999}, 422), ({"phases": "X"}, 200)]
)
def test_head_of_a_selection_answers_as_get_does(
    server: Server, large: str, form: str, selection: dict[str, Any], status: int
) -> None:
    path, params = f"/traces/{large}/download", {"format": form, **selection}
    with server.api.stream("GET", path, params=params) as answer:
        expected = {name: answer.headers.get(name) for name in ("content-type", "content-disposition")}
    head = server.api.head(path, params=params)
    assert (answer.status_code, head.status_code, head.content) == (status, status, b"")
    assert {name: head.headers.get(name) for name in expected} == expected
    until(lambda: exports(server) == [])


# -- as Perfetto's protobuf ----------------------------------------------------------------------------------------


def test_perfetto_trace_has_the_uploaded_events(server: Server, trace: str, step_trace: Path) -> None:
    uploaded = json.loads(gzip.decompress(step_trace.read_bytes()))["traceEvents"]
    answer = download(server, trace, format="pftrace")
    assert answer.headers["content-type"] == "application/protobuf"
    found = read(answer.content)
    assert found.format == "pftrace"
    counted = Counter((event["ph"], event["name"]) for event in uploaded)
    assert Counter((row["ph"], row["name"]) for row in found.rows) == counted


def test_compressed_perfetto_trace_has_the_same_packets(server: Server, trace: str) -> None:
    answer = download(server, trace, format="pftrace.gz")
    assert answer.headers["content-type"] == "application/gzip"
    assert gzip.decompress(answer.content) == download(server, trace, format="pftrace").content


def test_perfetto_trace_of_a_selection_has_the_events_of_its_document(server: Server, trace: str) -> None:
    document = download(server, trace, format="json", steps="3").json()["traceEvents"]
    found = read(download(server, trace, format="pftrace", steps="3").content)
    assert Counter((row["ph"], row["name"]) for row in found.rows) == Counter((e["ph"], e["name"]) for e in document)
    nothing = download(server, trace, format="pftrace", names="nothing*")
    assert (nothing.status_code, nothing.json()["code"]) == (422, "nothing_selected")


def test_uploaded_perfetto_trace_answers_analyses_like_the_original(server: Server, trace: str, tmp_path: Path) -> None:
    path = tmp_path / "again.pftrace"
    path.write_bytes(download(server, trace, format="pftrace").content)
    again = server.upload(path)
    assert (again["state"], again["health"]["notes"]) == (
        "ready",
        server.api.get(f"/traces/{trace}").json()["health"]["notes"],
    )
    for name in ("operators", "steps"):
        mine, theirs = (server.api.get(f"/traces/{one}/analysis/{name}").json() for one in (again["id"], trace))
        assert mine["tables"] == theirs["tables"]


@pytest.mark.parametrize("form", ["pftrace", "pftrace.gz"])
def test_a_redacted_perfetto_trace_hides_secrets(server: Server, secretive: str, form: str) -> None:
    def content(**parameters: Any) -> bytes:
        body = download(server, secretive, format=form, **parameters).content
        return gzip.decompress(body) if form == "pftrace.gz" else body

    hidden, shown = content(redact=True), content()
    for secret in (HF.encode(), b"/home/me", b"sesame"):
        assert secret not in hidden
        assert secret in shown


# -- as columns ----------------------------------------------------------------------------------------------------


def test_columns_download_supports_ranges_and_etags(server: Server, trace: str, tmp_path: Path) -> None:
    whole = download(server, trace, format="parquet")
    (tmp_path / "events.parquet").write_bytes(whole.content)
    events = server.api.get(f"/traces/{trace}").json()["events"]["kept"]
    assert duckdb.execute(f"SELECT count(*) FROM '{tmp_path}/events.parquet'").fetchall() == [(events,)]

    def again(**headers: str) -> httpx.Response:
        return server.api.get(f"/traces/{trace}/download", params={"format": "parquet"}, headers=headers)

    part = again(Range="bytes=4-9")
    assert (part.status_code, part.content) == (206, whole.content[4:10])
    unchanged = again(**{"If-None-Match": whole.headers["etag"]})
    assert (unchanged.status_code, unchanged.content) == (304, b"")


# -- without secrets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "json.gz"])
def test_a_redacted_document_hides_secrets_and_nothing_else(server: Server, secretive: str, form: str) -> None:
    content = download(server, secretive, format=form, order="original", redact=True).content
    text = gzip.decompress(content) if form == "json.gz" else content
    hidden = SECRETIVE.replace(HF, "[redacted]").replace("/home/me", "[redacted]").replace("sesame", "[redacted]")
    expected, document = parsed(hidden), parsed(text)
    assert [*map(unordered, events_of(document))] == [*map(unordered, events_of(expected))]
    assert dict(document) | {"traceEvents": 0} == dict(expected) | {"traceEvents": 0}
    assert HF in download(server, secretive, format="json").text


@pytest.mark.parametrize("form", ["original", "parquet"])
def test_unchanged_formats_can_not_be_redacted(server: Server, secretive: str, form: str) -> None:
    answer = download(server, secretive, format=form, redact=True)
    assert (answer.status_code, answer.json()["code"]) == (422, "not_redactable")
    assert answer.json()["formats"] == ["json", "json.gz", "pftrace", "pftrace.gz"]


def test_the_envelope_is_shown_without_secrets_and_without_events(server: Server, secretive: str, trace: str) -> None:
    answer = server.api.get(f"/traces/{secretive}/envelope")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "schemaVersion": 1,
        "numbers": [1.5, 2**70],
        "metadata": {"environ": {"HOME": "[redacted]"}},
        "password": "[redacted]",
    }
    assert "1.50" in answer.text
    assert "traceEvents" not in server.api.get(f"/traces/{trace}/envelope").json()


def test_an_envelope_that_is_too_large_is_not_shown(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "wordy.json"
    path.write_text(json.dumps({"words": "x" * (8 << 20), "traceEvents": [{"ph": "X", "ts": 1, "dur": 1}]}))
    trace = with_columns(server, path)
    answer = server.api.get(f"/traces/{trace}/envelope")
    assert (answer.status_code, answer.json()["code"]) == (413, "result_too_large")
    assert len(download(server, trace, format="json").json()["words"]) == 8 << 20


# -- failures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["download?format=json", "download?format=pftrace", "download?format=parquet", "envelope"]
)
def test_trace_that_is_not_ready_has_only_its_original(server: Server, path: str) -> None:
    trace = server.api.put("/traces/broken.json", content=b"{", params={"wait": 30}).json()
    assert trace["state"] == "failed"
    answer = server.api.get(f"/traces/{trace['id']}/{path}")
    assert (answer.status_code, answer.json()["code"]) == (409, "not_ready")
    assert download(server, trace["id"]).content == b"{"


def test_unknown_traces_and_formats_are_refused(server: Server, trace: str) -> None:
    assert download(server, "000000000000", format="json").json()["code"] == "unknown_trace"
    assert server.api.get("/traces/000000000000/envelope").json()["code"] == "unknown_trace"
    assert download(server, trace, format="xml").json()["code"] == "bad_request"
    assert download(server, trace, format="json", order="up").json()["code"] == "bad_request"
    unordered_form = download(server, trace, format="pftrace", order="original").json()
    assert (unordered_form["code"], unordered_form["formats"]) == ("no_such_form", ["json", "json.gz"])


def test_missing_columns_are_reported(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text('[{"ph": "X", "ts": 1, "dur": 1}]')
    trace = with_columns(server, path)
    (server.data / "columns" / trace / "events.parquet").unlink()
    answer = download(server, trace, format="json")
    assert (answer.status_code, answer.json()["code"]) == (502, "export_failed")
    assert str(server.data) not in answer.text
    assert download(server, trace, format="parquet").json()["code"] == "not_ready"


@pytest.mark.parametrize("form", ["json", "pftrace"])
def test_killed_export_cuts_the_connection(server: Server, large: str, form: str) -> None:
    with server.api.stream("GET", f"/traces/{large}/download", params={"format": form}) as answer:
        pieces = answer.iter_raw()
        assert next(pieces)
        for export in exports(server):
            export.kill()
        with pytest.raises(httpx.RemoteProtocolError):
            for _ in pieces:
                pass


@pytest.mark.parametrize("form", ["json", "pftrace"])
def test_disconnected_client_ends_its_export(server: Server, large: str, form: str) -> None:
    for _ in range(5):  # more than may run at once
        with server.api.stream("GET", f"/traces/{large}/download", params={"format": form}) as answer:
            pieces = answer.iter_raw()
            assert next(pieces)
            assert len(exports(server)) == 1
        until(lambda: exports(server) == [])


def test_server_can_stop_during_an_export(start_server: Any, tmp_path: Path) -> None:
    server = start_server(shutdown_s=2)
    trace = with_columns(server, write_trace(tmp_path / "large.json", sized(TraceShape(), 30_000_000)))
    with httpx.stream("GET", f"{server.url}/api/v1/traces/{trace}/download?format=json", trust_env=False) as answer:
        pieces = answer.iter_raw()
        assert next(pieces)
        (export,) = exports(server)
        assert server.stop() == 0
        assert not export.is_running()


@pytest.mark.parametrize(
    "malformed", ["items=0-3", "bytes=5-2", "bytes=a-b", "bytes=", "bytes=1_0-20", "bytes=+1-3", "0-3"]
)
def test_malformed_range_is_ignored(server: Server, trace: str, malformed: str) -> None:
    path = f"/traces/{trace}/download"
    whole = server.api.get(path)
    answer = server.api.get(path, headers={"Range": malformed})
    assert (answer.status_code, answer.content) == (200, whole.content)
    for valid, expected in (("bytes=2-3, -1", 206), ("Bytes=0-", 206), (f"bytes={len(whole.content)}-", 416)):
        assert server.api.get(path, headers={"Range": valid}).status_code == expected


@pytest.mark.parametrize("form", ["original", "parquet"])
@pytest.mark.parametrize("span", ["{size}-", "99999999999-", "-0"])
def test_range_that_a_file_lacks_is_refused_with_its_size(server: Server, trace: str, form: str, span: str) -> None:
    path = f"/traces/{trace}/download?format={form}"
    size = len(server.api.get(path).content)
    lacking = {"Range": f"bytes={span.format(size=size)}"}
    answer = server.api.get(path, headers=lacking)
    assert (answer.status_code, answer.headers["content-type"]) == (416, "application/problem+json")
    assert (answer.json()["code"], answer.json()["size"]) == ("bad_range", size)
    assert answer.headers["content-range"] == f"bytes */{size}"
    head = server.api.head(path, headers=lacking)
    assert (head.status_code, head.headers["content-range"], head.content) == (416, f"bytes */{size}", b"")


# -- conditions ----------------------------------------------------------------------------------------------------

LONG_AGO, LATER = "Sun, 06 Nov 1994 08:49:37 GMT", "Fri, 31 Dec 2094 23:59:59 GMT"


@pytest.mark.parametrize("form", ["original", "parquet"])
@pytest.mark.parametrize(
    ("conditions", "status"),
    [
        ({"If-Match": "{etag}"}, 200),
        ({"If-Match": '"another", {etag}'}, 200),
        ({"If-Match": "*"}, 200),
        ({"If-Match": '"another"'}, 412),
        ({"If-Match": "W/{etag}"}, 412),
        ({"If-Match": '"another"', "If-None-Match": "{etag}"}, 412),
        ({"If-Match": "{etag}", "If-None-Match": "{etag}"}, 304),
        ({"If-Match": "{etag}", "If-Unmodified-Since": LONG_AGO}, 200),
        ({"If-Match": '"another"', "Range": "bytes=0-3"}, 412),
        ({"If-Match": "{etag}", "Range": "bytes=0-3"}, 206),
        ({"If-Unmodified-Since": LONG_AGO}, 412),
        ({"If-Unmodified-Since": "Sunday, 06-Nov-94 08:49:37 GMT"}, 412),
        ({"If-Unmodified-Since": "Sun Nov  6 08:49:37 1994"}, 412),
        ({"If-Unmodified-Since": "{last_modified}"}, 200),
        ({"If-Unmodified-Since": LATER}, 200),
        ({"If-Unmodified-Since": "long ago"}, 200),
        ({"If-Unmodified-Since": f"Sun, {10**20} Nov 1994 08:49:37 GMT"}, 200),
    ],
)
def test_file_is_sent_if_the_conditions_hold(
    server: Server, trace: str, form: str, conditions: dict[str, str], status: int
) -> None:
    path = f"/traces/{trace}/download?format={form}"
    head = server.api.head(path).headers
    values = {"etag": head["etag"], "last_modified": head["last-modified"]}
    fields = {name: value.format_map(values) for name, value in conditions.items()}
    answer = server.api.get(path, headers=fields)
    assert answer.status_code == status
    assert status != 412 or answer.json()["code"] == "precondition_failed"
    assert server.api.head(path, headers=fields).status_code == status


def test_if_match_may_be_several_fields(server: Server, trace: str) -> None:
    path = f"/traces/{trace}/download"
    fields = [("If-Match", '"another"'), ("If-Match", server.api.head(path).headers["etag"])]
    assert server.api.get(path, headers=fields).status_code == 200
