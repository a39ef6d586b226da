"""Spans of the ids of flow arrows in each part of `EVENTS`, kept in the file's metadata.

Arrows from launches to their GPU work have correlation ids; other arrows have numbers of their own. Both kinds of ids
grow with time. The statistics of the column ``id`` mix them, so they rule out hardly any part.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from service.trace.selection import Interval
from service.trace.summary import FLOW_PHASES

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


def flow_ids_of(events: pa.Table) -> FlowIds:
    """Return the spans of the ids of flow arrows in some events, whose dictionary columns have one chunk."""
    ends = np.flatnonzero(_flags(events["ph"], FLOW_PHASES) & events["id"].is_valid().to_numpy())
    ids, is_launch = events["id"].take(pa.array(ends)).to_numpy(), _flags(events["cat"], LAUNCH_FLOWS)[ends]
    return FlowIds(_span(ids[is_launch]), _span(ids[~is_launch]))


def _flags(words: pa.ChunkedArray, wanted: frozenset[str]) -> npt.NDArray[np.bool_]:
    """Flag the rows that have one of the wanted words."""
    (chunk,) = words.chunks
    of_words = np.array([*(word in wanted for word in chunk.dictionary.to_pylist()), False])
    flags: npt.NDArray[np.bool_] = of_words[chunk.indices.fill_null(-1).to_numpy()]
    return flags


def _span(ids: npt.NDArray[np.int64]) -> Interval | None:
    return (int(ids.min()), int(ids.max())) if len(ids) else None


def encoded(spans: list[FlowIds]) -> bytes:
    """Return the spans of all parts as the text of the file's metadata."""
    return orjson.dumps([[*part] for part in spans])


def decoded(text: bytes) -> list[FlowIds]:
    """Return the spans of all parts from the text of the file's metadata."""
    return [FlowIds(*(tuple(span) if span else None for span in part)) for part in orjson.loads(text)]
