"""What the routes work with, and how they get it."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends
from starlette.requests import HTTPConnection

from service.engine.account import take_account
from service.engine.fleet import Fleet
from service.engine.session import Session
from service.http.views import View
from service.jobs.analyses import Analyses
from service.jobs.exports import Cut, Exports, Renderings
from service.jobs.making import Making
from service.jobs.runner import Runner
from service.settings import Settings
from service.store.catalog import Catalog, State, Trace
from service.store.folder import Folder
from service.trace.errors import NotReady
from service.trace.selection import Selection, share_of_time


@dataclass
class Services:
    """The service's parts, made by `service.app`; `listening_on` is the trace that the localhost listener serves."""

    settings: Settings
    folder: Folder
    catalog: Catalog
    runner: Runner
    making: Making
    fleet: Fleet
    ui: Path
    listening_on: str | None = None
    exports: Exports = field(init=False)
    renderings: Renderings = field(init=False)
    analyses: Analyses = field(init=False)

    def __post_init__(self) -> None:
        keep_ready = self.settings.keep_ready
        self.exports = Exports(keep_ready=keep_ready)
        self.renderings = Renderings(keep_ready=keep_ready)
        self.analyses = Analyses(self.folder.incoming, keep_ready=keep_ready)

    def prepare(self) -> None:
        """Keep processes ready that write and answer; before there is a trace they would only take memory."""
        self.exports.prepare()
        self.renderings.prepare()
        self.analyses.prepare()

    def ready_trace(self, trace_id: str) -> Trace:
        """A trace that can be asked; raises `UnknownTrace` or `NotReady`."""
        trace = self.catalog.get(trace_id)
        if trace.state is State.FAILED:
            why = (trace.error or {}).get("detail", "")
            raise NotReady(f"The trace could not be read: {why}", state=trace.state, error=trace.error)
        if trace.state is not State.READY:
            raise NotReady(f"The trace is still {trace.state}.", state=trace.state, retry_after_s=1)
        return trace

    def cut(self, trace: Trace, selection: Selection) -> Cut:
        """What an export is told to cut out of a ready trace."""
        return Cut(selection, trace.summary or {}, trace.identity)

    def session(self, view: View) -> Session:
        """The session of a view, begun if there is none; raises what `ready_trace` and `Fleet.open` do."""
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
