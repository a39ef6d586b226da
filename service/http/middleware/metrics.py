"""The metrics middleware: counts requests, and collects the metrics of the service's parts for Prometheus."""

import gzip
import shutil
import time
from collections import Counter as Tally
from collections.abc import Iterator
from contextlib import nullcontext

import orjson
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.declarations import ROUTE_PATH
from service.http.middleware.routing import call_of
from service.http.services import Services

PREFIX = "/api/v1"
NAME = "tracedock"
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 20.0, 60.0)
METHODS = ("GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS")
_UNKNOWN = "(none)"
"""The common label of all unknown routes and methods. A label for each would make the number of series unbounded."""


class MetricsMiddleware:
    """Counts requests and responses.

    Args:
        app: the next app.
        services: the parts of the service; their metrics are collected, too.
    """

    def __init__(self, app: ASGIApp, services: Services) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # ``_created`` series would be a third of the output
        self._app = app
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(_PartsCollector(services))
        labels = ("method", "route")
        self._requests = Counter("http_requests", "Requests answered.", (*labels, "status"), NAME, registry=registry)
        self._seconds = Histogram(
            "http_request_seconds", "From a request to the end of its response.", labels, NAME, registry=registry,
            buckets=SECONDS,
        )  # fmt: skip
        self._errors = Counter("errors", "Error responses.", ("code",), NAME, registry=registry)
        self._received = Counter("received_bytes", "Bytes of request bodies.", (), NAME, registry=registry)
        self._sent = Counter("sent_bytes", "Bytes of response bodies.", (), NAME, registry=registry)
        self._uploads = Gauge("uploads_under_way", "Requests that upload a trace.", (), NAME, registry=registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["metrics"] = self.registry
        exchange, began = _Exchange(receive, send), time.perf_counter()
        receives_trace = call_of(scope).declaration.receives_trace
        try:
            with self._uploads.track_inprogress() if receives_trace else nullcontext():
                await self._app(scope, exchange.receive, exchange.send)
        finally:
            method = scope["method"] if scope["method"] in METHODS else _UNKNOWN
            route = _route_of(scope)
            self._requests.labels(method, route, exchange.status).inc()
            self._seconds.labels(method, route).observe(time.perf_counter() - began)
            self._received.inc(exchange.received)
            self._sent.inc(exchange.sent)
            if exchange.problem:
                self._errors.labels(exchange.problem_code()).inc()


class _Exchange:
    """Measures a request and its response while their messages pass.

    Attributes:
        status: the status of the response; 0 until it begins.
        received: bytes of the request's body.
        sent: bytes of the response's body.
        problem: the body of an error response; empty for other responses.
    """

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._is_problem = self._is_gzip = False
        self.status = 0
        self.received = self.sent = 0
        self.problem = b""

    async def receive(self) -> Message:
        message = await self._receive()
        self.received += len(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        body = message.get("body", b"")
        self.sent += len(body)
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._is_problem = (b"content-type", b"application/problem+json") in message["headers"]
            self._is_gzip = (b"content-encoding", b"gzip") in message["headers"]
        elif self._is_problem:
            self.problem += body
        await self._send(message)

    def problem_code(self) -> str:
        """Return the code of the error response."""
        content = gzip.decompress(self.problem) if self._is_gzip else self.problem
        code: str = orjson.loads(content)["code"]
        return code


class _PartsCollector(Collector):
    """Collects the current state of the service's parts."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        services = self._services
        jobs = GaugeMetricFamily(f"{NAME}_jobs", "Jobs that wait or run.", labels=["kind", "state"])
        for (kind, job_state), count in services.jobs.unfinished_counts().items():
            jobs.add_metric([kind, job_state], count)
        yield jobs
        ended = CounterMetricFamily(f"{NAME}_jobs_ended", "Jobs that have ended.", labels=["kind", "state"])
        for (kind, job_state), count in list(services.jobs.ended.items()):
            ended.add_metric([kind, job_state], count)
        yield ended
        events = CounterMetricFamily(f"{NAME}_events", "Events that jobs have read or written.", labels=["kind"])
        for kind, count in list(services.jobs.events.items()):
            events.add_metric([kind], count)
        yield events
        engines = GaugeMetricFamily(f"{NAME}_engines", "Engines.", labels=["state"])
        for state, count in Tally(session.state for session in services.engine_pool.sessions()).items():
            engines.add_metric([state], count)
        yield engines
        disk = shutil.disk_usage(services.folder.root)
        for name, description, value in (
            ("engine_memory_bytes", "Memory of all engines.", services.engine_pool.held_bytes),
            ("engine_memory_max_bytes", "Memory that all engines may take.", services.engine_pool.budget_bytes),
            ("data_bytes", "Bytes of the data folder at the last count.", services.room.counted),
            ("disk_free_bytes", "Free bytes of the disk of the data folder.", disk.free),
            ("disk_bytes", "Bytes of the disk of the data folder.", disk.total),
            ("uploads_unfinished", "Resumable uploads that are not complete.", services.uploads.unfinished),
        ):
            yield GaugeMetricFamily(f"{NAME}_{name}", description, value=value)


def _route_of(scope: Scope) -> str:
    """Return the path of the route that has answered, with its prefix; `_UNKNOWN` without a route."""
    path = scope.get(ROUTE_PATH) or getattr(scope.get("route"), "path", None)
    if path is None:
        return _UNKNOWN
    return f"{PREFIX}{path}" if scope["path"].startswith(f"{PREFIX}/") and not path.startswith(PREFIX) else str(path)
