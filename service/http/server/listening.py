"""Sockets of the server and of the localhost listener."""

import errno
import logging
import socket

from service.http.listener_state import ListenerState

HOST, HOST_6 = "127.0.0.1", "::1"
_NO_IPV6 = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT}

log = logging.getLogger(__name__)


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a TCP socket that listens on an address, IPv4 or IPv6; raises OSError.

    It must not only be bound: two programs can bind to a port until one listens, and then uvloop does not report that
    the other can't (https://github.com/MagicStack/uvloop/blob/master/uvloop/handles/streamserver.pyx).
    """
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen()
    except OSError:
        listening.close()
        raise
    return listening


def bind(state: ListenerState, port: int, server_url: str) -> list[socket.socket]:
    """Return the listener's sockets on both loopback addresses, or on 127.0.0.1 alone if ::1 is unavailable.

    The list is empty if the port is 0, or unavailable on 127.0.0.1.

    Args:
        state: receives the port, or the reason why it is unavailable.
        port: the port; 0 switches the listener off.
        server_url: the main server's base URL.
    """
    state.server_url = server_url
    if not port:
        return []
    try:
        sockets = [listening_socket(HOST, port)]
    except OSError as error:
        state.error = _explanation(port, error)
        log.warning("the listener for ui.perfetto.dev is off: %s", state.error)
        return []
    try:
        sockets.append(listening_socket(HOST_6, port))
    except OSError as error:
        if error.errno not in _NO_IPV6:
            log.warning("the listener for ui.perfetto.dev does not answer on [%s]:%d: %s", HOST_6, port, error.strerror)
    state.port = port
    return sockets


def _explanation(port: int, error: OSError) -> str:
    if error.errno != errno.EADDRINUSE:
        return f"Can't listen on port {port} of {HOST}: {error.strerror}."
    return (
        f"Port {port} on {HOST} is in use by another program, such as a trace_processor or another Tracedock. End that"
        " program and restart this server, or start it with --perfetto-port and another port."
    )
