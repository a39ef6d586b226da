"""The application: routes and middlewares, the server that runs them, and the order of start and shutdown."""

import asyncio
import contextlib
import gc
import logging
import math
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi_offline import FastAPIOffline
from starlette.types import ASGIApp, Receive, Scope, Send

from service import __version__
from service.composition import Composition, compose
from service.engine.relay import FILE_PIECE_MAX
from service.http import problems
from service.http.declarations import RouteTable, declares
from service.http.middleware.access import AccessMiddleware
from service.http.middleware.compression import CompressionMiddleware
from service.http.middleware.cors import CorsMiddleware
from service.http.middleware.idempotency import IdempotencyMiddleware
from service.http.middleware.methods import MethodsMiddleware
from service.http.middleware.metrics import MetricsMiddleware
from service.http.middleware.ranges import RangesMiddleware
from service.http.middleware.routing import RouteMiddleware
from service.http.routers import CheckedRouter, operation_id
from service.http.routes import (
    agents,
    analysis,
    attachments,
    baselines,
    datasets,
    derived_traces,
    direct_uploads,
    download,
    groups,
    health,
    imports,
    jobs,
    library,
    listener,
    login,
    perfetto,
    query,
    reports,
    sessions,
    slices,
    traces,
    uploads,
)
from service.http.server.connections import BoundedConfig, Connections
from service.http.server.listening import bind, listening_socket
from service.http.server.request_head import BoundedHead, BoundedSocket
from service.http.services import Services
from service.jobs.retrying import until_written
from service.settings import Settings
from service.streaming.idle_memory import return_start_memory
from service.trace.errors import TracedockError
from service.web import assets, pages

log = logging.getLogger(__name__)

UMASK = 0o077
"""The umask of the server and its child processes: other users of the machine can't read their files."""


class Application:
    """The service: builds its parts, runs them as long as the server runs, and stops them in order.

    Args:
        settings: the settings.

    Attributes:
        port: the port that the server listens on; that of the settings until it is bound.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.parts: Composition | None = None
        self._resources = contextlib.ExitStack()
        self.port = settings.port
        self.app = self._pages_and_api()

    def _pages_and_api(self) -> FastAPI:
        app = FastAPIOffline(
            title="Tracedock",
            summary="PyTorch profiler traces: upload once, query by SQL, open in Perfetto.",
            version=__version__,
            generate_unique_id_function=operation_id,
            separate_input_output_schemas=False,  # generated clients would have two classes for one thing
            lifespan=self._lifespan,
            redoc_url=None,
            swagger_ui_parameters={"validatorUrl": None},  # by default, the page calls a validator on another host
            strict_content_type=False,  # the check prevents cross-site requests, which `Hosts` already refuses
        )
        problems.install(app)
        shells = CheckedRouter(include_in_schema=False)
        pages.add_to(shells)
        for router in (
            *(query.router, sessions.router, slices.router, perfetto.api, listener.api, download.router),
            *(jobs.router, derived_traces.router, analysis.router, imports.router, groups.router, datasets.router),
            *(direct_uploads.router, uploads.router, baselines.router, attachments.router),
            *(traces.router, traces.changes, library.router, reports.router, login.api),
            *(perfetto.pages, login.pages, health.router, shells),
        ):
            app.router.routes.extend(router.routes)
        agents.mount(app)
        app.add_exception_handler(404, pages.not_found_handler(problems.framework_problem))
        app.add_exception_handler(TracedockError, pages.problem_handler(problems.tracedock_problem))
        app.add_exception_handler(RequestValidationError, pages.problem_handler(problems.invalid_request))
        app.mount(assets.STATIC_PATH, declares("public")(assets.static_app()))
        derive = app.openapi

        def openapi() -> dict[str, Any]:
            if app.openapi_schema is None:
                from service.http.openapi.document import complete  # noqa: PLC0415 - few servers are asked for it

                derived = derive()
                app.openapi_schema = None  # FastAPI has kept the incomplete one
                app.openapi_schema = complete(derived, app.routes, self.port)
            return app.openapi_schema

        app.openapi = openapi  # type: ignore[method-assign] # https://fastapi.tiangolo.com/how-to/extending-openapi/
        return app

    def open(self) -> ASGIApp:
        """Build the parts, and return the app wrapped in all middlewares.

        Raises:
            TracedockError: a part can't be built.
        """
        parts = self.parts = compose(self.settings, self._resources)
        services = self.app.state.services = parts.services
        self.app.state.access = parts.access
        self.app.state.shows_datasets = bool(parts.services.datasets.locations)
        app: ASGIApp = RangesMiddleware(MethodsMiddleware(self.app))
        app = IdempotencyMiddleware(app, services)
        app = AccessMiddleware(app, parts.access, parts.hosts)
        app = CorsMiddleware(app, parts.hosts.origins)
        app = CompressionMiddleware(app)
        app = MetricsMiddleware(app, services)
        app = self.app.state.whole = RouteMiddleware(app, RouteTable(self.app.routes))
        return app

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        parts = self.parts
        if parts is None:
            raise RuntimeError("the server runs before `open` has built its parts")
        services = parts.services
        starting = asyncio.create_task(self._start_jobs(services))
        await asyncio.sleep(0)
        if starting.done():  # otherwise the task waits for disk space
            starting.result()
        services.uploads.start()
        services.direct_uploads.start()
        parts.retention.start()
        parts.room_guard.start()
        if self.settings.keep_ready:
            parts.fork_server.prepare()
        services.engine_pool.start()
        try:
            yield
        finally:
            starting.cancel()
            await self.stop_work()
            services.catalog.close()
            services.folder.close()
            self._resources.close()

    @staticmethod
    async def _start_jobs(services: Services) -> None:
        """Requeue the jobs that ran when the previous server ended, then start to run jobs. A full disk delays both."""
        await until_written(services.jobs.requeue_interrupted, "the requeuing of interrupted jobs")
        services.ingests.start()
        services.derivations.start()
        services.imports.start()

    async def stop_work(self) -> None:
        """Stop all work that requests wait for. Work that still runs after `shutdown_s` ends with the process."""
        if self.parts is None:
            return
        services = self.parts.services
        services.monitor.close()
        try:
            async with asyncio.timeout(self.settings.shutdown_s):
                for close in (
                    *(self.parts.room_guard.close, services.uploads.close, services.imports.close),
                    services.direct_uploads.close,
                    *(self.parts.retention.close, services.ingests.close, services.derivations.close),
                    self.parts.preparation.close,
                    *(services.engine_pool.close, services.exports.close, self.parts.renderings.close),
                    *(services.analyses.close, services.datasets.close),
                    *([self.parts.cluster.close] if self.parts.cluster else []),
                    self.parts.fork_server.close,
                ):
                    await close()
        except TimeoutError:
            log.exception(
                "shutdown took longer than %g s: the remaining work ends with the process", self.settings.shutdown_s
            )


class PortRouter:
    """Routes connections to the listener's port to the listener's app, and all others to the main app.

    Args:
        services: the parts that the listener's app uses.
        main: the main app.
    """

    def __init__(self, services: Services, main: ASGIApp) -> None:
        self._state = services.listener
        self._listener = listener.listener_app(services)
        self._main = main

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        is_listener = scope["type"] != "lifespan" and self._state.serves(scope["server"])
        await (self._listener if is_listener else self._main)(scope, receive, send)


class Server(uvicorn.Server):
    """A uvicorn server that reports when it listens.

    On shutdown it stops the application's work first, and only then waits for open requests.

    Args:
        config: uvicorn's configuration.
        application: the application.
        on_ready: called once the server listens.
    """

    def __init__(self, config: uvicorn.Config, application: Application, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._application = application
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the server. If it listens, call `on_ready`, and return the memory that only the start needed."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()
            await asyncio.to_thread(return_start_memory)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop the application's work, so that no request waits for it any longer; then stop the server."""
        await self._application.stop_work()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Shut down on SIGINT and SIGTERM; unlike uvicorn's own method, do not raise the signal again afterwards."""
        previous = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _main_socket(host: str, port: int) -> socket.socket:
    try:
        return listening_socket(host, port)
    except OSError as error:
        raise TracedockError(f"Can't listen on port {port} of {host}: {error.strerror}.") from error


def _reachable(host: str) -> str:
    """Return the host part of a URL under which this machine reaches a server bound to `host`."""
    if host in ("0.0.0.0", "::", ""):  # noqa: S104 - compared, not bound
        return "127.0.0.1" if host != "::" else "[::1]"
    return f"[{host}]" if ":" in host else host


def serve(settings: Settings, *, on_ready: Callable[[str], None] | None = None) -> None:
    """Run the service until SIGINT or SIGTERM.

    Args:
        settings: the settings.
        on_ready: called with the base URL once the server listens.

    Raises:
        SystemExit: the service can't start; the message is the reason.
    """
    os.umask(UMASK)
    application = Application(settings)
    try:
        sockets = [_main_socket(settings.host, settings.port)]
        application.port = sockets[0].getsockname()[1]
        main = application.open()
    except TracedockError as error:
        raise SystemExit(error.detail) from error
    if application.parts is None:
        raise RuntimeError("`open` has not built the parts")
    services = application.parts.services
    url = f"http://{_reachable(settings.host)}:{sockets[0].getsockname()[1]}"
    sockets += bind(services.listener, settings.perfetto_port, url)
    config = BoundedConfig(
        PortRouter(services, main), Connections.of(settings), http=BoundedHead, ws=BoundedSocket,
        log_level="warning", access_log=False, lifespan="on", ws_max_size=FILE_PIECE_MAX,
        ws_per_message_deflate=False,  # a frame of some KB could inflate to messages of many MB
        # BoundedHead ends idle connections sooner. After uvicorn's default of 5 s, for which httpx reuses a connection,
        # a request could meet the end of its connection.
        timeout_keep_alive=math.ceil(2 * settings.head_timeout_s),
        timeout_graceful_shutdown=1,  # the work has ended; only requests whose clients do not read remain
    )  # fmt: skip
    gc.freeze()  # modules are never freed, so collections can skip them; the little garbage among them is not worth one
    gc.enable()  # the command has disabled it while modules loaded
    Server(config, application, lambda: on_ready(url) if on_ready else None).run(sockets)
