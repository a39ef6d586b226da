"""Commands about the server's jobs: list them, describe, follow or cancel one."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer

from service.cli.client import Client, Json
from service.cli.errors import ApiError
from service.cli.progress import stages
from service.cli.render import Column, dashed, on_terminal, print_facts, print_json, print_table
from service.cli.report import note
from service.cli.traces import AsJson

app = typer.Typer(help="List what the server does, has to do and has done: it reads traces, splits, merges, imports.")

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The number of a job.")]

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
    Column("created", person=dashed),
    Column("trace", person=dashed),
    Column("error", person=dashed),
)


@app.callback(invoke_without_command=True)
def list_jobs(
    ctx: typer.Context,
    state: Annotated[
        list[str] | None, typer.Option(help="Only queued, running, done, failed or cancelled ones.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="Only those that ingest, split, merge, overlay or import.")] = None,
    trace: Annotated[
        str | None, typer.Option(metavar="TRACE", help="Only those that work on this, or have made it.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="At most so many; 0 for all.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List the jobs of the server, newest first."""
    if ctx.invoked_subcommand is not None:
        return
    client: Client = ctx.obj
    every = client.jobs(states=state or (), kind=kind, trace=client.find(trace)["id"] if trace else None)
    found = list(islice(every, limit or None))
    more = next(every, None) is not None
    if as_json:
        print_json(found)
    else:
        print_table(_LISTED, [_listed(job) for job in found])
    if more:
        note(f"These are the newest {limit}; there are more (--limit).")


@app.command()
def show(ctx: typer.Context, job: JobArgument, as_json: AsJson = False) -> None:
    """Describe one job."""
    client: Client = ctx.obj
    _print(client.job(job), as_json=as_json)


@app.command()
def follow(ctx: typer.Context, job: JobArgument, as_json: AsJson = False) -> None:
    """Show how far a job is until it is over."""
    client: Client = ctx.obj
    found = client.job(job)
    with stages(keep=False) as shown:
        found = client.follow_job(job, shown.following(f"{found['kind']} {job}"))
    _print(found, as_json=as_json)
    if found["state"] == "failed":
        raise ApiError.of_problem(found["error"] or {}, 200)
    if found["state"] == "cancelled":
        raise ApiError("cancelled", "The job was cancelled", f"Somebody cancelled the job {job}.", 200)


@app.command()
def cancel(ctx: typer.Context, job: JobArgument) -> None:
    """End a job, and remove what it has made; one that is over stays as it is."""
    client: Client = ctx.obj
    found = client.cancel(job)
    print(found["state"], found["id"], sep="  " if on_terminal() else "\t")


def _share(job: Json) -> float | None:
    at = job["progress"]
    if job["state"] == "done":
        return 1.0
    for unit in ("bytes", "events"):
        if total := at[f"{unit}_total"]:
            return float(at[unit] / total)
    return None


def _listed(job: Json) -> tuple[Any, ...]:
    error = job["error"] or {}
    return (
        job["id"], job["kind"], job["state"], job["priority"], _share(job), job["eta_s"], job["created_at"],
        job["trace"], error.get("code"),
    )  # fmt: skip


def _print(job: Json, *, as_json: bool) -> None:
    if as_json:
        print_json(job)
        return
    error, made = job["error"], (job["result"] or {}).get("traces")
    told = {name: job[name] for name in _FACTS}
    for unit in ("bytes", "events"):
        if total := job["progress"][f"{unit}_total"]:
            told[unit] = f"{job['progress'][unit]} of {total}"
    told |= {"made": " ".join(made)} if made else {}
    told |= {"error": f"{error['title']}: {error['detail']} ({error['code']})"} if error else {}
    print_facts((name, value, dashed(value)) for name, value in told.items() if value is not None)
