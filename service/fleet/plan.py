"""Plans: how much an ingest is going to read and how far it is, for readers that are not its process."""

import hashlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Literal

import orjson

from service.fleet.documents import from_json
from service.fleet.sources import Source
from service.store.locations.location import Location
from service.trace.errors import TracedockError

PLANS = "ingests"
"""Folder of the plans in a dataset."""
BEAT_S = 2.0
"""Seconds between two writes of a plan."""
LAST_WRITE_S = 10.0
"""Seconds for which the end of an ingest waits for the last write."""

Ending = Literal["done", "stopped"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Counts:
    """Size of an ingest, and its progress.

    Attributes:
        sources: number of its sources.
        size_bytes: their size.
        present: number of sources that were done before.
        done: number of sources that were done since.
        failed: number of sources that have failed, before or now.
        left_bytes: size of the sources that are left.
        bytes_per_s: rate of reading; None as long as nothing is read.
    """

    sources: int
    size_bytes: int
    present: int
    done: int
    failed: int
    left_bytes: int
    bytes_per_s: float | None


@dataclass(frozen=True)
class Plan(Counts):
    """An ingest at its last beat.

    Attributes:
        key: name of the plan; an ingest of the same folders and runs continues it.
        host: name of the host that runs the ingest.
        process: its process id there.
        started_ns: its start, in ns since 1970.
        beat_ns: when the plan was written, by the clock of its host.
        ended: how the ingest ended; None while it runs, or if it was killed.
    """

    key: str
    host: str
    process: int
    started_ns: int
    beat_ns: int
    ended: Ending | None = None

    @classmethod
    def from_json(cls, text: bytes) -> "Plan":
        """Parse what `announced` has written; raises `pydantic.ValidationError`."""
        return from_json(cls, text)

    def as_json(self) -> bytes:
        """Return the plan as JSON."""
        return orjson.dumps(asdict(self))


def plan_key(sources: Sequence[Source]) -> str:
    """Return the key of the plan of these sources: 16 hexadecimal digits, of their folders and runs."""
    places = sorted({f"{source.base}\n{source.run}" for source in sources})
    return hashlib.sha256("\n\n".join(places).encode(errors="surrogateescape")).hexdigest()[:16]


@contextmanager
def announced(location: Location, key: str, counts: Callable[[], Counts]) -> Iterator[None]:
    """Write the plan of an ingest from time to time as long as the context lasts, and once at its end.

    Later writes may fail, which is logged.

    Args:
        location: location of the dataset.
        key: name of the plan.
        counts: returns how far the ingest is.

    Raises:
        LocationError: the location can't be used.
    """
    name = f"{PLANS}/{key}.json"
    host, process, started_ns = socket.gethostname(), os.getpid(), time.time_ns()
    over = threading.Event()
    endings: list[Ending] = []

    def write(ended: Ending | None = None) -> None:
        plan = Plan(
            **asdict(counts()), key=key, host=host, process=process, started_ns=started_ns, beat_ns=time.time_ns(),
            ended=ended,
        )  # fmt: skip
        location.write(name, plan.as_json())

    def beat() -> None:
        while not over.wait(BEAT_S):
            _logged(write)
        _logged(lambda: write(endings[0]))

    write()
    beats = threading.Thread(target=beat, name="plan", daemon=True)
    beats.start()
    try:
        yield
    except BaseException:
        endings.append("stopped")
        raise
    else:
        endings.append("done")
    finally:
        over.set()
        beats.join(LAST_WRITE_S)


def _logged(write: Callable[[], None]) -> None:
    try:
        write()
    except TracedockError as error:
        log.warning("the progress of the ingest can't be written: %s", error)
