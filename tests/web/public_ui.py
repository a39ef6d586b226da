"""The Perfetto UI as ui.perfetto.dev serves it: unchanged, and from another origin."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

ORIGIN = "http://localhost:10000"
"""Origin of the UI's development server, which the listener accepts like https://ui.perfetto.dev."""

LONGER_STATUS_TIMEOUT = """(() => {
  const wait = setTimeout;
  window.setTimeout = (act, ms, ...more) => wait(act, ms === 2000 ? 60000 : ms, ...more);
})()"""
"""Script for the pages of the UI that extends all its timeouts of 2 s, among them that for the status.

A busy machine may exceed that one.
"""


class _File(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
        """Log nothing."""


@contextmanager
def static_server(folder: Path) -> Iterator[int]:
    """Serve the files of a folder on a free port, and yield the port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_File, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()


def switches(ui_port: int, listener_port: int) -> list[str]:
    """Return command-line switches that make Chromium map the UI and its engine to other ports.

    Chromium resolves no other host. The UI keeps its address, `ORIGIN`, and that of its engine, 127.0.0.1:9001.
    """
    rules = [
        f"MAP localhost:10000 127.0.0.1:{ui_port}",
        f"MAP 127.0.0.1:9001 127.0.0.1:{listener_port}",
        "MAP * ~NOTFOUND",
    ]
    return [f"--host-resolver-rules={', '.join(rules)}"]
