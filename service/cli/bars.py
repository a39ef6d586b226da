"""Bars of progress on a terminal."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    Task,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Column
from rich.text import Text

from service.cli.quantities import grouped, size


def new_bars(*, keep: bool) -> Progress:
    """Create the bars, a context manager; `keep` leaves the finished ones on the terminal."""
    return Progress(
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
        BarColumn(bar_width=20),
        _Done(),
        _Speed(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False, table_column=Column(no_wrap=True)),
        console=Console(file=sys.stderr),
        transient=not keep,
        redirect_stdout=False,  # the result goes to stdout, which may be a pipe
    )


class _Done(DownloadColumn):
    def render(self, task: Task) -> Text:
        if task.fields["unit"] is size:
            return super().render(task)
        total = "?" if task.total is None else grouped(int(task.total))
        return Text(f"{grouped(int(task.completed))}/{total} events", style="progress.download")


class _Speed(TransferSpeedColumn):
    def render(self, task: Task) -> Text:
        return super().render(task) if task.fields["unit"] is size else Text("")
