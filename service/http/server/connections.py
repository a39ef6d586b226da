"""Bounds on connections: how many there are, and how slow a client may be that sends or reads.

One `Connections` counts and watches all connections of a server, on all its ports. A connection on which no request
is in progress gives way to a new one when there are too many; one that makes no progress is ended.
"""

import asyncio
import ipaddress
import logging
import resource
from collections import Counter
from typing import Any, Protocol

import uvicorn

from service.settings import Settings

log = logging.getLogger(__name__)

FILES_BESIDE = 256
"""File descriptors that the server needs beside its connections, each of which may read a file."""
_LOOK_EVERY_S = 1.0
_LOOKS = 4
"""Looks within the shortest bound."""
_NETWORK_BITS = 64
"""Length of the prefix that one IPv6 client owns."""


class Connection(Protocol):
    """A connection, as `Connections` sees it."""

    client: tuple[str, int] | None
    """Address and port of the peer; None for a Unix socket."""

    def look(self, now: float) -> None:
        """End the connection if it is overdue at `now`, in seconds of the loop's clock."""

    def give_way(self) -> None:
        """Close the connection, on which no request is in progress."""


class Pace:
    """The pace of a client, measured over windows of the time in which the server waited for it.

    Args:
        window_s: seconds of each window.
        least: bytes that must move within one; at least one must.
    """

    def __init__(self, window_s: float, least: float) -> None:
        self._window_s = window_s
        self._least = max(1.0, least)
        self._last: float | None = None
        self._waited_s = 0.0
        self._moved = 0

    def moved(self, count: int) -> None:
        """Count bytes that moved."""
        self._moved += count

    def too_slow(self, now: float, *, awaited: bool) -> bool:
        """Tell whether a window ended in which too little moved.

        Args:
            now: seconds of the loop's clock.
            awaited: whether the server waits for the client now; the time until the next call counts if so.
        """
        if self._last is not None:
            self._waited_s += now - self._last
        self._last = now if awaited else None
        if self._waited_s < self._window_s:
            return False
        slow = self._moved < self._least
        self._waited_s, self._moved = 0.0, 0
        return slow and awaited


class Connections:
    """All open connections of a server.

    Args:
        limit: how many there may be.
        limit_per_client: how many of one address, unless that is of this machine; an IPv6 address counts as its /64.
        head_timeout_s: seconds that the head of a request may take.
        window_s: seconds of the windows of `Pace`.
        least_per_s: bytes a second that must move in these.
        files_port: the port on which WebSockets take messages of `FILE_PIECE_MAX`; elsewhere they take `MESSAGE_MAX`.
    """

    def __init__(
        self,
        *,
        limit: int,
        limit_per_client: int,
        head_timeout_s: float,
        window_s: float,
        least_per_s: float,
        files_port: int = 0,
    ) -> None:
        self.files_port = files_port
        self._limit = limit
        self._limit_per_client = limit_per_client
        self.head_timeout_s = head_timeout_s
        self._window_s = window_s
        self._least = window_s * least_per_s
        self._look_every_s = min(_LOOK_EVERY_S, head_timeout_s / _LOOKS, window_s / _LOOKS)
        self._open: set[Connection] = set()
        self._waiting: dict[Connection, None] = {}  # in order of time
        self._per_client: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def of(cls, settings: Settings) -> "Connections":
        """The connections that the settings and the process's limit of open files allow."""
        return cls(
            limit=_files_for(settings.max_connections),
            limit_per_client=settings.max_connections_per_client,
            head_timeout_s=settings.head_timeout_s,
            window_s=settings.transfer_window_s,
            least_per_s=settings.min_bytes_per_s,
            files_port=settings.perfetto_port,
        )

    def pace(self) -> Pace:
        """A meter of one direction of a connection."""
        return Pace(self._window_s, self._least)

    def enter(self, connection: Connection) -> bool:
        """Count a new connection; False where there are too many, and it is not counted."""
        network = _network(connection)
        if network and self._per_client[network] >= self._limit_per_client:
            return False
        if len(self._open) >= self._limit and not self._made_room():
            return False
        self.resume(connection)
        return True

    def resume(self, connection: Connection) -> None:
        """Count a connection that takes the place of one that just left."""
        self._open.add(connection)
        if network := _network(connection):
            self._per_client[network] += 1
        if not self._timer:
            self._timer = asyncio.get_running_loop().call_later(self._look_every_s, self._look)

    def leave(self, connection: Connection) -> None:
        """Forget a connection; one that was not counted is fine."""
        self._waiting.pop(connection, None)
        if connection not in self._open:
            return
        self._open.remove(connection)
        if network := _network(connection):
            self._per_client[network] -= 1
            if not self._per_client[network]:
                del self._per_client[network]

    def idle(self, connection: Connection) -> None:
        """Take note that no request is in progress on a connection, which may have to give way."""
        if connection in self._open:
            self._waiting[connection] = None

    def busy(self, connection: Connection) -> None:
        """Take note that one is."""
        self._waiting.pop(connection, None)

    def _made_room(self) -> bool:
        """Close the connection that has been idle for longest; False if none is."""
        oldest = next(iter(self._waiting), None)
        if oldest is None:
            return False
        self.leave(oldest)
        oldest.give_way()
        return True

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in list(self._open):
            connection.look(now)
        self._timer = loop.call_later(self._look_every_s, self._look) if self._open else None


class BoundedConfig(uvicorn.Config):
    """A uvicorn configuration that gives the protocols what they share."""

    def __init__(self, app: Any, connections: Connections, **options: Any) -> None:
        super().__init__(app, **options)
        self.connections = connections


def connections_of(config: uvicorn.Config) -> Connections:
    """The connections that the protocols of a server share."""
    if not isinstance(config, BoundedConfig):
        raise TypeError("protocols with bounds are configured by a BoundedConfig")
    return config.connections


def _network(connection: Connection) -> str | None:
    """The address that a connection is counted by; None for one of this machine."""
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
    """Raise the limit of open files for so many connections, and return how many it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * connections + FILES_BESIDE
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return connections
    soft = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    allowed = min(connections, max(1, (soft - FILES_BESIDE) // 2))
    if allowed < connections:
        log.warning("%d connections at once, not %d: the system allows %d open files", allowed, connections, soft)
    return allowed
