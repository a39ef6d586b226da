"""What the routes work with, and how they get it."""

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends
from starlette.requests import HTTPConnection

from service.engine.account import take_account
from service.engine.fleet import Fleet
from service.engine.session import Session
from service.http.server.inbox import TOTAL_MAX, ByteBudget
from service.http.server.listening import ListenerState
from service.http.view_parameters import View
from service.jobs.analyses import Analyses
from service.jobs.arrivals import Arrivals
from service.jobs.board import Board
from service.jobs.exports import Cut, Exports, Renderings
from service.jobs.haul import Means
from service.jobs.importing import Importing
from service.jobs.making import Making
from service.jobs.receiving import Receiving, UploadBounds
from service.jobs.retention import Retention
from service.jobs.room_guard import RoomGuard
from service.jobs.runner import Runner
from service.settings import Settings
from service.store.catalog import Catalog, State, Trace
from service.store.folder import Folder
from service.store.groups import Groups
from service.store.idempotency import Idempotency
from service.store.imports import Imports
from service.store.jobs import Jobs
from service.store.room import Room
from service.store.roots import Roots
from service.trace.errors import DiskFull, EngineFailed, NotReady
from service.trace.selection import Selection, share_of_time

_LATER_S = 3.0
"""Who asks something of a trace that has just been read goes before processes that only get ready."""


@dataclass
class Services:
    """The service's parts, made by `service.app`."""

    settings: Settings
    folder: Folder
    catalog: Catalog
    board: Board
    runner: Runner
    making: Making
    fleet: Fleet
    engine: Path
    ui: Path
    room: Room
    listener: ListenerState = field(default_factory=ListenerState)
    groups: Groups = field(init=False)
    idempotency: Idempotency = field(init=False)
    arrivals: Arrivals = field(init=False)
    receiving: Receiving = field(init=False)
    importing: Importing = field(init=False)
    retention: Retention = field(init=False)
    room_guard: RoomGuard = field(init=False)
    exports: Exports = field(init=False)
    renderings: Renderings = field(init=False)
    analyses: Analyses = field(init=False)
    unanswered: ByteBudget = field(init=False)

    def __post_init__(self) -> None:
        keep_ready = self.settings.keep_ready
        settings = self.settings
        self.groups = Groups(self.catalog.connection)
        self.idempotency = Idempotency(self.catalog.connection)
        self.arrivals = Arrivals(self.catalog, self.folder, self.runner, on_arrival=self._arrived)
        self.receiving = Receiving(
            self.folder, self.room, self.catalog, self.runner, self.arrivals,
            bounds=UploadBounds(
                settings.max_upload_bytes, settings.upload_expires_s,
                settings.max_uploads, settings.max_uploads_per_client,
            ),
        )  # fmt: skip
        roots = Roots.of(settings.import_roots, but=self.folder.root)
        self.importing = Importing(
            Means(
                self.catalog, self.board, self.folder, self.room, self.arrivals,
                orders=Imports(self.catalog.connection), roots=roots, limit=settings.max_upload_bytes,
                linked=settings.import_hard_links,
            ),
            look_every_s=settings.import_look_s,
        )  # fmt: skip
        self.retention = Retention(
            self.catalog, self.room, self.remove, self.making.sources, self.groups,
            days=settings.retain_days, size_max=settings.retain_bytes,
        )  # fmt: skip
        self.room_guard = RoomGuard(self.room, lambda: [*self.runner.processes, *self.making.processes])
        self.runner.on_read = self._read
        self.unanswered = ByteBudget(TOTAL_MAX)
        self.exports = Exports(keep_ready=keep_ready, deadline_s=settings.analysis_timeout_s, room=self.room)
        self.renderings = Renderings(keep_ready=keep_ready, room=self.room)
        self.analyses = Analyses(
            self.folder.incoming, keep_ready=keep_ready, deadline_s=settings.analysis_timeout_s, room=self.room
        )

    @property
    def jobs(self) -> Jobs:
        """The queue."""
        return self.board.jobs

    def _arrived(self) -> None:
        self.retention.wake()

    def _read(self) -> None:
        self.retention.wake()  # its columns take room, too
        asyncio.get_running_loop().call_later(_LATER_S, self.prepare)

    def prepare(self) -> None:
        """Keep processes ready that write and answer; before there is a trace they would only take memory."""
        self.exports.prepare()
        self.renderings.prepare()
        self.analyses.prepare()

    async def remove(self, trace_id: str) -> None:
        """Stop what works on a trace and remove it from catalog and disk; raises `UnknownTrace`."""
        job_id = self.catalog.get(trace_id).job
        try:
            await asyncio.to_thread(self.catalog.remove, trace_id)  # first: nobody can begin anything on it any more
        except DiskFull:  # for the catalog's own note of it; the trace's bytes make room for that
            await asyncio.to_thread(self.folder.remove, trace_id)
            await asyncio.to_thread(self.catalog.remove, trace_id)
        await self.runner.cancel(trace_id)
        if job_id is not None:
            self.board.changed(job_id)
        await self.making.forget(trace_id)
        await self.fleet.shut_all(trace_id, EngineFailed(f"The trace {trace_id} was deleted."))
        await asyncio.to_thread(self.folder.remove, trace_id)
        self.listener.forget(trace_id)

    def ready_trace(self, trace_id: str) -> Trace:
        """A trace that can be asked; raises `UnknownTrace` or `NotReady`."""
        trace = self.catalog.get(trace_id)
        if trace.state is State.FAILED:
            why = (trace.error or {}).get("detail", "")
            raise NotReady(f"The trace could not be read: {why}", state=trace.state, error=trace.error)
        if trace.state is not State.READY:
            self.ask_for(trace)
            raise NotReady(f"The trace is still {trace.state}.", state=trace.state, retry_after_s=1)
        return trace

    def ask_for(self, trace: Trace) -> None:
        """Have a trace read before others that nobody has asked for."""
        if trace.job is not None:
            self.board.ask_for(trace.job)

    def cut(self, trace: Trace, selection: Selection) -> Cut:
        """What an export is told to cut out of a ready trace."""
        return Cut(selection, trace.summary or {}, trace.identity)

    def session(self, view: View, client: Hashable = None) -> Session:
        """The session of a view, begun for a client if there is none; raises what `ready_trace` and `Fleet.open` do."""
        trace = self.ready_trace(view.trace_id)
        summary = trace.summary or {}
        rendered: dict[str, Any] = {}

        async def after_load(session: Session) -> None:
            session.account = await take_account(session, rendered)

        return self.fleet.open(
            str(view),
            trace.id,
            partial(
                self.renderings.document, self.folder.columns_of(trace.id), summary, view.selection, view.args,
                rendered.update,
            ),
            None if view.selection is None else view.selection.as_dict(),
            args=view.args,
            events=_expected_events(view.selection, summary),
            events_max=summary["events"]["kept"],
            after_load=after_load,
            client=client,
        )  # fmt: skip


_ALONG = 1.5
"""How much more than its share of the time a selection may well hold: some events come along."""


def _expected_events(selection: Selection | None, summary: dict[str, Any]) -> int:
    """About how many events a view has; it may have more, for traces are not even."""
    events: int = summary["events"]["kept"]
    return events if selection is None else int(events * min(_ALONG * share_of_time(selection, summary), 1))


def services(connection: HTTPConnection) -> Services:
    """The parts of the service that this request or WebSocket came to."""
    parts: Services = connection.app.state.services
    return parts


Parts = Annotated[Services, Depends(services)]
