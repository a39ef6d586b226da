"""Recognition of memory timelines."""

import re
from collections.abc import Iterable
from pathlib import Path

from service.formats.memory_timeline.reader import TimelineReader
from service.formats.reader import Head

_START = re.compile(rb"\s*\[\s*\[\s*-?\d")


class MemoryTimeline:
    """The format of the JSON files that `export_memory_timeline` writes: ``.raw.json.gz`` and ``.json``.

    https://github.com/pytorch/pytorch/blob/main/torch/profiler/_memory_profiler.py
    """

    name = "json"

    def recognises(self, head: Head) -> bool:
        """Return whether a file is an array that starts with an array of numbers."""
        return _START.match(head.plain) is not None

    def reader(self, chunks: Iterable[bytes], scratch: Path) -> TimelineReader:  # noqa: ARG002 - it needs no files
        """Return the reader of a timeline."""
        return TimelineReader(chunks)


FORMAT = MemoryTimeline()
