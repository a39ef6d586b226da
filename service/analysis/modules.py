"""Which nn.Module takes the time, on the host and on devices? Modules are separated by their callers."""

import numpy as np

from service.analysis.facts.attribution import ATTRIBUTION, attribution_of
from service.analysis.facts.backward import forward_operators
from service.analysis.facts.host import IS_ANNOTATION, IS_MODULE, IS_OP, OP, PYTHON, host_where
from service.analysis.facts.scope import Scope
from service.analysis.question import Parameters, Question, Tables
from service.analysis.table import RANK, count, ns, number, table_of, word

MODULES = (
    RANK,
    count("id", "number of the row, from 0; those of the rank that call others are before these"),
    count("parent", "row of the module that calls it; empty for the outermost"),
    count("depth", "number of modules around it"),
    word("name", "of its class, with the number of the instance"),
    count("calls", "how often it was called from there"),
    count("operators", "that it called directly, not within another operator or module in it"),
    ns("host_total", "on the host, with all in it"),
    ns("host_self", "on the host, without the modules in it"),
    ns("host_python", "on the host, without all modules, operators, annotations and calls of a runtime in it"),
    ns("device_total", "of work on devices that was launched in it"),
    ns("device_self", "of that, without work that was launched in the modules in it"),
    ns("device_backward", "of device_total, work that the backward pass of operators in it launched"),
    number("host_mean_us", "host_total of a call", "µs"),
    number("device_mean_us", "device_total of a call", "µs"),
)

_PREFIX = "nn.Module: "


def answer(scope: Scope, parameters: Parameters) -> Tables:  # noqa: ARG001 - all questions take parameters
    """Return the modules of a rank with their times, and how work on devices was attributed."""
    from service.analysis.facts.device_work import device_work  # noqa: PLC0415 - loads numba, which the server does without
    from service.attribution import nesting  # noqa: PLC0415 - likewise

    host = host_where(scope, f"({IS_MODULE} OR {IS_OP} OR {IS_ANNOTATION} OR {scope.is_call})")
    parents = nesting.parents_of(host.threads, host.starts, host.ends)
    is_module = host.kinds == PYTHON
    modules = np.flatnonzero(is_module)
    module_of = nesting.nearest_marked(parents, is_module)
    outer = np.append(module_of, nesting.NONE)[parents[modules]]
    outer[outer >= 0] = np.searchsorted(modules, outer[outer >= 0])
    rows, count = nesting.path_codes(outer, host.names[modules])
    firsts = nesting.first_indices(rows, count)
    callers = np.append(rows, np.int32(nesting.NONE))[outer[firsts]]
    row_of = np.full(len(host) + 1, nesting.NONE, np.int32)
    row_of[modules] = rows
    row_of = row_of[np.append(module_of, np.int32(nesting.NONE))]  # row of each slice's innermost module, or -1

    durations = host.durations
    total = nesting.sum_by_key(rows, durations[modules], count)
    alone = (durations - nesting.child_sums(parents, durations))[modules]
    work = device_work(scope)
    launch = host.indices_of(np.where(work.launches < 0, work.operators, work.launches))
    rows_of_work = row_of[launch]
    forward = np.append(forward_operators(scope, host), nesting.NONE)
    backward = np.append(nesting.nearest_marked(parents, forward[:-1] != nesting.NONE), nesting.NONE)[
        host.indices_of(work.operators)
    ]
    rows_of_work = np.where(rows_of_work < 0, row_of[forward[backward]], rows_of_work)
    device = nesting.sum_by_key(rows_of_work, work.durations, count)
    in_backward = nesting.sum_by_key(np.where(row_of[launch] < 0, rows_of_work, nesting.NONE), work.durations, count)
    device_total = nesting.subtree_sums(callers, device)
    within = np.append(nesting.nearest_marked(parents, is_module | (host.kinds == OP)), nesting.NONE)[parents]
    outermost = (host.kinds == OP) & np.append(is_module, False)[within]  # operators called directly by a module
    calls = nesting.count_by_key(rows, count)
    table = {
        "rank": [scope.rank] * count,
        "id": range(count),
        "parent": [None if caller < 0 else caller for caller in callers.tolist()],
        "depth": _depths(callers.tolist()),
        "name": [host.words[name].removeprefix(_PREFIX) for name in host.names[modules[firsts]]],
        "calls": calls,
        "operators": nesting.count_by_key(row_of[:-1][outermost], count),
        "host_total_ns": total,
        "host_self_ns": total - nesting.sum_by_key(callers, total, count),
        "host_python_ns": nesting.sum_by_key(rows, alone, count),
        "device_total_ns": device_total,
        "device_self_ns": device,
        "device_backward_ns": nesting.subtree_sums(callers, in_backward),
        "host_mean_us": total / calls / 1000,
        "device_mean_us": device_total / calls / 1000,
    }
    return {"modules": table_of(MODULES, table), "attribution": attribution_of(scope)}


def missing(scope: Scope) -> str | None:
    """Return a reason if the trace has no modules."""
    if not scope.slice_count("python_function"):
        return "No nn.Module is in this trace: it was recorded without `with_stack=True`."
    return None if scope.has_slice(IS_MODULE) else f"No nn.Module is called in {scope.subject}."


def _depths(parents: list[int]) -> list[int]:
    depths: list[int] = []
    for parent in parents:
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
    return depths


QUESTION = Question(
    name="modules",
    short_question="Which nn.Module takes the time?",
    definition="Calls of modules, operators, annotations and calls of a runtime nest within their thread as for"
    " `operators`. A row is a module as called by the module of its parent row. Work on devices counts for the"
    " innermost module around its launch, or around its operator where the launch is not there, and for all modules"
    " around that. Work of the backward pass counts for the module of the forward operator: that of the same sequence"
    " number that began last.",
    source="https://github.com/pytorch/kineto/blob/main/tb_plugin/README.md",
    tables={"modules": MODULES, "attribution": ATTRIBUTION},
    inapplicable_reason=missing,
    answer=answer,
    cost=3,
    is_large=True,
)
