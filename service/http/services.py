"""What the routes work with, and how they get it."""

import base64
import binascii
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

import orjson
from fastapi import Depends
from starlette.requests import HTTPConnection

from service.engine.fleet import Fleet
from service.engine.session import Session
from service.jobs.exports import Cut, Exports
from service.jobs.making import Making
from service.jobs.runner import Runner
from service.settings import Settings
from service.store.catalog import Catalog, State, Trace
from service.store.folder import Folder
from service.trace.errors import BadSelection, NotReady
from service.trace.health import is_sound
from service.trace.selection import Selection


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

    def cut(self, trace: Trace, selection: Selection) -> Cut:
        """What an export is told to cut out of a ready trace."""
        return Cut(selection, trace.summary or {}, trace.identity)

    def session(self, view: str) -> Session:
        """The session of a view, begun if there is none; raises also `EngineUnavailable` and `BadSelection`.

        It is on the bytes of a trace as they came, or on what its columns tell where these are damaged, where there
        are none, and where only a selection of them is viewed.
        """
        trace_id, selection = viewed(view)
        trace = self.ready_trace(trace_id)
        if selection is None and trace.has_original and is_sound((trace.summary or {}).get("health", {})):
            return self.fleet.open(view, trace.id, self.folder.original(trace.id))
        cut = None if selection is None else self.cut(trace, selection)
        source = partial(self.copies.document, self.folder.columns_of(trace.id), cut=cut)
        return self.fleet.open(view, trace.id, source, selection.as_dict() if selection is not None else None)


def view_of(trace_id: str, selection: Selection | None) -> str:
    """What stands for a trace, or for a selection of it, in the address of a UI; it holds all of the selection."""
    if selection is None:
        return trace_id
    text = orjson.dumps(selection.as_dict(), option=orjson.OPT_SORT_KEYS)
    return f"{trace_id}~{base64.urlsafe_b64encode(text).decode().rstrip('=')}"


def viewed(view: str) -> tuple[str, Selection | None]:
    """The trace and the selection that a view stands for; raises `BadSelection`."""
    trace_id, bar, code = view.partition("~")
    if not bar:
        return trace_id, None
    try:
        return trace_id, Selection.parsed(base64.urlsafe_b64decode(code + "=" * (-len(code) % 4)))
    except (ValueError, binascii.Error) as error:
        raise BadSelection(f"{code[:100]!r} stands for no selection.") from error


def services(connection: HTTPConnection) -> Services:
    """The parts of the service that this request or WebSocket came to."""
    parts: Services = connection.app.state.services
    return parts


Parts = Annotated[Services, Depends(services)]
