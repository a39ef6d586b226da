"""Operations on engine sessions: open a session on a view of a trace."""

from collections import deque
from collections.abc import Hashable
from functools import partial

from service.engine.pool import EnginePool
from service.engine.session import Session
from service.engine.trace_processor.load_check import check_load, check_original_load
from service.jobs.exports import Renderings
from service.operations.traces import TraceOperations
from service.operations.views import View
from service.rendering.render_report import RenderReport
from service.store.catalog import Trace
from service.store.folder import Folder
from service.trace.selection import Selection, share_of_time
from service.trace.selection_fields import Args
from service.trace.summary import NESTABLE_PHASES, Summary

_CLOSURE_FACTOR = 1.5
"""Assumed ratio of a selection's share of events to its share of time; above 1, because the closure adds events."""
_COMPRESSION_FACTOR = 8
"""Assumed ratio of a Perfetto trace's size to that of its compressed file; measured: 7 to 20."""


class SessionOperations:
    """Opens engine sessions on views of traces.

    Args:
        traces: operations on the traces that engines load.
        folder: the data folder.
        pool: the engines.
        renderings: the writers of documents for engines.
    """

    def __init__(self, traces: TraceOperations, folder: Folder, pool: EnginePool, renderings: Renderings) -> None:
        self._traces = traces
        self._folder = folder
        self._pool = pool
        self._renderings = renderings

    def find(self, view: View) -> Session | None:
        """Return the session of a view, if there is one; raises `UnknownTrace`."""
        return self._pool.find(str(view.resolved(self._traces.recorded(view.trace_id))))

    async def close(self, view: View) -> None:
        """Close the session of a view, if there is one; raises `UnknownTrace`."""
        await self._pool.close_session(str(view.resolved(self._traces.recorded(view.trace_id))))

    def open(self, view: View, client: Hashable = None) -> Session:
        """Return the session of a view; start one if there is none.

        Args:
            view: the view.
            client: the identity of the client that needs the session.

        Raises:
            UnknownTrace: no trace has the id in the view.
            NotReady: the trace has not been read yet, or could not be read.
            SourceUnavailable: the trace can't be loaded from the view's source.
            EngineError: no engine can be started; see `EnginePool.open`.
        """
        trace = self._traces.ready(view.trace_id)
        view.check(trace)
        view = view.resolved(trace)
        if view.source == "original":
            return self._open_original(view, trace, client)
        summary = trace.summary_or_empty
        reports: deque[RenderReport] = deque(maxlen=1)

        async def after_load(session: Session) -> None:
            session.load_report = await check_load(session, reports[-1])
            session.issues = session.load_report.stats

        return self._pool.open(
            str(view),
            trace.id,
            partial(
                self._renderings.document, self._folder.columns_of(trace.id), summary, view.selection, view.args,
                reports.append,
            ),
            view.selection,
            args=view.args,
            events=expected_events(view.selection, summary),
            events_max=summary.kept_events,
            after_load=after_load,
            client=client,
        )  # fmt: skip

    def _open_original(self, view: View, trace: Trace, client: Hashable) -> Session:
        async def after_load(session: Session) -> None:
            session.issues = await check_original_load(session)

        return self._pool.open(
            str(view),
            trace.id,
            partial(self._renderings.original, trace.path or str(self._folder.original(trace.id)), trace.path_mark),
            original_bytes=expected_bytes(trace),
            after_load=after_load,
            client=client,
        )


def expected_bytes(trace: Trace) -> int:
    """Estimate the size of a trace's original after decompression."""
    _, _, compression = (trace.summary_or_empty.format or "").partition(".")
    return trace.size * _COMPRESSION_FACTOR if compression else trace.size


def expected_events(selection: Selection | None, summary: Summary) -> int:
    """Estimate the number of events of a selection by its share of the trace's time.

    A selection may have more events than the estimate, because events are not spread evenly over a trace.
    """
    events = summary.kept_events
    if selection is None:
        return events
    return int(events * min(_CLOSURE_FACTOR * share_of_time(selection, summary), 1))


def ui_args(events: int, summary: Summary, all_args_events: int) -> Args:
    """Return which arguments an engine of the UI has by default: fewer for many events, because they load sooner.

    The UI gets the other arguments of a slice as it is selected, but not those of some phases.

    Args:
        events: number of events that the UI shows.
        summary: the trace's summary.
        all_args_events: largest number of events that are loaded with all arguments.
    """
    return "essential" if events > all_args_events and summary.phases.isdisjoint(NESTABLE_PHASES) else "all"
