"""The commands `jobs`: list, show, follow and cancel the server's jobs. Other commands use `run_job`."""

from __future__ import annotations

import signal
from collections.abc import Callable
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from tracedock.errors import ApiError

from service.cli.progress import stages
from service.cli.render import Column, dashed, moment, print_facts, print_json, print_table
from service.cli.report import note
from service.cli.terminal import on_terminal
from service.cli.traces import AsJson

if TYPE_CHECKING:
    from tracedock.client import Client

    from service.cli.selection import Json

app = typer.Typer(help="List the server's jobs: ingests, splits, merges, overlays and imports.")

Kind = Literal["ingest", "split", "merge", "overlay", "import"]


class State(StrEnum):
    """States of a job."""

    queued = "queued"
    running = "running"
    done = "done"
    failed = "failed"
    cancelled = "cancelled"


JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.")]

_FACTS = (
    "id", "kind", "state", "priority", "trace", "attempts", "created_at", "started_at", "ended_at", "eta_s",
)  # fmt: skip


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


_LISTED = (
    Column("job", right=True),
    Column("kind"),
    Column("state"),
    Column("priority"),
    Column("done", right=True, person=_percent),
    Column("left s", right=True, person=dashed),
    Column("created", person=moment),
    Column("trace", person=dashed),
    Column("error", person=dashed),
)


@app.callback(invoke_without_command=True)
def list_jobs(
    ctx: typer.Context,
    state: Annotated[list[State] | None, typer.Option(help="Only jobs in this state (repeatable).")] = None,
    kind: Annotated[Kind | None, typer.Option(help="Only jobs of this kind.")] = None,
    trace: Annotated[str | None, typer.Option(metavar="TRACE", help="Only jobs that read or made this trace.")] = None,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="Maximum number of jobs; 0 for all.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List the jobs of the server, newest first."""
    if ctx.invoked_subcommand is not None:
        return
    client: Client = ctx.obj
    matching = client.jobs(states=state or (), kind=kind, trace=client.find(trace)["id"] if trace else None)
    listed = list(islice(matching, limit or None))
    more = next(matching, None) is not None
    if as_json:
        print_json(listed)
    else:
        print_table(_LISTED, map(_row, listed))
    if more:
        note(f"These are the newest {limit}; there are more (--limit).")


@app.command()
def show(ctx: typer.Context, job: JobArgument, as_json: AsJson = False) -> None:
    """Show a job."""
    client: Client = ctx.obj
    _print(client.job(job), as_json=as_json)


@app.command()
def follow(ctx: typer.Context, job: JobArgument, as_json: AsJson = False) -> None:
    """Show the progress of a job until it ends."""
    client: Client = ctx.obj
    status = client.job(job)
    with stages(keep=False) as progress:
        status = client.follow_job(job, progress.following(f"{status['kind']} {job}"))
    _print(status, as_json=as_json)
    _check_end(status)


@app.command()
def cancel(ctx: typer.Context, job: JobArgument, as_json: AsJson = False) -> None:
    """Cancel a job, and delete its results; a job that has ended stays as it is."""
    client: Client = ctx.obj
    status = client.cancel(job)
    if as_json:
        print_json(status)
        return
    print(status["state"], status["id"], sep="  " if on_terminal() else "\t")


def _share(job: Json) -> float | None:
    progress = job["progress"]
    if job["state"] == "done":
        return 1.0
    for unit in ("bytes", "events"):
        if total := progress[f"{unit}_total"]:
            return float(progress[unit] / total)
    return None


def _row(job: Json) -> tuple[Any, ...]:
    error = job["error"] or {}
    return (
        job["id"], job["kind"], job["state"], job["priority"], _share(job), job["eta_s"], job["created_at"],
        job["trace"], error.get("code"),
    )  # fmt: skip


def _print(job: Json, *, as_json: bool) -> None:
    if as_json:
        print_json(job)
        return
    error, traces = job["error"], (job["result"] or {}).get("traces")
    facts = {name: job[name] for name in _FACTS}
    for unit in ("bytes", "events"):
        if total := job["progress"][f"{unit}_total"]:
            facts[unit] = f"{job['progress'][unit]} of {total}"
    facts |= {"made": " ".join(traces)} if traces else {}
    facts |= {"error": f"{error['title']}: {error['detail']} ({error['code']})"} if error else {}
    print_facts((name, value, dashed(value)) for name, value in facts.items() if value is not None)


def run_job(client: Client, label: str, start: Callable[[], Json]) -> Json:
    """Start a job, show its progress, and return it once it is done; Ctrl-C cancels it.

    Raises:
        ApiError: the job failed, or was cancelled.
    """
    job = _started(client, start)
    try:
        with stages(keep=False) as progress:
            job = client.follow_job(job["id"], progress.following(label))
    except KeyboardInterrupt:
        _cancel(client, job["id"])
        raise
    _check_end(job)
    return job


def _check_end(job: Json) -> None:
    """Raise `ApiError` for a job that failed or was cancelled."""
    if job["state"] == "failed":
        raise ApiError.of_problem(job["error"] or {}, 200)
    if job["state"] == "cancelled":
        raise ApiError("cancelled", "The job was cancelled", f"A client cancelled job {job['id']}.", 200)


def _started(client: Client, start: Callable[[], Json]) -> Json:
    """Start a job, and return it.

    The server may take seconds to return the job's id, and cancelling the job needs that id. So the first Ctrl-C waits
    for the id, and then cancels the job. A second Ctrl-C exits at once, and leaves the job running.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return start()
    interrupted = False

    def on_interrupt(*_: Any) -> None:
        nonlocal interrupted
        if interrupted:
            raise KeyboardInterrupt
        interrupted = True
        note("The job will be cancelled once the server returns its id; Ctrl-C again leaves it running.")

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        job = start()
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if interrupted:
        _cancel(client, job["id"])
        raise KeyboardInterrupt
    return job


def _cancel(client: Client, job_id: str) -> None:
    job = client.cancel(job_id)
    traces = ", ".join((job["result"] or {}).get("traces", []))
    note(f"Job {job_id} was already done: {traces}." if traces else f"Job {job_id} is cancelled.")
