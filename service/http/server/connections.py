"""Bounds on connections: their number, and the minimum speed of clients that send or read.

One `Connections` counts and checks all connections of a server, on all its ports. If there are too many, the connection
that has been idle longest is closed to make room for a new one. A connection that makes no progress is ended.
"""

import asyncio
import ipaddress
import logging
from collections import Counter
from typing import Any, Protocol

import uvicorn

from service.settings import Settings
from service.streaming.open_files import allow_open_files

log = logging.getLogger(__name__)

OTHER_FILES = 256
"""File descriptors that the server needs besides two for each connection: its socket, and a file that it may read."""
_CHECK_INTERVAL_S = 1.0
"""Maximum seconds between two checks of the connections."""
_CHECKS_PER_BOUND = 4
"""Minimum number of checks within each time limit."""
_NETWORK_BITS = 64
"""Length of the prefix that identifies an IPv6 client."""


class Connection(Protocol):
    """A connection, as `Connections` uses it."""

    client: tuple[str, int] | None
    """Address and port of the peer; None for a Unix socket."""

    def check(self, now: float) -> None:
        """End the connection if its client is too slow.

        Called periodically; `now` is in seconds of the loop's clock.
        """

    def close_idle(self) -> None:
        """Close the connection; called only while no request is in progress."""


class TransferRate:
    """The transfer rate of a client, measured in windows. Only time in which the server waits for the client counts.

    Args:
        window_s: length of each window in seconds.
        minimum: minimum bytes to transfer in each window; values below 1 count as 1.
    """

    def __init__(self, window_s: float, minimum: float) -> None:
        self._window_s = window_s
        self._minimum = max(1.0, minimum)
        self._last: float | None = None
        self._waited_s = 0.0
        self._transferred = 0

    def transferred(self, count: int) -> None:
        """Count transferred bytes."""
        self._transferred += count

    def too_slow(self, now: float, *, awaited: bool) -> bool:
        """Return whether a window has ended in which too few bytes were transferred.

        Args:
            now: seconds of the loop's clock.
            awaited: whether the server waits for the client; only then the time until the next call counts.
        """
        if self._last is not None:
            self._waited_s += now - self._last
        self._last = now if awaited else None
        if self._waited_s < self._window_s:
            return False
        slow = self._transferred < self._minimum
        self._waited_s, self._transferred = 0.0, 0
        return slow and awaited


class Connections:
    """All open connections of a server.

    Args:
        limit: maximum number of connections.
        limit_per_client: maximum number for each client address. An IPv6 client counts by its /64 prefix. Loopback
            addresses have no limit.
        head_timeout_s: maximum seconds for the head of a request.
        window_s: length of the windows of `TransferRate` in seconds.
        minimum_per_s: minimum bytes per second, as an average of each window.
        files_port: the port on which a WebSocket message may have `FILE_PIECE_MAX` bytes. On other ports, it may have
            `MESSAGE_MAX_BYTES`.
    """

    def __init__(
        self,
        *,
        limit: int,
        limit_per_client: int,
        head_timeout_s: float,
        window_s: float,
        minimum_per_s: float,
        files_port: int = 0,
    ) -> None:
        self.files_port = files_port
        self._limit = limit
        self._limit_per_client = limit_per_client
        self.head_timeout_s = head_timeout_s
        self._window_s = window_s
        self._minimum = window_s * minimum_per_s
        self._check_interval_s = min(
            _CHECK_INTERVAL_S, head_timeout_s / _CHECKS_PER_BOUND, window_s / _CHECKS_PER_BOUND
        )
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}  # the longest idle first
        self._per_client: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def of(cls, settings: Settings) -> "Connections":
        """Create the connections with the limits of the settings.

        The process's limit of open files is raised if needed. If it can't be raised enough, the number of connections
        is reduced.
        """
        return cls(
            limit=_files_for(settings.max_connections),
            limit_per_client=settings.max_connections_per_client,
            head_timeout_s=settings.head_timeout_s,
            window_s=settings.transfer_window_s,
            minimum_per_s=settings.min_bytes_per_s,
            files_port=settings.perfetto_port,
        )

    def transfer_rate(self) -> TransferRate:
        """Return a meter for one direction of a connection."""
        return TransferRate(self._window_s, self._minimum)

    def enter(self, connection: Connection) -> bool:
        """Count a new connection and return True, or return False without counting it if there are too many.

        If only the total is too high, the connection that has been idle longest is closed for the new one.
        """
        network = _network(connection)
        if network and self._per_client[network] >= self._limit_per_client:
            return False
        if len(self._open) >= self._limit and not self._close_longest_idle():
            return False
        self.resume(connection)
        return True

    def resume(self, connection: Connection) -> None:
        """Count a connection in place of one that has just left: a WebSocket after the upgrade of its request."""
        self._open.add(connection)
        if network := _network(connection):
            self._per_client[network] += 1
        if not self._timer:
            self._timer = asyncio.get_running_loop().call_later(self._check_interval_s, self._check)

    def leave(self, connection: Connection) -> None:
        """Stop counting a connection; a connection that is not counted is ignored."""
        self._idle.pop(connection, None)
        if connection not in self._open:
            return
        self._open.remove(connection)
        if network := _network(connection):
            self._per_client[network] -= 1
            if not self._per_client[network]:
                del self._per_client[network]

    def idle(self, connection: Connection) -> None:
        """Record that a connection has no request in progress, so that it may be closed to make room for a new one."""
        if connection in self._open:
            self._idle[connection] = None

    def busy(self, connection: Connection) -> None:
        """Record that a connection has a request in progress."""
        self._idle.pop(connection, None)

    def _close_longest_idle(self) -> bool:
        """Close the connection that has been idle longest; return False if none is idle."""
        oldest = next(iter(self._idle), None)
        if oldest is None:
            return False
        self.leave(oldest)
        oldest.close_idle()
        return True

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in list(self._open):
            connection.check(now)
        self._timer = loop.call_later(self._check_interval_s, self._check) if self._open else None


class BoundedConfig(uvicorn.Config):
    """A uvicorn configuration with the connections that all protocols share."""

    def __init__(self, app: Any, connections: Connections, **options: Any) -> None:
        super().__init__(app, **options)
        self.connections = connections


def connections_of(config: uvicorn.Config) -> Connections:
    """Return the connections that the protocols of a server share; raises TypeError without a `BoundedConfig`."""
    if not isinstance(config, BoundedConfig):
        raise TypeError("these protocols need a BoundedConfig")
    return config.connections


def _network(connection: Connection) -> str | None:
    """Return the client's IPv4 address or IPv6 prefix, by which a connection counts; None for a local client."""
    if not connection.client:
        return None
    address = ipaddress.ip_address(connection.client[0].partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            network = ipaddress.ip_network((address, _NETWORK_BITS), strict=False)
            return None if address.is_loopback else str(network)
        address = address.ipv4_mapped
    return None if address.is_loopback else str(address)


def _files_for(connections: int) -> int:
    """Raise the process's limit of open files if needed, and return how many of `connections` it then allows."""
    limit = allow_open_files(2 * connections + OTHER_FILES)
    allowed = min(connections, max(1, (limit - OTHER_FILES) // 2))
    if allowed < connections:
        log.warning("at most %d connections, not %d: the system allows %d open files", allowed, connections, limit)
    return allowed
