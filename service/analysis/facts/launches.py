"""Which call of the host launched what a device does."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from service.analysis.facts.intervals import Ints
from service.analysis.facts.scope import NO_WORK, Scope
from service.store.census import END

_WORK = "SELECT position, device, stream, start_ns, end_ns, dur_ns, correlation FROM work WHERE {}"
_CALLS = f"""
SELECT correlation, {{}} FROM (
    SELECT correlation, hash(name) AS call, ts_ns AS call_start_ns, {END} AS call_end_ns FROM events
    WHERE ph = 'X' AND ts_ns NOTNULL AND correlation NOTNULL AND {{}}
)
"""


def launched(
    scope: Scope, columns: Sequence[str], *, calls: str = "true", where: str = "true", unlinked: bool = False
) -> pa.Table:
    """Work of the view ``work`` with the call that launched it, the first one of its correlation.

    Databases join tables of any kind; these are of numbers that mostly follow one another, and are joined in a third of
    the time by where they lie.

    Args:
        scope: of the rank; its view has been made.
        columns: of the call: ``call``, a number for its name, ``call_start_ns``, ``call_end_ns``.
        calls: SQL for which calls count.
        where: SQL for which work counts.
        unlinked: whether to tell of work without such a call too.

    Returns:
        ``position, device, stream, start_ns, end_ns, dur_ns, correlation`` and the columns, in order of time.
    """
    work = scope.table(_WORK.format(f"({where})" if unlinked else f"({where}) AND correlation NOTNULL"))
    starts = work["start_ns"].to_numpy()
    if (starts[1:] < starts[:-1]).any():  # columns are in order of time, and a database mostly keeps that
        work = work.take(np.lexsort((work["position"].to_numpy(), starts)))
    told = scope.table(_CALLS.format(", ".join(columns), f"{scope.calls} AND ({calls})"))
    known = work["correlation"].is_valid().to_numpy()
    places = first_places(told["correlation"].to_numpy(), work["correlation"].fill_null(0).to_numpy())
    found = known & (places >= 0)
    if not unlinked:
        work, places, found = work.filter(pa.array(found)), places[found], found[found]
    rows = pa.array(places, mask=~found)
    for column in columns:
        work = work.append_column(column, told[column].take(rows))
    return work


def missing_launches(scope: Scope) -> str | None:
    """A reason where nothing is launched."""
    if not scope.has_work:
        return NO_WORK
    calls = scope.table(f"SELECT 1 FROM events WHERE ph = 'X' AND {scope.calls} AND correlation NOTNULL LIMIT 1")
    return None if len(calls) else "No calls that launch work are in this trace."


def call_names(scope: Scope) -> None:
    """Make the table ``call_names`` of the names of calls, by their numbers."""
    scope.db.execute(f"""
        CREATE OR REPLACE TEMP TABLE call_names AS
        SELECT hash(name) AS call, name FROM (SELECT DISTINCT name FROM events WHERE ph = 'X' AND {scope.calls})""")


def first_places(keys: Ints, wanted: Ints) -> Ints:
    """The place of the first key that equals each of the wanted ones, -1 for none."""
    if not len(keys):
        return np.full(len(wanted), -1)
    low, high = int(keys.min()), int(keys.max())
    if high - low < 8 * len(keys) + 1024:
        places = np.full(high - low + 1, -1)
        places[keys[::-1] - low] = np.arange(len(keys))[::-1]  # of several for one place the last one stays
        inside = (wanted >= low) & (wanted <= high)
        return np.where(inside, places[np.where(inside, wanted - low, 0)], -1)
    order = np.argsort(keys, kind="stable")
    at = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    return np.where(keys[order][at] == wanted, order[at], -1)
