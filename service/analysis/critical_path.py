"""What bounds the time? The longest path through the work of the host and the devices."""

from pydantic import Field

from service.analysis.facts.scope import Scope
from service.analysis.question import Parameters, Question, Tables
from service.analysis.table import RANK, count, ns, pct, table_of, word
from service.trace.summary import OPERATOR_CATEGORIES, is_launch

KIND = word(
    "kind",
    "host: inside a slice; gap: between slices of a thread; wait: to the end of a call that waited; handover: from a"
    " thread to the autograd engine's, or back; launch: in the call that launches work; delay: from the end of that"
    " call to the start of the work; queue: between work and the next on its stream; event: from work to work of"
    " another stream that waits for it; compute, communication, memory: in work; return: from work to the end of the"
    " call that waited for it",
)
SUMMARY = (
    RANK,
    KIND,
    count("edges", "of the path, of this kind"),
    ns("length", "what they add to the path"),
    pct("length", "of the path"),
)
TOTAL = (
    RANK,
    ns("span", "from the first start to the last end of all that can be on a path"),
    ns("length", "of the path"),
    pct("length", "of the span"),
    ns("start", "of the path"),
    ns("end", "of the path"),
    count("edges", "of the path"),
)
NAMES = (
    RANK,
    KIND,
    word("name", "of the slice, work or call; of delays, queues and events, that of the work that follows"),
    count("edges", "of the path, of this kind and name"),
    ns("length", "what they add to the path"),
    pct("length", "of the path"),
)
PATH = (
    RANK,
    count("number", "of the edge in the path, from 0"),
    KIND,
    word("name", "of the slice, work or call, as in `names`"),
    ns("start", "of the edge; the end of the one before"),
    ns("end", "of the edge"),
    ns("length", "what it adds to the path: its time, or nothing"),
    count("thread", "id of the host thread on which the edge is or to which it leads; null for work"),
    count("device", "of work"),
    count("stream", "of work"),
)


class CriticalPathParameters(Parameters):
    """Parameters of `critical_path`."""

    edges: int = Field(
        10_000, ge=0, le=10_000_000, description="maximum number of listed edges: the longest, in order of time"
    )


def answer(scope: Scope, parameters: CriticalPathParameters) -> Tables:
    """Return the critical path of a rank."""
    from service.analysis.facts.path_edges import PathEdges  # noqa: PLC0415 - loads numba, which the server does without

    edges = PathEdges(scope)
    columns = {
        "summary": edges.by_kind(),
        "total": edges.total(),
        "names": edges.by_name(),
        "path": edges.longest(parameters.edges),
    }
    return {
        name: table_of(TABLES[name], {**values, "rank": [scope.rank] * len(values["length_ns"])})
        for name, values in columns.items()
    }


def missing(scope: Scope) -> str | None:
    """Return a reason if the trace does not have both host events and work on a device."""
    if reason := scope.no_work_reason:
        return reason
    has_host = scope.has_slice_of(lambda category: category in OPERATOR_CATEGORIES or is_launch(category))
    return None if has_host else "Neither operators nor calls of a runtime are in this trace."


TABLES = {"summary": SUMMARY, "total": TOTAL, "names": NAMES, "path": PATH}
QUESTION = Question(
    name="critical_path",
    short_question="What bounds the step?",
    definition="The longest path forward in time through a graph of the trace. Its points are the starts and ends of"
    " operators, runtime calls and device work. On a thread each point leads to the next; the time counts"
    " inside slices and not between them. Threads of the autograd engine start after the last point of"
    " the thread that calls them, and that thread goes on after they come to rest; the time between adds"
    " nothing, except inside a slice of the caller. Flows from forward to backward operators identify the"
    " engine's threads and their callers, else the operators' names do. Device work counts from its start"
    " to its end. It starts after its launch, after the last work on its stream that is over, and after"
    " the work that its stream has to wait for: the latest of these adds the time until the work starts,"
    " the others nothing. If the work before it on its stream still runs, as it may in programmatic"
    " dependent launches, it starts after the start of that work, whose time counts until then. The"
    " launching call's own time always counts. Before work whose launch is not in the trace nothing"
    " counts. A call that had to wait ends after the last work that it waited for, and only the time"
    " since then counts; a launching call that outlasts its own work waits for that. cuda_sync events"
    " record what is waited for. In a trace without them, a synchronizing call waits for all work"
    " launched before it, and a stream for the event that the same thread recorded last. Slices of the"
    " host that overlap without nesting are left out.",
    source="https://hta.readthedocs.io/en/latest/source/features/lightweight_critical_path_analysis.html",
    tables=TABLES,
    parameters=CriticalPathParameters,
    inapplicable_reason=missing,
    answer=answer,
    cost=7,
    is_large=True,
)
