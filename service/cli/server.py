"""The commands `serve` and `doctor`, for a server on this machine."""

# ruff: noqa: PLC0415 - only these commands need the service, which is slow to import

from __future__ import annotations

import gc
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any

import typer
from tracedock.errors import ClientError

from service.cli.render import Column, print_json, print_table
from service.cli.report import ingest_error, note, report, say
from service.cli.terminal import on_terminal
from service.cli.traces import AsJson, send

if TYPE_CHECKING:
    from service.settings import Settings

_FINDINGS = (Column("check"), Column("state"), Column("value", cut=True), Column("detail", wrap=True))


def serve(
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, metavar="PORT", help="Port to listen on; 0 for any.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(file_okay=False, metavar="DIR", help="Data folder of the server.")
    ] = None,
    perfetto_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, metavar="PORT", help="Local port for ui.perfetto.dev; 0 for none."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, readable=True, metavar="FILE", help="Trace to upload once the server is ready."
        ),
    ] = None,
) -> None:
    """Run the server until Ctrl-C."""
    gc.disable()  # until the server runs: while modules load, nothing is garbage, and each collection takes longer
    from pydantic import BaseModel
    from pydantic.warnings import UnsupportedFieldAttributeWarning

    # Models are built at their first use: those of FastAPI for OpenAPI alone took a twentieth of the start.
    # https://docs.pydantic.dev/latest/api/config/#pydantic.config.ConfigDict.defer_build
    BaseModel.model_config["defer_build"] = True
    warnings.simplefilter("ignore", UnsupportedFieldAttributeWarning)  # as FastAPI does while it makes models
    settings = settings_of(host=host, port=port, data=data, perfetto_port=perfetto_port)
    os.environ.pop("TRACEDOCK_TOKEN", None)  # it is in the settings; child processes must not see it
    with ThreadPoolExecutor(1, "engine check") as thread:
        thread.submit(_check_engine, settings)  # meanwhile, the server's code loads
        from service.app import serve as run

    def ready(url: str) -> None:
        print(f"Tracedock is ready at {url}" if on_terminal() else url, flush=True)
        if trace is not None:
            # A daemon thread, so that it does not keep a stopping server alive.
            token = settings.token.get_secret_value() if settings.token else None
            Thread(target=_upload, args=(url, token, trace), name="upload", daemon=True).start()

    run(settings, on_ready=ready)


def _check_engine(settings: Settings) -> None:
    """Verify the engine and the UI, and try the sandbox. The server uses the results, or raises the error anew."""
    from service.engine.trace_processor import protections, provision

    protections.summary(settings)
    provision.engine_path(settings)
    provision.ui_path(settings)


def doctor(
    engine_path: Annotated[
        bool, typer.Option("--engine-path", help="Only print the path of the trace_processor.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check that this machine meets the server's requirements."""
    settings = settings_of()
    if engine_path:
        from service.engine.trace_processor.provision import engine_path as path_of_engine

        path = path_of_engine(settings)
        if as_json:
            print_json({"engine_path": str(path)})
        else:
            print(path)
        return
    from service.engine.doctor import examine

    findings = examine(settings)
    if as_json:
        print_json([{"check": f.name, "ok": f.ok, "value": f.value, "detail": f.detail} for f in findings])
    else:
        print_table(_FINDINGS, [(f.name, "ok" if f.ok else "failed", f.value, f.detail) for f in findings])
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


def settings_of(**options: Any) -> Settings:
    """Return the settings of the environment; options of the command line override them.

    Raises:
        typer.BadParameter: a setting is invalid.
    """
    from pydantic import ValidationError

    from service.settings import Settings
    from service.trace.faults import faults_of

    try:
        return Settings(**{name: value for name, value in options.items() if value is not None})
    except ValidationError as exc:
        raise typer.BadParameter(f"settings: {faults_of(exc)}") from exc


def _upload(url: str, token: str | None, file: Path) -> None:
    """Upload a file to the server that is now ready, and print the link that opens it."""
    from tracedock.client import Client

    try:
        with Client(url, token) as client:
            trace = send(client, file, wait=True)
            failed = ingest_error(trace)
            if failed:
                report(failed)
            else:
                note(f"{trace['name']} is ready as {trace['id']}. Open it at:")
                print(client.perfetto_url(trace["id"]), flush=True)
    except (ClientError, OSError) as error:
        say(f"{file}:")
        report(error)
