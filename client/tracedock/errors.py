"""Errors of the client.

ClientError
├── UnreachableError     no server answers, or the connection broke
├── ApiError             the server refused the request
├── DigestMismatchError  an upload was damaged in transit
├── DamagedDownloadError a download was damaged in transit
├── AmbiguousTraceError  the text matches several traces
├── AmbiguousTargetError the text matches a trace and a group
└── AmbiguousFileError   the text matches a local file, and a trace or a group on the server
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class ClientError(Exception):
    """Base class; the text of an error is a message for the user."""


class UnreachableError(ClientError):
    """No server answers at `url` (`connected` is false), or the connection broke."""

    def __init__(self, url: str, reason: str, *, connected: bool) -> None:
        self.url, self.reason, self.connected = url, reason, connected
        super().__init__(
            f"the connection to the server at {url} broke: {reason}"
            if connected
            else f"cannot reach a server at {url}: {reason}\n"
            "Start one with `tracedock serve` (or `make run`), or name another with --url or TRACEDOCK_URL."
        )


class ApiError(ClientError):
    """Refusal by the API (RFC 9457); `code` is stable, `extras` are the problem's further members."""

    def __init__(
        self, code: str, title: str, detail: str, status: int, extras: Mapping[str, Any] | None = None
    ) -> None:
        self.code, self.title, self.detail, self.status = code, title, detail, status
        self.extras: Mapping[str, Any] = extras or {}
        super().__init__(f"{title}: {detail} ({code})" if detail else f"{title} ({code})")

    @classmethod
    def of_problem(cls, problem: Mapping[str, Any], status: int) -> ApiError:
        """Create the error from a problem document, or from the `error` of a trace or a session."""
        standard = {"type", "code", "title", "detail", "status"}
        return cls(
            code=str(problem.get("code") or f"http_{status}"),
            title=str(problem.get("title") or "The server gave no reason"),
            detail=str(problem.get("detail") or ""),
            status=status,
            extras={key: value for key, value in problem.items() if key not in standard},
        )

    @property
    def position(self) -> str | None:
        """The place in the SQL (`line 1, column 8`) or in the file (`byte 4096`), if known."""
        line, column, offset = (self.extras.get(key) for key in ("line", "column", "offset"))
        if line is not None:
            return f"line {line}" if column is None else f"line {line}, column {column}"
        return None if offset is None else f"byte {offset}"


class DigestMismatchError(ClientError):
    """The digest of the server's trace is not that of the sent bytes; the trace is kept for inspection."""

    def __init__(self, trace: Mapping[str, Any], *, sent: str) -> None:
        self.trace, self.sent = trace, sent
        super().__init__(
            f"the bytes changed in transit: sent sha256 {sent}, but the server holds {trace['sha256']} "
            f"as trace {trace['id']}. Remove it and send the file again."
        )


class DamagedDownloadError(ClientError):
    """The received bytes do not match the server's digest."""

    def __init__(self, name: str, *, expected: str, received: str) -> None:
        super().__init__(
            f"the bytes of {name} changed in transit: received sha256 {received}, not {expected}. Try again."
        )


class AmbiguousTraceError(ClientError):
    """The text is the name, or the start of the id, of several traces."""

    def __init__(self, text: str, traces: Sequence[Mapping[str, Any]]) -> None:
        self.text, self.traces = text, traces
        listed = "\n".join(f"  {trace['id']}  {trace['created_at']}  {trace['name']}" for trace in traces)
        super().__init__(f"{text!r} matches {len(traces)} traces; give the id of one:\n{listed}")


class AmbiguousTargetError(ClientError):
    """The text matches both a trace and a group."""

    def __init__(self, text: str, traces: Sequence[Mapping[str, Any]], group: Mapping[str, Any]) -> None:
        self.text, self.traces, self.group = text, traces, group
        listed = "\n".join(
            [f"  {trace['id']}  {trace['created_at']}  {trace['name']}" for trace in traces]
            + [f"  {group['id']}  {group['created_at']}  {group['name']} (a group of {group['traces']} traces)"]
        )
        super().__init__(f"{text!r} matches a trace and a group; give the id of one:\n{listed}")


class AmbiguousFileError(ClientError):
    """The text matches both a local file, and a trace or a group on the server."""

    def __init__(self, text: str, url: str, ids: Sequence[str]) -> None:
        self.text, self.url, self.ids = text, url, ids
        super().__init__(
            f"{text!r} matches a local file, and {url} has something of that name, too; write ./{text} for the file, or"
            f" the id: {', '.join(ids)}"
        )
