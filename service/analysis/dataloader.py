"""Is loading data the bottleneck?"""

from service.analysis.facts.activity import LOADING, OPS, activity_of
from service.analysis.facts.coverage import Coverage
from service.analysis.facts.intervals import percentage
from service.analysis.facts.scope import Scope
from service.analysis.facts.step_windows import StepParameters, windows_of
from service.analysis.question import Question, Tables
from service.analysis.table import RANK, count, ns, number, pct, table_of, table_of_rows, word
from service.store.database import END

_STEPS = (
    RANK,
    count("step", "number of the step; empty if the trace has no steps and this is all of it"),
    ns("start", "of the step"),
    ns("end", "of the step"),
    ns("total", "from start to end"),
    ns("loading", "in waiting for a DataLoader"),
    ns("exposed", "of that, with no work on any device"),
    ns("hidden", "of that, with work on a device"),
    pct("loading", "of the step"),
    pct("exposed", "of the step"),
)
_LOADERS = (
    RANK,
    word("loader", "the annotation in which the program waits"),
    count("calls", "of it"),
    ns("loading", "sum of the durations of all calls"),
    ns("exposed", "of that, with no work on any device"),
    number("mean_ns", "of a call", "ns"),
    ns("max", "of a call"),
    ns("longest_start", "when the longest call starts"),
)
_CALLS = f"""
SELECT name, ts_ns AS start_ns, {END} AS end_ns FROM events
WHERE ph = 'X' AND cat IN {OPS} AND ts_ns NOTNULL AND {{loading}} ORDER BY name, ts_ns, position
"""


def answer(scope: Scope, parameters: StepParameters) -> Tables:
    """Return the time that each step and loader waits for data, and the part of it in which no device works."""
    activity = activity_of(scope, parameters.rules, categories=False)
    windows = windows_of(scope, activity, parameters)
    calls = scope.table(_CALLS.format(loading=scope.name_matches(LOADING)))
    starts, ends = (calls[name].to_numpy() for name in ("start_ns", "end_ns"))
    loading, working = Coverage(starts, ends), activity.work.coverage()
    either = loading.with_more(working)
    loads, works, both = (coverage.between(windows.starts, windows.ends) for coverage in (loading, working, either))
    totals, exposed = windows.ends - windows.starts, both - works
    steps = {
        "rank": [scope.rank] * len(windows),
        "step": windows.labels(),
        "start_ns": windows.starts,
        "end_ns": windows.ends,
        "total_ns": totals,
        "loading_ns": loads,
        "exposed_ns": exposed,
        "hidden_ns": loads - exposed,
    }
    for name, part in (("loading", loads), ("exposed", exposed)):
        steps[f"{name}_pct"] = [percentage(*pair) for pair in zip(part.tolist(), totals.tolist(), strict=True)]
    hidden = working.between(starts, ends)
    names = calls["name"].to_pylist()
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    loaders = []
    for name, members in places.items():
        durations = (ends[members] - starts[members]).tolist()
        longest = durations.index(max(durations))
        whole, lost = sum(durations), sum(durations) - int(hidden[members].sum())
        loaders.append(
            [
                scope.rank,
                name,
                len(members),
                whole,
                lost,
                whole / len(members),
                durations[longest],
                int(starts[members[longest]]),
            ]
        )
    loaders.sort(key=lambda row: -row[4])
    return {"steps": table_of(_STEPS, steps), "loaders": table_of_rows(_LOADERS, loaders)}


def missing(scope: Scope) -> str | None:
    """Return a reason if no step waits for a DataLoader."""
    loading = scope.name_matches(LOADING)
    if loading != "false" and scope.has_slice(f"cat IN {OPS} AND {loading}"):
        return None
    return "No step in this trace waits for a DataLoader: there is no enumerate(DataLoader)#….__next__."


QUESTION = Question(
    name="dataloader",
    short_question="Is loading data the bottleneck?",
    definition="Of each step: the time in enumerate(DataLoader)#….__next__, and how much of it no device works: that is"
    " what faster loading could save. A step lasts until the host and all that was launched in it are done.",
    source="https://pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
    tables={"steps": _STEPS, "loaders": _LOADERS},
    parameters=StepParameters,
    inapplicable_reason=missing,
    answer=answer,
)
