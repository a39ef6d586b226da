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

from service.cli.layout import cut_middle
from service.cli.quantities import grouped, size

_WIDE, _FIXED_WIDE, _FIXED_NARROW, _NARROWEST_LABEL = 90, 80, 44, 14
"""Width of a terminal that shows speeds and times, and the columns of it that all but the label take."""


def new_bars(*, keep: bool) -> Progress:
    """Create the bars, a context manager; `keep` leaves the finished ones on the terminal. Each takes one line."""
    console = Console(file=sys.stderr)
    is_wide = console.width >= _WIDE
    label = _Label(max(_NARROWEST_LABEL, console.width - (_FIXED_WIDE if is_wide else _FIXED_NARROW)))
    timing = [_Speed(table_column=_one_line()), TimeRemainingColumn(table_column=_one_line())] if is_wide else []
    return Progress(
        label,
        BarColumn(bar_width=20 if is_wide else 8),
        _Done(table_column=_one_line()),
        *timing,
        TextColumn("{task.fields[note]}", markup=False, table_column=_one_line()),
        console=console,
        transient=not keep,
        redirect_stdout=False,  # the result goes to stdout, which may be a pipe
    )


def _one_line() -> Column:
    return Column(no_wrap=True)


class _Label(TextColumn):
    def __init__(self, width: int) -> None:
        super().__init__("", table_column=_one_line())
        self._width = width

    def render(self, task: Task) -> Text:
        return Text(cut_middle(task.description, self._width))


class _Done(DownloadColumn):
    def render(self, task: Task) -> Text:
        if task.fields["unit"] is size:
            return super().render(task)
        total = "?" if task.total is None else grouped(int(task.total))
        done = task.fields["unit"](int(task.completed)).partition(" ")
        return Text(f"{done[0]}/{total} {done[2]}", style="progress.download")


class _Speed(TransferSpeedColumn):
    def render(self, task: Task) -> Text:
        return super().render(task) if task.fields["unit"] is size else Text("")
