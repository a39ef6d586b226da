"""Who else a browser talks to: a proxy that stands for every other host, and a watch over what pages ask."""

import socketserver
from threading import Thread
from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, ConsoleMessage, Page


class Elsewhere(socketserver.ThreadingTCPServer):
    """A proxy that notes what it is asked for and hangs up. Nothing of Chromium gets past it unseen."""

    daemon_threads = True

    def __init__(self) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), _HangUp)
        Thread(target=self.serve_forever, args=(0.05,), name="elsewhere", daemon=True).start()

    @property
    def address(self) -> str:
        """Its URL, as a browser's proxy setting."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _HangUp(socketserver.StreamRequestHandler):
    server: Elsewhere

    def handle(self) -> None:
        if line := self.rfile.readline(4096):
            self.server.asked.append(line.decode("latin-1").strip())


class Watch:
    """What the pages of a context ask for, and what breaks in them.

    Args:
        context: the context, before its first page.
    """

    def __init__(self, context: BrowserContext) -> None:
        self.urls: list[str] = []
        self.page_errors: list[str] = []
        context.on("request", lambda request: self.urls.append(request.url))
        context.on("weberror", lambda error: self.page_errors.append(str(error.error)))
        context.on("console", self._heard)
        context.on("page", self._follow)

    def _follow(self, page: Page) -> None:
        page.on("websocket", lambda socket: self.urls.append(socket.url))

    def _heard(self, message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text and "navigate-to" not in message.text:
            self.page_errors.append(message.text)

    def hosts(self) -> set[str]:
        """The hosts asked; URLs that need none, as data: and blob:, aside."""
        return {host for url in self.urls if (host := urlsplit(url).hostname)}
