"""Work read as arrays is the work that the database has."""

import json
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from service.analysis.facts.device_events import LAUNCHES, MEMCPYS, TIMES, TYPED, device_events
from service.analysis.facts.rank_database import RankDatabase
from service.analysis.facts.scope import scope_of
from service.analysis.parameters import WorkParameters
from service.trace.selection import Selection
from tests.analysis.conftest import real
from tests.analysis.gpu import call, step, work
from tests.conftest import needs_shared

ODD = json.dumps(
    {
        "traceEvents": [
            step(1, 0, 100),
            call(1, 1),
            work(5, 3, correlation=1, name="ncclDevKernel_AllReduce"),
            call(2, 2, dur=-1),
            work(8, 2, correlation=2, cat="gpu_memcpy", name="Memcpy HtoD"),
            work(11, 0, cat="gpu_memset", name="Memset (Device)", device=1),
            work(12, 4, **{"Collective name": "allreduce"}),
            {**work(13, -2), "name": None},
        ]
    }
)
SQL = """
SELECT
    position, coalesce(device, -1), coalesce(stream, -1), coalesce(step, -1), coalesce(launch_row, -1),
    coalesce(operator_row, -1), coalesce(name, ''), type, start_ns, end_ns, coalesce(launch_start_ns, 0),
    coalesce(launch_end_ns, 0)
FROM work
"""


@pytest.mark.parametrize("memset", ["mem", "comp"])
@pytest.mark.parametrize("selection", [None, Selection(phases=["X"])], ids=["whole", "selection"])
@pytest.mark.parametrize(
    "trace", [ODD, pytest.param(real("b200_eager_rank0_of_8"), marks=needs_shared)], ids=["odd", "b200"]
)
def test_arrays_of_work_are_what_the_database_has(
    read_once: Any, trace: Any, selection: Selection | None, memset: Any
) -> None:
    source = read_once(trace)
    database = RankDatabase(source.columns, source.summary, selection, spill=source.columns / "spill", threads=2)
    with closing(database), scope_of(database) as scope:
        scope.define_work(WorkParameters(memset=memset))
        expected = scope.db.sql(SQL).fetchall()
        ints = ("device", "stream", "step", "launch", "operator")
        events = device_events(scope, ("position", *ints, *TIMES, *TYPED, *LAUNCHES))
    names, words = events.names()
    types = events.types(MEMCPYS) if memset == "comp" else events.types()
    found = zip(
        events.ints("position").tolist(),
        *(events.ints(name, -1).tolist() for name in ints),
        [words[name] for name in names],
        [("COMP", "COMM", "MEM")[type_] for type_ in types],
        *(values.tolist() for values in (events.starts, events.ends)),
        *(values.tolist() for values in (events.ints("launch_ts_ns"), events.launch_ends)),
        strict=True,
    )
    assert len(expected) >= 5
    assert [*found] == expected
    assert np.unique(types).tolist() == [0, 1, 2]
