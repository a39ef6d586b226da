"""Jobs: splits, merges, overlays and imports."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Optional
from urllib.parse import quote

from tracedock.asynchronous.resource import FOLLOW_S, AsyncResource, share_of
from tracedock.errors import (
    ApiError,
    WaitTimeoutError,
)
from tracedock.messages import (
    SYNC_S,
    Json,
    Ref,
    SelectionLike,
    Watcher,
    chosen,
    given,
    id_of,
    job_path,
    patience,
    split_body,
    trace_path,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tracedock.selection import Criteria


class AsyncJobs(AsyncResource):
    """The methods of jobs, and those that start them."""

    async def split(
        self,
        trace: Ref,
        *,
        selection: SelectionLike = None,
        by: Optional[str] = None,
        value: Optional[int] = None,
        **criteria: Unpack[Criteria],
    ) -> Json:
        """Start a split of the trace, and return its job; see `finish`.

        Args:
            trace: the trace.
            selection: the events to keep; by default all.
            by: `step`, `stream`, `device`, `rank`, `duration`, `parts` or `size`; by default a single piece.
            value: the ns of a `duration`, the number of `parts`, or the bytes of a piece's JSON document for `size`.
            criteria: the events to keep, as keyword arguments.
        """
        body = split_body(selection, criteria, by, value)
        return await self._connection.json("POST", f"{trace_path(trace)}/split", json=body, key=True)

    async def plan(
        self,
        trace: Ref,
        *,
        selection: SelectionLike = None,
        by: Optional[str] = None,
        value: Optional[int] = None,
        **criteria: Unpack[Criteria],
    ) -> Json:
        """Return the plan of a split: `{"pieces": [{"name", "selection", "events", "counts", "size"}], "events"}`."""
        return await self._connection.json(
            "POST",
            f"{trace_path(trace)}/split",
            json={**split_body(selection, criteria, by, value), "dry_run": True},
            repeatable=True,
            timeout=patience(read=SYNC_S),  # the server reads the whole trace
        )

    async def overlay(
        self, trace: Ref, analysis: str, *, selection: SelectionLike = None, **criteria: Unpack[Criteria]
    ) -> Json:
        """Start an overlay of the result of an analysis on the trace, and return its job.

        Args:
            trace: the trace.
            analysis: name of the analysis: `critical_path`.
            selection: the events to keep; by default all.
            criteria: fields of the selection, as keyword arguments.
        """
        body = {"analysis": analysis, "selection": chosen(selection, criteria) or {}}
        return await self._connection.json("POST", f"{trace_path(trace)}/overlay", json=body, key=True)

    async def merge(
        self,
        traces: Sequence[Ref],
        *,
        align: str = "collectives",
        ranks: Optional[Sequence[int]] = None,
        name: Optional[str] = None,
        cycle: Optional[int] = None,
    ) -> Json:
        """Start a merge of the ranks of a run, or of parts of one trace, and return its job.

        Args:
            traces: at least two traces.
            align: clock alignment: `none`, by base times (`base`), or also by the ends of `collectives`.
            ranks: the rank of each trace, if the traces do not contain it.
            name: name of the merged trace.
            cycle: number of the cycle to merge, if the traces are of several cycles.

        Raises:
            SelectionError: the traces are of several cycles, and none is chosen (``cannot_merge``), or they do not
                have the chosen one (``unknown_cycle``).
        """
        body = {"traces": list(map(id_of, traces)), "align": align, "ranks": None if ranks is None else list(ranks)}
        body |= given({"name": name, "cycle": cycle})
        return await self._connection.json("POST", "traces/merge", json=body, key=True)

    async def import_files(self, request: Json) -> Json:
        """Start an import of files from the server's disk, and return its job; the request is that of the API."""
        return await self._connection.json("POST", "traces/import", json=request, key=True)

    async def imports(self) -> list[Json]:
        """Return the imports that watch for new files."""
        imports: list[Json] = (await self._connection.json("GET", "imports"))["imports"]
        return imports

    async def end_import(self, import_id: str) -> Json:
        """End an import that watches for new files, and return it."""
        return await self._connection.json("DELETE", f"imports/{quote(import_id, safe='')}")

    async def job(self, job: Ref, *, wait: float = 0) -> Json:
        """Return a job; wait at most `wait` seconds until it ends."""
        return await self._held("GET", job_path(job), wait)

    async def jobs(
        self, *, states: Sequence[str] = (), kind: Optional[str] = None, trace: Optional[Ref] = None
    ) -> AsyncIterator[Json]:
        """Yield the matching jobs, newest first; `trace` is a trace that the jobs read or created."""
        query = given({"state": list(states), "kind": kind, "trace": None if trace is None else id_of(trace)})
        async for job in self._pages("jobs", query):
            yield job

    async def follow_job(self, job: Ref, on_job: Optional[Watcher] = None) -> Json:
        """Wait without a limit until the job is done, failed or cancelled; `on_job` receives it about once a second.

        The job's `result["traces"]` lists the ids of the new traces, and its `error` describes a failure.
        """
        while True:
            current = await self.job(job, wait=FOLLOW_S)
            if on_job:
                on_job(current)
            if current["state"] in ("done", "failed", "cancelled"):
                return current

    async def finish(self, job: Ref, *, timeout_s: Optional[float] = None, on_job: Optional[Watcher] = None) -> Json:
        """Wait until the job is done, and return it; its `result["traces"]` lists the ids of the new traces.

        Args:
            job: the job.
            timeout_s: seconds to wait; None for no limit.
            on_job: receives the job about once a second.

        Raises:
            ApiError: the job failed; a `CancelledError` if it was cancelled.
            WaitTimeoutError: the job is not done in time; it continues.
        """
        ends_at = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            current = await self.job(job, wait=share_of(ends_at))
            if on_job:
                on_job(current)
            if current["state"] == "done":
                return current
            if current["state"] in ("failed", "cancelled"):
                fallback = {"code": current["state"], "title": f"The job is {current['state']}"}
                raise ApiError.of_problem(current["error"] or fallback, 200)
            if ends_at is not None and timeout_s is not None and time.monotonic() >= ends_at:
                raise WaitTimeoutError(current, timeout_s)

    async def cancel(self, job: Ref) -> Json:
        """Cancel the job, and return it. Unfinished results are deleted; a job that has ended stays as it is."""
        return await self._connection.json("DELETE", job_path(job), repeatable=True)
