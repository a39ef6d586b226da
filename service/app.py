"""The composition root: settings, then stores, then fleet, then routes; and the one ordered way down."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing
from typing import Any

import uvicorn
from fastapi import APIRouter, Depends, FastAPI
from fastapi_offline import FastAPIOffline

from service import __version__
from service.engine import guards, provision
from service.engine.fleet import Fleet
from service.engine.relay import FILE_PIECE_MAX
from service.http import problems, shapes
from service.http.authentication import Access
from service.http.hosts import Hosts
from service.http.middleware import metrics
from service.http.middleware.access import AccessMiddleware
from service.http.middleware.cors import CorsMiddleware
from service.http.middleware.idempotency import IdempotencyMiddleware
from service.http.middleware.methods import MethodsMiddleware
from service.http.middleware.metrics import MetricsMiddleware
from service.http.parameters import check_request
from service.http.routes import (
    analysis,
    derived_traces,
    download,
    groups,
    health,
    imports,
    jobs,
    listener,
    login,
    perfetto,
    query,
    sessions,
    traces,
    uploads,
)
from service.http.server.connections import BoundedConfig, Connections
from service.http.server.listening import bind, bound_socket
from service.http.server.request_head import BoundedHead, BoundedSocket
from service.http.services import Services
from service.jobs.board import Board
from service.jobs.making import Making
from service.jobs.retrying import until_written
from service.jobs.runner import Runner
from service.settings import Settings
from service.store.audit import Audit
from service.store.catalog import Catalog
from service.store.folder import Folder
from service.store.jobs import Jobs
from service.store.room import Room
from service.store.tokens import Tokens
from service.streaming.scan import machine_code
from service.trace.errors import TracedockError
from service.web import pages

log = logging.getLogger(__name__)

PROBLEMS: dict[int | str, dict[str, Any]] = {
    422: {
        "model": shapes.Problem,
        "description": "A parameter or a value that the call does not take: `unknown_parameter` tells the `parameter`,"
        " the `nearest` of those that there are, and all `known` ones; `repeated_parameter` takes one value only",
    },
    "4XX": {"model": shapes.Problem, "description": "The request can't be served; `code` says why"},
    502: {"model": shapes.Problem, "description": "A process that worked on it ended, such as an engine"},
    503: {"model": shapes.Problem, "description": "Not now; `retry_after_s` says when to try again, if that is known"},
    504: {"model": shapes.Problem, "description": "It took longer than its deadline"},
    507: {"model": shapes.Problem, "description": "There is no room on the disk, or in the quota"},
}
"""The answers of all calls of the API that tell of an error."""
PRIVATE = 0o077
"""The umask of the server and its processes: what they write is for nobody else on the machine."""


class Application:
    """The whole service: builds its parts, runs them for as long as the server does, and takes them down in order."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.services: Services | None = None
        self._closing = contextlib.ExitStack()
        self.app = self._pages_and_api()

    def _pages_and_api(self) -> FastAPI:
        app = FastAPIOffline(
            title="Tracedock",
            summary="PyTorch profiler traces: upload once, ask SQL, open in Perfetto.",
            version=__version__,
            lifespan=self._lifespan,
            redoc_url=None,
            swagger_ui_parameters={"validatorUrl": None},  # the page would ask a host of its makers
            strict_content_type=False,  # what strictness guards against, requests by other sites, `Hosts` refuses
        )
        problems.install(app)
        checked = [Depends(check_request)]
        api = APIRouter(prefix="/api/v1", responses=PROBLEMS, dependencies=checked)
        for router in (
            *(query.router, sessions.router, perfetto.api, listener.api, download.router),
            *(jobs.router, derived_traces.router, analysis.router, uploads.router, imports.router, groups.router),
            *(traces.router, login.api),
        ):
            api.include_router(router)
        app.include_router(api)
        app.include_router(perfetto.pages)
        app.include_router(login.pages, dependencies=checked)
        app.include_router(health.router, dependencies=checked)
        app.include_router(metrics.router, dependencies=checked)
        app.include_router(pages.router(), dependencies=checked)
        app.mount("/static", pages.static_app())
        return app

    def open(self) -> MetricsMiddleware:
        """Build the parts, and return the way in; raises `TracedockError` where one can't be had."""
        settings = self.settings
        hosts = Hosts(settings)
        folder = Folder(settings.data)
        access = self.app.state.access = Access(settings, self._closing.enter_context(closing(Tokens(folder.tokens))))
        engine, ui = provision.provide(settings)
        log.warning("guards of the engines: %s", guards.in_words(settings))  # seen also where no one has set up logs
        if machine_code.folder() is None:
            log.warning("%s", machine_code.NOT_KEPT)
        folder.open()
        self._closing.enter_context(closing(Audit(folder.audit, rotate=True)))
        catalog = Catalog(folder.catalog)
        folder.sweep(catalog.ids())
        board = Board(Jobs(catalog.connection, history=settings.job_history))
        runner = Runner(
            catalog,
            board,
            folder,
            workers=settings.ingest_workers,
            attempts=settings.ingest_attempts,
            keep_ready=settings.keep_ready,
        )
        room = Room(folder.root, quota=settings.quota_bytes, floor=settings.min_free_bytes)
        # incoming/ is emptied at each start, should there be no files without names
        fleet = Fleet.of(settings, folder.incoming, room)
        making = Making(
            catalog,
            board,
            folder,
            attempts=settings.ingest_attempts,
            deadline_s=settings.job_timeout_s,
            plan_deadline_s=settings.analysis_timeout_s,
        )
        self.services = self.app.state.services = Services(
            settings, folder, catalog, board, runner, making, fleet, engine, ui, room
        )
        services = self.services
        return MetricsMiddleware(
            CorsMiddleware(
                AccessMiddleware(IdempotencyMiddleware(MethodsMiddleware(self.app), services), access, hosts),
                hosts.origins,
            ),
            services,
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        parts = self.services
        if parts is None:
            raise RuntimeError("the parts are built before the server runs")
        starting = asyncio.create_task(self._start_jobs(parts))
        await asyncio.sleep(0)
        if starting.done():  # it waits for room otherwise
            starting.result()
        parts.receiving.start()
        parts.retention.start()
        parts.room_guard.start()
        parts.analyses.prepare()
        if parts.catalog.ids():
            parts.prepare()
        parts.fleet.start()
        try:
            yield
        finally:
            starting.cancel()
            await self.quiet()
            parts.catalog.close()
            parts.folder.close()
            self._closing.close()

    @staticmethod
    async def _start_jobs(parts: Services) -> None:
        """Begin to take jobs, once the catalog has room for those of an earlier server to be queued again."""
        await until_written(parts.jobs.requeue, "the jobs of an earlier server")
        parts.runner.start()
        parts.making.start()
        parts.importing.start()

    async def quiet(self) -> None:
        """Stop all work, so that no request waits for it any more; by the deadline, or it ends with the process."""
        if self.services is None:
            return
        try:
            self.services.board.close()
            async with asyncio.timeout(self.settings.shutdown_s):
                await self.services.room_guard.close()
                await self.services.receiving.close()
                await self.services.importing.close()
                await self.services.retention.close()
                await self.services.runner.close()
                await self.services.making.close()
                await self.services.fleet.close()
                await self.services.exports.close()
                await self.services.renderings.close()
                await self.services.analyses.close()
        except TimeoutError:
            log.exception("stopping took longer than %g s: the rest ends with the process", self.settings.shutdown_s)


class PortRouter:
    """One server on two ports: the listener's requests go to its app, all others to the main one."""

    def __init__(self, dock: Application, doors: MetricsMiddleware) -> None:
        self._dock = dock
        self._doors = doors
        self._listener: FastAPI | None = None

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        """The ASGI entry."""
        if scope["type"] != "lifespan" and self._dock.services and self._dock.services.listener.serves(scope["server"]):
            self._listener = self._listener or listener.listener_app(self._dock.services)
            await self._listener(scope, receive, send)
        else:
            await self._doors(scope, receive, send)


class Server(uvicorn.Server):
    """A uvicorn server that says when it listens, and stops the dock's work before it waits for its requests."""

    def __init__(self, config: uvicorn.Config, dock: Application, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._dock = dock
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then tell."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the work, then the requests, which by now wait for nothing."""
        await self._dock.quiet()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End well when asked to: uvicorn itself would raise the signal again after an orderly shutdown."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _bound(host: str, port: int) -> socket.socket:
    try:
        return bound_socket(host, port)
    except OSError as error:
        raise TracedockError(f"The address {host}:{port} can't be listened on: {error.strerror}.") from error


def _reachable(host: str) -> str:
    """The host part of a URL under which a server bound to `host` answers on this machine."""
    if host in ("0.0.0.0", "::", ""):  # noqa: S104 - compared, not bound
        return "127.0.0.1" if host != "::" else "[::1]"
    return f"[{host}]" if ":" in host else host


def serve(settings: Settings, *, on_ready: Callable[[str], None] | None = None) -> None:
    """Run the service until SIGINT or SIGTERM.

    Args:
        settings: its settings.
        on_ready: is called with the base URL once it listens.

    Raises:
        SystemExit: it could not start, and why.
    """
    os.umask(PRIVATE)
    os.environ.pop("TRACEDOCK_TOKEN", None)  # it is in the settings, and no business of the processes that are started
    dock = Application(settings)
    try:
        sockets = [_bound(settings.host, settings.port)]
        doors = dock.open()
    except TracedockError as error:
        raise SystemExit(error.detail) from error
    url = f"http://{_reachable(settings.host)}:{sockets[0].getsockname()[1]}"
    if dock.services is None:
        raise RuntimeError("the parts are built by now")
    sockets += bind(dock.services.listener, settings.perfetto_port, url)
    config = BoundedConfig(
        PortRouter(dock, doors), Connections.of(settings), http=BoundedHead, ws=BoundedSocket,
        log_level="warning", access_log=False, lifespan="on", ws_max_size=FILE_PIECE_MAX,
        ws_per_message_deflate=False,  # a read of some KB could otherwise hold messages of many MB
        timeout_graceful_shutdown=1,  # the work has ended by then: what is left waits for a client that does not read
    )  # fmt: skip
    gc.collect()
    gc.freeze()  # modules stay, and need not be looked at whenever a request leaves garbage
    Server(config, dock, lambda: on_ready(url) if on_ready else None).run(sockets)
