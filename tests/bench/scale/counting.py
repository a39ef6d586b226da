"""A proxy that counts the requests to an S3 server."""

import http.client
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit

from service.fleet.plan import PLANS

_OWN_HEADERS = frozenset({"connection", "transfer-encoding", "content-length", "date", "server"})
"""Fields of an answer that the proxy sets itself."""


@contextmanager
def counting(upstream: str) -> Iterator[tuple[str, Counter[str]]]:
    """Run a proxy before a server, and yield its URL and the number of its requests: `get`, `put`, `list` and `plan`.

    A command writes its plan every few seconds, however many traces it reads: these requests are counted apart.
    """
    counts: Counter[str] = Counter()
    address = urlsplit(upstream).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _forward(self) -> None:
            counts[_kind_of(self.command, self.path)] += 1
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            connection = http.client.HTTPConnection(address, timeout=60)
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            content = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _OWN_HEADERS:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            connection.close()

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _forward  # noqa: N815 - names that the base class asks for

        def log_message(self, *_: object) -> None:
            """Write no log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", counts
        finally:
            server.shutdown()
            thread.join()


def _kind_of(method: str, path: str) -> str:
    """Return the kind of a request, of which each has its price: those that list cost what those that write do."""
    if f"/{PLANS}/" in urlsplit(path).path:
        return "plan"
    if method in {"GET", "HEAD"}:
        return "list" if "list-type" in parse_qs(urlsplit(path).query, keep_blank_values=True) else "get"
    return "put"
