"""The file of a trace's timeline: written once, and mapped into memory for each window that the overview shows."""

from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from service.analysis.facts.scope import Scope
from service.analysis.facts.timeline import Timeline, as_batch, from_batch, measure
from service.analysis.parameters import WorkParameters
from service.store.folder import TIMELINE, new_file, unreadable
from service.trace.errors import DiskFull


def keep_timeline(scope: Scope) -> None:
    """Write the timeline of a rank next to its events, unless it is there, or the disk has no room for it.

    Args:
        scope: scope of a whole rank.

    Raises:
        AnalysisError: the events can't be analysed.
        ExportFailed: the events can't be read.
    """
    if not (scope.columns / TIMELINE).exists():
        _keep(scope, measure(scope, WorkParameters()))


def _keep(scope: Scope, timeline: Timeline) -> None:
    with suppress(DiskFull, OSError):  # such as a trace that was deleted meanwhile
        _write(as_batch(timeline), scope.columns / TIMELINE)


def _write(batch: pa.RecordBatch, path: Path) -> None:
    """Write a file atomically; raises `DiskFull`."""
    with new_file(path) as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)


def timeline_of(scope: Scope, parameters: WorkParameters) -> Timeline:
    """Return the timeline of a rank: from its file or, for a selection or other rules, from the events.

    The first question to a trace without a file, such as one whose pages are not prepared yet, writes it.

    Raises:
        ExportFailed: the file or the events cannot be read.
    """
    rules = WorkParameters(**parameters.model_dump(include={*WorkParameters.model_fields}))
    has_file = not scope.is_selection and rules == WorkParameters()
    return scope.cached(("timeline", rules), lambda: _kept(scope) if has_file else measure(scope, rules))


def _kept(scope: Scope) -> Timeline:
    """Return the timeline from its file, or measure it and write the file if the disk has room."""
    path = scope.columns / TIMELINE
    if not path.exists():
        timeline = measure(scope, WorkParameters())
        _keep(scope, timeline)
        return timeline
    try:
        with pa.memory_map(str(path)) as file:
            return from_batch(pa.ipc.open_file(file).get_batch(0))
    except (OSError, pa.ArrowException) as error:
        raise unreadable(path, error) from error
