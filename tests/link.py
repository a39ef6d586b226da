"""A TCP proxy between clients and a server that limits the rate and can be cut."""

import socket
import struct
import threading
import time
from contextlib import suppress
from urllib.parse import urlsplit

PIECE = 1 << 16
ABORT = struct.pack("ii", 1, 0)  # close by RST: bytes in flight are lost


class Link:
    """A local port that forwards to a server; the server may start later.

    Args:
        url: the server's URL.
        bytes_per_s: rate limit of each connection and direction; may be changed at any time.
    """

    def __init__(self, url: str, bytes_per_s: int = 40_000_000) -> None:
        address = urlsplit(url)
        self._server = (str(address.hostname), address.port or 0)
        self.bytes_per_s = bytes_per_s
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "Link":
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()
        self.cut()

    @property
    def is_used(self) -> bool:
        """True once a client has connected."""
        return bool(self._open)

    def cut(self) -> None:
        """Reset all connections, even in the middle of a transfer."""
        for connection in list(self._open):
            with suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                try:
                    server = socket.create_connection(self._server)
                except OSError:
                    client.close()
                    continue
                self._open |= {client, server}
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while piece := source.recv(PIECE):
                target.sendall(piece)
                time.sleep(len(piece) / self.bytes_per_s)
        except OSError:  # one end is gone: reset the other, as a direct connection would
            for end in (source, target):
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        if source not in self._open or target not in self._open:
            source.close()
            target.close()
        self._open -= {source, target}
