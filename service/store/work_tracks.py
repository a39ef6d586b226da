"""Tracks of GPU work: on which tracks each stream's work lies, kept in the metadata of `EVENTS`.

A selection of streams also keeps events without a stream, such as the ends of arrows, on the tracks of its streams.
Without this list, each such selection would have to read columns of the whole trace to find these tracks.
"""

from collections.abc import Collection
from typing import NamedTuple

import orjson

from service.trace.summary import Key

METADATA_KEY = "tracedock.work_tracks"
LISTED_MAX = 4096
"""Largest number of places that are listed; a trace with more, which no profiler writes, has no list."""


class WorkTrack(NamedTuple):
    """A place of GPU work: a stream of a device, which is None if it is not known, and the track that shows it."""

    device: int
    stream: int | None
    pid: Key
    tid: Key


def encoded(tracks: Collection[WorkTrack]) -> bytes:
    """Return the places of all work of a trace as the text of the file's metadata."""
    return orjson.dumps([[*track] for track in tracks] if len(tracks) <= LISTED_MAX else None)


def decoded(text: bytes) -> list[WorkTrack] | None:
    """Return the list from the text of the file's metadata; None if there is none."""
    places = orjson.loads(text)
    return None if places is None else [WorkTrack(*place) for place in places]
