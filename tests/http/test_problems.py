"""All errors have the same format."""

import asyncio
import json
from collections.abc import Iterator

import httpx
import pytest
from fastapi import FastAPI, HTTPException

from service.http import problems
from service.http.problems import NOT_OF_API, STATUS, as_problem, status_of
from service.trace.errors import NotReady, SqlError, TooLarge, TracedockError, Truncated, UploadError
from tests.server import Server


def kinds(root: type[TracedockError] = TracedockError) -> Iterator[type[TracedockError]]:
    yield root
    for kind in root.__subclasses__():
        yield from kinds(kind)


@pytest.mark.parametrize("kind", list(kinds()), ids=lambda kind: kind.__name__)
def test_every_error_has_the_same_shape(kind: type[TracedockError]) -> None:
    response = as_problem(kind("What happened.", offset=7, status=1, title="Mine"))
    problem = json.loads(bytes(response.body))
    assert response.media_type == "application/problem+json"
    assert problem == {
        "type": f"urn:tracedock:{kind.code}",
        "title": kind.title,
        "status": response.status_code,
        "detail": "What happened.",
        "code": kind.code,
        "offset": 7,
    }


def test_each_error_class_has_its_own_code() -> None:
    leaves = [kind for kind in kinds() if not kind.__subclasses__()]
    assert len({kind.code for kind in leaves}) == len(leaves)


def test_every_error_that_a_client_can_receive_has_a_status() -> None:
    received = [kind for kind in kinds() if not issubclass(kind, NOT_OF_API)]
    without = {kind.__name__ for kind in received if status_of(kind("")) == 500}
    assert without == {"TracedockError", "UploadError", "CatalogError", "CatalogInUse", "EngineError"}
    assert all(400 <= status < 600 for status in STATUS.values())


def test_error_has_the_status_of_its_nearest_base_class() -> None:
    assert status_of(Truncated("")) == 422
    assert status_of(UploadError("")) == 500


def test_retry_after_is_a_header_too() -> None:
    assert as_problem(NotReady("", retry_after_s=3)).headers["Retry-After"] == "3"
    assert "Retry-After" not in as_problem(SqlError("")).headers


def broken_app() -> FastAPI:
    app = FastAPI()
    problems.install(app)

    @app.get("/{cause}")
    def fail(cause: str, number: int = 0) -> None:
        wrong = {"ours": TooLarge("Too much."), "theirs": HTTPException(418, "no"), "large": HTTPException(413, "big")}
        raise wrong.get(cause, ZeroDivisionError("oh"))

    return app


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/ours", 413, "too_large"),
        ("/theirs", 418, "i'm_a_teapot"),
        ("/large", 413, "too_large"),
        ("/bug", 500, "internal"),
        ("/ours?number=x", 422, "bad_request"),
        ("/a/b", 404, "not_found"),
    ],
)
def test_every_failure_is_a_problem(path: str, status: int, code: str) -> None:
    async def response() -> httpx.Response:
        transport = httpx.ASGITransport(broken_app(), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
            return await client.get(path)

    answer = asyncio.run(response())
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json().keys() >= {"type", "title", "status", "detail", "code"}
    assert (answer.json()["status"], answer.json()["code"]) == (status, code)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/traces/000000000000", 404, "unknown_trace"),
        ("DELETE", "/traces/000000000000", 404, "unknown_trace"),
        ("GET", "/traces/000000000000/download", 404, "unknown_trace"),
        ("GET", "/traces/000000000000/perfetto", 404, "unknown_trace"),
        ("GET", "/traces/000000000000/session", 404, "unknown_trace"),
        ("POST", "/traces/000000000000/session", 404, "unknown_trace"),
        ("DELETE", "/traces/000000000000/session", 404, "unknown_trace"),
        ("GET", "/traces/%00", 404, "unknown_trace"),
        ("GET", f"/traces/{'x' * 5000}", 404, "unknown_trace"),
        ("GET", "/traces?limit=0", 422, "bad_request"),
        ("GET", "/traces?state=nice", 422, "bad_request"),
        ("GET", "/traces?cursor=!", 400, "bad_cursor"),
        ("GET", "/traces/000000000000?wait=nan", 422, "bad_request"),
        ("GET", "/traces/000000000000?wait=-1", 422, "bad_request"),
        ("PATCH", "/traces", 405, "method_not_allowed"),
        ("GET", "/nothing", 404, "not_found"),
    ],
)
def test_errors_of_the_server_are_problems(server: Server, method: str, path: str, status: int, code: str) -> None:
    answer = server.api.request(method, path)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json().keys() >= {"type", "title", "status", "detail", "code"}
