"""Progress of uploads, ingests, engine loads and jobs, on stderr: bars on a terminal, otherwise lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from service.cli.quantities import grouped, size
from service.cli.render import visible
from service.cli.terminal import preferences

if TYPE_CHECKING:
    from rich.progress import Progress
    from tracedock.client import BytesReceived, BytesSent, Watcher


class Stage(Protocol):
    """Display of one task's progress."""

    def update(self, done: int, total: int, note: str = "") -> None:
        """Show progress; `total` is 0 if unknown, `note` is a further text."""


Unit = Callable[[int], str]


def events(count: int) -> str:
    """Format a number of events."""
    return f"{grouped(count)} events"


def ranks(count: int) -> str:
    """Format a number of ranks."""
    return f"{grouped(count)} ranks"


class Stages:
    """Creates progress callbacks; each task is shown from its first report on."""

    def __init__(self, start: Callable[[str, Unit], Stage]) -> None:
        self._start = start

    def uploading(self, name: str) -> BytesSent:
        """Return a callback for `Client.upload(on_bytes=…)`."""
        return self._start(f"upload {visible(name)}", size).update

    def downloading(self, name: str) -> BytesReceived:
        """Return a callback for `Download.write_to(on_bytes=…)`."""
        return self._start(f"download {visible(name)}", size).update

    def writing(self, name: str) -> BytesSent:
        """Return a callback for the bytes of a local file."""
        return self._start(f"write {visible(name)}", size).update

    def making(self, label: str) -> Callable[[int, int], None]:
        """Return a callback for a local split, merge or overlay; it takes the written events and their total."""
        return self._start(visible(label), events).update

    def following(self, label: str) -> Watcher:
        """Return a callback for `Client.follow_job`.

        It shows the bytes that an import or an ingest has read, or the events that any other job has written.
        """
        stage: Stage | None = None

        def watch(job: dict[str, Any]) -> None:
            nonlocal stage
            unit = "bytes" if job["kind"] in {"import", "ingest"} else "events"
            stage = stage or self._start(visible(label), size if unit == "bytes" else events)
            stage.update(job["progress"][unit], job["progress"][f"{unit}_total"], job["state"])

        return watch

    def ingesting(self, name: str) -> Watcher:
        """Return a callback for `Client.follow`; it shows the bytes read, and the number of events in them."""
        stage = self._start(f"ingest {visible(name)}", size)

        def watch(trace: dict[str, Any]) -> None:
            progress = trace["progress"]
            stage.update(progress["bytes"], progress["bytes_total"], events(progress["events"]))

        return watch

    def reading_sources(self, store: str) -> Callable[[int, int, str], None]:
        """Return a callback for an ingest of many sources; it takes the bytes read, their total, and a text."""
        return self._start(f"ingest into {visible(store)}", size).update

    def answering(self, name: str) -> Callable[[int, int], None]:
        """Return a callback for an analysis over many ranks; it takes the ranks that have answered, and all."""
        return self._start(f"ask for {visible(name)}", ranks).update

    def loading(self, name: str) -> Watcher:
        """Return a callback for `Client.query(on_loading=…)`; it shows the bytes that the engine has loaded."""
        stage = self._start(f"load engine for {visible(name)}", size)

        def watch(session: dict[str, Any]) -> None:
            stage.update(session["progress"]["bytes"], 0, session["state"])

        return watch


@contextmanager
def stages(*, keep: bool = True) -> Iterator[Stages]:
    """Show progress within the context; `keep` leaves the finished bars on the terminal."""
    if preferences.quiet:
        yield Stages(_Silent)
    elif not sys.stderr.isatty():
        yield Stages(_Lines)
    else:
        with ExitStack() as drawing:

            @cache
            def bars() -> Progress:
                from service.cli.bars import new_bars  # noqa: PLC0415 - slow to import; quick commands draw no bar

                return drawing.enter_context(new_bars(keep=keep))

            yield Stages(lambda label, unit: _Bar(bars, label, unit))


class _Bar:
    """Draws a bar from the first report on."""

    def __init__(self, bars: Callable[[], Progress], label: str, unit: Unit) -> None:
        self._bars, self._label, self._unit = bars, label, unit
        self._task: Any = None

    def update(self, done: int, total: int, note: str = "") -> None:
        bars = self._bars()
        if self._task is None:
            self._task = bars.add_task(self._label, total=None, note="", unit=self._unit)
        bars.update(self._task, completed=done, total=total or None, note=note)


class _Silent:
    """Shows no progress."""

    def __init__(self, label: str, unit: Unit) -> None: ...

    def update(self, done: int, total: int, note: str = "") -> None: ...


class _Lines:
    """Prints progress as lines of a log: one at the first report, and one for each further tenth of the total.

    Shares are rounded down to tenths, because a line for each report would flood the log.
    """

    def __init__(self, label: str, unit: Unit) -> None:
        self._label, self._unit, self._tenth = label, unit, -1

    def update(self, done: int, total: int, note: str = "") -> None:
        tenth = 10 * done // total if total else 0
        if tenth > self._tenth:
            self._tenth = tenth
            share = f"{10 * tenth} % of {self._unit(total)}" if total else self._unit(done)
            print(f"{self._label}: {share}" + (f", {note}" if note else ""), file=sys.stderr, flush=True)
