"""A proxy of TCP that counts the bytes which pass it, to check what a program says that it has read."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Thread
from urllib.parse import urlsplit


class CountingProxy:
    """A proxy in front of a server.

    Attributes:
        url: URL of the proxy.
        received: bytes that the server has sent, with the headers of HTTP.
        responses: number of responses of HTTP.
    """

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (str(parts.hostname), int(parts.port or 80))
        self._lock = Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.received = self.responses = 0
        self._accepting = Thread(target=self._accept, daemon=True)

    def _accept(self) -> None:
        with suppress(OSError):  # `close` ends it
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                Thread(target=self._pass, args=(client, server), daemon=True).start()
                Thread(target=self._pass, args=(server, client), kwargs={"is_counted": True}, daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, *, is_counted: bool = False) -> None:
        with suppress(OSError), source, sink:  # a closed connection
            while content := source.recv(1 << 16):
                if is_counted:
                    with self._lock:
                        self.received += len(content)
                        self.responses += content.count(b"HTTP/1.1 2")
                sink.sendall(content)

    def start(self) -> None:
        """Accept connections."""
        self._accepting.start()

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.close()


@contextmanager
def counting_proxy(target: str) -> Iterator[CountingProxy]:
    """Run a proxy in front of the server at a URL."""
    proxy = CountingProxy(target)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.close()
