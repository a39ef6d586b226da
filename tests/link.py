"""A link between clients and a server, which is slow and can be cut."""

import socket
import struct
import threading
import time
from contextlib import suppress
from urllib.parse import urlsplit

PIECE = 1 << 16
ABORT = struct.pack("ii", 1, 0)  # close by RST: what is on its way is lost


class Link:
    """A port that leads to a server, which need not be there yet.

    Args:
        url: of the server.
        bytes_per_s: what each of its connections passes on; may be changed.
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

    def cut(self) -> None:
        """Break all connections, in the middle of whatever goes over them."""
        for one in list(self._open):
            with suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
                one.shutdown(socket.SHUT_RDWR)

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

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while piece := one.recv(PIECE):
                other.sendall(piece)
                time.sleep(len(piece) / self.bytes_per_s)
        except OSError:  # one end is gone: the other hears of it as if there were no link
            for end in (one, other):
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        if one not in self._open or other not in self._open:
            one.close()
            other.close()
        self._open -= {one, other}
