"""``/metrics``: what the service does and how it is, for Prometheus."""

import asyncio
import shutil
import time
from collections import Counter as Tally
from collections.abc import Iterator
from contextlib import nullcontext

import orjson
from fastapi import APIRouter, Request, Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.services import Parts, Services

PREFIX = "/api/v1"
NAME = "tracedock"
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 20.0, 60.0)
METHODS = ("GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS")
_NOWHERE = "(none)"
"""The route of a request that none takes, and the method that there is not: they could be without end."""

router = APIRouter(tags=["health"])


class MetricsMiddleware:
    """Counts what goes into an app and out of it, and gives account of that and of the parts that it works with.

    Args:
        app: the app.
        parts: what it works with.
    """

    def __init__(self, app: ASGIApp, parts: Services) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # a third of the text, and of no use
        self._app = app
        self.registry = every = CollectorRegistry()
        ProcessCollector(registry=every)
        every.register(_Parts(parts))
        route = ("method", "route")
        self._requests = Counter("http_requests", "Requests answered.", (*route, "status"), NAME, registry=every)
        self._seconds = Histogram(
            "http_request_seconds", "From a request to the end of its answer.", route, NAME, registry=every,
            buckets=SECONDS,
        )  # fmt: skip
        self._errors = Counter("errors", "Answers that tell of an error.", ("code",), NAME, registry=every)
        self._received = Counter("received_bytes", "Bytes of bodies that came.", (), NAME, registry=every)
        self._sent = Counter("sent_bytes", "Bytes of bodies that went out.", (), NAME, registry=every)
        self._uploads = Gauge("uploads_under_way", "Requests that bring bytes of a trace.", (), NAME, registry=every)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["metrics"] = self.registry
        one, begun = _Passing(receive, send), time.perf_counter()
        try:
            with self._uploads.track_inprogress() if _brings_trace(scope) else nullcontext():
                await self._app(scope, one.receive, one.send)
        finally:
            method = scope["method"] if scope["method"] in METHODS else _NOWHERE
            route = _route_of(scope)
            self._requests.labels(method, route, one.status).inc()
            self._seconds.labels(method, route).observe(time.perf_counter() - begun)
            self._received.inc(one.received)
            self._sent.inc(one.sent)
            if one.problem:
                self._errors.labels(orjson.loads(one.problem)["code"]).inc()


class _Passing:
    """A request on its way in, and its answer on its way out."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._told_of_problem = False
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
            self._told_of_problem = (b"content-type", b"application/problem+json") in message["headers"]
        elif self._told_of_problem:
            self.problem += body
        await self._send(message)


class _Parts(Collector):
    """What can be seen of the service's parts at any time."""

    def __init__(self, parts: Services) -> None:
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        """The metrics, as they are now."""
        parts = self._parts
        jobs = GaugeMetricFamily(f"{NAME}_jobs", "Jobs that wait or run.", labels=["kind", "state"])
        for (kind, job_state), count in parts.jobs.unfinished_counts().items():
            jobs.add_metric([kind, job_state], count)
        yield jobs
        ended = CounterMetricFamily(f"{NAME}_jobs_ended", "Jobs that are over.", labels=["kind", "state"])
        for (kind, job_state), count in list(parts.jobs.ended.items()):
            ended.add_metric([kind, job_state], count)
        yield ended
        events = CounterMetricFamily(f"{NAME}_events", "Events that jobs have read or written.", labels=["kind"])
        for kind, count in list(parts.jobs.events.items()):
            events.add_metric([kind], count)
        yield events
        sessions = parts.fleet.sessions()
        engines = GaugeMetricFamily(f"{NAME}_engines", "Engines.", labels=["state"])
        for state, count in Tally(session.state for session in sessions).items():
            engines.add_metric([state], count)
        yield engines
        disk = shutil.disk_usage(parts.folder.root)
        for name, what, value in (
            ("engine_memory_bytes", "Memory that all engines take.", parts.fleet.held_bytes),
            ("engine_memory_max_bytes", "Memory that all engines may take.", parts.fleet.budget_bytes),
            ("data_bytes", "Bytes of the data folder, as they were counted last.", parts.room.counted),
            ("disk_free_bytes", "Free bytes of the disk of the data folder.", disk.free),
            ("disk_bytes", "Bytes of the disk of the data folder.", disk.total),
            ("uploads_unfinished", "Resumable uploads that are not whole.", parts.receiving.unfinished),
        ):
            yield GaugeMetricFamily(f"{NAME}_{name}", what, value=value)


def _brings_trace(scope: Scope) -> bool:
    path, method = scope["path"], scope["method"]
    return (method == "PUT" and path.startswith(f"{PREFIX}/traces/")) or (
        method in ("PATCH", "POST") and path.startswith(f"{PREFIX}/uploads")
    )


def _route_of(scope: Scope) -> str:
    path = getattr(scope.get("route"), "path", None)
    if path is None:
        return _NOWHERE
    return f"{PREFIX}{path}" if scope["path"].startswith(f"{PREFIX}/") and not path.startswith(PREFIX) else str(path)


@router.get("/metrics", summary="What the service does, for Prometheus", response_class=Response)
async def metrics(request: Request, parts: Parts) -> Response:
    """Prometheus's text format."""
    if parts.room.count_is_old:  # to count may take a while: the next time will have it
        asyncio.get_running_loop().run_in_executor(None, parts.room.used)
    return Response(generate_latest(request.scope["metrics"]), media_type=CONTENT_TYPE_LATEST)
