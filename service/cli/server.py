"""Commands about this machine's server: serve, doctor."""

# ruff: noqa: PLC0415 - these need the service, which takes long to import: `ls` must not pay for it

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.client import Client
from service.cli.errors import ClientError
from service.cli.render import Column, on_terminal, print_table
from service.cli.report import failure, note, report
from service.cli.traces import send

if TYPE_CHECKING:
    from service.settings import Settings

_FINDINGS = (Column("check"), Column("state"), Column("value"), Column("detail"))


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any.")] = None,
    data: Annotated[
        Path | None, typer.Option(file_okay=False, metavar="DIR", help="Where the traces are kept.")
    ] = None,
    perfetto_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Local port that ui.perfetto.dev looks for; 0 for none."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, readable=True, metavar="FILE", help="Upload this once up."),
    ] = None,
) -> None:
    """Run the server, until Ctrl-C."""
    from service.app import serve as run

    settings = settings_of(host=host, port=port, data=data, perfetto_port=perfetto_port)

    def ready(url: str) -> None:
        print(f"Tracedock is ready at {url}" if on_terminal() else url, flush=True)
        if trace is not None:
            # A daemon: it must not keep a server alive that was told to stop.
            token = settings.token.get_secret_value() if settings.token else None
            Thread(target=_bring, args=(url, token, trace), name="upload", daemon=True).start()

    run(settings, on_ready=ready)


def doctor(
    engine_path: Annotated[
        bool, typer.Option("--engine-path", help="Only print where the trace_processor is.")
    ] = False,
) -> None:
    """Check that this machine has what the server needs."""
    settings = settings_of()
    if engine_path:
        from service.engine.trace_processor.provision import engine_path as path_of_engine

        print(path_of_engine(settings))
        return
    from service.engine.doctor import examine

    findings = examine(settings)
    print_table(_FINDINGS, [(f.name, "ok" if f.ok else "failed", f.value, f.detail) for f in findings])
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


def settings_of(**given: Any) -> Settings:
    """The settings, with what was given on the command line over the environment's."""
    from pydantic import ValidationError

    from service.settings import Settings

    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as exc:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in exc.errors())
        raise typer.BadParameter(f"settings: {wrong}") from exc


def _bring(url: str, token: str | None, file: Path) -> None:
    """Upload the file to the server that has just come up, and print the link that opens it."""
    try:
        with Client(url, token) as client:
            trace = send(client, file, wait=True)
            failed = failure(trace)
            if failed:
                report(failed)
            else:
                note(f"{trace['name']} is ready as {trace['id']}. It opens at:")
                print(client.perfetto_url(trace["id"]), flush=True)
    except (ClientError, OSError) as error:
        note(f"{file}:")
        report(error)
