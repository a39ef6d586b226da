"""The localhost listener's sockets, and what it serves on them."""

import errno
import logging
import socket
from collections.abc import Sequence

from service.engine.session import Session

HOST, HOST_6 = "127.0.0.1", "::1"
_NO_IPV6 = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT}
_LETS_GO_S = 1.0
"""Time within which a UI that opens another file asks for the status, once it has closed its connection."""

log = logging.getLogger(__name__)


class ListenerState:
    """The trace that the listener serves, and where it does.

    Attributes:
        trace: the chosen trace's id.
        port: the port it listens on; 0 if it does not listen.
        error: why it does not listen, where that was not asked for.
        server_url: the main server's base URL, as reached from this machine.
    """

    def __init__(self) -> None:
        self.trace: str | None = None
        self.port = 0
        self.error: str | None = None
        self.server_url = ""
        self._attached: Session | None = None
        self._several = False
        self._let_go_at: float | None = None

    def serves(self, server: Sequence[object] | None) -> bool:
        """Whether a connection to that local address, a host and a port, is the listener's."""
        return bool(self.port and server and server[1] == self.port)

    def forget(self, trace_id: str) -> None:
        """Note that a trace is deleted."""
        if self.trace == trace_id:
            self.trace = None

    def attach(self, session: Session) -> bool:
        """Note that a tab attaches; returns whether it may go on with a stream that an earlier connection lost.

        A tab names no trace, so it may only where this server never attached a tab to another session.
        """
        first = self._attached is None
        self._attached = self._attached or session
        self._several = self._several or self._attached is not session
        return not (first or self._several)

    def let_go(self, now: float) -> None:
        """Note that a page closed a tab's connection, and lives on: the UI does so when it opens another file."""
        self._let_go_at = now

    def opens_other_file(self, now: float) -> bool:
        """Whether a request for the status, which names no tab, is that of a UI that opens another file.

        True at most once after each `let_go`.
        """
        let_go_at, self._let_go_at = self._let_go_at, None
        return let_go_at is not None and now - let_go_at < _LETS_GO_S


def bound_socket(host: str, port: int) -> socket.socket:
    """A TCP socket on that address, IPv4 or IPv6; raises OSError."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound


def bind(state: ListenerState, port: int, server_url: str) -> list[socket.socket]:
    """Sockets on both loopback addresses; none, and the reason in `state`, where the port can't be had.

    Args:
        state: is told the outcome.
        port: the port; 0 for none.
        server_url: the main server's base URL.
    """
    state.server_url = server_url
    if not port:
        return []
    try:
        sockets = [_listening(HOST, port)]
    except OSError as error:
        state.error = _explained(port, error)
        log.warning("the listener for ui.perfetto.dev is off: %s", state.error)
        return []
    try:
        sockets.append(_listening(HOST_6, port))
    except OSError as error:
        if error.errno not in _NO_IPV6:
            log.warning("the listener for ui.perfetto.dev does not answer on [%s]:%d: %s", HOST_6, port, error.strerror)
    state.port = port
    return sockets


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens already, for two programs can bind to one port as long as neither does."""
    bound = bound_socket(host, port)
    try:
        bound.listen()
    except OSError:
        bound.close()
        raise
    return bound


def _explained(port: int, error: OSError) -> str:
    if error.errno != errno.EADDRINUSE:
        return f"Port {port} on {HOST} can't be listened on: {error.strerror}."
    return (
        f"Port {port} on {HOST} is in use by another program, such as a trace_processor or another Tracedock. End that"
        " program and restart this server, or start it with --perfetto-port and another port."
    )
