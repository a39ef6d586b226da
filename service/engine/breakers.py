"""Circuit breakers, which count recent crashes of engines by cause: a load, a statement or a client.

A load, statement or client that caused too many crashes is refused for a while. A trace whose engine crashed on a
statement stays available.
"""

import hashlib
import math
import re
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable

from service.engine.scheduler import AnyExchange
from service.trace.errors import ClientBlocked, EngineFailed, StatementBlocked, TracedockError

WINDOW_S = 600.0
CLIENT_FACTOR = 2
"""Crashes allowed to a client, as a multiple of those allowed to a statement."""

_PATTERN_CHARS = 1 << 16

_LITERAL = re.compile(
    r"""'(?:[^']|'')*+'? | "(?:[^"]|"")*+"? | --[^\n]*+ | /\*.*?(?:\*/|\Z) | (?<![a-z_0-9])[0-9][0-9a-z_.]*+ | \s++""",
    re.VERBOSE | re.DOTALL,
)


class CircuitBreaker:
    """The crashes of the last ten minutes, by cause.

    Args:
        crashes_max: crashes of one cause within that time before it is refused.
    """

    def __init__(self, crashes_max: int) -> None:
        self._max = crashes_max
        self._times: defaultdict[Hashable, deque[float]] = defaultdict(lambda: deque(maxlen=crashes_max))
        self._last_errors: dict[Hashable, TracedockError] = {}

    def record(self, cause: Hashable, error: TracedockError) -> None:
        """Count a crash of an engine, or a failed load."""
        for known_cause in list(self._times):
            self.count(known_cause)  # removes causes whose crashes are older than the window
        self._times[cause].append(time.monotonic())
        self._last_errors[cause] = error

    def count(self, cause: Hashable) -> int:
        """Return the number of recent crashes with this cause, at most `crashes_max`."""
        since = time.monotonic() - WINDOW_S
        times = self._times.get(cause, ())
        if times and times[-1] < since:
            self.reset(cause)
        return sum(at >= since for at in times)

    @property
    def any(self) -> bool:
        """Whether any crash is recorded."""
        return bool(self._times)

    def reset(self, cause: Hashable) -> None:
        """Forget the crashes of a cause."""
        self._times.pop(cause, None)
        self._last_errors.pop(cause, None)

    def check(self, cause: Hashable, refusal: Callable[[int, int, TracedockError], TracedockError]) -> None:
        """Raise a refusal if there were too many crashes.

        Args:
            cause: the cause.
            refusal: creates the error from the number of crashes, the seconds to wait, and the last crash's error.
        """
        if self.count(cause) >= self._max:
            wait_s = math.ceil(self._times[cause][0] + WINDOW_S - time.monotonic())
            last = self._last_errors[cause]
            error = refusal(self._max, wait_s, last)
            error.extra |= {"last": last.as_dict(), "deaths": self._max, "retry_after_s": wait_s}
            raise error


def load_refused(crashes: int, wait_s: int, last: TracedockError) -> EngineFailed:
    """Return the refusal to start another engine on a load that crashes engines."""
    return EngineFailed(
        f"The engine ended {crashes} times within {WINDOW_S / 60:g} minutes on this load, and is not started again"
        f" before {wait_s} s have passed or its session is closed. The last time: {last.detail}"
    )


class RequestBreakers:
    """Circuit breakers for requests that crash engines after the load, by statement and by client.

    A statement is refused after the first crash on its exact text, and after `crashes_max` crashes on statements that
    differ from it only in literals, comments and spaces. A client is refused after
    `CLIENT_FACTOR` times as many crashes.

    Args:
        crashes_max: crashes on similar statements within ten minutes.
    """

    def __init__(self, crashes_max: int) -> None:
        self._texts = CircuitBreaker(1)
        self._patterns = CircuitBreaker(crashes_max)
        self._clients = CircuitBreaker(CLIENT_FACTOR * crashes_max)

    def record(self, statement: str, owner: Hashable, error: TracedockError) -> None:
        """Count a crash of an engine on a statement of a client."""
        self._texts.record(_digest(statement), error)
        self._patterns.record(_digest(pattern(statement)), error)
        if owner is not None:
            self._clients.record(owner, error)

    def admit(self, exchange: AnyExchange) -> None:
        """Raise an error if a request must not run.

        Raises:
            ClientBlocked: the request's client has crashed too many engines.
            StatementBlocked: the statement, or similar ones, have crashed engines.
        """
        self.check_client(exchange.owner)
        if self._patterns.any or self._texts.any:
            self.check_statement(exchange.request.statement)

    def check_statement(self, statement: str) -> None:
        """Raise `StatementBlocked` if the statement, or similar ones, have crashed engines."""
        self._texts.check(_digest(statement), _statement_refused)
        self._patterns.check(_digest(pattern(statement)), _statement_refused)

    def check_client(self, owner: Hashable) -> None:
        """Raise `ClientBlocked` if the client has crashed too many engines."""
        self._clients.check(owner, _client_refused)


def pattern(statement: str) -> str:
    """Return the beginning of SQL in lower case, without comments and spaces, and with ``?`` for each literal."""
    beginning = statement[:_PATTERN_CHARS].lower()
    return _LITERAL.sub(lambda match: "" if match[0][0] in "-/" or match[0].isspace() else "?", beginning)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _statement_refused(crashes: int, wait_s: int, last: TracedockError) -> StatementBlocked:
    engines = "An engine" if crashes == 1 else f"{crashes} engines"
    return StatementBlocked(
        f"{engines} died of this statement or similar ones within {WINDOW_S / 60:g} minutes: it is not run again before"
        f" {wait_s} s have passed. The last time: {last.detail}"
    )


def _client_refused(crashes: int, wait_s: int, last: TracedockError) -> ClientBlocked:
    return ClientBlocked(
        f"{crashes} engines died of your requests within {WINDOW_S / 60:g} minutes: none of yours is run before"
        f" {wait_s} s have passed. The last time: {last.detail}"
    )
