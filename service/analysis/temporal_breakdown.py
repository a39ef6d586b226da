"""Is the GPU computing, communicating, copying, or idle?"""

from service.analysis.facts.intervals import Ints, clamp_int64, covered, group_rows, overlap_length, percentage
from service.analysis.facts.scope import Scope
from service.analysis.facts.work_times import work_times
from service.analysis.question import Question, Tables, WorkParameters
from service.analysis.table import DEVICE, RANK, ns, pct, table_of_rows

COLUMNS = (
    RANK,
    DEVICE,
    ns("span", "from the start of the first work to the end of the last"),
    ns("busy", "with any work"),
    ns("idle", "with none"),
    ns("compute", "with computing"),
    ns("comm", "with communication"),
    ns("mem", "with copies and memsets"),
    ns("overlap", "with computing and communication at once"),
    ns("exposed_comm", "with communication and no computing"),
    ns("exposed_mem", "with copies or memsets (with `types=hta` also other work), and neither of both"),
    ns("non_compute", "with work, but no computing"),
    pct("idle", "of the span"),
    pct("compute", "of the span"),
    pct("non_compute", "of the span"),
    pct("exposed_comm", "of the span"),
    pct("exposed_mem", "of the span"),
)


def answer(scope: Scope, parameters: WorkParameters) -> Tables:
    """Return the times of each device."""
    devices, types, starts, ends = work_times(scope, parameters)
    rows = [
        [scope.rank, device, *_times(types[members], starts[members], ends[members])]
        for (device,), members in group_rows(devices)
    ]
    return {"breakdown": table_of_rows(COLUMNS, rows)}


def _times(kinds: Ints, starts: Ints, ends: Ints) -> list[int | float | None]:
    """Return the values of the columns from `span_ns` on; kinds 0, 1 and 2 are compute, communication and memory."""
    compute, comm, mem = ((starts[kinds == kind], ends[kinds == kind]) for kind in range(3))
    computing, communicating, copying = covered(*compute), covered(*comm), covered(*mem)
    both = overlap_length(compute, comm)
    either = computing + communicating - both
    span, busy = int(ends.max()) - int(starts.min()), covered(starts, ends)
    times = (
        *(span, busy, span - busy, computing, communicating, copying),
        *(both, either - computing, busy - either, busy - computing),
    )
    return [
        *map(clamp_int64, times),
        *(
            percentage(part, span)
            for part in (span - busy, computing, busy - computing, either - computing, busy - either)
        ),
    ]


def missing(scope: Scope) -> str | None:
    """Return a reason if the trace has no work on a GPU."""
    return scope.no_work_reason


QUESTION = Question(
    name="temporal_breakdown",
    short_question="Is the GPU computing, communicating, copying, or idle?",
    definition="Of each rank and device: the span is from the start of its first work to the end of its last; idle is"
    " the part of the span that no work covers; a moment counts as computing if any work computes, else as"
    " communication, else as memory work.",
    source="https://hta.readthedocs.io/en/latest/source/features/temporal_breakdown.html",
    tables={"breakdown": COLUMNS},
    parameters=WorkParameters,
    inapplicable_reason=missing,
    answer=answer,
)
