"""What the host does, as arrays: the slices of its threads in order of time, those that enclose before the enclosed."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from service.analysis.facts.intervals import Ints
from service.analysis.facts.scope import Scope
from service.store.census import END
from service.trace.summary import ANNOTATION_CATEGORIES, OPERATOR_CATEGORIES

if TYPE_CHECKING:
    from service.attribution.nesting import Indices

OP, ANNOTATION, PYTHON, CALLS = range(4)
"""Kinds of slices: operators, regions that the program names, functions of Python, calls of a runtime or driver."""

KINDS = ("op", "annotation", "python", "call")

_ROWS = 1 << 17


def _categories(names: Collection[str]) -> str:
    return "cat IN (" + ", ".join(f"'{name}'" for name in sorted(names)) + ")"


IS_OP = _categories(OPERATOR_CATEGORIES)
IS_ANNOTATION = _categories(ANNOTATION_CATEGORIES)
IS_PYTHON = "cat = 'python_function'"
IS_MODULE = f"{IS_PYTHON} AND starts_with(name, 'nn.Module: ')"
"""SQL for kinds of slices."""

_TID = "try_cast(trim(tid_text, '\"') AS BIGINT)"
THREAD = f"hash(pid, pid_text, coalesce(tid, {_TID}), CASE WHEN {_TID} IS NULL THEN tid_text END)"
"""SQL for what tells threads apart: in 2021 some events had the tid as a number and some as text."""

SHAPES = r"""replace(regexp_replace(
    regexp_extract(args, '"Input [Dd]ims"\s*:\s*(\[[\[\]0-9,\s-]*\])', 1), '\s+', '', 'g'), ',', ', ')"""
"""SQL for the shapes of an operator's inputs as text."""

_KIND = f"""
CASE WHEN {IS_OP} THEN {OP} WHEN {IS_ANNOTATION} THEN {ANNOTATION} WHEN {IS_PYTHON} THEN {PYTHON} ELSE {CALLS} END
"""


@dataclass(frozen=True)
class Host:
    """Slices of the host's threads.

    Args:
        starts: when each begins, in order; of those that begin at once, the longest first.
        ends: when it ends.
        threads: the number of its thread.
        thread_keys: what tells these apart, by their numbers.
        names: the number of its name.
        words: the names by their numbers.
        kinds: what it is.
        external_ids: its External id; 0 where it has none, and for calls, which have that of their operator.
        correlations: what it has in common with what it launched or waited for; of none, or if these are not asked
            for, no number above 0.
        rows: its row among the events in order of time.
        extras: the number of what else was asked for, if something was.
        extra_words: these by their numbers.
    """

    starts: Ints
    ends: Ints
    threads: "Indices"
    thread_keys: Ints
    names: "Indices"
    words: list[str]
    kinds: Any
    external_ids: Ints
    correlations: Ints
    rows: "Indices"
    extras: "Indices | None"
    extra_words: list[str]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def durations(self) -> Ints:
        """How long each lasts."""
        return self.ends - self.starts

    def places(self, rows: Ints) -> "Indices":
        """The places of the slices of some rows; `NONE` for a negative row and for what is not one of these."""
        from service.attribution.nesting import row_indices  # noqa: PLC0415 - loads numba, which the server does without

        return row_indices(self.rows, rows)


def host_of(
    scope: Scope, kinds: Collection[int] = (OP, ANNOTATION, CALLS), named: Callable[[str], bool] = lambda _: True
) -> Host:
    """The slices of the host of some kinds and names, with correlations; not to be written to: others share them.

    Args:
        scope: what is asked.
        kinds: which, but for `PYTHON`, of which there can be many times as many as of all others.
        named: whether a name counts.

    Raises:
        NotApplicable: their durations add up to more than can be counted.
    """
    host = scope.cached("host", lambda: _host(scope))
    of_names = np.array([named(word) for word in host.words], bool)
    of_kinds = np.array([kind in kinds for kind in range(len(KINDS))], bool)
    chosen = of_kinds[host.kinds] & of_names[host.names]
    if chosen.all():
        return host
    columns = ("starts", "ends", "threads", "names", "kinds", "external_ids", "correlations", "rows")
    return replace(host, **{name: getattr(host, name)[chosen] for name in columns})


def _host(scope: Scope) -> Host:
    """All slices of the host but functions of Python."""
    from service.attribution.nesting import require_countable  # noqa: PLC0415 - loads numba, which the server does without

    slices = scope.slices()
    host = slices.host
    require_countable(host.ends - host.starts, "The time of what the host does")
    kinds = np.array([_kind(category) for category in slices.categories] or [CALLS], np.int8)[host.categories]
    scope.db.register("threads", slices.threads)
    keys = scope.table(f"SELECT {THREAD} AS key FROM threads")["key"].to_numpy().view(np.int64)
    scope.db.unregister("threads")
    thread_keys, numbers = np.unique(keys, return_inverse=True)
    return Host(
        starts=host.starts,
        ends=host.ends,
        threads=numbers.astype(np.int32)[host.threads],
        thread_keys=thread_keys,
        names=host.names,
        words=[*slices.names, ""],
        kinds=kinds,
        external_ids=np.where((kinds == CALLS) | (host.external_ids < 0), 0, host.external_ids),
        correlations=host.correlations,
        rows=host.rows,
        extras=None,
        extra_words=[],
    )


def _kind(category: str) -> int:
    return ANNOTATION if category in ANNOTATION_CATEGORIES else OP if category in OPERATOR_CATEGORIES else CALLS


def host_where(scope: Scope, where: str, extra: str | None = None, *, correlations: bool = False) -> Host:
    """The slices of the host for which a condition holds, in SQL.

    Args:
        scope: what is asked.
        where: the condition.
        extra: SQL for a text to number beside the names.
        correlations: whether these are asked for.

    Raises:
        NotApplicable: their durations add up to more than can be counted.
    """
    from service.attribution.nesting import factorize, first_indices, nesting_order, require_countable  # noqa: PLC0415 - loads numba

    known = f"FROM events WHERE ph = 'X' AND ts_ns NOTNULL AND {where}"
    scope.db.execute(f"CREATE OR REPLACE TEMP TYPE host_names AS ENUM (SELECT DISTINCT name {known} AND name NOTNULL)")
    words = scope.table("SELECT unnest(enum_range(NULL::host_names)) AS word")["word"].to_pylist()
    columns, more = read(
        scope,
        f"""
        SELECT
            ts_ns AS starts, {END} AS ends, {THREAD} AS threads,
            coalesce(enum_code(name::host_names), {len(words)})::INTEGER AS names,
            {_KIND}::UTINYINT AS kinds, coalesce(external_id, 0) AS external_ids, row::INTEGER AS rows
            {f", {extra} AS extras" if extra else ""}
            {", coalesce(correlation, 0) AS correlations" if correlations else ""}
        {known}""",
        {"extras"},
    )
    require_countable(columns["ends"] - columns["starts"], "The time of what the host does")
    keys = columns["threads"].view(np.int64)
    columns["threads"], count = factorize(keys)
    thread_keys = keys[first_indices(columns["threads"], count)]
    del keys
    columns["external_ids"][columns["kinds"] == CALLS] = 0
    order = nesting_order(columns["starts"], columns["ends"])
    moved: dict[str, Any] = {name: columns.pop(name)[order] for name in list(columns)}
    return Host(
        **{"extras": None, "correlations": np.empty(0, np.int64), **moved},
        thread_keys=thread_keys,
        words=[*words, ""],
        extra_words=more.get("extras", []),
    )


def read(scope: Scope, sql: str, numbered_: Collection[str] = ()) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """The columns of what a statement gives, as arrays; and the words of those that are numbered."""
    from service.attribution.nesting import WordEncoder  # noqa: PLC0415 - loads numba

    batches = scope.db.sql(sql).to_arrow_reader(_ROWS)
    numberings = {name: WordEncoder() for name in batches.schema.names if name in numbered_}
    parts: dict[str, list[Any]] = {name: [] for name in batches.schema.names}
    for batch in batches:
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            # as copies: one column would keep all others of its batch
            parts[name].append(numberings[name].encode(values) if name in numberings else values.to_numpy().copy())
    empty = {
        one.name: np.empty(0, np.int32 if one.name in numberings else one.type.to_pandas_dtype())
        for one in batches.schema
    }
    columns = {name: np.concatenate(parts.pop(name) or [empty[name]]) for name in list(parts)}
    return columns, {name: numbering.words for name, numbering in numberings.items()}


def in_doubles(host: Host) -> Host:
    """The same with times as they come out of doubles of microseconds, which are 250 ns apart since the epoch's.

    So have them tools that read JSON as Python does.
    """
    from service.attribution.nesting import nesting_order  # noqa: PLC0415 - loads numba, which the server does without

    starts = _whole_ns(_doubles(host.starts))
    ends = starts + lasting_in_doubles(host.starts, host.durations)
    order = nesting_order(starts, ends)
    moved: dict[str, Any] = {
        name: getattr(host, name)
        for name in ("threads", "names", "kinds", "external_ids", "correlations", "rows", "extras")
    }
    moved = {name: column[order] if column is not None and len(column) else column for name, column in moved.items()}
    return replace(host, starts=starts[order], ends=ends[order], **moved)


def lasting_in_doubles(starts: Ints, lasting: Ints) -> Ints:
    """How long something lasts, by its start and end in doubles of microseconds."""
    begin = _doubles(starts)
    return _whole_ns(begin + lasting / 1000 - begin)


def _doubles(times: Ints) -> Any:
    return times // 1000 + times % 1000 / 1000


def _whole_ns(times: Any) -> Ints:
    """Microseconds in doubles as nanoseconds."""
    whole = np.floor(times)
    found: Ints = whole.astype(np.int64) * 1000 + np.rint((times - whole) * 1000).astype(np.int64)
    return found
