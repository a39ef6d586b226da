"""Requests for every route and method with every scope: forbidden ones get 401 or 403, and none gets a 5xx.

The routes are read from the app, so a new route is attacked without a change here.
"""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from fastapi.routing import iter_route_contexts
from starlette.routing import Mount, WebSocketRoute

from service.analysis.catalogue import QUESTIONS
from service.app import Application
from service.fleet.questions.catalogue import QUESTIONS as FLEET_QUESTIONS
from service.settings import Settings
from service.store.tokens import Scope, Tokens
from tests.server import Server

pytestmark = pytest.mark.system

SAFE = ("GET", "HEAD", "OPTIONS")
METHODS = (*SAFE, "POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND", "CONNECT")
MADE_UP = {"job_id": "0", "path": "index.html"}
"""Values of parameters in paths; all others are `none`."""

PUBLIC = {
    r"/healthz": "a balancer asks without a token",
    r"/readyz": "likewise",
    r"/login": "the page where a token is entered",
    r"/logout": "ends the session of the browser that asks",
    r"/static/.*": "the scripts and styles of that page",
}
"""Patterns of the paths that need no token, each with the reason."""

READING = {
    ("POST", "/api/v1/traces/{trace_id}/query"): "SQL reads; the engine refuses what would not",
    ("POST", "/mcp"): "the tools of agents only read",
    ("DELETE", "/mcp"): "ends a session, of which the server holds nothing",
    ("POST", "/api/v1/traces/{trace_id}/session"): "an engine is the way to read",
    ("DELETE", "/api/v1/traces/{trace_id}/session"): "likewise, and costs a reader nothing but time",
    ("POST", "/api/v1/traces/{trace_id}/split"): "a dry run makes nothing; the route itself refuses the rest",
    ("POST", "/perfetto/{view}/rpc/status"): "the UI asks so",
}
"""Unsafe methods and paths that read scope allows, each with the reason."""

NAMED = {"/analysis/{name}": [*QUESTIONS], "/questions/{name}": [*FLEET_QUESTIONS]}
"""Ends of paths whose names are documented one by one."""

JUNK = [b"", b"{}", b"[]", b"\xff\x00", b'{"traces": [1], "sql": 7, "path": null}']

Route = tuple[str, str]
"""A method and a path with parameters."""


def declared() -> dict[str, set[str]]:
    """The methods of each path of the app, documented or not."""
    methods: dict[str, set[str]] = {}
    for context in iter_route_contexts(Application(Settings(data=Path("unused"))).app.routes):
        if isinstance(context.original_route, WebSocketRoute) or not context.path:
            continue
        is_folder = isinstance(context.original_route, Mount)
        path = f"{context.path}/trace.js" if is_folder else str(context.path_format)
        # one route answers all analyses, and one all questions about datasets
        names = next((names for end, names in NAMED.items() if path.endswith(end)), [])
        for declared_path in (path, *(path.replace("{name}", name) for name in names)):
            methods.setdefault(declared_path, set()).update({"GET", "HEAD"} if is_folder else context.methods or ())
    return methods


ROUTES = declared()


def filled(path: str, **values: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], MADE_UP.get(match[1], "none")), path)


def is_public(path: str) -> bool:
    return any(re.fullmatch(pattern, path) for pattern in PUBLIC)


def may_read(method: str, path: str) -> bool:
    return method in SAFE or (method, path) in READING


class Besieged:
    """A server that requires a token, a token of each scope, and a trace."""

    def __init__(self, data: Path, file: Path) -> None:
        with closing(Tokens(data / "tokens.sqlite")) as tokens:
            self.reader, self.writer = tokens.add("reader", Scope.READ), tokens.add("writer", Scope.WRITE)
        self.tokens = self.reader, self.writer
        self.server = Server(data).start()
        content = file.read_bytes()
        created = self.ask(
            "PUT", "/api/v1/traces/t.json.gz?wait=60&group=run", self.bearer(self.writer), content=content
        )
        self.trace = created.json()

    @staticmethod
    def bearer(token: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {token}"}

    def ask(self, method: str, path: str, headers: dict[str, str], content: bytes = b"") -> httpx.Response:
        headers = {"Tus-Resumable": "1.0.0", "Content-Type": "application/json"} | headers
        return self.server.api.request(method, f"{self.server.url}{path}", headers=headers, content=content)

    def state(self) -> list[object]:
        """Return the state that a caller without write scope must not change."""
        collections = ("traces", "groups", "jobs", "imports", "listener")
        answers = [self.ask("GET", f"/api/v1/{name}", self.bearer(self.writer)).json() for name in collections]
        return [*answers, sorted(str(path) for path in self.server.data.rglob("*"))]


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory, step_trace: Path) -> Iterator[Besieged]:
    besieged_server = Besieged(tmp_path_factory.mktemp("besieged") / "data", step_trace)
    yield besieged_server
    assert besieged_server.server.stop() == 0
    assert "Traceback" not in besieged_server.server.log_text()


def test_attacked_routes_include_all_documented_ones(besieged: Besieged) -> None:
    document = besieged.ask("GET", "/openapi.json", besieged.bearer(besieged.reader)).json()
    documented = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    attacked = {(method, path) for path, methods in ROUTES.items() for method in methods}
    assert documented <= attacked
    assert len(attacked) > 80
    undocumented = {path for _, path in attacked - documented}
    assert {"/", "/traces/{trace_id}", "/login", "/static/trace.js", "/docs", "/perfetto/files/{path}"} <= undocumented
    assert READING.keys() <= attacked


@pytest.mark.parametrize("method", METHODS)
def test_only_public_routes_answer_without_a_token(method: str, besieged: Besieged) -> None:
    before = besieged.state()
    strangers = [
        {},
        besieged.bearer("wrong"),
        {"Authorization": f"Basic {besieged.writer}"},
        {"Authorization": "Bearer"},
    ]
    strangers.append({"Cookie": f"tracedock={besieged.writer}; tracedock_{httpx.URL(besieged.server.url).port}=x"})
    wrong = []
    for path in ROUTES:
        for headers in strangers:
            answer = besieged.ask(method, filled(path, trace_id=besieged.trace["id"]), headers)
            right = answer.status_code < 500 and answer.status_code not in (401, 403) if is_public(path) else (
                answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
            )  # fmt: skip
            wrong += [] if right else [(path, headers, answer.status_code)]
    assert wrong == []
    assert besieged.state() == before


@pytest.mark.parametrize("method", METHODS)
def test_token_with_read_scope_changes_nothing(method: str, besieged: Besieged) -> None:
    before = besieged.state()
    wrong = []
    for path in ROUTES:
        reads = may_read(method, path) or is_public(path)
        ids = {} if reads else {"trace_id": besieged.trace["id"], "group_id": besieged.trace["group"]["id"]}
        answer = besieged.ask(method, filled(path, **ids), besieged.bearer(besieged.reader))
        right = (
            answer.status_code < 500 and answer.status_code not in (401, 403) if reads else answer.status_code == 403
        )
        wrong += [] if right else [(path, answer.status_code)]
    assert wrong == []
    assert besieged.state() == before


def test_read_scope_allows_only_the_dry_run_of_a_split(besieged: Besieged) -> None:
    path = f"/api/v1/traces/{besieged.trace['id']}/split"
    for content, status in ((b'{"by": "step", "dry_run": true}', 200), (b'{"by": "step"}', 403)):
        assert besieged.ask("POST", path, besieged.bearer(besieged.reader), content).status_code == status


@pytest.mark.parametrize("method", METHODS)
def test_token_with_write_scope_is_authorized_and_junk_breaks_nothing(method: str, besieged: Besieged) -> None:
    wrong = []
    for path, methods in ROUTES.items():
        for content in JUNK if method not in (*SAFE, "CONNECT") else [b""]:  # these methods have no body
            answer = besieged.ask(method, filled(path), besieged.bearer(besieged.writer), content)
            allowed = {name.strip() for name in answer.headers.get("allow", "").split(",")}
            right = answer.status_code < 500 and answer.status_code not in (401, 403)
            if answer.status_code == 405:
                right = method not in allowed and methods <= allowed
            wrong += [] if right else [(path, content, answer.status_code, allowed)]
    assert wrong == []
    assert besieged.ask("GET", f"/api/v1/traces/{besieged.trace['id']}", besieged.bearer(besieged.reader)).is_success


NOWHERE = [
    *("/api/v1", "/api/v1/", "/api/v2/traces", "/api/v1/nothing", "/nothing", "/traces/none/nothing", "/.env", "/%00"),
    *(
        "/perfetto/none/nothing",
        "/perfetto/none/%2e%2e/%2e%2e/etc/passwd",
        "/api/v1/groups/llama%2F70B",
        "//evil.example/",
    ),
]


@pytest.mark.parametrize("path", NOWHERE)
@pytest.mark.parametrize("method", METHODS)
def test_unknown_paths_need_a_token_too(method: str, path: str, besieged: Besieged) -> None:
    answers = [besieged.ask(method, path, headers) for headers in ({}, *map(besieged.bearer, besieged.tokens))]
    stranger, reader, writer = (answer.status_code for answer in answers)
    assert (stranger, reader == 403) == (401, method not in SAFE)
    assert writer in (307, 404, 405) or (method, writer) == ("OPTIONS", 204)  # an answer that reveals no file


@pytest.mark.parametrize("path", ["/static/nothing.js", "/static/%2e%2e/pages.py", "/static/%2e%2e%2fpages.py"])
@pytest.mark.parametrize("method", METHODS)
def test_only_static_files_of_the_pages_are_served(method: str, path: str, besieged: Besieged) -> None:
    answer = besieged.ask(method, path, {})
    assert answer.status_code in (404, 405) or (method, answer.status_code) == ("OPTIONS", 204)
    assert "router" not in answer.text
