"""The annotations of a trace's steps, gathered while its events are written."""

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.store.parts import TRACK, Part, table_at
from service.store.steps import is_on_host, steps_of
from service.trace.summary import STEP_PREFIX, Step

_COLUMNS = ("cat", *TRACK)
_TIMES = ("start", "end", "position")


class StepAnnotations:
    """Slices that may be steps. They are kept as columns, because a long trace has many."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []

    def add(self, part: Part) -> None:
        """Add the annotations among the next events."""
        is_step = part.matching("name", partial(pc.starts_with, pattern=STEP_PREFIX))
        if not is_step.any():
            return
        chosen = part.slices & part.has("ts_ns") & part.which("cat", is_on_host) & is_step
        rows = np.flatnonzero(chosen)
        if len(rows):
            starts = part.starts[rows]
            ends = np.maximum(part.ends[rows], starts)  # an end beyond 64 bits has wrapped around
            table = table_at(part, ("name", *_COLUMNS), rows)
            for name, values in zip(_TIMES, (starts, ends, part.ints("position")[rows]), strict=True):
                table = table.append_column(name, pa.array(values))
            self._tables.append(table)

    def steps(self) -> list[Step]:
        """Return the steps by start; of equal starts, the longest comes first."""
        if not self._tables:
            return []
        table = pa.concat_tables(self._tables)
        starts, ends, positions = (table[name].to_numpy() for name in _TIMES)
        ordered = table.take(np.lexsort((positions, ~ends, starts)))
        columns = (ordered[name].to_pylist() for name in ("name", "start", "end", *_COLUMNS))
        return steps_of(zip(*columns, strict=True))
