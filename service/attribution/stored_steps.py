"""Steps of the ranks of a trace with their work, as the file of links has them."""

from contextlib import closing

import numpy as np
import numpy.typing as npt

from service.attribution.file import LinkReader
from service.attribution.rank_steps import NO_PID, StepsByRank, StepsWithWork, WorkTimes, decoded
from service.store.column_files import ColumnFolder
from service.store.folder import EVENTS
from service.store.parts import Parts
from service.trace.summary import Summary


def steps_of_ranks(columns: ColumnFolder, summary: Summary) -> StepsByRank:
    """Return the steps of each rank of a trace with their work.

    Args:
        columns: folder of the trace's columns.
        summary: the trace's summary with complete lists.

    Raises:
        ExportFailed: the columns can't be read.
        LocationError: their location can't be used.
    """
    reader = LinkReader(columns, summary)
    if reader.steps is not None:
        return decoded(reader.steps, summary)
    steps = StepsWithWork(summary)
    steps.add(_work(columns, reader))
    return steps.by_rank()


def _work(columns: ColumnFolder, reader: LinkReader) -> WorkTimes:
    """Read the work of a trace whose file of links is of an earlier version, and does not have the steps."""
    links = reader.all().of_work()
    with closing(Parts(columns / EVENTS)) as parts:
        launches = np.where(links.launches >= 0, links.launches, links.rows)
        needed = np.zeros(parts.rows, np.bool_)
        needed[links.rows] = needed[launches] = True
        places: npt.NDArray[np.int32] = np.cumsum(needed, dtype=np.int32) - 1
        starts, ends, pids = (np.zeros(int(np.count_nonzero(needed)), np.int64) for _ in range(3))
        for part in parts.read(("ph", "ts_ns", "dur_ns", "pid"), parts.holding(needed)):
            at = np.flatnonzero(needed[part.rows])
            own = places[part.first + at]
            starts[own], ends[own], pids[own] = part.starts[at], part.ends[at], part.ints("pid", NO_PID)[at]
    work = places[links.rows]
    return WorkTimes(pids[work], starts[places[launches]], starts[work], ends[work], links.steps)
