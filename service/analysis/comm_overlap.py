"""Is communication hidden behind computing?"""

from service.analysis.facts.intervals import clamp_int64, covered, group_rows, overlap_length, percentage
from service.analysis.facts.scope import Scope
from service.analysis.facts.work_times import work_times
from service.analysis.question import Question, Tables, WorkParameters
from service.analysis.table import DEVICE, RANK, ns, pct, table_of_rows

COLUMNS = (
    RANK,
    DEVICE,
    ns("comm", "with communication"),
    ns("compute", "with computing"),
    ns("overlap", "with both at once"),
    ns("exposed_comm", "with communication and no computing"),
    pct("overlap", "of the time with communication; empty where there is none"),
)


def answer(scope: Scope, parameters: WorkParameters) -> Tables:
    """Return the times of each device."""
    devices, kinds, starts, ends = work_times(scope, parameters)
    rows = []
    for (device,), members in group_rows(devices):
        compute, comm = (
            (starts[members][kinds[members] == kind], ends[members][kinds[members] == kind]) for kind in range(2)
        )
        communicating, both = covered(*comm), overlap_length(compute, comm)
        times = (communicating, covered(*compute), both, communicating - both)
        rows.append([scope.rank, device, *map(clamp_int64, times), percentage(both, communicating)])
    return {"overlap": table_of_rows(COLUMNS, rows)}


def missing(scope: Scope) -> str | None:
    """Return a reason if the trace has no communication on a GPU."""
    if reason := scope.no_work_reason:
        return reason
    return None if scope.has_communication else "No NCCL kernels are in this trace, nor others that communicate."


QUESTION = Question(
    name="comm_overlap",
    short_question="Is communication hidden behind computing?",
    definition="Of each rank and device: the time in which computing and communication run at once, as a share of the"
    " time in which any communication runs.",
    source="https://hta.readthedocs.io/en/latest/source/features/comm_comp_overlap.html",
    tables={"overlap": COLUMNS},
    parameters=WorkParameters,
    inapplicable_reason=missing,
    answer=answer,
)
