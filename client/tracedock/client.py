"""Synchronous client of the HTTP API, for the command line and for scripts.

from tracedock.client import Client

with Client() as tracedock:
    trace = tracedock.upload(Path("rank0.pt.trace.json.gz"), wait=True)
    table = tracedock.query(trace["id"], "select count(*) from slice")
    job = tracedock.follow_job(tracedock.split(trace["id"], by="step")["id"])
    steps = job["result"]["traces"]

A selection is a dictionary of the API: `{"steps": [7], "streams": ["0/7"]}`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias
from urllib.parse import quote, unquote, urlencode

import httpx

from tracedock.errors import (
    AmbiguousTargetError,
    AmbiguousTraceError,
    ApiError,
    DamagedDownloadError,
    DigestMismatchError,
    UnreachableError,
)
from tracedock.resumable import PIECE, OnRetry, ResumableUpload, pieces

DEFAULT_URL = "http://127.0.0.1:8700"
DEFAULT_LIMIT = 100_000
DEFAULT_TIMEOUT_S = 60.0

_CHUNK = 1 << 20
_PAGE = 200
_FOLLOW_S = 1  # seconds for which the server holds a request for progress open
_CONNECT_S = 10.0
_ANSWER_S = 60.0
_SYNC_S = 600.0  # a server that syncs gigabytes to a slow disk responds late

Json: TypeAlias = dict[str, Any]
ReportForm: TypeAlias = Literal["html", "markdown"]
BytesSent: TypeAlias = Callable[[int, int], None]  # bytes sent, total
BytesReceived: TypeAlias = Callable[[int, int], None]  # bytes received, total or 0 if unknown
Watcher: TypeAlias = Callable[[Json], None]  # the trace, session or job of each response


class Download:
    """Download in progress; see `Client.download`.

    Attributes:
        name: file name without folders.
        size: number of bytes; 0 if unknown.
    """

    def __init__(self, response: httpx.Response, fallback: str) -> None:
        headers = response.headers
        self.name = _attached_name(headers.get("content-disposition", "")) or fallback
        self.size = int(headers.get("content-length", 0))
        self._digest = _sha256_of(headers.get("repr-digest", ""))
        self._response = response

    def write_to(self, file: BinaryIO, on_bytes: BytesReceived | None = None) -> None:
        """Write all bytes; raise `DamagedDownloadError` if they do not match the server's digest."""
        digest, received = hashlib.sha256(), 0
        for chunk in self._response.iter_raw(_CHUNK):
            file.write(chunk)
            received += len(chunk)
            if self._digest:
                digest.update(chunk)
            if on_bytes:
                on_bytes(received, self.size)
        if self._digest and digest.digest() != self._digest:
            raise DamagedDownloadError(self.name, expected=self._digest.hex(), received=digest.hexdigest())


class Client:
    """Client of one server; a context manager, not thread-safe.

    Each method raises `ApiError` if the server refuses the request, and `UnreachableError` if it does not respond or
    the connection breaks. Traces, sessions, jobs and tables are JSON objects of the API, with exact integers.
    """

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        """Create a client.

        Args:
            url: base URL of the server; by default the environment's TRACEDOCK_URL, then http://127.0.0.1:8700.
            token: API token; by default the environment's TRACEDOCK_TOKEN, then none.

        Raises:
            ValueError: the URL is not an http or https URL, or the token has characters that tokens can't have.
        """
        token = (token or os.environ.get("TRACEDOCK_TOKEN", "")).strip()
        if not re.fullmatch(r"[!-~]*", token):
            raise ValueError("a token has only printable ASCII characters")  # the message must not contain the token
        base = _base(url or os.environ.get("TRACEDOCK_URL") or DEFAULT_URL)
        self.url = str(base.copy_with(userinfo=b""))
        self._http = httpx.Client(
            base_url=base.join(base.path.rstrip("/") + "/api/v1/"),
            headers={"Authorization": f"Bearer {token}"} if token else None,
            timeout=httpx.Timeout(_ANSWER_S, connect=_CONNECT_S),
            trust_env=not _is_loopback(base.host),  # a proxy can't reach the loopback of this machine
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the server."""
        self._http.close()

    # traces

    def upload(  # noqa: PLR0913 - one parameter for each option
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        group: str | None = None,
        resume: bool = True,
        wait: bool = False,
        on_bytes: BytesSent | None = None,
        on_ingest: Watcher | None = None,
        on_retry: OnRetry | None = None,
    ) -> Json:
        """Upload a file, and return its trace.

        A broken upload is resumed, even after a restart of the server, until ten minutes pass without progress. A file
        of up to 1 MiB is sent in one request, which is not resumed.

        Args:
            path: path of the file.
            name: name of the trace; by default the name of the file.
            group: name of the trace's group.
            resume: whether to send resumable chunks, rather than one request, which any proxy accepts.
            wait: whether to wait until the trace is ready or failed.
            on_bytes: receives the number of sent bytes and the total.
            on_ingest: receives the trace about once a second while it is ingested, if `wait` is set.
            on_retry: receives the error, and the seconds until the next attempt.

        Raises:
            DigestMismatchError: the server computed a SHA-256 that is not that of the sent bytes.
            OSError: the file can't be read, or was truncated during the upload.
        """
        path = Path(path)
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            digest, digested = hashlib.sha256(), 0

            def sent(start: int, piece: bytes) -> None:
                nonlocal digested
                if (stop := start + len(piece)) > digested:
                    digest.update(piece[digested - start :])
                    digested = stop
                if on_bytes:
                    on_bytes(stop, size)

            metadata = {} if group is None else {"group": group}
            timeout = httpx.Timeout(_ANSWER_S, connect=_CONNECT_S, read=_SYNC_S)
            if resume and size > PIECE:  # a smaller file is sent in one request
                upload = ResumableUpload(partial(self._send, timeout=timeout), file, sent, on_retry)
                trace = self.trace(upload.send(os.fsencode(name or path.name), **metadata))
            else:
                trace = self._json(
                    "PUT",
                    f"traces/{quote(os.fsencode(name or path.name), safe='')}",
                    params=metadata,
                    content=pieces(file, 0, size, sent),
                    headers={"Content-Length": str(size), "Content-Type": "application/octet-stream"},
                    timeout=timeout,
                )
        if trace["sha256"] != digest.hexdigest():
            raise DigestMismatchError(trace, sent=digest.hexdigest())
        return self.follow(trace["id"], on_ingest) if wait else trace

    def traces(self, *, state: str | None = None, name: str | None = None, parent: str | None = None) -> Iterator[Json]:
        """Yield the matching traces, newest first.

        Args:
            state: state of the traces.
            name: part of their names.
            parent: id of the trace that they were cut from.
        """
        query: dict[str, Any] = {"limit": _PAGE, "state": state, "name": name, "parent": parent}
        while True:
            page = self._json("GET", "traces", params={k: v for k, v in query.items() if v is not None})
            yield from page["traces"]
            if not page["next"]:
                return
            query["cursor"] = page["next"]

    def trace(self, trace_id: str, *, wait: float = 0) -> Json:
        """Return a trace; wait at most `wait` seconds until it is ready or failed."""
        return self._json("GET", _at(trace_id), params={"wait": wait} if wait else None, wait=wait)

    def follow(self, trace_id: str, on_ingest: Watcher | None = None) -> Json:
        """Wait without a limit until the trace is ready or failed; `on_ingest` receives it about once a second."""
        while True:
            trace = self.trace(trace_id, wait=_FOLLOW_S)
            if on_ingest:
                on_ingest(trace)
            if trace["state"] in ("ready", "failed"):
                return trace

    def find(self, text: str) -> Json:
        """Return the trace with an id, a unique start of an id, a unique name, or `latest`.

        Raises:
            ApiError: no trace matches (``unknown_trace``).
            AmbiguousTraceError: several traces match.
        """
        if re.fullmatch("[0-9a-f]{12}", text):
            try:
                return self.trace(text)
            except ApiError as error:
                if error.code != "unknown_trace":
                    raise
        if text == "latest":
            page = self._json("GET", "traces", params={"limit": 1})
            matches = page["traces"]
        elif re.fullmatch("[0-9a-f]+", text):
            matches = [trace for trace in self.traces() if trace["id"].startswith(text) or trace["name"] == text]
        else:
            matches = [trace for trace in self.traces(name=text) if trace["name"] == text]
        if not matches:
            raise ApiError("unknown_trace", "Unknown trace", f"There is no trace {text!r} on {self.url}.", 404)
        if len(matches) > 1:
            raise AmbiguousTraceError(text, matches)
        return self.trace(matches[0]["id"])

    def target(self, text: str) -> tuple[Literal["trace", "group"], Json]:
        """Return the trace, as in `find`, or the group with an id or a name.

        Raises:
            ApiError: neither a trace nor a group matches (``unknown_trace``).
            AmbiguousTraceError: several traces match.
            AmbiguousTargetError: a trace and a group match.
        """
        group = None if text == "latest" else self._group_of(text)
        try:
            trace = self.find(text)
        except AmbiguousTraceError as error:
            if group:
                raise AmbiguousTargetError(text, error.traces, group) from error
            raise
        except ApiError as error:
            if error.code != "unknown_trace":
                raise
            if group:
                return "group", group
            detail = f"There is no trace and no group {text!r} on {self.url}."
            raise ApiError(error.code, error.title, detail, error.status) from error
        if group:
            raise AmbiguousTargetError(text, [trace], group)
        return "trace", trace

    def _group_of(self, text: str) -> Json | None:
        """Return the group with an id or a name, or None."""
        if named := next((group for group in self.groups(name=text) if group["name"] == text), None):
            return named
        if not re.fullmatch("[0-9a-f]{12}", text):
            return None
        try:
            return self._json("GET", _group(text))
        except ApiError as error:
            if error.code != "unknown_group":
                raise
        return None

    @contextmanager
    def download(
        self,
        trace_id: str,
        *,
        form: str | None = None,
        order: str = "time",
        redact: bool = False,
        selection: Json | None = None,
    ) -> Iterator[Download]:
        """Yield a download of the uploaded file (`original`), or of the events as `json`, `json.gz` or `parquet`.

        The default is `original`, or `json.gz` for a derived trace or a `selection`. A selection is available only as
        `json` and `json.gz`.
        """
        parameters = {"format": form, "selection": _compact(selection), "order": order, "redact": redact}
        with self._send(
            "GET",
            f"{_at(trace_id)}/download",
            params={key: value for key, value in parameters.items() if value is not None},
            timeout=httpx.Timeout(_ANSWER_S, connect=_CONNECT_S, read=_SYNC_S),  # the server may queue it, and sort
        ) as response:
            yield Download(response, fallback=trace_id)

    def delete(self, trace_id: str) -> None:
        """Delete the trace, with its columns and engines."""
        self._done("DELETE", _at(trace_id))

    def perfetto_url(
        self, trace_id: str, *, selection: Json | None = None, args: str = "all", slice_: str | None = None
    ) -> str:
        """Return the link that opens the Perfetto UI on the trace, or on a selection of it; `args` as for `query`.

        If `slice_` is given, the UI opens at that slice: `position:123`, `at:1695000000123:aten::mm` or `id:456`.
        """
        parameters = _opening(selection, args, slice_)
        return f"{self.url}/api/v1/{_at(trace_id)}/perfetto{'?' if parameters else ''}{urlencode(parameters)}"

    def check_perfetto(
        self, trace_id: str, *, selection: Json | None = None, args: str = "all", slice_: str | None = None
    ) -> None:
        """Raise `ApiError` if the server refuses the link of `perfetto_url`."""
        params = _opening(selection, args, slice_)
        with self._send("GET", f"{_at(trace_id)}/perfetto", redirects=True, params=params):
            pass

    # split and merge

    def split(
        self, trace_id: str, *, selection: Json | None = None, by: str | None = None, value: int | None = None
    ) -> Json:
        """Start a split of the trace, and return its job; see `follow_job`.

        Args:
            trace_id: id of the trace.
            selection: the events to keep; by default all.
            by: `step`, `stream`, `device`, `rank`, `duration`, `parts` or `size`; by default a single piece.
            value: the ns of a `duration`, the number of `parts`, or the bytes of a piece's JSON document for `size`.
        """
        return self._json("POST", f"{_at(trace_id)}/split", json=_split(selection, by, value))

    def plan(
        self, trace_id: str, *, selection: Json | None = None, by: str | None = None, value: int | None = None
    ) -> Json:
        """Return the plan of a split: `{"pieces": [{"name", "selection", "events", "counts", "size"}], "events"}`."""
        return self._json(
            "POST",
            f"{_at(trace_id)}/split",
            json=_split(selection, by, value) | {"dry_run": True},
            timeout=httpx.Timeout(_ANSWER_S, connect=_CONNECT_S, read=_SYNC_S),  # the server reads the whole trace
        )

    def overlay(self, trace_id: str, analysis: str, *, selection: Json | None = None) -> Json:
        """Start an overlay of the result of an analysis on the trace, and return its job.

        Args:
            trace_id: id of the trace.
            analysis: name of the analysis: `critical_path`.
            selection: the events to keep; by default all.
        """
        return self._json("POST", f"{_at(trace_id)}/overlay", json={"analysis": analysis, "selection": selection or {}})

    def merge(
        self,
        trace_ids: Sequence[str],
        *,
        align: str = "collectives",
        ranks: Sequence[int] | None = None,
        name: str | None = None,
    ) -> Json:
        """Start a merge of the ranks of a run, or of parts of one trace, and return its job.

        Args:
            trace_ids: ids of at least two traces.
            align: clock alignment: `none`, by base times (`base`), or also by the ends of `collectives`.
            ranks: the rank of each trace, if the traces do not contain it.
            name: name of the merged trace.
        """
        request = {"traces": list(trace_ids), "align": align, "ranks": None if ranks is None else list(ranks)}
        return self._json("POST", "traces/merge", json=request | ({"name": name} if name is not None else {}))

    def job(self, job_id: str, *, wait: float = 0) -> Json:
        """Return a job; wait at most `wait` seconds until it ends."""
        return self._json("GET", _job(job_id), params={"wait": wait} if wait else None, wait=wait)

    def jobs(self, *, states: Sequence[str] = (), kind: str | None = None, trace: str | None = None) -> Iterator[Json]:
        """Yield the matching jobs, newest first; `trace` is the id of a trace that the jobs read or created."""
        query: dict[str, Any] = {"limit": _PAGE, "state": list(states), "kind": kind, "trace": trace}
        while True:
            page = self._json("GET", "jobs", params={k: v for k, v in query.items() if v})
            yield from page["jobs"]
            if not page["next"]:
                return
            query["cursor"] = page["next"]

    def follow_job(self, job_id: str, on_job: Watcher | None = None) -> Json:
        """Wait without a limit until the job is done, failed or cancelled; `on_job` receives it about once a second.

        The job's `result["traces"]` lists the ids of the new traces, and its `error` describes a failure.
        """
        while True:
            job = self.job(job_id, wait=_FOLLOW_S)
            if on_job:
                on_job(job)
            if job["state"] in ("done", "failed", "cancelled"):
                return job

    def cancel(self, job_id: str) -> Json:
        """Cancel the job, and return it. Unfinished results are deleted; a job that has ended stays as it is."""
        return self._json("DELETE", _job(job_id))

    # groups and imports

    def groups(self, *, name: str | None = None) -> Iterator[Json]:
        """Yield all groups, newest first; `name` is a part of the name."""
        query: dict[str, Any] = {"limit": _PAGE} | ({} if name is None else {"name": name})
        while True:
            page = self._json("GET", "groups", params=query)
            yield from page["groups"]
            if not page["next"]:
                return
            query["cursor"] = page["next"]

    def group(self, text: str) -> Json:
        """Return the group with an id or a name, with its `ranks`."""
        group = self._group_of(text)
        if group is None:
            raise ApiError("unknown_group", "Unknown group", f"There is no group {text!r} on {self.url}.", 404)
        return group if "ranks" in group else self._json("GET", _group(group["id"]))

    def delete_group(self, group_id: str, *, traces: bool = False) -> None:
        """Delete the group, and optionally its traces."""
        self._done("DELETE", _group(group_id), params={"traces": traces})

    def merge_group(self, group_id: str, *, align: str = "collectives", name: str | None = None) -> Json:
        """Start a merge of the traces of the group, and return its job; see `merge`."""
        request = {"align": align} | ({"name": name} if name is not None else {})
        return self._json("POST", f"{_group(group_id)}/merge", json=request)

    def import_files(self, request: Json) -> Json:
        """Start an import of files from the server's disk, and return its job; the request is that of the API."""
        return self._json("POST", "traces/import", json=request)

    def imports(self) -> list[Json]:
        """Return the imports that watch for new files."""
        imports: list[Json] = self._json("GET", "imports")["imports"]
        return imports

    def end_import(self, import_id: str) -> Json:
        """End an import that watches for new files, and return it."""
        return self._json("DELETE", f"imports/{quote(import_id, safe='')}")

    # SQL

    def query(
        self,
        trace_id: str,
        sql: str,
        *,
        selection: Json | None = None,
        args: str = "all",
        limit: int | None = DEFAULT_LIMIT,
        timeout_s: float | None = DEFAULT_TIMEOUT_S,
        on_loading: Watcher | None = None,
    ) -> Json:
        """Return the result of a query, `{"columns", "rows", "truncated", "elapsed_ms"}`.

        Args:
            trace_id: id of the trace.
            sql: the query.
            selection: the events to query, on an engine of their own; by default all.
            args: event arguments in the engine: `all`, `essential` or `none`; with fewer it loads faster.
            limit: maximum number of rows; None for all.
            timeout_s: limit of the query in seconds, without the load of the engine; None for no limit.
            on_loading: receives the session about once a second while the engine loads.
        """
        query = _query(sql, selection, args, limit, timeout_s)
        with self._run_query(trace_id, query, "application/json", on_loading) as response:
            response.read()
            return _document(response)

    def analysis(  # noqa: PLR0913 - one parameter for each option
        self,
        target: str,
        name: str | None = None,
        *,
        of: Literal["trace", "group"] = "trace",
        traces: Sequence[str] = (),
        base: Sequence[str] = (),
        base_selection: Json | None = None,
        wait: float = 0,
        parameters: Mapping[str, str] | None = None,
        selection: Json | None = None,
        form: str = "json",
        table: str | None = None,
        on_tables: Callable[[list[str]], None] = lambda _: None,
    ) -> bytes:
        """Return the result of a built-in analysis; without a name, the list of analyses.

        Args:
            target: id of the trace or the group.
            name: name of the analysis; None for the list.
            of: kind of the target.
            traces: ids of the other ranks.
            base: ids of traces or groups to compare with.
            base_selection: the events of the base; by default as `selection`.
            wait: seconds to wait for traces that are not ready.
            parameters: parameters of the analysis, by name.
            selection: the events to analyse; by default all.
            form: `json`, or `csv` or `arrow`, which have one table.
            table: name of the only table; by default all or, in `csv` or `arrow`, the first.
            on_tables: receives the names of all tables, for `csv` and `arrow`.
        """
        options: dict[str, Any] = {
            "selection": _compact(selection),
            "format": form,
            "table": table,
        }
        query = {key: value for key, value in options.items() if value is not None} if name else {}
        if wait and name:
            query["wait"] = wait
        if base:
            query["base"] = [*base]
        if base_selection is not None:
            query["base_selection"] = _compact(base_selection)
        with self._send(
            "GET",
            f"{_at(target) if of == 'trace' else _group(target)}/analysis"
            + (f"/{quote(name, safe='')}" if name else ""),
            params={**(parameters or {}), **query, "traces": [*traces]},
            timeout=httpx.Timeout(_ANSWER_S + wait, connect=_CONNECT_S, read=_SYNC_S + wait),
        ) as response:
            on_tables([table.strip() for table in response.headers.get("tracedock-tables", "").split(",")])
            return response.read()

    def report(
        self,
        target: str,
        *,
        of: Literal["trace", "group"] = "trace",
        form: ReportForm = "html",
        selection: Json | None = None,
        wait: float = 0,
    ) -> str:
        """Return the report on a trace or a group.

        Args:
            target: id of the trace or the group.
            of: kind of the target.
            form: `html`, one file that needs no network, or `markdown`.
            selection: the events to report on; by default all.
            wait: seconds to wait for traces that are not ready.
        """
        query: dict[str, Any] = {"format": form, "selection": _compact(selection), "wait": wait or None}
        with self._send(
            "GET",
            f"{_at(target) if of == 'trace' else _group(target)}/report",
            params={key: value for key, value in query.items() if value is not None},
            timeout=httpx.Timeout(_ANSWER_S + wait, connect=_CONNECT_S, read=_SYNC_S + wait),
        ) as response:
            response.read()
            return response.text

    def export(  # noqa: PLR0913 - one parameter for each option
        self,
        trace_id: str,
        sql: str,
        accept: str,
        *,
        selection: Json | None = None,
        args: str = "all",
        limit: int | None = None,
        timeout_s: float | None = DEFAULT_TIMEOUT_S,
        on_loading: Watcher | None = None,
    ) -> Iterator[bytes]:
        """Yield the result of a query as bytes of the media type `accept`; otherwise like `query`.

        The types are `application/json`, `application/x-ndjson`, `text/csv` and `application/vnd.apache.arrow.stream`.
        """
        query = _query(sql, selection, args, limit, timeout_s)
        with self._run_query(trace_id, query, accept, on_loading) as response:
            yield from response.iter_bytes()

    # sessions and the listener

    def sessions(self) -> Json:
        """Return the server's engines, `{"sessions", "memory": {"held_bytes", "budget_bytes"}}`."""
        return self._json("GET", "sessions")

    def session(self, trace_id: str, *, selection: Json | None = None, args: str = "all") -> Json:
        """Return the session of the trace, or of a selection of it."""
        return self._json("GET", f"{_at(trace_id)}/session", params=_view(selection, args))

    def open_session(self, trace_id: str, *, selection: Json | None = None, args: str = "all", wait: float = 0) -> Json:
        """Start the engine unless it runs, wait at most `wait` seconds until it is ready, and return its session."""
        return self._json("POST", f"{_at(trace_id)}/session", params=_view(selection, args) | {"wait": wait}, wait=wait)

    def close_session(self, trace_id: str, *, selection: Json | None = None, args: str = "all") -> None:
        """Stop the engine of the trace, or of a selection of it."""
        self._done("DELETE", f"{_at(trace_id)}/session", params=_view(selection, args))

    def listener(self) -> Json:
        """Return `{"enabled", "host", "port", "trace", "error"}` of the listener for ui.perfetto.dev."""
        return self._json("GET", "listener")

    def listen(self, trace_id: str) -> Json:
        """Choose the trace that the listener serves."""
        return self._json("PUT", "listener", json={"trace": trace_id})

    # requests

    @contextmanager
    def _run_query(
        self, trace_id: str, query: Json, accept: str, on_loading: Watcher | None
    ) -> Iterator[httpx.Response]:
        """Repeat a query while the status is 202, because the engine loads; then yield the response, still unread."""
        timeout_s = query["timeout_s"]
        read_s = None if timeout_s is None else timeout_s + _FOLLOW_S + _ANSWER_S
        while True:
            started = time.monotonic()
            with self._send(
                "POST",
                f"{_at(trace_id)}/query",
                params={"wait": _FOLLOW_S},
                json=query,
                headers={"Accept": accept},
                timeout=httpx.Timeout(_ANSWER_S, connect=_CONNECT_S, read=read_s),
            ) as response:
                if response.status_code != 202:
                    yield response
                    return
                response.read()
                session = _document(response)
            if session["state"] == "failed":
                raise ApiError.of_problem(session["error"] or {}, response.status_code)
            if on_loading:
                on_loading(session)
            # The server has already held the request for a part of its Retry-After.
            time.sleep(max(0.0, _retry_after(response) - (time.monotonic() - started)))

    def _json(self, method: str, path: str, *, wait: float = 0, **request: Any) -> Json:
        request.setdefault("timeout", httpx.Timeout(_ANSWER_S + wait, connect=_CONNECT_S))
        with self._send(method, path, **request) as response:
            response.read()
            return _document(response)

    def _done(self, method: str, path: str, **request: Any) -> None:
        with self._send(method, path, **request):
            pass

    @contextmanager
    def _send(self, method: str, path: str, *, redirects: bool = False, **request: Any) -> Iterator[httpx.Response]:
        """Send a request, and yield the streamed response; errors become those of `tracedock.errors`.

        A redirect is not followed; with `redirects` it is a success, otherwise an error.
        """
        try:
            with self._http.stream(method, path, **request) as response:
                if not (response.is_success or (redirects and response.is_redirect)):
                    response.read()
                    raise _refusal(response)
                yield response
        except (httpx.ConnectError, httpx.ConnectTimeout) as exc:
            raise UnreachableError(self.url, str(exc) or type(exc).__name__, connected=False) from exc
        except (httpx.TransportError, httpx.DecodingError) as exc:
            raise UnreachableError(self.url, str(exc) or type(exc).__name__, connected=True) from exc


def _base(url: str) -> httpx.URL:
    try:
        base = httpx.URL(url.rstrip("/"))
    except httpx.InvalidURL as exc:
        raise ValueError(f"{exc} in {url!r}; the URL of a server is like {DEFAULT_URL}") from exc
    if base.scheme not in {"http", "https"} or not base.host:
        raise ValueError(f"{url!r} is not the URL of a server, like {DEFAULT_URL}")
    return base


def _at(trace_id: str) -> str:
    return f"traces/{quote(trace_id, safe='')}"


def _group(group_id: str) -> str:
    return f"groups/{quote(group_id, safe='')}"


def _job(job_id: str) -> str:
    return f"jobs/{quote(job_id, safe='')}"


def _compact(selection: Json | None) -> str | None:
    return None if selection is None else json.dumps(selection, separators=(",", ":"))


def _query(sql: str, selection: Json | None, args: str, limit: int | None, timeout_s: float | None) -> Json:
    query: Json = {"sql": sql, "limit": limit, "timeout_s": timeout_s}
    part: Json = {"selection": selection} if selection is not None else {}
    return query | part | ({} if args == "all" else {"args": args})


def _view(selection: Json | None, args: str) -> dict[str, Any]:
    """Return the query parameters for an engine's view of a trace; empty for the whole trace with all arguments."""
    parameters = {} if selection is None else {"selection": _compact(selection)}
    return parameters if args == "all" else parameters | {"args": args}


def _opening(selection: Json | None, args: str, slice_: str | None) -> dict[str, Any]:
    """Return the query parameters of a view, and of the slice at which the UI opens."""
    return _view(selection, args) | ({} if slice_ is None else {"slice": slice_})


def _split(selection: Json | None, by: str | None, value: int | None) -> Json:
    request = {"selection": selection, "by": by, "value": value}
    return {key: item for key, item in request.items() if item is not None}


def _attached_name(disposition: str) -> str | None:
    """Return the file name in the header Content-Disposition; None if there is none, or it is not a plain name."""
    match = re.search(r"filename\*=utf-8''([^;]+)", disposition, re.IGNORECASE)
    name = unquote(match[1]) if match else None
    if not name and (quoted := re.search(r'filename="([^"]+)"', disposition)):
        name = quoted[1]
    return None if not name or name in {".", ".."} or re.search(r"[/\\\0]", name) else name


def _sha256_of(digests: str) -> bytes | None:
    match = re.search(r"sha-256=:([A-Za-z0-9+/=]+):", digests)
    return b64decode(match[1]) if match else None


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


class _Answer(dict[str, Any]):
    """Object of the API; a member that it lacks shows that another program has answered."""

    def __init__(self, members: Json, url: httpx.URL, status: int) -> None:
        super().__init__(members)
        self._url, self._status = url, status

    def __missing__(self, name: str) -> Any:
        detail = f"{self._url} returned JSON without {name!r}. Is it a Tracedock server?"
        raise ApiError("unexpected_answer", "Unexpected answer", detail, self._status)


def _document(response: httpx.Response) -> Json:
    """Return the body as a JSON object, with exact integers."""
    try:
        document = json.loads(response.content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        media_type = response.headers.get("content-type", "an unnamed type")
        detail = f"{response.url} returned {media_type}, not a JSON object. Is it a Tracedock server?"
        raise ApiError("unexpected_answer", "Unexpected answer", detail, response.status_code)
    return _Answer(document, response.url, response.status_code)


def _refusal(response: httpx.Response) -> ApiError:
    """Return the error of a response, which may come from the server or a proxy."""
    if response.headers.get("content-type", "").startswith("application/problem+json"):
        return ApiError.of_problem(_document(response), response.status_code)
    title = f"HTTP {response.status_code} {response.reason_phrase}".rstrip()
    detail = f"This is not the answer of a Tracedock server, but of another program or a proxy at {response.url.host}."
    if response.headers.get("content-type", "").startswith("text/plain"):
        detail += f" It says: {response.text[:500].strip()}"
    return ApiError(f"http_{response.status_code}", title, detail, response.status_code)


def _retry_after(response: httpx.Response) -> float:
    value = response.headers.get("retry-after", "")
    return float(value) if re.fullmatch(r"\d+", value) else 1.0
