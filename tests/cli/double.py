"""Server double: implements the API over real sockets, records requests, and misbehaves on request."""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

API = "/api/v1"


@dataclass
class Answer:
    """Scripted response; with `hold` it is sent only after that event is set."""

    status: int
    body: bytes = b""
    media: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    hold: Event | None = None
    declared: int | None = None  # a Content-Length that is not the body's


@dataclass
class Request:
    method: str
    path: str  # as sent, without the prefix and the query
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


def json_answer(document: Any, status: int = 200, **headers: str) -> Answer:
    return Answer(status, json.dumps(document).encode(), headers=headers)


def problem(status: int, code: str, title: str, detail: str, **extras: Any) -> Answer:
    document = {"type": "about:blank", "status": status, "code": code, "title": title, "detail": detail}
    return Answer(status, json.dumps(document | extras).encode(), "application/problem+json")


def trace(trace_id: str, name: str, **changed: Any) -> dict[str, Any]:
    """Return a trace of the API, ready by default."""
    whole: dict[str, Any] = {
        "id": trace_id,
        "name": name,
        "state": "ready",
        "error": None,
        "created_at": "2026-11-20T18:45:00.123Z",
        "size": 816469,
        "sha256": "ab" * 32,
        "format": "json.gz",
        "rank": 0,
        "world_size": 2,
        "backend": "nccl",
        "host": None,
        "group": None,
        "pinned": False,
        "path": None,
        "parent": None,
        "selection": None,
        "bounds": {"start_ns": 9007199254740993, "end_ns": 9007200254740994},
        "base_ns": 1700000000000000001,
        "events": {"in": 12000, "kept": 12000, "refused": 0},
        "counts": {"X|kernel": 4350, "s|ac2g": 6401, "M|": 36},
        "processes": [{"pid": 0, "name": "python", "labels": "GPU 0", "events": 9000}],
        "threads": [{"pid": 0, "tid": 7, "name": "stream 7", "events": 9000}],
        "devices": [{"id": 0, "name": "NVIDIA A100", "memory_bytes": 85899345920, "events": 9000}],
        "streams": ["0/7", "0/20"],
        "steps": [{"number": 3, "name": "ProfilerStep#3", "start_ns": 1, "end_ns": 2}],
        "health": {
            "repaired": 1200,
            "refused": 0,
            "notes": [
                {
                    "code": "invalid_utf8",
                    "kind": "repaired",
                    "detail": "Bytes that are not UTF-8: replaced by U+FFFD.",
                    "count": 1200,
                    "examples": [
                        {"offset": 40960, "text": '"name": "caf\ufffd\x1b[2J"'},
                        {"offset": 50000, "text": None},
                    ],
                },
                {
                    "code": "unlinked_kernels",
                    "kind": "oddity",
                    "detail": "Work on a device whose launch is not in the trace.",
                    "count": 1,
                    "examples": [{"offset": None, "text": "gemm, ts 5 ns"}],
                },
            ],
        },
        "progress": {"bytes": 816469, "bytes_total": 816469, "events": 12000},
        "ranks": [],
    }
    return whole | changed


def job(state: str, done: int = 0, **changed: Any) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "id": "3",
        "kind": "split",
        "state": state,
        "request": {},
        "progress": {"bytes": 0, "bytes_total": 0, "events": done, "events_total": 1000},
        "result": None,
        "error": None,
    }
    return whole | changed


def session(trace_id: str, state: str, done: int = 0, **changed: Any) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "trace": trace_id,
        "selection": None,
        "args": "all",
        "source": "columns",
        "state": state,
        "error": None,
        "engine": {
            "version": "v54.0",
            "pid": 1,
            "rss_bytes": None,
            "peak_bytes": None,
            "predicted_bytes": 1 << 25,
            "restarts": 0,
        },
        "progress": {"bytes": done, "events_total": 1000},
        "clients": 0,
        "queries": 0,
        "waiting": 0,
        "idle_s": 0.0,
        "load_s": None,
        "account": None,
        "account_reason": None,
        "stats": None,
    }
    return whole | changed


@dataclass
class Arriving:
    """Upload by tus."""

    name: str
    length: int
    body: bytes = b""
    trace: str = ""
    ended: bool = False

    def answer(self, server: Server, more: bytes) -> Answer:
        self.body += more
        if len(self.body) == self.length and not self.trace:
            kept = server.keep(self.name, self.body)
            self.trace = json.loads(kept.body)["id"]
        headers = {"Tracedock_Trace": self.trace} if self.trace else {}
        return Answer(204, headers={"Upload-Offset": str(len(self.body))} | headers)


class Server(ThreadingHTTPServer):
    """Serves `traces`, newest first; responses of `script` for a path take precedence."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.traces: list[dict[str, Any]] = []
        self.groups: list[dict[str, Any]] = []
        self.uploads: list[Arriving] = []
        self.requests: list[Request] = []
        self.arrived = Event()  # set when a request to a scripted path has been read
        self.page = 2
        self.listener: dict[str, Any] = {
            "enabled": True,
            "host": "127.0.0.1",
            "port": 9001,
            "trace": None,
            "error": None,
        }
        self._scripts: dict[tuple[str, str], deque[Answer]] = {}
        self._lock = Lock()

    def script(self, method: str, path: str, *answers: Answer) -> None:
        self._scripts[method, path] = deque(answers)

    def sent(self, method: str) -> list[Request]:
        return [request for request in self.requests if request.method == method]

    def answer(self, request: Request) -> Answer:
        with self._lock:
            self.requests.append(request)
            scripted = self._scripts.get((request.method, request.path))
            if scripted:
                self.arrived.set()
                return scripted.popleft()
            return self._route(request)

    def _route(self, request: Request) -> Answer:  # noqa: PLR0911 - one return for each route
        match [request.method, *request.path.strip("/").split("/")]:
            case ["PUT", "traces", name]:
                return self.keep(unquote(name), request.body)
            case ["POST", "uploads"]:
                values = dict(pair.split(" ") for pair in request.headers["upload-metadata"].split(","))
                name = b64decode(values["filename"]).decode()
                self.uploads.append(Arriving(name, int(request.headers["upload-length"])))
                return Answer(201, headers={"Location": f"{API}/uploads/{len(self.uploads) - 1}"})
            case ["PATCH" | "HEAD" as method, "uploads", number]:
                return self.uploads[int(number)].answer(self, request.body if method == "PATCH" else b"")
            case ["DELETE", "uploads", number]:
                self.uploads[int(number)].ended = True
                return Answer(204)
            case ["GET", "traces"]:
                return self._page(request.query)
            case ["GET", "traces", trace_id]:
                item = next((t for t in self.traces if t["id"] == trace_id), None)
                return json_answer(item) if item else _unknown(trace_id)
            case ["GET", "groups"]:
                groups = [group for group in self.groups if request.query.get("name", "") in group["name"]]
                return json_answer({"groups": groups, "next": None})
            case ["GET", "groups", group_id]:
                group = next((group for group in self.groups if group["id"] == group_id), None)
                return json_answer(group) if group else problem(404, "unknown_group", "Unknown group", group_id)
            case ["DELETE", "traces", trace_id]:
                self.traces = [t for t in self.traces if t["id"] != trace_id]
                return Answer(204)
            case ["PUT", "listener"]:
                return json_answer(self.listener | json.loads(request.body))
        return problem(404, "not_found", "Not found", request.path)

    def keep(self, name: str, body: bytes) -> Answer:
        digest = hashlib.sha256(body)
        kept = trace(digest.hexdigest()[:12], name, size=len(body), sha256=digest.hexdigest())
        self.traces.insert(0, kept)
        return json_answer(kept | {"state": "queued"}, 201, Location=f"{API}/traces/{kept['id']}")

    def _page(self, query: dict[str, str]) -> Answer:
        name, state, parent = query.get("name", ""), query.get("state"), query.get("parent")
        fitting = [t for t in self.traces if name in t["name"] and state in (None, t["state"])]
        fitting = [t for t in fitting if parent in (None, t["parent"])]
        start = int(query.get("cursor", 0))
        stop = start + min(self.page, int(query.get("limit", 50)))
        document = {"traces": fitting[start:stop], "next": str(stop) if stop < len(fitting) else None}
        return json_answer(document)


def _unknown(trace_id: str) -> Answer:
    return problem(404, "unknown_trace", "Unknown trace", f"There is no trace {trace_id}.")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        if len(body) < length:  # the client has left, as one whose process was ended
            self.close_connection = True
            return
        path = parts.path.removeprefix(API)
        headers = {key.lower(): value for key, value in self.headers.items()}
        request = Request(self.command, path, dict(parse_qsl(parts.query)), headers, body)
        self._write(self.server.answer(request))

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 - http.server looks for these

    def _write(self, answer: Answer) -> None:
        if answer.hold:
            answer.hold.wait(60)
        self.send_response(answer.status)
        if answer.status != 204:
            self.send_header("Content-Type", answer.media)
            length = len(answer.body) if answer.declared is None else answer.declared
            self.send_header("Content-Length", str(length))
        for name, value in answer.headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        try:
            self.wfile.write(answer.body)
        except ConnectionError:
            self.close_connection = True  # the client may have disconnected
        if answer.declared is not None:
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        pass
