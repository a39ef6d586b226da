"""Requests of a browser to other hosts: a proxy for every other host, and a record of the requests of pages."""

import socketserver
from threading import Thread
from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, ConsoleMessage, Page


class Elsewhere(socketserver.ThreadingTCPServer):
    """A proxy that records each request and closes the connection. Chromium can't contact other hosts without it."""

    daemon_threads = True

    def __init__(self) -> None:
        self.requests: list[str] = []
        super().__init__(("127.0.0.1", 0), _HangUp)
        Thread(target=self.serve_forever, args=(0.05,), name="elsewhere", daemon=True).start()

    @property
    def address(self) -> str:
        """URL of the proxy for the settings of a browser."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _HangUp(socketserver.StreamRequestHandler):
    server: Elsewhere

    def handle(self) -> None:
        if line := self.rfile.readline(4096):
            self.server.requests.append(line.decode("latin-1").strip())


class Watch:
    """Record of the requests and errors of the pages of a context.

    Args:
        context: the context, before its first page.
    """

    def __init__(self, context: BrowserContext) -> None:
        self.urls: list[str] = []
        self.page_errors: list[str] = []
        context.on("request", lambda request: self.urls.append(request.url))
        context.on("weberror", lambda error: self.page_errors.append(str(error.error)))
        context.on("console", self._on_console)
        context.on("page", self._follow)

    def _follow(self, page: Page) -> None:
        page.on("websocket", lambda socket: self.urls.append(socket.url))

    def _on_console(self, message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text and "navigate-to" not in message.text:
            self.page_errors.append(message.text)

    def hosts(self) -> set[str]:
        """Return the hosts of all requests; URLs without a host, such as data: and blob:, do not count."""
        return {host for url in self.urls if (host := urlsplit(url).hostname)}
