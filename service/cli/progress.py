"""How far an upload, an ingest or an engine is, always on stderr: bars for a person, else a few lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from service.cli.client import BytesReceived, BytesSent, Watcher
from service.cli.render import grouped, size, visible


class Stage(Protocol):
    """One thing under way. `total` is 0 while nobody knows it."""

    def update(self, done: int, total: int, note: str = "") -> None:
        """Say how far it is; `note` is what else is known."""


class Stages:
    """Makes the callbacks that the client reports to; each stage is shown from its first report on."""

    def __init__(self, start: Callable[[str], Stage]) -> None:
        self._start = start

    def uploading(self, name: str) -> BytesSent:
        """For `Client.upload(on_bytes=…)`."""
        return self._start(f"upload {visible(name)}").update

    def downloading(self, name: str) -> BytesReceived:
        """For `Download.write_to(on_bytes=…)`."""
        return self._start(f"download {visible(name)}").update

    def ingesting(self, name: str) -> Watcher:
        """For `Client.follow`: bytes of the file read, and events found in them."""
        stage = self._start(f"ingest {visible(name)}")

        def watch(trace: dict[str, Any]) -> None:
            at = trace["progress"]
            stage.update(at["bytes"], at["bytes_total"], f"{grouped(at['events'])} events")

        return watch

    def loading(self, name: str) -> Watcher:
        """For `Client.query(on_loading=…)`: bytes that the engine has read."""
        stage = self._start(f"load engine for {visible(name)}")

        def watch(session: dict[str, Any]) -> None:
            stage.update(session["progress"]["bytes"], session["progress"]["bytes_total"], session["state"])

        return watch


@contextmanager
def stages(*, keep: bool = True) -> Iterator[Stages]:
    """Show progress until the `with` ends; `keep` leaves the finished bars on the terminal."""
    if not sys.stderr.isatty():
        yield Stages(_Lines)
        return
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        console=Console(file=sys.stderr),
        transient=not keep,
        redirect_stdout=False,  # the answer goes to stdout, and stdout may be a pipe
    ) as progress:
        yield Stages(lambda label: _Bar(progress, label))


class _Bar:
    def __init__(self, progress: Progress, label: str) -> None:
        self._progress, self._label = progress, label
        self._task: Any = None

    def update(self, done: int, total: int, note: str = "") -> None:
        if self._task is None:
            self._task = self._progress.add_task(self._label, total=None, note="")
        self._progress.update(self._task, completed=done, total=total or None, note=note)


class _Lines:
    """For a log: a line at the first report, and one whenever another tenth is done."""

    def __init__(self, label: str) -> None:
        self._label, self._tenth = label, -1

    def update(self, done: int, total: int, note: str = "") -> None:
        tenth = 10 * done // total if total else 0
        if tenth > self._tenth:
            self._tenth = tenth
            share = f"{10 * tenth} % of {size(total)}" if total else size(done)
            print(f"{self._label}: {share}" + (f", {note}" if note else ""), file=sys.stderr, flush=True)
