"""Answers that clients have not read: bounded in bytes, each and all together."""

from collections.abc import Callable

BACKLOG_MAX = 256 << 20
"""Bytes of one answer that wait for its client."""
BACKLOGS_MAX = 512 << 20
"""Likewise, of all answers; beyond, the longest backlog is given up."""


class Backlogs:
    """The backlogs of all clients."""

    def __init__(self) -> None:
        self._open: set[Backlog] = set()
        self.total = 0

    def opened(self, give_up: Callable[[], None]) -> "Backlog":
        """Return a backlog that is empty.

        Args:
            give_up: is called once when it is too long.
        """
        backlog = Backlog(self, give_up)
        self._open.add(backlog)
        return backlog

    def moved(self, backlog: "Backlog", by: int) -> None:
        """Keep to the bounds after a backlog has changed."""
        self.total += by
        if backlog.size > BACKLOG_MAX:
            backlog.end()
        elif self.total > BACKLOGS_MAX:
            max(self._open, key=lambda one: one.size).end()

    def closed(self, backlog: "Backlog") -> None:
        """Count a backlog no more."""
        self._open.discard(backlog)
        self.total -= backlog.size


class Backlog:
    """What waits for one client; `Backlogs.opened` makes one."""

    def __init__(self, backlogs: Backlogs, give_up: Callable[[], None]) -> None:
        self._backlogs = backlogs
        self._give_up = give_up
        self._over = False
        self.size = 0

    def grew(self, size: int) -> bool:
        """Count more bytes; returns whether they are to be kept."""
        if not self._over:
            self.size += size
            self._backlogs.moved(self, size)
        return not self._over

    def shrank(self, size: int) -> None:
        """Count bytes no more."""
        if not self._over:
            self.size -= size
            self._backlogs.total -= size

    def end(self) -> None:
        """Give up the answer."""
        self.close()
        self._give_up()

    def close(self) -> None:
        """Count nothing of it any more."""
        if not self._over:
            self._over = True
            self._backlogs.closed(self)
            self.size = 0
