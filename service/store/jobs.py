"""The queue: which work waits, runs and is over; in the catalog's file, so that it outlives the server.

An ingest and its trace change in one transaction, and so do a job and the traces that it has made.
"""

import math
import sqlite3
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

import orjson

from service.store.catalog import INGEST, State, Trace
from service.store.connection import Connection
from service.store.idempotency import note_made
from service.trace.errors import Cancelled, UnknownJob
from service.trace.summary import Summary

HISTORY = 10_000
_PRUNED_EVERY = 100
_SIZE = "ifnull((SELECT size FROM trace WHERE trace.id = job.trace), 0)"
_COST = (
    f"iif(job.trace IS NOT NULL, {_SIZE}, (SELECT ifnull(sum(size), 0) FROM trace"
    " WHERE trace.id IN (SELECT value FROM json_each(job.request, '$.traces'))))"
)
_ALL = f"*, {_SIZE} AS size, {_COST} AS cost"
AGEING_BYTES_PER_S = 5_000_000
"""A job that waits goes before a later one that is smaller by no more than this for each second between the two.

So one of 2.7 GB lets smaller ones pass for nine minutes, and is then next.
"""


class Priority(IntEnum):
    """Which jobs go first: what somebody waits for comes before what is taken by the dozen."""

    INTERACTIVE = 0
    BULK = 1


class JobState(StrEnum):
    """What has become of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        """Whether it stays so."""
        return self not in (JobState.QUEUED, JobState.RUNNING)


@dataclass(frozen=True)
class Job:
    """A piece of work that is to be done: `kind` says what, `attempts` how often it was begun.

    An ingest makes `trace`, of `size` bytes, ready. Other jobs make traces, as their `request` says. Over, a job tells
    in `result` what it has made, and how many `events` that has, or what `error` it ended with. `cost` is the size in
    bytes of all traces that it works on.
    """

    id: int
    kind: str
    trace: str
    attempts: int
    state: JobState = JobState.QUEUED
    request: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] | None = None
    events: int = 0
    error: dict[str, Any] | None = None
    priority: Priority = Priority.INTERACTIVE
    created_ns: int = 0
    started_ns: int | None = None
    ended_ns: int | None = None
    size: int = 0
    cost: int = 0


class Jobs:
    """The jobs in the catalog's file.

    Args:
        connection: the file.
        history: how many of those that are over stay.
    """

    def __init__(self, connection: Connection, *, history: int = HISTORY) -> None:
        self._transaction, self._rows = connection.transaction, connection.rows
        self._history = history
        self.ended: Counter[tuple[str, JobState]] = Counter()
        """How many of each kind this server has seen end so."""
        self.events: Counter[str] = Counter()
        """How many events those of each kind have read or written."""

    def add(
        self,
        kind: str,
        request: dict[str, Any],
        *,
        trace: str | None = None,
        priority: Priority = Priority.INTERACTIVE,
    ) -> Job:
        """Queue a job that is no ingest; `trace` is the one that it works on, if it is one."""
        with self._transaction() as db:
            row = db.execute(
                "INSERT INTO job (kind, trace, request, state, priority, created_ns)"
                " VALUES (?, ?, ?, 'queued', ?, ?) RETURNING " + _ALL,
                (kind, trace, _text(request), priority, time.time_ns()),
            ).fetchone()
            note_made(db, f"job/{row['id']}")
        return _job(row)

    def get(self, job_id: int) -> Job:
        """The job with that id; raises `UnknownJob`."""
        rows = self._rows(f"SELECT {_ALL} FROM job WHERE id = ?", (job_id,)) if 0 <= job_id < 1 << 63 else []
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
        """Jobs from the newest on.

        Args:
            limit: how many at most.
            before: id of the last job of the page before.
            states: only those in one of these.
            kind: only those of that kind.
            trace: only those that work on that trace, or have made it.
        """
        rows = self._rows(
            f"SELECT {_ALL} FROM job WHERE id < ? AND (? = '[]' OR state IN (SELECT value FROM json_each(?)))"
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
        """The jobs that are not over, the oldest first."""
        rows = self._rows(f"SELECT {_ALL} FROM job WHERE state IN ('queued', 'running') ORDER BY id")
        return [_job(row) for row in rows]

    def unfinished_counts(self) -> dict[tuple[str, JobState], int]:
        """How many jobs of each kind wait, and run."""
        rows = self._rows(
            "SELECT kind, state, count(*) AS count FROM job WHERE state IN ('queued', 'running') GROUP BY kind, state"
        )
        return {(row["kind"], JobState(row["state"])): row["count"] for row in rows}

    # -- on their way -------------------------------------------------------------------------------------------------

    def requeue(self) -> None:
        """Put back what was running when the server before this one ended, which was no fault of the job."""
        if not self._rows("SELECT 1 FROM job WHERE state = 'running' LIMIT 1"):
            return
        with self._transaction() as db:
            db.execute("UPDATE job SET state = 'queued', attempts = attempts - 1 WHERE state = 'running'")
            db.execute("UPDATE trace SET state = ? WHERE state = ?", (State.QUEUED, State.INGESTING))

    def take(
        self,
        kinds: Sequence[str],
        *,
        trace: str | None = None,
        awaited: Collection[int] = (),
        cost_max: float = math.inf,
    ) -> Job | None:
        """Begin the next job, if any waits: awaited ones first, then by priority, then small and old ones first.

        Args:
            kinds: of the job.
            trace: that it works on, if not on any.
            awaited: ids of jobs for whose end a client waits.
            cost_max: the most bytes that it works on.
        """
        with self._transaction() as db:
            row = db.execute(
                "UPDATE job SET state = 'running', attempts = attempts + 1, started_ns = ifnull(started_ns, ?)"
                " WHERE id = (SELECT id FROM job WHERE state = 'queued'"
                f" AND kind IN (SELECT value FROM json_each(?)) AND (? IS NULL OR trace = ?) AND {_COST} <= ?"
                " ORDER BY id IN (SELECT value FROM json_each(?)) DESC, priority,"
                f" created_ns + {_COST} * ?, id LIMIT 1) RETURNING {_ALL}",
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

    def retry(self, job: Job) -> None:
        """Put a job that runs back into the queue."""
        with self._transaction() as db:
            found = db.execute("UPDATE job SET state = 'queued' WHERE id = ? AND state = 'running'", (job.id,))
            if found.rowcount and job.kind == INGEST:
                db.execute("UPDATE trace SET state = ? WHERE id = ?", (State.QUEUED, job.trace))

    # -- over: what is over stays so ----------------------------------------------------------------------------------

    def done(self, job: Job, result: dict[str, Any], *, made: Sequence[Trace] = (), events: int = 0) -> None:
        """The job has done what it was to do.

        Args:
            job: the job.
            result: what it tells of that.
            made: traces that are ready with it.
            events: that these have.

        Raises:
            Cancelled: nobody wants that any more, and nothing is noted.
        """
        with self._transaction() as db:
            if not self._end(db, job, JobState.DONE, result=result, events=events):
                raise Cancelled(f"The job {job.id} was cancelled.")
            for one in made:
                db.execute(
                    "INSERT INTO trace (id, name, state, created_ns, size, sha256, summary, parent, selection)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        *(one.id, one.name, one.state, one.created_ns, one.size, one.sha256),
                        *(_text(one.summary), one.parent, _text(one.selection)),
                    ),
                )

    def read(self, job: Job, summary: Summary) -> None:
        """The ingest is done: its trace is ready."""
        with self._transaction() as db:
            events = summary.events.get("kept", 0)
            if self._end(db, job, JobState.DONE, result={"traces": [job.trace]}, events=events):
                db.execute(
                    "UPDATE trace SET state = ?, summary = ? WHERE id = ?",
                    (State.READY, _text(asdict(summary)), job.trace),
                )

    def fail(self, job: Job, error: dict[str, Any]) -> None:
        """The job can't be done, for `error`; nor can the trace of an ingest be had."""
        with self._transaction() as db:
            if self._end(db, job, JobState.FAILED, error=error):
                self._lose(db, job, error)

    def cancel(self, job: Job) -> bool:
        """Nobody wants the job any more, so that the trace of an ingest can't be had; whether it was not over."""
        with self._transaction() as db:
            if ended := self._end(db, job, JobState.CANCELLED):
                self._lose(db, job, Cancelled("Its ingest was cancelled.").as_dict())
        return ended

    @staticmethod
    def _lose(db: sqlite3.Connection, job: Job, error: dict[str, Any]) -> None:
        if job.kind == INGEST:
            db.execute("UPDATE trace SET state = ?, error = ? WHERE id = ?", (State.FAILED, _text(error), job.trace))

    def _end(
        self,
        db: sqlite3.Connection,
        job: Job,
        state: JobState,
        *,
        result: dict[str, Any] | None = None,
        error: dict[str, Any] | None = None,
        events: int = 0,
    ) -> bool:
        """End a job, and now and then forget the oldest that are over; whether it was not over yet."""
        found = db.execute(
            "UPDATE job SET state = ?, result = ?, error = ?, events = ?, ended_ns = ?"
            " WHERE id = ? AND state IN ('queued', 'running')",
            (state, _text(result), _text(error), events, time.time_ns(), job.id),
        )
        if not found.rowcount:
            return False
        self.ended[job.kind, state] += 1
        self.events[job.kind] += events
        if self.ended.total() % _PRUNED_EVERY == 0:
            db.execute(
                "DELETE FROM job WHERE state NOT IN ('queued', 'running') AND id <= (SELECT id FROM job"
                " WHERE state NOT IN ('queued', 'running') ORDER BY id DESC LIMIT 1 OFFSET ?)",
                (self._history,),
            )
        return True


def _text(value: dict[str, Any] | None) -> str | None:
    return None if value is None else orjson.dumps(value).decode()


def _job(row: sqlite3.Row) -> Job:
    values = dict(row)
    for key in ("request", "result", "error"):
        values[key] = orjson.loads(values[key]) if values[key] else None
    return Job(
        **values
        | {
            "trace": values["trace"] or "",
            "state": JobState(values["state"]),
            "priority": Priority(values["priority"]),
        }
    )
