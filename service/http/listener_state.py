"""The state of the localhost listener."""

from collections.abc import Sequence

from service.engine.session import Session

_DETACH_S = 1.0
"""Seconds within which a UI that opens another file requests the status after it has closed its connection."""


class ListenerState:
    """The trace and the port of the localhost listener.

    Attributes:
        trace: the id of the chosen trace.
        port: the port it listens on; 0 if it does not listen.
        error: the reason why it does not listen, unless it is switched off.
        server_url: the main server's base URL on this machine.
    """

    def __init__(self) -> None:
        self.trace: str | None = None
        self.port = 0
        self.error: str | None = None
        self.server_url = ""
        self._attached: Session | None = None
        self._has_several = False
        self._detached_at: float | None = None

    def serves(self, server: Sequence[object] | None) -> bool:
        """Return whether a connection to a local address, a host and a port, is the listener's."""
        return bool(self.port and server and server[1] == self.port)

    def forget(self, trace_id: str) -> None:
        """Choose no trace if the chosen one was deleted."""
        if self.trace == trace_id:
            self.trace = None

    def attach(self, session: Session) -> bool:
        """Record that a tab attaches to a session, and return whether it may resume a stream that was interrupted.

        A tab names no trace, so it may resume only if no tab was ever attached to another session.
        """
        first = self._attached is None
        self._attached = self._attached or session
        self._has_several = self._has_several or self._attached is not session
        return not (first or self._has_several)

    def detach(self, now: float) -> None:
        """Record that a page closed its connection and stays open: the UI does so to open another file."""
        self._detached_at = now

    def opens_other_file(self, now: float) -> bool:
        """Return whether a status request, which names no tab, is that of a UI that opens another file.

        True at most once after each `detach`.
        """
        detached_at, self._detached_at = self._detached_at, None
        return detached_at is not None and now - detached_at < _DETACH_S
