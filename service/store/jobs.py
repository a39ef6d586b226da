"""The durable queue of jobs, in the catalog's file.

An ingest and its trace change in one transaction, and so do a job and the traces that it creates.
"""

import math
import sqlite3
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TypedDict

import orjson

from service.store.catalog import INGEST, State, Trace
from service.store.connection import Connection
from service.store.idempotency import record_created
from service.trace.errors import Cancelled, ErrorDocument, TracedockError, UnknownJob
from service.trace.summary import Summary

ENDED_JOBS_KEPT = 10_000
_PRUNING_INTERVAL = 100
"""Number of jobs that end between two deletions of the oldest ended jobs."""

_SIZE = "ifnull((SELECT size FROM trace WHERE trace.id = job.trace), 0)"
_COST = (
    f"iif(job.trace IS NOT NULL, {_SIZE}, (SELECT ifnull(sum(size), 0) FROM trace"
    " WHERE trace.id IN (SELECT value FROM json_each(job.request, '$.traces'))))"
)
_TRACE_NAME = "(SELECT name FROM trace WHERE trace.id = job.trace)"
_JOB_COLUMNS = f"*, {_SIZE} AS size, {_COST} AS cost, {_TRACE_NAME} AS trace_name"
AGEING_BYTES_PER_S = 5_000_000
"""Bytes that one second of waiting is worth when queued jobs are ordered by cost.

A job of 2.7 GB yields to smaller jobs that are queued in the next nine minutes.
"""


class Priority(IntEnum):
    """Priority of a job: jobs that a user waits for come before bulk imports."""

    INTERACTIVE = 0
    BULK = 1


class JobState(StrEnum):
    """State of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """True if the state is final."""
        return self not in (JobState.QUEUED, JobState.RUNNING)


class JobResult(TypedDict):
    """Result of a job: the ids of the traces that it created or read. The results of some kinds have further keys."""

    traces: list[str]


@dataclass(frozen=True)
class Job:
    """A job.

    Attributes:
        kind: the kind of work; an ingest makes its `trace` ready, others create traces as their `request` describes.
        request: the parameters of the job; their shape depends on `kind`. The keys `trace` and `traces` have the ids
            of the traces that the job works on.
        attempts: number of times that the job was started.
        result: the result of a done job.
        events: number of events that a done job read or wrote.
        error: the error of a failed job.
        size: size in bytes of the original of `trace`, or 0 without a `trace`.
        cost: size in bytes of all traces that the job works on.
        trace_name: name of `trace`; None without a `trace`, or if it was deleted.
    """

    id: int
    kind: str
    trace: str
    attempts: int
    state: JobState = JobState.QUEUED
    request: Mapping[str, object] = field(default_factory=dict)
    result: JobResult | None = None
    events: int = 0
    error: ErrorDocument | None = None
    priority: Priority = Priority.INTERACTIVE
    created_ns: int = 0
    started_ns: int | None = None
    ended_ns: int | None = None
    size: int = 0
    cost: int = 0
    trace_name: str | None = None


class Jobs:
    """The jobs in the catalog's file.

    Args:
        connection: the connection to the file.
        history: number of ended jobs that are kept.
    """

    def __init__(self, connection: Connection, *, history: int = ENDED_JOBS_KEPT) -> None:
        self._transaction, self._rows = connection.transaction, connection.rows
        self._history = history
        self.ended: Counter[tuple[str, JobState]] = Counter()
        """Number of jobs that ended since the server started, by kind and final state."""
        self.events: Counter[str] = Counter()
        """Number of events that jobs read or wrote since the server started, by kind."""

    def add(
        self,
        kind: str,
        request: Mapping[str, object],
        *,
        trace: str | None = None,
        priority: Priority = Priority.INTERACTIVE,
    ) -> Job:
        """Queue a job other than an ingest; `trace` is the single trace that it works on, if any."""
        with self._transaction() as db:
            row = db.execute(
                "INSERT INTO job (kind, trace, request, state, priority, created_ns)"
                " VALUES (?, ?, ?, 'queued', ?, ?) RETURNING " + _JOB_COLUMNS,
                (kind, trace, _json_or_none(request), priority, time.time_ns()),
            ).fetchone()
            record_created(db, f"job/{row['id']}")
        return _job(row)

    def get(self, job_id: int) -> Job:
        """Return the job with an id; raises `UnknownJob`."""
        rows = self._rows(f"SELECT {_JOB_COLUMNS} FROM job WHERE id = ?", (job_id,)) if 0 <= job_id < 1 << 63 else []
        if not rows:
            raise UnknownJob(f"No job has the id {job_id}.")
        return _job(rows[0])

    def page(
        self,
        *,
        limit: int,
        before: int | None = None,
        states: Sequence[JobState] = (),
        kind: str | None = None,
        trace: str | None = None,
    ) -> list[Job]:
        """Return a page of jobs, the newest first.

        Args:
            limit: largest number of jobs.
            before: id of the last job of the previous page.
            states: return only jobs in one of these states.
            kind: return only jobs of this kind.
            trace: return only jobs that work on this trace or created it.
        """
        rows = self._rows(
            f"SELECT {_JOB_COLUMNS} FROM job WHERE id < ? AND (? = '[]' OR state IN (SELECT value FROM json_each(?)))"
            " AND (? IS NULL OR kind = ?) AND (? IS NULL OR trace = ?"
            " OR ? IN (SELECT value FROM json_each(request, '$.traces'))"
            " OR ? IN (SELECT value FROM json_each(result, '$.traces'))) ORDER BY id DESC LIMIT ?",
            (
                (1 << 63) - 1 if before is None else before,
                *[orjson.dumps(list(states)).decode()] * 2,
                *[kind] * 2,
                *[trace] * 4,
                limit,
            ),
        )
        return [_job(row) for row in rows]

    def unfinished(self) -> list[Job]:
        """Return the jobs that have not ended, the oldest first."""
        rows = self._rows(f"SELECT {_JOB_COLUMNS} FROM job WHERE state IN ('queued', 'running') ORDER BY id")
        return [_job(row) for row in rows]

    def unfinished_counts(self) -> dict[tuple[str, JobState], int]:
        """Return the numbers of queued and running jobs by kind and state."""
        rows = self._rows(
            "SELECT kind, state, count(*) AS count FROM job WHERE state IN ('queued', 'running') GROUP BY kind, state"
        )
        return {(row["kind"], JobState(row["state"])): row["count"] for row in rows}

    # -- transitions -------------------------------------------------------------------------------------------------

    def requeue_interrupted(self) -> None:
        """Requeue jobs that were running when the previous server ended, without counting the attempt."""
        if not self._rows("SELECT 1 FROM job WHERE state = 'running' LIMIT 1"):
            return
        with self._transaction() as db:
            db.execute("UPDATE job SET state = 'queued', attempts = attempts - 1 WHERE state = 'running'")
            db.execute("UPDATE trace SET state = ? WHERE state = ?", (State.QUEUED, State.INGESTING))

    def claim(
        self,
        kinds: Sequence[str],
        *,
        trace: str | None = None,
        awaited: Collection[int] = (),
        cost_max: float = math.inf,
    ) -> Job | None:
        """Mark the next queued job as running and return it; None if there is none.

        Awaited jobs come first, then jobs of higher priority, then small and old ones.

        Args:
            kinds: the kinds to choose from.
            trace: choose only a job that works on this trace.
            awaited: ids of jobs that clients are waiting for.
            cost_max: largest cost of the job in bytes.
        """
        with self._transaction() as db:
            row = db.execute(
                "UPDATE job SET state = 'running', attempts = attempts + 1, started_ns = ifnull(started_ns, ?)"
                " WHERE id = (SELECT id FROM job WHERE state = 'queued'"
                f" AND kind IN (SELECT value FROM json_each(?)) AND (? IS NULL OR trace = ?) AND {_COST} <= ?"
                " ORDER BY id IN (SELECT value FROM json_each(?)) DESC, priority,"
                f" created_ns + {_COST} * ?, id LIMIT 1) RETURNING {_JOB_COLUMNS}",
                (
                    *(time.time_ns(), orjson.dumps(list(kinds)).decode(), trace, trace, cost_max),
                    *(orjson.dumps(list(awaited)).decode(), 1_000_000_000 / AGEING_BYTES_PER_S),
                ),
            ).fetchone()
            if row is None:
                return None
            if row["kind"] == INGEST:
                db.execute("UPDATE trace SET state = ? WHERE id = ?", (State.INGESTING, row["trace"]))
        return _job(row)

    def retry(self, job: Job, *, counts: bool = True) -> None:
        """Requeue a running job whose attempt failed; `counts` tells whether the attempt counts."""
        with self._transaction() as db:
            update = db.execute(
                "UPDATE job SET state = 'queued', attempts = attempts - ? WHERE id = ? AND state = 'running'",
                (not counts, job.id),
            )
            if update.rowcount and job.kind == INGEST:
                db.execute("UPDATE trace SET state = ? WHERE id = ?", (State.QUEUED, job.trace))

    # -- final transitions ----------------------------------------------------------------------------------

    def finish(self, job: Job, result: JobResult, *, children: Sequence[Trace] = (), events: int = 0) -> None:
        """End a job as done, and record the traces that it created.

        Args:
            job: the job.
            result: its result.
            children: the created traces, all of them ready.
            events: number of events that the job read or wrote.

        Raises:
            Cancelled: the job was cancelled; nothing is recorded.
        """
        with self._transaction() as db:
            if not self._end(db, job, JobState.DONE, result=result, events=events):
                raise Cancelled(f"The job {job.id} was cancelled.")
            for child in children:
                db.execute(
                    "INSERT INTO trace (id, name, state, created_ns, size, sha256, summary, parent, selection)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        *(child.id, child.name, child.state, child.created_ns, child.size, child.sha256),
                        *(child.summary and child.summary.as_json(), child.parent, _json_or_none(child.selection)),
                    ),
                )

    def finish_ingest(self, job: Job, summary: Summary, *, keeps_original: bool = True) -> bool:
        """End an ingest as done and mark its trace ready; return False, and do nothing, if the job has already ended.

        Args:
            job: the ingest.
            summary: the summary of its trace.
            keeps_original: whether the trace keeps its original; the caller removes it otherwise.
        """
        with self._transaction() as db:
            events = summary.events.get("kept", 0)
            ended = self._end(db, job, JobState.DONE, result={"traces": [job.trace]}, events=events)
            if ended:
                db.execute(
                    "UPDATE trace SET state = ?, summary = ?, original_removed = ? WHERE id = ?",
                    (State.READY, summary.as_json(), not keeps_original, job.trace),
                )
        return ended

    def fail(self, job: Job, error: TracedockError) -> None:
        """End a job as failed; the trace of an ingest fails with the same error."""
        with self._transaction() as db:
            if self._end(db, job, JobState.FAILED, error=error):
                self._fail_trace(db, job, error)

    def cancel(self, job: Job) -> bool:
        """Cancel a job, so that the trace of an ingest fails; return False if it had already ended."""
        with self._transaction() as db:
            if ended := self._end(db, job, JobState.CANCELLED):
                self._fail_trace(db, job, Cancelled("The ingest of this trace was cancelled."))
        return ended

    @staticmethod
    def _fail_trace(db: sqlite3.Connection, job: Job, error: TracedockError) -> None:
        if job.kind == INGEST:
            text = _json_or_none(error.as_dict())
            db.execute("UPDATE trace SET state = ?, error = ? WHERE id = ?", (State.FAILED, text, job.trace))

    def _end(
        self,
        db: sqlite3.Connection,
        job: Job,
        state: JobState,
        *,
        result: JobResult | None = None,
        error: TracedockError | None = None,
        events: int = 0,
    ) -> bool:
        """End a job; return False if it had already ended.

        Every `_PRUNING_INTERVAL` ends, it deletes the oldest ended jobs.
        """
        update = db.execute(
            "UPDATE job SET state = ?, result = ?, error = ?, events = ?, ended_ns = ?"
            " WHERE id = ? AND state IN ('queued', 'running')",
            (
                state,
                _json_or_none(result),
                _json_or_none(error.as_dict() if error else None),
                events,
                time.time_ns(),
                job.id,
            ),
        )
        if not update.rowcount:
            return False
        self.ended[job.kind, state] += 1
        self.events[job.kind] += events
        if self.ended.total() % _PRUNING_INTERVAL == 0:
            db.execute(
                "DELETE FROM job WHERE state NOT IN ('queued', 'running') AND id <= (SELECT id FROM job"
                " WHERE state NOT IN ('queued', 'running') ORDER BY id DESC LIMIT 1 OFFSET ?)",
                (self._history,),
            )
        return True


def _json_or_none(value: Mapping[str, object] | None) -> str | None:
    return None if value is None else orjson.dumps(value).decode()


def _job(row: sqlite3.Row) -> Job:
    values = dict(row)
    for key in ("request", "result", "error"):
        values[key] = orjson.loads(values[key]) if values[key] else None
    return Job(
        **values
        | {
            "trace": values["trace"] or "",
            "error": ErrorDocument.from_dict(values["error"]) if values["error"] else None,
            "state": JobState(values["state"]),
            "priority": Priority(values["priority"]),
        }
    )
