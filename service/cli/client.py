"""A small synchronous client of the HTTP API, for the command line and for scripts.

from service.cli.client import Client

with Client() as tracedock:
    trace = tracedock.upload(Path("rank0.pt.trace.json.gz"), wait=True)
    table = tracedock.query(trace["id"], "select count(*) from slice")
    job = tracedock.follow_job(tracedock.split(trace["id"], by="step")["id"])
    steps = job["result"]["traces"]

A selection, which part of a trace is meant, is a dictionary as the API takes it: `{"steps": [7], "streams": ["0/7"]}`.
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

from service.cli.errors import (
    AmbiguousTargetError,
    AmbiguousTraceError,
    ApiError,
    DamagedDownloadError,
    DigestMismatchError,
    UnreachableError,
)
from service.cli.resuming import PIECE, Lost, Resumable, pieces

DEFAULT_URL = "http://127.0.0.1:8700"
DEFAULT_LIMIT = 100_000
DEFAULT_TIMEOUT_S = 60.0

_CHUNK = 1 << 20
_PAGE = 200
_FOLLOW_S = 1  # one question about progress a second, held open by the server
_CONNECT_S = 10.0
_ANSWER_S = 60.0
_SAFE_S = 600.0  # a server that makes gigabytes safe on a slow disk answers late

Json: TypeAlias = dict[str, Any]
BytesSent: TypeAlias = Callable[[int, int], None]  # bytes sent, bytes in all
BytesReceived: TypeAlias = Callable[[int, int], None]  # bytes received, bytes in all or 0 where nobody knows
Watcher: TypeAlias = Callable[[Json], None]  # a trace, a session or a job, whenever it has moved


class Download:
    """A trace on its way; made by `Client.download`. `name` is a plain file name, `size` 0 where nobody knows it."""

    def __init__(self, response: httpx.Response, fallback: str) -> None:
        headers = response.headers
        self.name = _attached_name(headers.get("content-disposition", "")) or fallback
        self.size = int(headers.get("content-length", 0))
        self._digest = _sha256_of(headers.get("repr-digest", ""))
        self._response = response

    def write_to(self, file: BinaryIO, on_bytes: BytesReceived | None = None) -> None:
        """Write all of it. `DamagedDownloadError` when the server tells a digest, and the bytes have another."""
        digest, received = hashlib.sha256(), 0
        for chunk in self._response.iter_raw(_CHUNK):
            file.write(chunk)
            received += len(chunk)
            if self._digest:
                digest.update(chunk)
            if on_bytes:
                on_bytes(received, self.size)
        if self._digest and digest.digest() != self._digest:
            raise DamagedDownloadError(self.name, promised=self._digest.hex(), found=digest.hexdigest())


class Client:
    """Talks to one server. Use it in a `with`, or `close()` it. Not for two threads at once.

    Every method raises `ApiError` when the server refuses, and `UnreachableError` when it does not answer or
    the connection breaks. Traces, sessions, jobs and tables are the API's own objects: integers are exact.
    """

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        """A client of one server.

        Args:
            url: the server's base; without it the environment's TRACEDOCK_URL, then http://127.0.0.1:8700.
            token: what opens the server's doors; without it the environment's TRACEDOCK_TOKEN, then none.

        Raises:
            ValueError: the one is no http or https URL, or the other no token.
        """
        token = (token or os.environ.get("TRACEDOCK_TOKEN", "")).strip()
        if not re.fullmatch(r"[!-~]*", token):
            raise ValueError("a token is made of letters, digits and signs of ASCII")  # which is not to be shown
        base = _base(url or os.environ.get("TRACEDOCK_URL") or DEFAULT_URL)
        self.url = str(base.copy_with(userinfo=b""))
        self._http = httpx.Client(
            base_url=base.join(base.path.rstrip("/") + "/api/v1/"),
            headers={"Authorization": f"Bearer {token}"} if token else None,
            timeout=httpx.Timeout(_ANSWER_S, connect=_CONNECT_S),
            trust_env=not _is_loopback(base.host),  # a proxy cannot reach this machine's own loopback
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the server."""
        self._http.close()

    # traces

    def upload(  # noqa: PLR0913 - each is one thing that a script may want
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        group: str | None = None,
        resume: bool = True,
        wait: bool = False,
        on_bytes: BytesSent | None = None,
        on_ingest: Watcher | None = None,
        on_lost: Lost | None = None,
    ) -> Json:
        """Stream the file to the server under `name` (default: its own), and return its trace.

        When the link drops, or the server is started anew, it goes on where it stopped, for as long as it comes further
        within ten minutes; `on_lost` hears of that. Without `resume` it is one request, that any proxy lets pass.

        The SHA-256 is taken of the very bytes that are sent, and compared with the one the server computed:
        `DigestMismatchError` when they differ. With `wait` it returns when the trace is ready or failed.
        `OSError` when the file cannot be read, or gets shorter meanwhile.
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

            told = {} if group is None else {"group": group}
            patient = httpx.Timeout(_ANSWER_S, connect=_CONNECT_S, read=_SAFE_S)
            if resume and size > PIECE:  # of less there is nothing to resume
                sending = Resumable(partial(self._send, timeout=patient), file, sent, on_lost)
                trace = self.trace(sending.send(os.fsencode(name or path.name), **told))
            else:
                trace = self._json(
                    "PUT",
                    f"traces/{quote(os.fsencode(name or path.name), safe='')}",
                    params=told,
                    content=pieces(file, 0, size, sent),
                    headers={"Content-Length": str(size), "Content-Type": "application/octet-stream"},
                    timeout=patient,
                )
        if trace["sha256"] != digest.hexdigest():
            raise DigestMismatchError(trace, sent=digest.hexdigest())
        return self.follow(trace["id"], on_ingest) if wait else trace

    def traces(self, *, state: str | None = None, name: str | None = None, parent: str | None = None) -> Iterator[Json]:
        """Every trace, newest first, page by page; `name` is a part of the name, `parent` an id."""
        query: dict[str, Any] = {"limit": _PAGE, "state": state, "name": name, "parent": parent}
        while True:
            page = self._json("GET", "traces", params={k: v for k, v in query.items() if v is not None})
            yield from page["traces"]
            if not page["next"]:
                return
            query["cursor"] = page["next"]

    def trace(self, trace_id: str, *, wait: float = 0) -> Json:
        """One trace; `wait`: at most so many seconds for it to become ready or failed."""
        return self._json("GET", _at(trace_id), params={"wait": wait} if wait else None, wait=wait)

    def follow(self, trace_id: str, on_ingest: Watcher | None = None) -> Json:
        """Wait until the trace is ready or failed, however long; `on_ingest` sees it about once a second."""
        while True:
            trace = self.trace(trace_id, wait=_FOLLOW_S)
            if on_ingest:
                on_ingest(trace)
            if trace["state"] in ("ready", "failed"):
                return trace

    def find(self, text: str) -> Json:
        """The trace that `text` means: an id, the start of only one id, the name of only one, or `latest`.

        `ApiError` unknown_trace when there is none; `AmbiguousTraceError` when there are several.
        """
        if re.fullmatch("[0-9a-f]{12}", text):
            try:
                return self.trace(text)
            except ApiError as error:
                if error.code != "unknown_trace":
                    raise
        if text == "latest":
            page = self._json("GET", "traces", params={"limit": 1})
            found = page["traces"]
        elif re.fullmatch("[0-9a-f]+", text):
            found = [t for t in self.traces() if t["id"].startswith(text) or t["name"] == text]
        else:
            found = [t for t in self.traces(name=text) if t["name"] == text]
        if not found:
            raise ApiError("unknown_trace", "Unknown trace", f"There is no trace {text!r} on {self.url}.", 404)
        if len(found) > 1:
            raise AmbiguousTraceError(text, found)
        return self.trace(found[0]["id"])

    def target(self, text: str) -> tuple[Literal["trace", "group"], Json]:
        """The trace or the group that `text` means: see `find`; or the id or the name of a group.

        `ApiError` unknown_trace when there is neither; `AmbiguousTraceError` and `AmbiguousTargetError` when there are
        several.
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
            detail = f"There is no trace {text!r} on {self.url}, and no group of that id or name."
            raise ApiError(error.code, error.title, detail, error.status) from error
        if group:
            raise AmbiguousTargetError(text, [trace], group)
        return "trace", trace

    def _group_of(self, text: str) -> Json | None:
        """The group of that id or name, if there is one."""
        if found := next((one for one in self.groups(name=text) if one["name"] == text), None):
            return found
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
        """The trace's bytes as they came (`original`), or its events as `json`, `json.gz` or `parquet`.

        Without `form` it is the first, or `json.gz` of a trace that was made here and of a `selection`, which can be
        had only so and as `json`. See the API for the rest.
        """
        asked = {"format": form, "selection": _compact(selection), "order": order, "redact": redact}
        with self._send(
            "GET",
            f"{_at(trace_id)}/download",
            params={key: value for key, value in asked.items() if value is not None},
            timeout=httpx.Timeout(_ANSWER_S, connect=_CONNECT_S, read=_SAFE_S),  # it may wait for its turn, and sort
        ) as response:
            yield Download(response, fallback=trace_id)

    def delete(self, trace_id: str) -> None:
        """Delete the trace with everything made from it."""
        self._done("DELETE", _at(trace_id))

    def perfetto_url(
        self, trace_id: str, *, selection: Json | None = None, args: str = "all", slice_: str | None = None
    ) -> str:
        """The link that opens the Perfetto UI on the trace, or on a selection of it; `args` as for `query`.

        With `slice_` it opens at that slice: `position:123`, `at:1695000000123:aten::mm` or `id:456`; see the API.
        """
        chosen = _opening(selection, args, slice_)
        return f"{self.url}/api/v1/{_at(trace_id)}/perfetto{'?' if chosen else ''}{urlencode(chosen)}"

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
        """Have the trace cut into traces, and return the job that does it, which has an `id`; see `follow_job`.

        Args:
            trace_id: of the trace.
            selection: what to keep of it; without it, all.
            by: `step`, `stream`, `device`, `rank`, `duration`, `parts` or `size`; without it, a single piece is made.
            value: the ns of a `duration`, the number of `parts`, or the bytes of a piece's JSON document for `size`.
        """
        return self._json("POST", f"{_at(trace_id)}/split", json=_split(selection, by, value))

    def plan(
        self, trace_id: str, *, selection: Json | None = None, by: str | None = None, value: int | None = None
    ) -> Json:
        """What `split` would make, `{"pieces": [{"name", "selection", "events", "counts", "size"}], "events"}`."""
        return self._json(
            "POST",
            f"{_at(trace_id)}/split",
            json=_split(selection, by, value) | {"dry_run": True},
            timeout=httpx.Timeout(_ANSWER_S, connect=_CONNECT_S, read=_SAFE_S),  # all of the trace is looked at
        )

    def overlay(self, trace_id: str, analysis: str, *, selection: Json | None = None) -> Json:
        """Have a trace made that shows an answer on top of this one, and return the job that does it.

        Args:
            trace_id: of the trace.
            analysis: `critical_path`.
            selection: what to keep of the trace; without it, all.
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
        """Have ranks of a run, or parts of one trace, made one trace, and return the job that does it.

        Args:
            trace_ids: of at least two traces.
            align: how clocks become one: `none`, by what the traces tell of theirs (`base`), or also by `collectives`.
            ranks: the rank of each, where the traces do not tell it.
            name: of the trace that is made.
        """
        told = {"traces": list(trace_ids), "align": align, "ranks": None if ranks is None else list(ranks)}
        return self._json("POST", "traces/merge", json=told | ({"name": name} if name is not None else {}))

    def job(self, job_id: str, *, wait: float = 0) -> Json:
        """A job; `wait`: at most so many seconds for it to be over."""
        return self._json("GET", _job(job_id), params={"wait": wait} if wait else None, wait=wait)

    def jobs(self, *, states: Sequence[str] = (), kind: str | None = None, trace: str | None = None) -> Iterator[Json]:
        """Every job, newest first, page by page; `trace` is the id of one that they work on or have made."""
        query: dict[str, Any] = {"limit": _PAGE, "state": list(states), "kind": kind, "trace": trace}
        while True:
            page = self._json("GET", "jobs", params={k: v for k, v in query.items() if v})
            yield from page["jobs"]
            if not page["next"]:
                return
            query["cursor"] = page["next"]

    def follow_job(self, job_id: str, on_job: Watcher | None = None) -> Json:
        """Wait until the job is done, failed or cancelled, however long; `on_job` sees it about once a second.

        The ids of what a job has made are its `result["traces"]`; why it failed is its `error`.
        """
        while True:
            job = self.job(job_id, wait=_FOLLOW_S)
            if on_job:
                on_job(job)
            if job["state"] in ("done", "failed", "cancelled"):
                return job

    def cancel(self, job_id: str) -> Json:
        """End the job and remove what it has made, and return it; one that is over stays as it is."""
        return self._json("DELETE", _job(job_id))

    # groups and imports

    def groups(self, *, name: str | None = None) -> Iterator[Json]:
        """Every group, newest first, page by page; `name` is a part of the name."""
        query: dict[str, Any] = {"limit": _PAGE} | ({} if name is None else {"name": name})
        while True:
            page = self._json("GET", "groups", params=query)
            yield from page["groups"]
            if not page["next"]:
                return
            query["cursor"] = page["next"]

    def group(self, text: str) -> Json:
        """The group of that id or name, with its `ranks`."""
        found = self._group_of(text)
        if found is None:
            raise ApiError("unknown_group", "Unknown group", f"There is no group {text!r} on {self.url}.", 404)
        return found if "ranks" in found else self._json("GET", _group(found["id"]))

    def delete_group(self, group_id: str, *, traces: bool = False) -> None:
        """Dissolve the group, or delete it with its `traces`."""
        self._done("DELETE", _group(group_id), params={"traces": traces})

    def merge_group(self, group_id: str, *, align: str = "collectives", name: str | None = None) -> Json:
        """Have the traces of the group made one, and return the job that does it; see `merge`."""
        told = {"align": align} | ({"name": name} if name is not None else {})
        return self._json("POST", f"{_group(group_id)}/merge", json=told)

    def import_files(self, asked: Json) -> Json:
        """Have the server take files of its own disk, and return the job that does it; see the API for what to ask."""
        return self._json("POST", "traces/import", json=asked)

    def imports(self) -> list[Json]:
        """The imports that watch for new files."""
        found: list[Json] = self._json("GET", "imports")["imports"]
        return found

    def end_import(self, import_id: str) -> Json:
        """Let an import take no more files."""
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
        """The whole answer, `{"columns", "rows", "truncated", "elapsed_ms"}`, held in memory.

        With a `selection`, only that part of the trace is asked, on an engine of its own. Events there have `all` their
        `args`, the `essential` ones, or `none`: with fewer an engine loads sooner.

        At most `limit` rows, and `timeout_s` seconds of work (None: no limit); loading the engine is not
        counted, and takes as long as it takes: `on_loading` sees the session about once a second.
        """
        question = _question(sql, selection, args, limit, timeout_s)
        with self._answer(trace_id, question, "application/json", on_loading) as response:
            response.read()
            return _document(response)

    def analysis(  # noqa: PLR0913 - what an answer is asked for
        self,
        asked: str,
        name: str | None = None,
        *,
        of: Literal["trace", "group"] = "trace",
        traces: Sequence[str] = (),
        base: Sequence[str] = (),
        wait: float = 0,
        parameters: Mapping[str, str] | None = None,
        selection: Json | None = None,
        form: str = "json",
        table: str | None = None,
        on_tables: Callable[[list[str]], None] = lambda _: None,
    ) -> bytes:
        """An answer to what is often asked, as the API gives it; without a name, what can be asked.

        Args:
            asked: id of the trace or the group.
            name: of the analysis.
            of: what it is.
            traces: ids of the other ranks.
            base: ids of traces or groups to compare with.
            wait: seconds to wait for traces that are not ready.
            parameters: of the analysis.
            selection: what of the traces; without it, all.
            form: `json` with all tables, or `csv` or `arrow` with one.
            table: which of the tables, if not the first.
            on_tables: hears of `csv` and `arrow` which tables there are.
        """
        told: dict[str, Any] = {
            "selection": _compact(selection),
            "format": form,
            "table": table if form != "json" else None,
        }
        chosen = {key: value for key, value in told.items() if value is not None} if name else {}
        if wait and name:
            chosen["wait"] = wait
        if base:
            chosen["base"] = [*base]
        with self._send(
            "GET",
            f"{_at(asked) if of == 'trace' else _group(asked)}/analysis" + (f"/{quote(name, safe='')}" if name else ""),
            params={**(parameters or {}), **chosen, "traces": [*traces]},
            timeout=httpx.Timeout(_ANSWER_S + wait, connect=_CONNECT_S, read=_SAFE_S + wait),
        ) as response:
            on_tables([one.strip() for one in response.headers.get("tracedock-tables", "").split(",")])
            return response.read()

    def export(  # noqa: PLR0913 - what an answer is asked for
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
        """The answer's bytes as they come, in the media type `accept`; otherwise like `query`.

        For `application/json`, `application/x-ndjson`, `text/csv` and `application/vnd.apache.arrow.stream`.
        """
        question = _question(sql, selection, args, limit, timeout_s)
        with self._answer(trace_id, question, accept, on_loading) as response:
            yield from response.iter_bytes()

    # sessions and the listener

    def sessions(self) -> Json:
        """The engines that the server holds, `{"sessions", "memory": {"held_bytes", "budget_bytes"}}`."""
        return self._json("GET", "sessions")

    def session(self, trace_id: str, *, selection: Json | None = None, args: str = "all") -> Json:
        """The session of the trace, or of a selection of it, as it is."""
        return self._json("GET", f"{_at(trace_id)}/session", params=_view(selection, args))

    def open_session(self, trace_id: str, *, selection: Json | None = None, args: str = "all", wait: float = 0) -> Json:
        """Start the engine, or find it running; `wait`: seconds to give it to become ready."""
        return self._json("POST", f"{_at(trace_id)}/session", params=_view(selection, args) | {"wait": wait}, wait=wait)

    def close_session(self, trace_id: str, *, selection: Json | None = None, args: str = "all") -> None:
        """Stop the engine of the trace, or of a selection of it."""
        self._done("DELETE", f"{_at(trace_id)}/session", params=_view(selection, args))

    def listener(self) -> Json:
        """`{"enabled", "host", "port", "trace", "error"}` of the port that ui.perfetto.dev looks for."""
        return self._json("GET", "listener")

    def listen(self, trace_id: str) -> Json:
        """Choose the trace that the listener serves."""
        return self._json("PUT", "listener", json={"trace": trace_id})

    # the wire

    @contextmanager
    def _answer(
        self, trace_id: str, question: Json, accept: str, on_loading: Watcher | None
    ) -> Iterator[httpx.Response]:
        """The 200 of a query, unread. While the engine loads, the server answers 202: ask again."""
        timeout_s = question["timeout_s"]
        read_s = None if timeout_s is None else timeout_s + _FOLLOW_S + _ANSWER_S
        while True:
            asked = time.monotonic()
            with self._send(
                "POST",
                f"{_at(trace_id)}/query",
                params={"wait": _FOLLOW_S},
                json=question,
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
            # The server held the question for a while already: only the rest of its Retry-After is left.
            time.sleep(max(0.0, _retry_after(response) - (time.monotonic() - asked)))

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
        """A streamed response that is no error; where httpx's exceptions become ours.

        With `redirects`, a redirect is the answer, which is not followed; without, it is an error.
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
        raise ValueError(f"{exc} in {url!r}; a server's URL looks like {DEFAULT_URL}") from exc
    if base.scheme not in {"http", "https"} or not base.host:
        raise ValueError(f"{url!r} is no server's URL, such as {DEFAULT_URL}")
    return base


def _at(trace_id: str) -> str:
    return f"traces/{quote(trace_id, safe='')}"


def _group(group_id: str) -> str:
    return f"groups/{quote(group_id, safe='')}"


def _job(job_id: str) -> str:
    return f"jobs/{quote(job_id, safe='')}"


def _compact(selection: Json | None) -> str | None:
    return None if selection is None else json.dumps(selection, separators=(",", ":"))


def _question(sql: str, selection: Json | None, args: str, limit: int | None, timeout_s: float | None) -> Json:
    question: Json = {"sql": sql, "limit": limit, "timeout_s": timeout_s}
    chosen: Json = {"selection": selection} if selection is not None else {}
    return question | chosen | ({} if args == "all" else {"args": args})


def _view(selection: Json | None, args: str) -> dict[str, Any]:
    """What of a trace an engine is on, as parameters of an address; nothing for all of it."""
    chosen = {} if selection is None else {"selection": _compact(selection)}
    return chosen if args == "all" else chosen | {"args": args}


def _opening(selection: Json | None, args: str, slice_: str | None) -> dict[str, Any]:
    """What the UI opens on, likewise, and the slice at which it opens."""
    return _view(selection, args) | ({} if slice_ is None else {"slice": slice_})


def _split(selection: Json | None, by: str | None, value: int | None) -> Json:
    told = {"selection": selection, "by": by, "value": value}
    return {key: given for key, given in told.items() if given is not None}


def _attached_name(disposition: str) -> str | None:
    """The file name that a response is to be saved under; a plain one, whatever the server says."""
    found = re.search(r"filename\*=utf-8''([^;]+)", disposition, re.IGNORECASE)
    name = unquote(found[1]) if found else None
    if not name and (quoted := re.search(r'filename="([^"]+)"', disposition)):
        name = quoted[1]
    return None if not name or name in {".", ".."} or re.search(r"[/\\\0]", name) else name


def _sha256_of(digests: str) -> bytes | None:
    found = re.search(r"sha-256=:([A-Za-z0-9+/=]+):", digests)
    return b64decode(found[1]) if found else None


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _document(response: httpx.Response) -> Json:
    """The body as a JSON object; integers of any length stay integers."""
    try:
        document = json.loads(response.content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        what = response.headers.get("content-type", "an unnamed type")
        detail = f"{response.url} answered {what}, not a JSON object. Is it a Tracedock server?"
        raise ApiError("unexpected_answer", "Unexpected answer", detail, response.status_code)
    return document


def _refusal(response: httpx.Response) -> ApiError:
    """The error in a response that is not a success, whoever wrote it: the server, or a proxy before it."""
    if response.headers.get("content-type", "").startswith("application/problem+json"):
        return ApiError.of_problem(_document(response), response.status_code)
    title = f"HTTP {response.status_code} {response.reason_phrase}".rstrip()
    return ApiError(f"http_{response.status_code}", title, response.text[:500].strip(), response.status_code)


def _retry_after(response: httpx.Response) -> float:
    value = response.headers.get("retry-after", "")
    return float(value) if re.fullmatch(r"\d+", value) else 1.0
