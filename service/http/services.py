"""What the routes work with, and how they get it."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from service.engine.fleet import Fleet
from service.engine.session import Session
from service.jobs.exports import Exports
from service.jobs.runner import Runner
from service.jobs.sound import sound_copy, write_sound_copy
from service.settings import Settings
from service.store.catalog import Catalog, State, Trace
from service.store.folder import Folder
from service.trace.errors import NotReady
from service.trace.health import is_sound


@dataclass
class Services:
    """The service's parts, made by `service.app`; `listening_on` is the trace that the localhost listener serves."""

    settings: Settings
    folder: Folder
    catalog: Catalog
    runner: Runner
    fleet: Fleet
    ui: Path
    exports: Exports = field(default_factory=Exports)
    copies: Exports = field(default_factory=Exports)  # for engines, which must not wait for slow downloads
    listening_on: str | None = None

    def ready_trace(self, trace_id: str) -> Trace:
        """A trace that can be asked; raises `UnknownTrace` or `NotReady`."""
        trace = self.catalog.get(trace_id)
        if trace.state is State.FAILED:
            why = (trace.error or {}).get("detail", "")
            raise NotReady(f"The trace could not be read: {why}", state=trace.state, error=trace.error)
        if trace.state is not State.READY:
            raise NotReady(f"The trace is still {trace.state}.", state=trace.state, retry_after_s=1)
        return trace

    def session(self, trace_id: str) -> Session:
        """The session of a ready trace, begun if it has none; raises also `EngineUnavailable`.

        It is one on the bytes as they came, or where these are damaged on a sound copy.
        """
        trace = self.ready_trace(trace_id)
        if is_sound((trace.summary or {}).get("health", {})):
            return self.fleet.open(trace.id, self.folder.original(trace.id))
        columns = self.folder.columns_of(trace.id)
        return self.fleet.open(trace.id, sound_copy(columns), partial(write_sound_copy, self.copies, columns))


def services(connection: HTTPConnection) -> Services:
    """The parts of the service that this request or WebSocket came to."""
    parts: Services = connection.app.state.services
    return parts


Parts = Annotated[Services, Depends(services)]
