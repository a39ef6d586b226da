"""Spans of the ids of flow arrows in each part of `EVENTS`, kept in the file's metadata.

Arrows from launches to their GPU work have correlation ids; other arrows have numbers of their own. Both kinds of ids
grow with time. The statistics of the column ``id`` mix them, so they rule out hardly any part.
"""

from typing import NamedTuple

import orjson

from service.trace.selection import Interval

LAUNCH_FLOWS = frozenset({"ac2g", "async"})
"""Categories of the arrows from a launch to its GPU work; the id of such an arrow is the correlation of both."""

METADATA_KEY = "tracedock.flow_ids"


class FlowIds(NamedTuple):
    """Smallest and largest id of the arrow ends in a part; None if it has no end with an integer id.

    Attributes:
        launches: ids of the ends whose category is one of `LAUNCH_FLOWS`.
        others: ids of all other ends.
    """

    launches: Interval | None
    others: Interval | None


def encoded(spans: list[FlowIds]) -> bytes:
    """Return the spans of all parts as the text of the file's metadata."""
    return orjson.dumps([[*part] for part in spans])


def decoded(text: bytes) -> list[FlowIds]:
    """Return the spans of all parts from the text of the file's metadata."""
    return [FlowIds(*(tuple(span) if span else None for span in part)) for part in orjson.loads(text)]
