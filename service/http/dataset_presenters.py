"""The API's JSON objects of datasets, built from the reports of the child that reads them."""

from typing import Any

from service.http import shapes
from service.http.cursors import timestamp
from service.jobs.children.tasks.datasets import DatasetReport, Failure, IngestReport, RunReport


def dataset_in_brief(name: str, location: str, report: DatasetReport) -> shapes.DatasetInBrief:
    """Return a dataset in the form of lists."""
    return shapes.DatasetInBrief(**_dataset_fields(name, location, report))


def dataset_object(name: str, location: str, report: DatasetReport) -> shapes.Dataset:
    """Return a dataset with its runs, its ingests and a page of its failures."""
    return shapes.Dataset(
        **_dataset_fields(name, location, report),
        runs=[*map(_dataset_run, report.runs)],
        ingests=[*map(_dataset_ingest, report.ingests)],
        failures=[*map(_dataset_failure, report.failures)],
        next=report.following,
    )


def _dataset_fields(name: str, location: str, report: DatasetReport) -> dict[str, Any]:
    return {
        "name": name,
        "location": location,
        "state": report.status,
        "reason": report.reason,
        "read_at": None if report.read_ns is None else timestamp(report.read_ns),
        "unread": report.unread,
        "runs_count": len(report.runs),
        "ranks": sum(run.ranks for run in report.runs),
        "progress": _ingest_progress(report),
    }


def _ingest_progress(report: DatasetReport) -> shapes.IngestProgress:
    """Sum up the ingests that run or, if none does, the last one; without any, the records alone."""
    last_ns = max((run.last_ns for run in report.runs), default=0)
    last_record_at = timestamp(last_ns) if last_ns else None
    ingests = [ingest for ingest in report.ingests if ingest.status == "running"] or report.ingests[:1]
    if not ingests:
        return shapes.IngestProgress(
            sources=None,
            done=sum(run.done for run in report.runs),
            failed=sum(run.failed for run in report.runs),
            bytes_done=sum(run.size_bytes for run in report.runs),
            bytes_total=None, bytes_per_s=None, left_s=None, reason=report.reason, last_record_at=last_record_at,
        )  # fmt: skip
    rates = [ingest.bytes_per_s for ingest in ingests if ingest.status == "running" and ingest.bytes_per_s is not None]
    left = [ingest.left_s for ingest in ingests]
    reasons = [ingest.reason for ingest in ingests if ingest.reason]
    return shapes.IngestProgress(
        sources=sum(ingest.sources for ingest in ingests),
        done=sum(ingest.done for ingest in ingests),
        failed=sum(ingest.failed for ingest in ingests),
        bytes_done=sum(ingest.settled_bytes for ingest in ingests),
        bytes_total=sum(ingest.size_bytes for ingest in ingests),
        bytes_per_s=sum(rates) if rates else None,
        left_s=None if None in left else max(seconds for seconds in left if seconds is not None),
        reason=reasons[0] if reasons else None if rates else "No ingest runs.",
        last_record_at=last_record_at,
    )


def _dataset_run(run: RunReport) -> shapes.DatasetRun:
    return shapes.DatasetRun(
        name=run.name, done=run.done, failed=run.failed, ranks=run.ranks, world_size=run.world_size,
        size=run.size_bytes, events=run.events, last_record_at=timestamp(run.last_ns),
    )  # fmt: skip


def _dataset_ingest(ingest: IngestReport) -> shapes.DatasetIngest:
    return shapes.DatasetIngest(
        id=ingest.key, state=ingest.status, host=ingest.host, process=ingest.process,
        started_at=timestamp(ingest.started_ns), beat_at=timestamp(ingest.beat_ns), sources=ingest.sources,
        done=ingest.done, failed=ingest.failed, bytes_done=ingest.settled_bytes, bytes_total=ingest.size_bytes,
        bytes_per_s=ingest.bytes_per_s, left_s=ingest.left_s, reason=ingest.reason,
    )  # fmt: skip


def _dataset_failure(failure: Failure) -> shapes.DatasetFailure:
    return shapes.DatasetFailure(
        run=failure.run, source=failure.source, attempts=failure.attempts, worker=failure.worker,
        failed_at=timestamp(failure.failed_ns), error=shapes.Error(**failure.error),
    )  # fmt: skip
