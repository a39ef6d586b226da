"""The API's JSON objects, built from the records of the stores, the jobs and the engines."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from service.cutting.inputs import kind_of
from service.engine.load_report import NO_REPORT
from service.engine.session import Session
from service.http import shapes
from service.http.cursors import timestamp
from service.jobs.job_monitor import JobMonitor
from service.operations.groups import RankReport
from service.operations.views import sources_of
from service.store.attachments import Attachment
from service.store.baselines import Baseline
from service.store.catalog import INGEST, State, Trace
from service.store.groups import Group
from service.store.imports import Imports, Order
from service.store.jobs import Job, JobState
from service.store.library import Entry, ListedTrace, TraceDetails
from service.streaming.source import Progress

_LONG_LISTS = ("processes", "threads", "counts", "steps", "ranks", "totals")


def trace_object(trace: Trace, progress: Progress | None) -> dict[str, Any]:
    """Return a trace in the form of `shapes.Trace`.

    The summary is not validated again: it may have thousands of entries.

    Args:
        trace: the trace.
        progress: the progress of its ingest; None if the ingest does not run.
    """
    summary = trace.summary_or_empty
    if trace.state.settled:
        progress = Progress(trace.size, summary.events.get("in", 0))
    elif progress is None:
        progress = Progress()
    return {
        "id": trace.id,
        "name": trace.name,
        "state": trace.state,
        "error": trace.error and trace.error.as_dict(),
        "created_at": timestamp(trace.created_ns),
        "size": trace.size,
        "sha256": trace.sha256 or None,
        "has_original": trace.has_original,
        "sources": sources_of(trace),
        **summary.as_dict(),
        "steps_count": summary.steps_count,
        "events": summary.events or {"in": 0, "kept": 0, "refused": 0},
        "group": {"id": trace.group_id, "name": trace.group_name} if trace.group_id else None,
        "pinned": trace.pinned,
        "path": trace.path,
        "parent": trace.parent,
        "selection": trace.selection,
        "job": None if trace.job is None else str(trace.job),
        "progress": {"bytes": progress.bytes, "bytes_total": trace.size, "events": progress.events},
    }


def trace_in_brief(trace: Trace, progress: Progress | None) -> dict[str, Any]:
    """Return a trace in the form of `shapes.TraceInBrief`: without the lists that may be long."""
    return {key: value for key, value in trace_object(trace, progress).items() if key not in _LONG_LISTS}


def job_object(job: Job, monitor: JobMonitor) -> shapes.Job:
    """Return a job with its progress."""
    progress = monitor.progress(job.id) or _progress_at_rest(job)
    left_s = monitor.left_s(job.id)
    return shapes.Job(
        id=str(job.id),
        kind=job.kind,
        state=job.state,
        priority=job.priority.name.lower(),
        trace=job.trace or None,
        trace_name=job.trace_name,
        request=job.request,
        attempts=job.attempts,
        created_at=timestamp(job.created_ns) if job.created_ns else None,
        started_at=timestamp(job.started_ns) if job.started_ns else None,
        ended_at=timestamp(job.ended_ns) if job.ended_ns else None,
        progress=progress,
        eta_s=None if left_s is None else round(left_s, 1),
        result=job.result,
        error=job.error and job.error.as_dict(),
    )


def _progress_at_rest(job: Job) -> Progress:
    """Return the progress of a job that does not run: all bytes if it is done, else none."""
    size = job.size if job.kind == INGEST else 0
    done = size if job.state is JobState.DONE else 0
    return Progress(bytes=done, events=job.events, events_total=job.events, bytes_total=size)


def _group_fields(group: Group) -> dict[str, Any]:
    return {
        "id": group.id, "name": group.name, "run_id": group.run_id, "created_at": timestamp(group.created_ns),
        "traces": group.traces, "size": group.size,
    }  # fmt: skip


def attachment_object(attachment: Attachment) -> shapes.Attachment:
    """Return an attachment."""
    return shapes.Attachment(
        id=attachment.id,
        name=attachment.name,
        kind=attachment.kind,
        trace=attachment.trace,
        group=attachment.group_id,
        rank=attachment.rank,
        size=attachment.size,
        sha256=attachment.sha256,
        created_at=timestamp(attachment.created_ns),
    )


def group_in_brief(group: Group) -> shapes.GroupInBrief:
    """Return a group as lists show it."""
    return shapes.GroupInBrief(**_group_fields(group))


def library_entry(
    entry: Entry, details: TraceDetails | None, progress_of: Callable[[str], Progress | None]
) -> dict[str, Any]:
    """Return an entry of the library in the form of `shapes.LibraryEntry`.

    Args:
        entry: the entry.
        details: the details of its single trace; None for a run.
        progress_of: returns the progress of the ingest of a trace; None if the ingest does not run.
    """
    facts = [listed.facts for listed in entry.traces]
    worlds = {fact.world_size for fact in facts} - {None}
    backends = {fact.backend for fact in facts} - {None}
    states = Counter(listed.state for listed in entry.traces)
    ready = [listed.facts for listed in entry.traces if listed.state == State.READY]
    progress = [_progress_of(listed, progress_of) for listed in entry.traces]
    return {
        "run": entry.run and {"id": entry.run.id, "name": entry.run.name, "run_id": entry.run.run_id},
        "trace": details
        and {
            "id": entry.id,
            "parent": details.parent,
            "rank": facts[0].rank,
            "world_size": facts[0].world_size,
            "merged": facts[0].merged,
            "error": details.error and details.error.as_dict(),
        },
        "name": entry.name,
        "uploaded_at": timestamp(entry.uploaded_ns),
        "size": entry.size,
        "span_ns": entry.span_ns,
        "events": entry.events,
        "steps": max((fact.steps for fact in ready), default=None),
        "traces": len(entry.traces),
        "matching": entry.matching,
        "ranks": len(entry.ranks),
        "world_size": worlds.pop() if len(worlds) == 1 else None,
        "backend": backends.pop() if len(backends) == 1 else None,
        "gpus": list(dict.fromkeys(name for fact in facts for name in fact.gpus)),
        "has_gpu_work": any(fact.has_gpu_work for fact in facts),
        "states": dict(states),
        "pinned": sum(listed.pinned for listed in entry.traces),
        "damaged": sum(fact.is_damaged for fact in facts),
        "incomplete": sum(fact.is_incomplete for fact in facts),
        "repaired": sum(fact.repaired for fact in facts),
        "refused": sum(fact.refused for fact in facts),
        "progress": {
            "bytes": sum(part.bytes for part in progress),
            "bytes_total": entry.size,
            "events": sum(part.events for part in progress),
        },
    }


def _progress_of(trace: ListedTrace, progress_of: Callable[[str], Progress | None]) -> Progress:
    if trace.state in (State.READY, State.FAILED):
        return Progress(trace.size, trace.facts.events)
    return progress_of(trace.id) or Progress()


def group_object(group: Group, report: RankReport) -> shapes.Group:
    """Return a group with its ranks and cycles."""
    ranks = [
        shapes.GroupRank(
            rank=summary.rank,
            cycle=membership.cycle,
            kind=kind_of(trace.summary) if trace.summary else None,
            world_size=summary.world_size,
            host=summary.host,
            trace=trace.id,
            name=trace.name,
            state=trace.state,
            size=trace.size,
            pinned=trace.pinned,
            events=summary.kept_events,
        )
        for membership in report.members
        for trace, summary in ((membership.trace, membership.trace.summary_or_empty),)
    ]
    return shapes.Group(
        **_group_fields(group),
        world_size=report.world_size,
        missing=report.missing,
        cycles=report.cycles,
        cycles_by=report.cycles_by,
        ranks=ranks,
    )


def baseline_in_brief(entry: Baseline) -> shapes.BaselineInBrief:
    """Return a baseline as lists show it."""
    return shapes.BaselineInBrief(name=entry.name, **_entry_fields(entry))


def baseline_object(history: Sequence[Baseline]) -> shapes.Baseline:
    """Return a baseline with its history, whose first entry is the present one."""
    entries = [shapes.BaselineEntry(**_entry_fields(entry)) for entry in history]
    return shapes.Baseline(name=history[0].name, **_entry_fields(history[0]), history=entries)


def _entry_fields(entry: Baseline) -> dict[str, Any]:
    return {
        "kind": entry.kind, "target": entry.target, "target_name": entry.target_name,
        "set_at": timestamp(entry.set_ns),
    }  # fmt: skip


def session_object(session: Session) -> shapes.Session:
    """Return a session with the state of its engine."""
    is_original = session.load.is_original
    return shapes.Session(
        trace=session.trace_id,
        selection=session.selection,
        args=session.load.args,
        source="original" if is_original else "columns",
        state=session.state,
        error=session.error.as_dict() if session.error else None,
        engine=shapes.Engine(
            version=session.version.code or None,
            pid=session.pid,
            rss_bytes=session.memory_bytes,
            peak_bytes=session.peak_bytes,
            predicted_bytes=session.predicted_bytes,
            restarts=session.restarts,
        ),
        progress=shapes.LoadProgress(
            bytes=session.loaded_bytes, events_total=None if is_original else session.load.events
        ),
        clients=session.clients,
        queries=session.queries,
        waiting=session.waiting,
        idle_s=round(session.idle_s, 3),
        load_s=session.load_s,
        account=session.load_report,
        account_reason=NO_REPORT if is_original else None,
        stats=session.issues,
    )


def _import_fields(order: Order, orders: Imports) -> dict[str, Any]:
    taken, skipped = orders.counts(order.id)
    return {
        **asdict(order.spec),
        "id": order.id,
        "watching": order.watches,
        "created_at": timestamp(order.created_ns),
        "ended_at": None if order.ended_ns is None else timestamp(order.ended_ns),
        "job": None if order.job is None else str(order.job),
        "taken": taken,
        "skipped": skipped,
    }


def import_in_brief(order: Order, orders: Imports) -> shapes.ImportInBrief:
    """Return an import with the numbers of files that it has taken and skipped."""
    return shapes.ImportInBrief(**_import_fields(order, orders))


def import_object(order: Order, orders: Imports, *, limit: int, after: str) -> shapes.Import:
    """Return an import with one page of its files.

    Args:
        order: the import.
        orders: the records of all imports.
        limit: maximum number of files of the page.
        after: path of the last file of the previous page; empty for the first page.
    """
    rows = orders.files(order.id, limit=limit + 1, after=after)
    files = [shapes.ImportedFile(path=file.path, trace=file.trace, why=file.why) for file in rows[:limit]]
    following = files[-1].path if len(rows) > limit else None
    return shapes.Import(**_import_fields(order, orders), files=files, next=following)
