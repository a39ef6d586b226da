"""Largest sizes of the texts of events, kept in the metadata of `EVENTS`.

Formats whose records have a largest size can be chosen by them without reading a trace first.
"""

from typing import NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from service.streaming.buffers import starts_of
from service.streaming.integers import valid_rows

METADATA_KEY = "tracedock.text_sizes"


class TextSizes(NamedTuple):
    """Largest sizes in bytes: no category, no name and no JSON text of arguments is larger."""

    categories: int = 0
    names: int = 0
    args: int = 0


def text_sizes_of(events: pa.Table) -> TextSizes:
    """Return the largest sizes in some events; words that only their dictionaries have count, too."""
    return TextSizes(*(_largest(events[name]) for name in ("cat", "name", "args")))


def _largest(texts: pa.ChunkedArray) -> int:
    if pa.types.is_dictionary(texts.type):
        texts = pa.chunked_array([chunk.dictionary for chunk in texts.chunks], pa.string())
    sizes = np.concatenate([np.empty(0, np.int32), *(np.diff(starts_of(chunk)) for chunk in texts.chunks)])
    return int((sizes * valid_rows(texts)).max(initial=0))  # pyarrow's own functions take ten times as long


def encoded(sizes: list[TextSizes]) -> bytes:
    """Return the largest of some sizes as the text of the file's metadata."""
    return orjson.dumps([*map(max, zip(*sizes, strict=True))])


def decoded(text: bytes) -> TextSizes | None:
    """Return the sizes from the text of the file's metadata; None if there is none."""
    sizes = orjson.loads(text)
    return None if sizes is None else TextSizes(*sizes)
