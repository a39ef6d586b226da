"""Tracks of GPU work: on which tracks each stream's work lies, kept in the metadata of `EVENTS`.

A selection of streams also keeps events without a stream, such as the ends of arrows, on the tracks of its streams.
Without this list, each such selection would have to read columns of the whole trace to find these tracks.
"""

from typing import NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from service.trace.summary import GPU_CATEGORIES, Key, key_of

METADATA_KEY = "tracedock.work_tracks"
LISTED_MAX = 4096
"""Largest number of places that are listed; a trace with more, which no profiler writes, has no list."""

_PLACE = ("device", "stream", "pid", "pid_text", "tid", "tid_text")


class WorkTrack(NamedTuple):
    """A place of GPU work: a stream of a device, which is None if it is not known, and the track that shows it."""

    device: int
    stream: int | None
    pid: Key
    tid: Key


class WorkTracks:
    """The places of the GPU work in a trace, collected while its events are written."""

    def __init__(self) -> None:
        self._places: set[WorkTrack] = set()

    def add(self, events: pa.Table) -> None:
        """Add the places of some events, whose dictionary columns have one chunk."""
        if len(self._places) > LISTED_MAX:
            return
        (categories,) = events["cat"].chunks
        is_gpu = np.array([*(word in GPU_CATEGORIES for word in categories.dictionary.to_pylist()), False])
        rows = np.flatnonzero(is_gpu[categories.indices.fill_null(-1).to_numpy()])
        work = events.select(_PLACE).take(pa.array(rows))
        for name in ("pid_text", "tid_text"):
            work = work.set_column(work.schema.get_field_index(name), name, work[name].cast(pa.string()))
        places = work.group_by(_PLACE).aggregate([])
        for place in places.slice(0, LISTED_MAX + 1).to_pylist():
            if place["device"] is not None:
                track = key_of(place["pid"], place["pid_text"]), key_of(place["tid"], place["tid_text"])
                self._places.add(WorkTrack(place["device"], place["stream"], *track))

    def encoded(self) -> bytes:
        """Return the list as the text of the file's metadata."""
        return orjson.dumps([[*place] for place in self._places] if len(self._places) <= LISTED_MAX else None)


def decoded(text: bytes) -> list[WorkTrack] | None:
    """Return the list from the text of the file's metadata; None if there is none."""
    places = orjson.loads(text)
    return None if places is None else [WorkTrack(*place) for place in places]
