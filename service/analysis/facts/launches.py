"""The host's calls that launch work on devices."""

import re
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from service.analysis.facts.intervals import Flags, Ints
from service.analysis.facts.scope import Scope
from service.analysis.parameters import WorkParameters
from service.streaming.words import word_column
from service.trace.summary import LAUNCH_PATTERN

if TYPE_CHECKING:
    from service.analysis.facts.slices import Slices  # loads numba, which describing questions does without

_OF_WORK = "position, device, stream, start_ns, end_ns, dur_ns, correlation"
_OF_CALL = """
launch_name AS call, launch_start_ns AS call_start_ns, launch_end_ns AS call_end_ns, launch_row AS call_number
"""


def launched_work(
    scope: Scope, parameters: WorkParameters, *, calls: frozenset[str] | None = None, where: str = "true"
) -> pa.Table:
    """Return work with the call that launched it, as `service.attribution.links` finds it.

    By HTA's types, it is the first call with the correlation id of the work.

    Args:
        scope: scope of the rank.
        parameters: rules by which work counts.
        calls: names of the calls that count by HTA's types; None for all.
        where: SQL condition on the work.

    Returns:
        ``position, device, stream, start_ns, end_ns, dur_ns, correlation`` of work, and ``call, call_start_ns,
        call_end_ns`` of its call and ``call_number``, different for each call, null if it has none; in order of time.
    """
    key = ("launched", parameters.types, parameters.last_step, parameters.linked_only, calls, where)
    return scope.cached(key, lambda: _launched(scope, parameters, calls, where))


def _launched(scope: Scope, parameters: WorkParameters, calls: frozenset[str] | None, where: str) -> pa.Table:
    is_plain = parameters.types == "exact" and parameters.last_step == "keep" and not parameters.linked_only
    if is_plain and where == "true":
        return _launched_by_links(scope)
    scope.define_work(parameters, typed=False)
    hta = parameters.types == "hta"
    work = scope.table(f"SELECT {_OF_WORK if hta else f'{_OF_WORK}, {_OF_CALL}'} FROM work WHERE {where}")
    starts = work["start_ns"].to_numpy()
    if (starts[1:] < starts[:-1]).any():  # columns are in order of time, which the database mostly keeps
        work = work.take(np.lexsort((work["position"].to_numpy(), starts)))
    return _with_first_calls(work, calls_of(scope, calls)) if hta else work


def _launched_by_links(scope: Scope) -> pa.Table:
    """Return all work with its launches; the table shares the memory of work that other questions have read."""
    from service.analysis.facts.device_events import LAUNCHES, TIMES, device_events  # noqa: PLC0415 - loads numba

    others = ("position", "device", "stream", "correlation", "launch", "launch_name")
    work = device_events(scope, (*others, *TIMES, *LAUNCHES))
    columns = work.table
    values = {
        **{name: columns[name] for name in ("position", "device", "stream")},
        "start_ns": columns["ts_ns"],
        "end_ns": work.ends,
        "dur_ns": np.maximum(work.ints("dur_ns"), 0),
        "correlation": columns["correlation"],
        "call": columns["launch_name"],
        "call_start_ns": columns["launch_ts_ns"],
        "call_end_ns": pa.array(work.launch_ends, mask=~work.has("launch_ts_ns")),
        "call_number": columns["launch"],
    }
    return pa.table(values)


def _with_first_calls(work: pa.Table, calls: pa.Table) -> pa.Table:
    """Add to work the first call with its correlation id.

    Correlation ids are mostly consecutive, so a lookup by position takes a third of the time of a database join.
    """
    if calls["correlation"].null_count:
        calls = calls.filter(calls["correlation"].is_valid())
    positions = first_positions(calls["correlation"].to_numpy(), work["correlation"].fill_null(0).to_numpy())
    rows = pa.array(positions, mask=~work["correlation"].is_valid().to_numpy() | (positions < 0))
    for column in ("call", "call_start_ns", "call_end_ns"):
        work = work.append_column(column, calls[column].take(rows))
    return work.append_column("call_number", rows)


def with_known_call(work: pa.Table) -> pa.Table:
    """Return the launched work whose call is known."""
    call_starts = work["call_start_ns"]
    return work.filter(call_starts.is_valid()) if call_starts.null_count else work


def calls_of(scope: Scope, names: frozenset[str] | None = None, categories: str = LAUNCH_PATTERN) -> pa.Table:
    """Return runtime and driver calls: ``correlation, call, call_start_ns, call_end_ns``, in order of time.

    Args:
        scope: scope of the rank.
        names: names of the calls that count; None for all.
        categories: regular expression of the categories that count.
    """
    from service.analysis.facts.slices import UNKNOWN  # noqa: PLC0415 - loads numba, which the server does without

    slices = scope.slices()
    host, chosen = slices.host, are_calls(slices, categories)
    if names is not None:
        chosen &= slices.host_named(names.__contains__)
    correlations = np.full(len(host.starts), UNKNOWN)
    correlations[slices.correlated.indices] = slices.correlated.ids
    correlations, call_names = correlations[chosen], host.names[chosen]
    return pa.table(
        {
            "correlation": pa.array(correlations, mask=correlations == UNKNOWN),
            "call": word_column(call_names, call_names < len(slices.names), slices.names),
            "call_start_ns": host.starts[chosen],
            "call_end_ns": host.ends[chosen],
        }
    )


def are_calls(slices: "Slices", categories: str = LAUNCH_PATTERN) -> Flags:
    """Flag the slices of the host that are runtime or driver calls, of categories that match a regular expression."""
    return slices.of_categories(lambda name: re.fullmatch(LAUNCH_PATTERN, name) and re.fullmatch(categories, name))


def no_launches_reason(scope: Scope) -> str | None:
    """Return the reason why no work is launched; None if some work is launched."""
    if reason := scope.no_work_reason:
        return reason
    has_calls = scope.has_event(f"ph = 'X' AND {scope.is_call} AND correlation NOTNULL")
    return None if has_calls else "No calls that launch work are in this trace."


def first_positions(keys: Ints, wanted: Ints) -> Ints:
    """Return the position of the first key that equals each wanted key, or -1."""
    if not len(keys):
        return np.full(len(wanted), -1)
    low, high = int(keys.min()), int(keys.max())
    if high - low < 8 * len(keys) + 1024:
        positions = np.full(high - low + 1, -1, np.int32)
        positions[keys[::-1] - low] = np.arange(len(keys))[::-1]  # of equal keys the last write stays: the first key
        inside = (wanted >= low) & (wanted <= high)
        return np.where(inside, positions[np.where(inside, wanted - low, 0)], -1)
    order = np.argsort(keys, kind="stable")
    at = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    return np.where(keys[order][at] == wanted, order[at], -1)
