"""Deaths of engines, counted by their cause: the load of a trace, a statement, or the client that keeps asking such.

A cause of too many deaths is refused for a while. A trace whose engine died of a statement stays available.
"""

import hashlib
import math
import re
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable
from typing import Any

from service.engine import wire
from service.trace.errors import ClientBlocked, EngineFailed, StatementBlocked, TracedockError

WITHIN_S = 600.0
CLIENT_FACTOR = 2
"""Deaths allowed to a client, as a multiple of those allowed to a statement."""

_PATTERN_CHARS = 1 << 16

_LITERAL = re.compile(
    r"""'(?:[^']|'')*+'? | "(?:[^"]|"")*+"? | --[^\n]*+ | /\*.*?(?:\*/|\Z) | (?<![a-z_0-9])[0-9][0-9a-z_.]*+ | \s++""",
    re.VERBOSE | re.DOTALL,
)


class Deaths:
    """The deaths of the last ten minutes.

    Args:
        most: deaths of one cause within that time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._at: defaultdict[Hashable, deque[float]] = defaultdict(lambda: deque(maxlen=most))
        self._last: dict[Hashable, TracedockError] = {}

    def note(self, key: Hashable, error: TracedockError) -> None:
        """Count the death of an engine, or the failure to load one."""
        for known in list(self._at):
            self.count(known)  # which forgets those that are long past
        self._at[key].append(time.monotonic())
        self._last[key] = error

    def count(self, key: Hashable) -> int:
        """Return the number of deaths, at most `most`."""
        since = time.monotonic() - WITHIN_S
        deaths = self._at.get(key, ())
        if deaths and deaths[-1] < since:
            self.forget(key)
        return sum(at >= since for at in deaths)

    @property
    def any(self) -> bool:
        """Whether any death is known."""
        return bool(self._at)

    def forget(self, key: Hashable) -> None:
        """Give it another chance."""
        self._at.pop(key, None)
        self._last.pop(key, None)

    def check(self, key: Hashable, refusal: Callable[..., TracedockError]) -> None:
        """Raise a refusal if there were too many deaths.

        Args:
            key: the cause.
            refusal: makes the error of the number of deaths, the seconds to wait, and the last error.
        """
        if self.count(key) >= self._most:
            wait_s = math.ceil(self._at[key][0] + WITHIN_S - time.monotonic())
            last = self._last[key]
            error = refusal(self._most, wait_s, last)
            error.extra |= {"last": last.as_dict(), "deaths": self._most, "retry_after_s": wait_s}
            raise error


def load_refused(deaths: int, wait_s: int, last: TracedockError) -> EngineFailed:
    """Return the refusal to start another engine on what engines can't load."""
    return EngineFailed(
        f"The engine ended {deaths} times within {WITHIN_S / 60:g} minutes on this, and is not started again"
        f" before {wait_s} s have passed or its session is closed. The last time: {last.detail}"
    )


class Blame:
    """Deaths of engines that had loaded their trace, by request and by client.

    A statement is refused after the first death under its exact text, and after `most` deaths under statements that
    differ from it in literals, comments and spaces only. A client is refused after `CLIENT_FACTOR` times as many.

    Args:
        most: deaths of alike statements within ten minutes.
    """

    def __init__(self, most: int) -> None:
        self._texts = Deaths(1)
        self._patterns = Deaths(most)
        self._clients = Deaths(CLIENT_FACTOR * most)

    def note(self, request: Any, client: Hashable, error: TracedockError) -> None:
        """Count the death of an engine while it worked on a request."""
        text = _text_of(request)
        self._texts.note(_digest(text), error)
        self._patterns.note(_digest(pattern(text)), error)
        if client is not None:
            self._clients.note(client, error)

    def check(self, request: Any, client: Hashable) -> None:
        """Let a request through, or raise why not.

        Raises:
            ClientBlocked: its client has ended too many engines lately.
            StatementBlocked: it, or its like, has.
        """
        self.check_client(client)
        if self._patterns.any or self._texts.any:
            text = _text_of(request)
            self._texts.check(_digest(text), _statement_refused)
            self._patterns.check(_digest(pattern(text)), _statement_refused)

    def check_client(self, client: Hashable) -> None:
        """Let a client through, or raise `ClientBlocked`."""
        self._clients.check(client, _client_refused)


def pattern(text: str) -> str:
    """Return the beginning of SQL without what can be varied freely: literals, comments, spaces and case."""
    begins = text[:_PATTERN_CHARS].lower()
    return _LITERAL.sub(lambda found: "" if found[0][0] in "-/" or found[0].isspace() else "?", begins)


def _text_of(request: Any) -> str:
    if request.request == wire.QUERY_STREAMING:
        return str(request.query_args.sql_query)
    return str(request.SerializeToString().hex())


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _statement_refused(deaths: int, wait_s: int, last: TracedockError) -> StatementBlocked:
    times = "An engine" if deaths == 1 else f"{deaths} engines"
    return StatementBlocked(
        f"{times} died of this statement or its like within {WITHIN_S / 60:g} minutes: it is not run again before"
        f" {wait_s} s have passed. The last time: {last.detail}"
    )


def _client_refused(deaths: int, wait_s: int, last: TracedockError) -> ClientBlocked:
    return ClientBlocked(
        f"{deaths} engines died of your requests within {WITHIN_S / 60:g} minutes: none of yours is run before"
        f" {wait_s} s have passed. The last time: {last.detail}"
    )
