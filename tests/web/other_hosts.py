"""Detection of requests to other hosts: a proxy that records and refuses them, and a log of a browser's requests."""

import socketserver
from threading import Thread
from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, ConsoleMessage, Page


class RefusingProxy(socketserver.ThreadingTCPServer):
    """A proxy that records each request and closes the connection without an answer.

    A browser reaches other hosts only through its proxy, so the record is complete.
    """

    daemon_threads = True

    def __init__(self) -> None:
        self.requests: list[str] = []
        super().__init__(("127.0.0.1", 0), _RefusingHandler)
        Thread(target=self.serve_forever, args=(0.05,), name="refusing proxy", daemon=True).start()

    @property
    def address(self) -> str:
        """URL of the proxy, for the browser's settings."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _RefusingHandler(socketserver.StreamRequestHandler):
    server: RefusingProxy

    def handle(self) -> None:
        if line := self.rfile.readline(4096):
            self.server.requests.append(line.decode("latin-1").strip())


class BrowserLog:
    """A log of the requests and errors of all pages of a browser context.

    Args:
        context: a browser context that has no page yet.
    """

    def __init__(self, context: BrowserContext) -> None:
        self.urls: list[str] = []
        self.page_errors: list[str] = []
        context.on("request", lambda request: self.urls.append(request.url))
        context.on("weberror", lambda error: self.page_errors.append(str(error.error)))
        context.on("console", self._log_policy_violation)
        context.on("page", self._log_websockets)

    def _log_websockets(self, page: Page) -> None:
        page.on("websocket", lambda socket: self.urls.append(socket.url))

    def _log_policy_violation(self, message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text and "navigate-to" not in message.text:
            self.page_errors.append(message.text)

    def hosts(self) -> set[str]:
        """Return the hosts of all requests; URLs without a host, such as data: and blob:, do not count."""
        return {host for url in self.urls if (host := urlsplit(url).hostname)}
