"""The slices of host threads as arrays, in order of time; outer slices come before inner ones."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from service.analysis.facts.intervals import Ints
from service.analysis.facts.scope import Scope
from service.store.database import END
from service.trace.summary import ANNOTATION_CATEGORIES, OPERATOR_CATEGORIES, PYTHON_CATEGORY

if TYPE_CHECKING:
    from service.attribution.nesting import Indices

OP, ANNOTATION, PYTHON, CALLS = range(4)
"""Kinds of slices: operators, the program's annotations, Python functions, runtime and driver calls."""

KINDS = ("op", "annotation", "python", "call")

_BATCH_ROWS = 1 << 17


def _categories(names: Collection[str]) -> str:
    return "cat IN (" + ", ".join(f"'{name}'" for name in sorted(names)) + ")"


IS_OP = _categories(OPERATOR_CATEGORIES)
IS_ANNOTATION = _categories(ANNOTATION_CATEGORIES)
IS_PYTHON = f"cat = '{PYTHON_CATEGORY}'"
IS_MODULE = f"{IS_PYTHON} AND starts_with(name, 'nn.Module: ')"
"""SQL conditions for kinds of slices."""

_TID = "try_cast(trim(tid_text, '\"') AS BIGINT)"
THREAD = f"hash(pid, pid_text, coalesce(tid, {_TID}), CASE WHEN {_TID} IS NULL THEN tid_text END)"
"""SQL for the key of a thread; traces of 2021 write a tid as a number or as text."""

SHAPES = r"""replace(regexp_replace(
    regexp_extract(args, '"Input [Dd]ims"\s*:\s*(\[[\[\]0-9,\s-]*\])', 1), '\s+', '', 'g'), ',', ', ')"""
"""SQL for the shapes of an operator's inputs, as text."""

_KIND = f"""
CASE WHEN {IS_OP} THEN {OP} WHEN {IS_ANNOTATION} THEN {ANNOTATION} WHEN {IS_PYTHON} THEN {PYTHON} ELSE {CALLS} END
"""


@dataclass(frozen=True)
class Host:
    """Slices of the host's threads.

    Args:
        starts: start of each slice in ns, in ascending order; of equal starts the longest first.
        ends: end of each slice in ns.
        threads: number of each slice's thread.
        thread_keys: key of each thread, by thread number.
        names: code of each slice's name.
        words: names by code.
        kinds: kind of each slice.
        external_ids: External id of each slice; 0 for none and for calls, which carry that of their operator. Empty in
            the slices of `host_of`.
        rows: row of each slice among the events in order of time.
        extras: code of each slice's extra text; None if not requested.
        extra_words: extra texts by code.
    """

    starts: Ints
    ends: Ints
    threads: "Indices"
    thread_keys: Ints
    names: "Indices"
    words: list[str]
    kinds: Any
    external_ids: Ints
    rows: "Indices"
    extras: "Indices | None"
    extra_words: list[str]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def threads_by_key(self) -> "Indices":
        """Numbers of the threads in order of their keys, which do not depend on the selection."""
        order: Indices = np.argsort(self.thread_keys).astype(np.int32)
        return order

    @property
    def durations(self) -> Ints:
        """Duration of each slice, in ns."""
        return self.ends - self.starts

    def indices_of(self, rows: Ints) -> "Indices":
        """Return the index of the slice at each event row; `NONE` for negative rows and other events."""
        from service.attribution.nesting import row_indices  # noqa: PLC0415 - loads numba, which the server does without

        return row_indices(self.rows, rows)


def host_of(
    scope: Scope, kinds: Collection[int] = (OP, ANNOTATION, CALLS), named: Callable[[str], bool] = lambda _: True
) -> Host:
    """Return the slices of the host of given kinds and names.

    The arrays are shared between questions: do not write to them.

    Args:
        scope: scope of the rank.
        kinds: kinds of slices; never `PYTHON`, which can outnumber all others many times.
        named: condition on names.

    Raises:
        NotApplicable: the durations add up to more than 64 bits hold.
    """
    host = scope.cached("host", lambda: _host(scope))
    name_counts = np.array([named(word) for word in host.words], bool)
    kind_counts = np.array([kind in kinds or kind == PYTHON for kind in range(len(KINDS))], bool)
    if name_counts.all() and kind_counts.all():
        return host
    chosen = kind_counts[host.kinds] & name_counts[host.names]
    if chosen.all():
        return host
    columns = ("starts", "ends", "threads", "names", "kinds", "rows")
    return replace(host, **{name: getattr(host, name)[chosen] for name in columns})


def _host(scope: Scope) -> Host:
    """Return all slices of the host except Python functions."""
    from service.attribution.nesting import (  # noqa: PLC0415 - loads numba, which the server does without
        factorize,
        first_indices,
        require_countable,
        total_duration,
    )

    slices = scope.slices()
    host = slices.host
    require_countable(total_duration(host.starts, host.ends), "The time of the host's slices")
    kinds = np.array([_kind(category) for category in slices.categories] or [CALLS], np.int8)[host.categories]
    scope.db.register("threads", slices.threads)
    keys = scope.table(f"SELECT {THREAD} AS key FROM threads")["key"].to_numpy().view(np.int64)
    scope.db.unregister("threads")
    numbers, count = factorize(keys)
    return Host(
        starts=host.starts,
        ends=host.ends,
        threads=host.threads if count == len(keys) else numbers[host.threads],
        thread_keys=keys[first_indices(numbers, count)],
        names=host.names,
        words=[*slices.names, ""],
        kinds=kinds,
        external_ids=np.empty(0, np.int64),
        rows=host.rows,
        extras=None,
        extra_words=[],
    )


def _kind(category: str) -> int:
    return ANNOTATION if category in ANNOTATION_CATEGORIES else OP if category in OPERATOR_CATEGORIES else CALLS


def host_where(scope: Scope, where: str, extra: str | None = None) -> Host:
    """Return the slices of the host that meet a condition in SQL.

    Args:
        scope: scope of the rank.
        where: the condition.
        extra: SQL for an extra text of each slice.

    Raises:
        NotApplicable: the durations add up to more than 64 bits hold.
    """
    from service.attribution.nesting import (  # noqa: PLC0415 - loads numba, which the server does without
        factorize,
        first_indices,
        nesting_order,
        require_countable,
        total_duration,
    )

    source = f"FROM events WHERE ph = 'X' AND ts_ns NOTNULL AND {where}"
    scope.db.execute(f"CREATE OR REPLACE TEMP TYPE host_names AS ENUM (SELECT DISTINCT name {source} AND name NOTNULL)")
    words = scope.table("SELECT unnest(enum_range(NULL::host_names)) AS word")["word"].to_pylist()
    columns, texts = read_arrays(
        scope,
        f"""
        SELECT
            ts_ns AS starts, {END} AS ends, {THREAD} AS threads,
            coalesce(enum_code(name::host_names), {len(words)})::INTEGER AS names,
            {_KIND}::UTINYINT AS kinds, coalesce(external_id, 0) AS external_ids, row::INTEGER AS rows
            {f", {extra} AS extras" if extra else ""}
        {source}""",
        {"extras"},
    )
    require_countable(total_duration(columns["starts"], columns["ends"]), "The time of the host's slices")
    keys = columns["threads"].view(np.int64)
    columns["threads"], count = factorize(keys)
    thread_keys = keys[first_indices(columns["threads"], count)]
    del keys
    columns["external_ids"][columns["kinds"] == CALLS] = 0
    order = nesting_order(columns["starts"], columns["ends"])
    moved: dict[str, Any] = {name: columns.pop(name)[order] for name in list(columns)}
    return Host(
        **{"extras": None, **moved},
        thread_keys=thread_keys,
        words=[*words, ""],
        extra_words=texts.get("extras", []),
    )


def read_arrays(scope: Scope, sql: str, encoded: Collection[str] = ()) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Read the columns of a query as arrays.

    Args:
        scope: scope of the rank.
        sql: the query.
        encoded: names of text columns to read as codes.

    Returns:
        The array of each column; and the texts of each encoded column, by code.
    """
    from service.attribution.nesting import WordEncoder  # noqa: PLC0415 - loads numba

    batches = scope.db.sql(sql).to_arrow_reader(_BATCH_ROWS)
    encoders = {name: WordEncoder() for name in batches.schema.names if name in encoded}
    parts: dict[str, list[Any]] = {name: [] for name in batches.schema.names}
    for batch in batches:
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            # copies, because a view of one column keeps all columns of its batch alive
            parts[name].append(encoders[name].encode(values) if name in encoders else values.to_numpy().copy())
    empty = {
        field.name: np.empty(0, np.int32 if field.name in encoders else field.type.to_pandas_dtype())
        for field in batches.schema
    }
    columns = {name: np.concatenate(parts.pop(name) or [empty[name]]) for name in list(parts)}
    return columns, {name: encoder.words for name, encoder in encoders.items()}


def with_double_times(host: Host) -> Host:
    """Round the times of slices to doubles of microseconds, like tools that parse JSON in Python.

    Such doubles are 250 ns apart for times since the epoch.
    """
    from service.attribution.nesting import nesting_order  # noqa: PLC0415 - loads numba, which the server does without

    starts = _whole_ns(_doubles(host.starts))
    ends = starts + durations_in_doubles(host.starts, host.durations)
    order = nesting_order(starts, ends)
    moved: dict[str, Any] = {
        name: getattr(host, name) for name in ("threads", "names", "kinds", "external_ids", "rows", "extras")
    }
    moved = {name: column[order] if column is not None and len(column) else column for name, column in moved.items()}
    return replace(host, starts=starts[order], ends=ends[order], **moved)


def durations_in_doubles(starts: Ints, durations: Ints) -> Ints:
    """Return durations as the difference of end and start in doubles of microseconds, in ns."""
    double_starts = _doubles(starts)
    return _whole_ns(double_starts + durations / 1000 - double_starts)


def _doubles(times: Ints) -> Any:
    return times // 1000 + times % 1000 / 1000


def _whole_ns(times: Any) -> Ints:
    """Convert doubles of microseconds to nanoseconds."""
    whole = np.floor(times)
    rounded: Ints = whole.astype(np.int64) * 1000 + np.rint((times - whole) * 1000).astype(np.int64)
    return rounded
