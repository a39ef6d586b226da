"""The state of the localhost listener."""

from collections.abc import Sequence

from service.engine.session import Session

_REOPEN_MAX_S = 1.0
"""A UI that opens another file requests the status within this many seconds after it closes its connection."""


class ListenerState:
    """The trace and the port of the localhost listener.

    Attributes:
        trace: the id of the chosen trace; None if none is chosen.
        port: the port on which it listens; 0 if it does not listen.
        error: the reason why it does not listen; None if it listens or is switched off.
        server_url: the main server's base URL on this machine.
    """

    def __init__(self) -> None:
        self.trace: str | None = None
        self.port = 0
        self.error: str | None = None
        self.server_url = ""
        self._first_session: Session | None = None
        self._has_other_sessions = False
        self._detached_at: float | None = None

    def serves(self, local_address: Sequence[object] | None) -> bool:
        """Return whether a connection with a local address (host and port) was made to the listener."""
        return bool(self.port and local_address and local_address[1] == self.port)

    def forget(self, trace_id: str) -> None:
        """Clear the chosen trace if it is `trace_id`, which was deleted."""
        if self.trace == trace_id:
            self.trace = None

    def attach(self, session: Session) -> bool:
        """Record that a tab attaches to a session, and return whether it may resume an interrupted stream.

        A tab names no trace. It may therefore resume only if another tab was attached before, and all tabs ever
        attached had this session.
        """
        first = self._first_session is None
        self._first_session = self._first_session or session
        self._has_other_sessions = self._has_other_sessions or self._first_session is not session
        return not (first or self._has_other_sessions)

    def detach(self, now: float) -> None:
        """Record that a tab closed its connection but stays open, as the UI does to open another file."""
        self._detached_at = now

    def opens_other_file(self, now: float) -> bool:
        """Return whether a status request comes from a UI that opens another file. The request does not name its tab.

        Returns True at most once after each `detach`.
        """
        detached_at, self._detached_at = self._detached_at, None
        return detached_at is not None and now - detached_at < _REOPEN_MAX_S
