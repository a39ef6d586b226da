"""Which call of the host launched what a device does."""

import re

import numpy as np
import pyarrow as pa

from service.analysis.facts.intervals import Ints
from service.analysis.facts.scope import Scope
from service.analysis.parameters import WorkParameters
from service.trace.summary import LAUNCH_PATTERN

_WORK = "SELECT position, device, stream, start_ns, end_ns, dur_ns, correlation FROM work WHERE {}"
_COLUMNS = ("call", "call_start_ns", "call_end_ns")


def launched(
    scope: Scope, parameters: WorkParameters, *, calls: frozenset[str] | None = None, where: str = "true"
) -> pa.Table:
    """Work with the call that launched it, the first one of its correlation.

    Databases join tables of any kind; these are of numbers that mostly follow one another, and are joined in a third of
    the time by where they lie.

    Args:
        scope: of the rank.
        parameters: which work counts.
        calls: the names of the calls that count; None for all.
        where: SQL for which of the work.

    Returns:
        ``position, device, stream, start_ns, end_ns, dur_ns, correlation`` of work and ``call, call_start_ns,
        call_end_ns`` of its call, null where there is none; in order of time.
    """
    key = ("launched", parameters.types, parameters.last_step, parameters.linked_only, calls, where)
    return scope.once(key, lambda: _launched(scope, parameters, calls, where))


def _launched(scope: Scope, parameters: WorkParameters, calls: frozenset[str] | None, where: str) -> pa.Table:
    scope.work(parameters, typed=False)
    work = scope.table(_WORK.format(where))
    starts = work["start_ns"].to_numpy()
    if (starts[1:] < starts[:-1]).any():  # columns are in order of time, and a database mostly keeps that
        work = work.take(np.lexsort((work["position"].to_numpy(), starts)))
    told = calls_of(scope, calls)
    told = told.filter(told["correlation"].is_valid()) if told["correlation"].null_count else told
    places = first_places(told["correlation"].to_numpy(), work["correlation"].fill_null(0).to_numpy())
    rows = pa.array(places, mask=~work["correlation"].is_valid().to_numpy() | (places < 0))
    for column in _COLUMNS:
        work = work.append_column(column, told[column].take(rows))
    return work


def linked(found: pa.Table) -> pa.Table:
    """Of launched work that of which the call is known."""
    known = found["call_start_ns"]
    return found.filter(known.is_valid()) if known.null_count else found


def calls_of(scope: Scope, names: frozenset[str] | None = None, categories: str = LAUNCH_PATTERN) -> pa.Table:
    """The calls of runtimes and drivers: ``correlation, call, call_start_ns, call_end_ns``, in order of time.

    Args:
        scope: of the rank.
        names: of those that count; None for all.
        categories: a regular expression of those of them that count.
    """
    return scope.once(("calls", names, categories), lambda: _calls(scope, names, categories))


def _calls(scope: Scope, names: frozenset[str] | None, categories: str) -> pa.Table:
    from service.analysis.facts.slices import UNKNOWN  # noqa: PLC0415 - loads numba, which the server does without

    slices = scope.slices()
    host = slices.host
    chosen = slices.of_categories(lambda one: re.fullmatch(LAUNCH_PATTERN, one) and re.fullmatch(categories, one))
    if names is not None:
        chosen &= slices.host_named(names.__contains__)
    correlations, called = host.correlations[chosen], host.names[chosen]
    return pa.table(
        {
            "correlation": pa.array(correlations, mask=correlations == UNKNOWN),
            "call": pa.DictionaryArray.from_arrays(
                pa.array(called, mask=called == len(slices.names)), pa.array(slices.names, pa.string())
            ),
            "call_start_ns": host.starts[chosen],
            "call_end_ns": host.ends[chosen],
        }
    )


def missing_launches(scope: Scope) -> str | None:
    """A reason where nothing is launched."""
    if reason := scope.missing_work:
        return reason
    calls = scope.table(f"SELECT 1 FROM events WHERE ph = 'X' AND {scope.calls} AND correlation NOTNULL LIMIT 1")
    return None if len(calls) else "No calls that launch work are in this trace."


def first_places(keys: Ints, wanted: Ints) -> Ints:
    """The place of the first key that equals each of the wanted ones, -1 for none."""
    if not len(keys):
        return np.full(len(wanted), -1)
    low, high = int(keys.min()), int(keys.max())
    if high - low < 8 * len(keys) + 1024:
        places = np.full(high - low + 1, -1, np.int32)
        places[keys[::-1] - low] = np.arange(len(keys))[::-1]  # of several for one place the last one stays
        inside = (wanted >= low) & (wanted <= high)
        return np.where(inside, places[np.where(inside, wanted - low, 0)], -1)
    order = np.argsort(keys, kind="stable")
    at = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    return np.where(keys[order][at] == wanted, order[at], -1)
