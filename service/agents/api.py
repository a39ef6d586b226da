"""Requests of the tools to the HTTP API: of this process, or of a server with a URL."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

import httpx
import orjson
from tracedock.errors import ApiError, UnreachableError

Json = dict[str, Any]
Kind = Literal["trace", "run"]

ANSWER_MAX = 8 << 20
"""Maximum bytes of an answer of the API; tools show a small part of it."""
_SMALL_MAX = 256 << 10
_LARGE_ANSWERS = asyncio.Semaphore(4)
"""Bounds the memory of all agents together: few answers larger than `_SMALL_MAX` are read at a time."""
_PAGE = 200
_LISTED_MAX = 8
"""Maximum number of traces and runs that an error lists."""
_ENGINE_WAIT_S = 20
"""Seconds for which the server holds a query open while the engine loads; the query is then sent again."""
_COLLECTIONS: dict[Kind, str] = {"trace": "traces", "run": "groups"}


@dataclass(frozen=True)
class Target:
    """A trace or a run.

    Attributes:
        kind: whether it is a trace or a run.
        facts: its JSON object of the API; that of a run may lack the ranks.
    """

    kind: Kind
    facts: Json = field(repr=False)

    @property
    def id(self) -> str:
        """The id."""
        return str(self.facts["id"])

    @property
    def path(self) -> str:
        """The path of the resource in the API."""
        return f"{_COLLECTIONS[self.kind]}/{self.id}"


class Api:
    """The HTTP API as the tools use it.

    Each method raises `ApiError` if the server refuses the request, and `UnreachableError` if no server answers.

    Args:
        http: the client, whose base URL is that of the API.
        url: the URL of the server, for links.
    """

    def __init__(self, http: httpx.AsyncClient, url: str) -> None:
        self._http = http
        self.url = url.rstrip("/")

    async def get(self, path: str, /, **parameters: Any) -> Json:
        """Return the JSON object at a path; parameters that are None are left out."""
        _, answer = await self._answer("GET", path, params=_given(parameters))
        return answer

    async def check(self, path: str, /, **parameters: Any) -> None:
        """Raise `ApiError` if the API refuses to open a path; a redirect is not followed."""
        async with self._response("GET", path, params=_given(parameters)):
            pass

    async def query(self, trace_id: str, request: Json) -> Json:
        """Return the table of a query, as soon as the engine is loaded; `request` is the body of the API."""
        while True:
            path, params = f"traces/{quote(trace_id, safe='')}/query", {"wait": _ENGINE_WAIT_S}
            status, answer = await self._answer("POST", path, params=params, json=request)
            if status == httpx.codes.OK:
                return answer
            if answer["state"] == "failed":
                raise ApiError.of_problem(answer["error"] or {}, status)

    async def target(self, text: str) -> Target:
        """Return the trace or the run of an id or a name; `latest` is the trace that was uploaded last.

        Raises:
            ApiError: nothing has this id or name (``unknown_trace``), or several have (``ambiguous_target``).
        """
        if text == "latest":
            matches = [Target("trace", trace) for trace in (await self.get("traces", limit=1))["traces"]]
        else:
            matches = [target for kind in _COLLECTIONS if (target := await self._of_id(kind, text))]
            matches = matches or [target for kind in _COLLECTIONS for target in await self._named(kind, text)]
        if not matches:
            detail = f"There is no trace and no run {text!r}."
            raise ApiError("unknown_trace", "There is no such trace", detail, 404, {"exists": await self._newest()})
        if len(matches) > 1:
            detail = f"{len(matches)} traces or runs are called {text!r}: name the id."
            ids = [{"kind": match.kind, "id": match.id} for match in matches[:_LISTED_MAX]]
            raise ApiError("ambiguous_target", "Several traces or runs match", detail, 422, {"exists": ids})
        return matches[0]

    async def trace(self, text: str) -> Json:
        """Return the trace of an id or a name; raises `ApiError` like `target`, also if it is a run."""
        target = await self.target(text)
        if target.kind == "run":
            ranks = (await self.get(target.path))["ranks"]
            known = [{key: rank[key] for key in ("rank", "trace", "name")} for rank in ranks[:_LISTED_MAX]]
            detail = f"{text!r} is a run of {len(ranks)} traces; name one of them."
            raise ApiError("ambiguous_target", "One trace is needed", detail, 422, {"traces": known})
        return target.facts

    async def _of_id(self, kind: Kind, text: str) -> Target | None:
        if len(text) != 12 or set(text) - set("0123456789abcdef"):
            return None
        try:
            return Target(kind, await self.get(f"{_COLLECTIONS[kind]}/{text}"))
        except ApiError as error:
            if error.code not in ("unknown_trace", "unknown_group"):
                raise
        return None

    async def _named(self, kind: Kind, name: str) -> list[Target]:
        """Return the traces or the runs of exactly this name."""
        collection, matches, cursor = _COLLECTIONS[kind], list[Target](), None
        while True:
            page = await self.get(collection, name=name, limit=_PAGE, cursor=cursor)
            matches += [Target(kind, item) for item in page[collection] if item["name"] == name]
            cursor = page["next"]
            if not cursor or len(matches) > _LISTED_MAX:
                return matches

    async def _newest(self) -> list[Json]:
        entries = (await self.get("library", limit=_LISTED_MAX))["entries"]
        return [{"id": entry_id(entry), "name": entry["name"]} for entry in entries]

    async def _answer(self, method: str, path: str, **request: Any) -> tuple[int, Json]:
        async with self._response(method, path, **request) as response:
            return response.status_code, orjson.loads(await _body(response))

    def _response(self, method: str, path: str, **request: Any) -> "_Responding":
        return _Responding(self._http, self.url, method, path, request)


class _Responding:
    """Context manager of a response, whose errors become those of `tracedock.errors`."""

    def __init__(self, http: httpx.AsyncClient, url: str, method: str, path: str, request: Json) -> None:
        self._url = url
        self._stream = http.stream(method, path, **request)

    async def __aenter__(self) -> httpx.Response:
        try:
            response = await self._stream.__aenter__()
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if response.status_code < 400:
            return response
        try:
            raise _refusal(response, await _body(response))
        finally:
            await self._stream.__aexit__(None, None, None)

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        await self._stream.__aexit__(kind, error, traceback)
        if isinstance(error, httpx.HTTPError):
            raise self._unreachable(error) from error

    def _unreachable(self, error: httpx.HTTPError) -> UnreachableError:
        connected = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
        return UnreachableError(self._url, str(error) or type(error).__name__, connected=connected)


async def _body(response: httpx.Response) -> bytes:
    """Return the body; raises `ApiError` if it is larger than `ANSWER_MAX`, without reading the rest."""
    body, pieces = bytearray(), response.aiter_bytes()
    async for piece in pieces:
        body += piece
        if len(body) > _SMALL_MAX:
            break
    else:
        return bytes(body)
    async with _LARGE_ANSWERS:
        async for piece in pieces:
            body += piece
            if len(body) > ANSWER_MAX:
                detail = f"The answer is larger than {ANSWER_MAX:,} bytes: ask for fewer rows, or for shorter values."
                raise ApiError("result_too_large", "The result is too large", detail, 413, {"limit_bytes": ANSWER_MAX})
    return bytes(body)


def _refusal(response: httpx.Response, body: bytes) -> ApiError:
    if response.headers.get("content-type", "").startswith("application/problem+json"):
        return ApiError.of_problem(orjson.loads(body), response.status_code)
    status = response.status_code
    return ApiError(f"http_{status}", f"HTTP {status}", "This is not an answer of a Tracedock server.", status)


def _given(parameters: Json) -> Json:
    return {name: value for name, value in parameters.items() if value is not None}


def entry_id(entry: Json) -> str:
    """Return the id of the run or the trace of an entry of the library."""
    return str((entry["run"] or entry["trace"])["id"])
