"""Requests and responses of the API, without the exchange of them: addresses, parameters, documents, refusals."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Literal, Optional, Union
from urllib.parse import quote, unquote

import httpx

from tracedock.errors import ApiError, ForeignServerError, UnreachableError

if TYPE_CHECKING:
    from tracedock.selection import Criteria, Selection

DEFAULT_URL = "http://127.0.0.1:8700"
DEFAULT_LIMIT = 100_000
DEFAULT_TIMEOUT_S = 60.0

CONNECT_S = 10.0
ANSWER_S = 60.0
SYNC_S = 600.0
"""Seconds to wait for an answer after gigabytes: a server that syncs them to a slow disk responds late."""

Json = dict[str, Any]
Ref = Union[str, Mapping[str, Any]]
"""A trace, a group or a job: its id, or its JSON object."""
Target = Literal["trace", "group"]
SelectionLike = Union["Selection", Mapping[str, Any], None]
"""A selection, or its JSON; None for all events."""
ReportForm = Literal["html", "markdown"]
BytesSent = Callable[[int, int], object]
"""Receives the number of sent bytes, and the total, which is 0 if unknown."""
BytesReceived = Callable[[int, int], object]
"""Receives the number of received bytes, and the total, which is 0 if unknown."""
Watcher = Callable[[Json], object]
"""Receives the trace, the session or the job of each response."""


def base_url(url: str) -> httpx.URL:
    """Return the base URL of a server; raises `ValueError` if it is not an http or https URL."""
    try:
        base = httpx.URL(url.rstrip("/"))
    except httpx.InvalidURL as exc:
        raise ValueError(f"{exc} in {url!r}; the URL of a server is like {DEFAULT_URL}") from exc
    if base.scheme not in {"http", "https"} or not base.host:
        raise ValueError(f"{url!r} is not the URL of a server, like {DEFAULT_URL}")
    return base


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def id_of(item: Ref) -> str:
    """Return the id of a trace, a group or a job that is given as its id or its JSON object."""
    return item if isinstance(item, str) else str(item["id"])


def trace_path(trace: Ref) -> str:
    """Return the path of a trace below the API."""
    return f"traces/{quote(id_of(trace), safe='')}"


def group_path(group: Ref) -> str:
    """Return the path of a group below the API."""
    return f"groups/{quote(id_of(group), safe='')}"


def baseline_path(name: str) -> str:
    """Return the path of a baseline below the API."""
    return f"baselines/{quote(name, safe='')}"


def job_path(job: Ref) -> str:
    """Return the path of a job below the API."""
    return f"jobs/{quote(id_of(job), safe='')}"


def attachment_path(attachment: Ref) -> str:
    """Return the path of an attachment below the API."""
    return f"attachments/{quote(id_of(attachment), safe='')}"


def kind_of(target: Ref, of: Optional[Target] = None) -> Target:
    """Return the kind of a target, unless `of` is given: traces have a state, groups have none."""
    if of is not None:
        return of
    return "trace" if isinstance(target, str) or "state" in target else "group"


def target_path(target: Ref, of: Target) -> str:
    """Return the path of a trace or a group below the API."""
    return trace_path(target) if of == "trace" else group_path(target)


def given(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that are not None."""
    return {key: value for key, value in parameters.items() if value is not None}


def chosen(selection: SelectionLike, criteria: Criteria) -> dict[str, Any] | None:
    """Return the JSON of a selection that is given as an object, as JSON, or as keyword arguments; None for all events.

    Raises:
        TypeError: it is given in two ways, or a criterion is unknown or has the wrong type.
    """
    if criteria:
        from tracedock.selection import Selection  # noqa: PLC0415 - most requests have none

        if selection is not None:
            raise TypeError("give either `selection`, or the criteria as keyword arguments")
        return Selection(**criteria).as_json() or None
    if selection is None:
        return None
    return dict(selection) if isinstance(selection, Mapping) else selection.as_json()


def compact(selection: SelectionLike, criteria: Optional[Criteria] = None) -> str | None:
    """Return a selection as JSON text; None for all events."""
    part = chosen(selection, criteria or {})
    return None if part is None else json.dumps(part, separators=(",", ":"))


def query_body(
    sql: str,
    selection: SelectionLike,
    criteria: Criteria,
    args: str,
    source: str | None,
    limit: int | None,
    timeout_s: float | None,
) -> Json:
    """Return the body of a query."""
    query: Json = {"sql": sql, "limit": limit, "timeout_s": timeout_s}
    part = chosen(selection, criteria)
    return query | given({"selection": part, "args": None if args == "all" else args, "source": source})


def view(selection: SelectionLike, criteria: Criteria, args: str, source: str | None) -> dict[str, Any]:
    """Return the query parameters for an engine's view of a trace; empty for the whole trace with all arguments."""
    chosen_args = None if args == "all" else args
    return given({"selection": compact(selection, criteria), "args": chosen_args, "source": source})


def link_parameters(
    selection: SelectionLike, criteria: Criteria, args: str | None, source: str | None, slice_: str | None
) -> dict[str, Any]:
    """Return the query parameters of a link to the Perfetto UI."""
    part = compact(selection, criteria)
    return given({"selection": part, "args": args, "source": source, "slice": slice_})


def split_body(selection: SelectionLike, criteria: Criteria, by: str | None, value: int | None) -> Json:
    """Return the body of a split."""
    return given({"selection": chosen(selection, criteria), "by": by, "value": value})


def patience(*, wait: float = 0, read: float | None = ANSWER_S) -> httpx.Timeout:
    """Return the limits of one request in seconds, if the server may hold it for `wait` seconds."""
    return httpx.Timeout(ANSWER_S + wait, connect=CONNECT_S, read=None if read is None else read + wait)


def attached_name(disposition: str) -> str | None:
    """Return the file name in the header Content-Disposition; None if there is none, or it is not a plain name."""
    match = re.search(r"filename\*=utf-8''([^;]+)", disposition, re.IGNORECASE)
    name = unquote(match[1]) if match else None
    if not name and (quoted := re.search(r'filename="([^"]+)"', disposition)):
        name = quoted[1]
    return None if not name or name in {".", ".."} or re.search(r"[/\\\0]", name) else name


def sha256_of(digests: str) -> bytes | None:
    """Return the SHA-256 in the header Repr-Digest; None if there is none."""
    match = re.search(r"sha-256=:([A-Za-z0-9+/=]+):", digests)
    return b64decode(match[1]) if match else None


class _Answer(dict[str, Any]):
    """JSON object of the API; a member that it lacks shows that another program has answered."""

    def __init__(self, members: Json, url: httpx.URL, status: int) -> None:
        super().__init__(members)
        self._url, self._status = url, status

    def __missing__(self, name: str) -> Any:
        detail = f"{self._url} returned JSON without {name!r}. Is it a Tracedock server?"
        raise ForeignServerError("unexpected_answer", "Unexpected answer", detail, self._status)


def document(response: httpx.Response) -> Json:
    """Return the body as a JSON object, with exact integers; raises `ForeignServerError`."""
    try:
        parsed = json.loads(response.content)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        media_type = response.headers.get("content-type", "an unnamed type")
        detail = f"{response.url} returned {media_type}, not a JSON object. Is it a Tracedock server?"
        raise ForeignServerError("unexpected_answer", "Unexpected answer", detail, response.status_code)
    return _Answer(parsed, response.url, response.status_code)


def refusal(response: httpx.Response) -> ApiError:
    """Return the error of a response, which may come from the server or a proxy."""
    advice = _retry_after(response)
    if response.headers.get("content-type", "").startswith("application/problem+json"):
        return ApiError.of_problem(advice | document(response), response.status_code)
    status = response.status_code
    detail = f"This is not the answer of a Tracedock server, but of another program or a proxy at {response.url.host}."
    if response.headers.get("content-type", "").startswith("text/plain"):
        detail += f" It says: {response.text[:500].strip()}"
    title = f"HTTP {status} {response.reason_phrase}".rstrip()
    return ApiError.of_problem(advice | {"code": f"http_{status}", "title": title, "detail": detail}, status)


def _retry_after(response: httpx.Response) -> Json:
    value = response.headers.get("retry-after", "")
    return {"retry_after_s": float(value)} if re.fullmatch(r"\d{1,9}", value) else {}


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Convert the errors of httpx to those of `tracedock.errors`; `url` is that of the server."""
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError) as exc:
        raise UnreachableError(url, str(exc) or type(exc).__name__, connected=False) from exc
    except (httpx.TransportError, httpx.DecodingError) as exc:
        raise UnreachableError(url, str(exc) or type(exc).__name__, connected=True) from exc
