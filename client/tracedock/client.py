"""The synchronous client and the types of its methods; `tracedock.AsyncClient` has the same methods.

from tracedock import Client

with Client() as tracedock:
    trace = tracedock.upload("rank0.pt.trace.json.gz", wait=True)
    for row in tracedock.sql(trace, "SELECT name, dur FROM slice LIMIT 10"):
        print(row["name"], row["dur"])
"""

from __future__ import annotations

from tracedock.messages import (
    DEFAULT_LIMIT,
    DEFAULT_TIMEOUT_S,
    DEFAULT_URL,
    BytesReceived,
    BytesSent,
    Json,
    Ref,
    ReportForm,
    Target,
    Watcher,
)
from tracedock.retries import Retries
from tracedock.synchronous.client import Client
from tracedock.synchronous.download import Download

__all__ = [
    "DEFAULT_LIMIT",
    "DEFAULT_TIMEOUT_S",
    "DEFAULT_URL",
    "BytesReceived",
    "BytesSent",
    "Client",
    "Download",
    "Json",
    "Ref",
    "ReportForm",
    "Retries",
    "Target",
    "Watcher",
]
