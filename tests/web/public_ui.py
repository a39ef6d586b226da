"""The Perfetto UI as its makers serve it: unchanged, and from an origin of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

ORIGIN = "http://localhost:10000"
"""Where the UI's developers serve it; the listener lets it in as it does https://ui.perfetto.dev."""

PATIENT = """(() => {
  const wait = setTimeout;
  window.setTimeout = (act, ms, ...more) => wait(act, ms === 2000 ? 60000 : ms, ...more);
})()"""
"""A script for its pages. It gives the status 2 s, which a busy machine may take to hand a page its answer."""


class _File(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that the base has
        """Say nothing."""


@contextmanager
def static_server(folder: Path) -> Iterator[int]:
    """Serve the files of a folder on a free port, which is yielded."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_File, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()


def switches(ui_port: int, listener_port: int) -> list[str]:
    """Switches of a Chromium for which the UI is at `ORIGIN` and its engine at 127.0.0.1:9001, whose ports are free.

    No other host is found by it. The UI keeps its own address and its own idea of where the engine is.
    """
    rules = [
        f"MAP localhost:10000 127.0.0.1:{ui_port}",
        f"MAP 127.0.0.1:9001 127.0.0.1:{listener_port}",
        "MAP * ~NOTFOUND",
    ]
    return [f"--host-resolver-rules={', '.join(rules)}"]
