"""What can go wrong between the command line and a server.

ClientError
├── UnreachableError     nobody answers, or the connection broke
├── ApiError             the server refused, and says why
├── DigestMismatchError  the server holds other bytes than were sent
├── DamagedDownloadError other bytes came than the server sent
├── AmbiguousTraceError  several traces fit what was asked for
├── AmbiguousTargetError a trace and a group fit it
└── AmbiguousFileError   a file here and a trace on the server have that name
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class ClientError(Exception):
    """Any of these; its text is meant for a person."""


class UnreachableError(ClientError):
    """Nobody listens at `url` (`connected` is false), or the connection broke on the way."""

    def __init__(self, url: str, reason: str, *, connected: bool) -> None:
        self.url, self.reason, self.connected = url, reason, connected
        super().__init__(
            f"the connection to the server at {url} broke: {reason}"
            if connected
            else f"cannot reach a server at {url}: {reason}\n"
            "Start one with `tracedock serve` (or `make run`), or name another with --url or TRACEDOCK_URL."
        )


class ApiError(ClientError):
    """A refusal in the API's words (RFC 9457): `code` is stable; `extras` are the problem's own members."""

    def __init__(
        self, code: str, title: str, detail: str, status: int, extras: Mapping[str, Any] | None = None
    ) -> None:
        self.code, self.title, self.detail, self.status = code, title, detail, status
        self.extras: Mapping[str, Any] = extras or {}
        super().__init__(f"{title}: {detail} ({code})" if detail else f"{title} ({code})")

    @classmethod
    def of_problem(cls, problem: Mapping[str, Any], status: int) -> ApiError:
        """From a problem document, or from the `error` of a trace or a session."""
        named = {"type", "code", "title", "detail", "status"}
        return cls(
            code=str(problem.get("code") or f"http_{status}"),
            title=str(problem.get("title") or "The server gave no reason"),
            detail=str(problem.get("detail") or ""),
            status=status,
            extras={key: value for key, value in problem.items() if key not in named},
        )

    @property
    def position(self) -> str | None:
        """Where in the SQL (`line 1, column 8`) or in the file (`byte 4096`) it is, when that is known."""
        line, column, offset = (self.extras.get(key) for key in ("line", "column", "offset"))
        if line is not None:
            return f"line {line}" if column is None else f"line {line}, column {column}"
        return None if offset is None else f"byte {offset}"


class DigestMismatchError(ClientError):
    """The trace that the server made is not of the bytes that were sent; it is still there to look at."""

    def __init__(self, trace: Mapping[str, Any], *, sent: str) -> None:
        self.trace, self.sent = trace, sent
        super().__init__(
            f"the bytes changed on their way: sent sha256 {sent}, but the server holds {trace['sha256']} "
            f"as trace {trace['id']}. Remove it and send the file again."
        )


class DamagedDownloadError(ClientError):
    """The bytes that came are not those of the digest that the server told."""

    def __init__(self, name: str, *, promised: str, found: str) -> None:
        super().__init__(f"the bytes of {name} changed on their way: sha256 {found} came, not {promised}. Try again.")


class AmbiguousTraceError(ClientError):
    """More than one trace has this name, or an id that starts so."""

    def __init__(self, text: str, traces: Sequence[Mapping[str, Any]]) -> None:
        self.text, self.traces = text, traces
        listed = "\n".join(f"  {trace['id']}  {trace['created_at']}  {trace['name']}" for trace in traces)
        super().__init__(f"{text!r} may mean any of {len(traces)} traces; say which by its id:\n{listed}")


class AmbiguousTargetError(ClientError):
    """A trace and a group have this name."""

    def __init__(self, text: str, traces: Sequence[Mapping[str, Any]], group: Mapping[str, Any]) -> None:
        self.text, self.traces, self.group = text, traces, group
        listed = "\n".join(
            [f"  {one['id']}  {one['created_at']}  {one['name']}" for one in traces]
            + [f"  {group['id']}  {group['created_at']}  {group['name']} (a group of {group['traces']} traces)"]
        )
        super().__init__(f"{text!r} may mean a trace or a group; say which by its id:\n{listed}")


class AmbiguousFileError(ClientError):
    """A file here and a trace or a group on the server have this name."""

    def __init__(self, text: str, url: str, ids: Sequence[str]) -> None:
        self.text, self.url, self.ids = text, url, ids
        super().__init__(
            f"{text!r} may mean the file here, or what {url} has of that name; write ./{text} for the file, or the id:"
            f" {', '.join(ids)}"
        )
