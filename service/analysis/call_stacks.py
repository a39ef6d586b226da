"""Which Python call stacks take the time, on the host and on devices?"""

from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from service.analysis.facts.host import IS_OP, IS_PYTHON, OP, PYTHON, host_where
from service.analysis.facts.scope import Scope
from service.analysis.question import Parameters, Question, Tables
from service.analysis.table import RANK, count, ns, table_of, table_of_rows, word

if TYPE_CHECKING:
    from service.attribution.nesting import Flags, Indices, Ints

FRAMES = (
    RANK,
    count("id", "number of the row, from 0; callers are before what they call"),
    count("parent", "row of the caller; empty for the outermost"),
    count("depth", "number of callers"),
    word("kind", "`python` for a function, or `op` for an operator"),
    word("name", "of the function, with its file and line, or of the operator"),
    count("calls", "how often it was called from there"),
    ns("host_total", "on the host, with all that it calls"),
    ns("host_self", "on the host, without the rows below it"),
    ns("device_total", "of work on devices that was launched in it"),
    ns("device_self", "of that, without work that was launched in the rows below it"),
)
FUNCTIONS = (
    RANK,
    word("kind", "`python` for a function, or `op` for an operator"),
    word("name", "of the function, with its file and line, or of the operator"),
    count("calls", "of it, from anywhere"),
    ns("host_self", "on the host, without the functions and operators that it calls"),
    ns("device_self", "of work on devices that was launched in it, and not in what it calls"),
)
TOTALS = (
    RANK,
    count("rows", "rows of the whole tree"),
    count("listed", "rows in `frames`"),
    ns("host", "on the host, in the outermost functions and operators"),
    ns("device", "of work on devices that was launched in a function or an operator"),
    ns("unattributed", "of other work on devices"),
)

_KINDS = {OP: "op", PYTHON: "python"}


class CallStackParameters(Parameters):
    """Parameters of `call_stacks`."""

    rows: int = Field(
        5000, ge=1, le=1_000_000, description="maximum number of rows in `frames`, besides the callers of these:"
        " those with the most time on the host or on devices"
    )  # fmt: skip


def answer(scope: Scope, parameters: CallStackParameters) -> Tables:
    """Return the tree of call stacks of a rank, and the time of each function without what it calls."""
    from service.analysis.facts.device_work import device_work  # noqa: PLC0415 - loads numba, which the server does without
    from service.attribution import nesting  # noqa: PLC0415 - likewise

    host = host_where(scope, f"({IS_PYTHON} OR {IS_OP} OR {scope.is_call})")
    parents = nesting.parents_of(host.threads, host.starts, host.ends)
    is_frame = (host.kinds == PYTHON) | (host.kinds == OP)
    frames = np.flatnonzero(is_frame)
    frame_of = nesting.nearest_marked(parents, is_frame)
    outer = np.append(frame_of, np.int32(nesting.NONE))[parents[frames]]
    outer[outer >= 0] = np.searchsorted(frames, outer[outer >= 0])
    rows, size = nesting.path_codes(outer, host.names[frames])
    firsts = nesting.first_indices(rows, size)
    callers = np.append(rows, np.int32(nesting.NONE))[outer[firsts]]
    row_of = np.full(len(host) + 1, nesting.NONE, np.int32)
    row_of[frames] = rows
    row_of = row_of[np.append(frame_of, np.int32(nesting.NONE))]  # row of each slice's innermost frame, or -1

    total = nesting.sum_by_key(rows, host.durations[frames], size)
    own = total - nesting.sum_by_key(callers, total, size)
    work = device_work(scope)
    launch = host.indices_of(np.where(work.launches < 0, work.operators, work.launches))
    device = nesting.sum_by_key(row_of[launch], work.durations, size)
    device_total = nesting.subtree_sums(callers, device)
    calls = nesting.count_by_key(rows, size)

    listed = np.flatnonzero(_with_callers(_largest(np.maximum(total, device_total), parameters.rows), callers))
    number = np.full(size + 1, nesting.NONE, np.int64)
    number[listed] = np.arange(len(listed))
    names, kinds = host.names[frames[firsts]], host.kinds[frames[firsts]]
    callers_listed = number[callers[listed]]
    tree = {
        "rank": [scope.rank] * len(listed),
        "id": range(len(listed)),
        "parent": [None if caller < 0 else caller for caller in callers_listed.tolist()],
        "depth": _depths(callers_listed.tolist()),
        "kind": [_KINDS[kind] for kind in kinds[listed].tolist()],
        "name": [host.words[name] for name in names[listed].tolist()],
        "calls": calls[listed],
        "host_total_ns": total[listed],
        "host_self_ns": own[listed],
        "device_total_ns": device_total[listed],
        "device_self_ns": device[listed],
    }
    codes, number_of_functions = nesting.factorize(names.astype(np.int64) * len(_KINDS) + (kinds == PYTHON))
    of_functions = [nesting.sum_by_key(codes, values, number_of_functions) for values in (calls, own, device)]
    first_rows = nesting.first_indices(codes, number_of_functions)
    order = np.argsort(-np.maximum(of_functions[1], of_functions[2]), kind="stable")
    functions = {
        "rank": [scope.rank] * number_of_functions,
        "kind": [_KINDS[kind] for kind in kinds[first_rows[order]].tolist()],
        "name": [host.words[name] for name in names[first_rows[order]].tolist()],
        "calls": of_functions[0][order],
        "host_self_ns": of_functions[1][order],
        "device_self_ns": of_functions[2][order],
    }
    known = int(device.sum())
    totals = [scope.rank, size, len(listed), int(own.sum()), known, int(work.durations.sum()) - known]
    return {
        "frames": table_of(FRAMES, tree),
        "functions": table_of(FUNCTIONS, functions),
        "totals": table_of_rows(TOTALS, [totals]),
    }


def _largest(values: "Ints", most: int) -> "Flags":
    """Flag the largest values; of equal ones the first."""
    flags = np.zeros(len(values), np.bool_)
    flags[np.argsort(-values, kind="stable")[:most]] = True
    return flags


def _with_callers(flags: "Flags", callers: "Indices") -> "Flags":
    """Flag also the rows that have a flagged row below them."""
    new = flags
    while new.any():
        above = np.zeros_like(flags)
        above[callers[new & (callers >= 0)]] = True
        new = above & ~flags
        flags = flags | new
    return flags


def _depths(parents: list[int]) -> list[int]:
    depths: list[int] = []
    for parent in parents:
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
    return depths


def _missing(scope: Scope) -> str | None:
    """Return a reason if the trace has no Python functions."""
    if not scope.slice_count("python_function"):
        return "No Python call stack is in this trace: it was recorded without `with_stack=True`."
    return None if scope.has_slice(IS_PYTHON) else f"No Python function is in {scope.subject}."


QUESTION = Question(
    name="call_stacks",
    short_question="Which Python call stacks take the time?",
    definition="Python functions, operators and calls of a runtime nest within their thread as for `operators`. A row"
    " of `frames` is a function or operator as called by that of its parent row. Work on devices counts for the"
    " innermost function or operator around its launch, or around its operator where the launch is not there, and in"
    " totals for all its callers. Work of the backward pass counts for the operators of the backward thread, which has"
    " no Python functions. `functions` and `totals` have sums over the whole tree, also of rows that are not listed.",
    source="https://github.com/brendangregg/FlameGraph",
    tables={"frames": FRAMES, "functions": FUNCTIONS, "totals": TOTALS},
    parameters=CallStackParameters,
    inapplicable_reason=_missing,
    answer=answer,
    cost=3,
    is_large=True,
)
