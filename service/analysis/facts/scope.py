"""The view that a question has of one rank: its events as views of a database, in bounded memory."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from service.analysis.facts.rank_database import RankDatabase
from service.analysis.facts.work_columns import WorkColumns
from service.analysis.parameters import WorkParameters
from service.store.database import END, database_errors
from service.store.export import parsed_envelope
from service.store.folder import ATTRIBUTION, EVENTS
from service.store.steps import steps_in
from service.streaming.schema import SCHEMA
from service.trace.errors import DiskFull, ExportFailed
from service.trace.kernel_names import communicates
from service.trace.selection import Selection
from service.trace.summary import GPU_CATEGORIES, OP_CATEGORIES, PYTHON_CATEGORY, Step, is_launch

if TYPE_CHECKING:
    import duckdb

    from service.analysis.facts.intervals import Ints
    from service.analysis.facts.slices import Slices  # loads numba, which describing questions does without
    from service.attribution.nesting import Indices
    from service.cutting.criteria import IntervalSet
    from service.store.parts import Part

Value = TypeVar("Value")

log = logging.getLogger(__name__)

WORK = "(" + ", ".join(f"'{category}'" for category in sorted(GPU_CATEGORIES)) + ")"
"""SQL list of the categories of work on devices."""

KERNELS = "('kernel', 'Kernel', 'mtia_ccp_events')"
"""SQL list of the categories of kernels."""

NO_WORK = "Nothing in this trace runs on a GPU."
"""Reason why most questions do not apply to a trace without GPU work."""

RANGE_CATEGORY = "cuda_profiler_range"
"""Category of ranges of CUPTI's profiler: counters of a kernel's run, once for each pass."""

ONLY_RANGES = "CUPTI's range profiler was on: GPU work has counters (see the question `counters`), but no times."
"""Reason why most questions do not apply to a trace with profiler ranges and no GPU work."""

TYPE = "ENUM ('COMM', 'COMP', 'MEM', 'OTHER')"

HTA_TYPES = {
    "COMM": re.compile("nccl.*Kernel"),
    "MEM": re.compile("Memcpy|Memset|dma"),
    "OTHER": re.compile(".*Memcpy|Memset|.*Sync"),
}
"""Patterns by which HTA 0.5.0 sorts work into types, matched at the start of names; the first match counts.

Work that matches no pattern is computation.
"""

_HAS_STREAM = rf"""
(cat NOT IN {WORK} OR coalesce(stream <> tid, false) OR regexp_matches(args, '"stream"\s*:\s*"?-?[0-9]'))
"""
"""SQL condition: the event's arguments name its stream. Otherwise the stream of work is its tid."""

_ON_DEVICE = f"""(
coalesce(stream >= 0 AND correlation >= 0 AND {_HAS_STREAM}, false) OR name IN ('Event Sync', 'Context Sync'))"""
"""SQL condition: the event is on a device by HTA's rule for steps and launches."""

_COMMUNICATING = "(SELECT name FROM communicating)"

_KIND = f"""
CASE WHEN cat IN {KERNELS} THEN 'kernel' WHEN cat IN ('gpu_memcpy', 'Memcpy') THEN 'memcpy'
     WHEN cat IN ('gpu_memset', 'Memset') THEN 'memset' ELSE 'other' END::ENUM ('kernel', 'memcpy', 'memset', 'other')
"""
_TIMES = f"ts_ns AS start_ns, {END} AS end_ns, greatest(coalesce(dur_ns, 0), 0) AS dur_ns"
_OF_LAUNCH = "launch_name, launch_start_ns, launch_end_ns"
_LINKS = f"launch_row, operator_row, step, rule, {_OF_LAUNCH}"
_DEVICE_EVENTS = f"""
SELECT
    row, position, name, {_KIND} AS kind, device, stream, correlation, external_id, bytes, names_collective,
    configuration, {_TIMES},
    launch AS launch_row, operator AS operator_row, step, rule, launch_name, launch_ts_ns AS launch_start_ns,
    coalesce(try(launch_ts_ns + launch_dur_ns), launch_ts_ns) AS launch_end_ns
FROM {{slices}} WHERE is_work
"""
_WHEN_WORK = " ".join(f"WHEN '{category}' THEN args" for category in sorted(GPU_CATEGORIES))
_ARGS_OF_WORK = f"CASE cat {_WHEN_WORK} END AS args"
"""SQL for the arguments of work. DuckDB turns a long `IN` into a join, which does not keep the order of events."""
_BATCH_ROWS = 1 << 15


class Scope:
    """The view that one question has of a rank, or of a selection of it.

    ``events`` is a view of its columns; `define_work` adds a view of the work of its GPUs. Temporary tables and views
    that a question creates in the database are invisible to other questions.

    Args:
        database: database of the rank.
    """

    def __init__(self, database: RankDatabase) -> None:
        self.cached = database.cached
        self.summary = database.summary
        self.rank = database.summary.rank
        self.columns = database.columns
        self.execution_traces = database.execution_traces
        self.step_traces = database.step_traces
        self.is_selection = database.selection is not None
        self._database = database

    @cached_property
    def db(self) -> "duckdb.DuckDBPyConnection":
        """A connection to the database with ``events``, opened on first use."""
        return self._database.database()

    @property
    def time(self) -> "IntervalSet | None":
        """The time of the selection; None for the whole trace."""
        if not self.is_selection:
            return None
        _ = self.db  # opening it evaluates the selection
        return self._database.time

    @property
    def selection(self) -> Selection | None:
        """The selection; None for the whole trace."""
        return self._database.selection

    @property
    def subject(self) -> str:
        """Name for messages of what the events belong to: this trace or this selection."""
        return "this selection" if self.is_selection else "this trace"

    def sibling(self) -> "Scope":
        """Return another scope of the same rank, for another thread; the caller closes it."""
        return Scope(self._database)

    def close(self) -> None:
        """Close the connection, which drops the temporary tables and views of this question."""
        if "db" in self.__dict__:
            self.db.close()

    def table(self, sql: str, **values: Any) -> pa.Table:
        """Return the rows of a query.

        Args:
            sql: the query, with a ``$name`` for each value.
            values: values by name.
        """
        return self.db.sql(sql, params=values).to_arrow_table()

    @cached_property
    def envelope(self) -> Mapping[str, Any]:
        """Members of the trace's document other than its events; empty if they cannot be read as an object."""
        return parsed_envelope(self.columns)

    @property
    def trace_events(self) -> int:
        """Number of events in the whole trace."""
        return self._database.events

    @property
    def world_size(self) -> int | None:
        """Number of ranks of the job, if the trace records it."""
        return self.summary.world_size

    @property
    def steps(self) -> Sequence[Step]:
        """Steps of the rank or the selection, by start; see `steps_in`. Those of a whole trace are in its summary."""
        if self.is_selection or self.summary.ranks:
            return self.cached("steps", lambda: steps_in(self.db))
        return self.summary.steps

    def event_count(self, phase: str, category: str) -> int:
        """Return the number of events of a phase and category in the whole trace."""
        return self.summary.counts.get(f"{phase}|{category}", 0)

    def slice_count(self, category: str) -> int:
        """Return the number of slices of a category in the whole trace."""
        return self.event_count("X", category)

    @cached_property
    def _slice_counts(self) -> dict[str, int]:
        counts = self.summary.counts
        return {key.partition("|")[2]: count for key, count in counts.items() if key.startswith("X|")}

    def has_categories(self, categories: Iterable[str]) -> bool:
        """Return whether a timed slice has one of the categories."""
        present = [category for category in categories if self.slice_count(category)]
        return bool(present) and self.has_slice(f"cat IN {_sql_list(present)}")

    def has_slice_of(self, condition: Callable[[str], Any]) -> bool:
        """Return whether a slice, timed or not, has a category that meets a condition."""
        if self.is_selection:
            return self.has_event(f"ph = 'X' AND {self.has_category(condition)}")
        return any(count and condition(category) for category, count in self._slice_counts.items())

    def has_slice(self, condition: str) -> bool:
        """Return whether a timed slice meets a condition in SQL."""
        return self.has_event(f"ph = 'X' AND ts_ns NOTNULL AND {condition}")

    def has_event(self, condition: str) -> bool:
        """Return whether an event meets a condition in SQL. Many questions ask for the same."""
        return self.cached(
            ("has event", condition), lambda: len(self.table(f"SELECT 1 FROM events WHERE {condition} LIMIT 1")) > 0
        )

    @cached_property
    def has_work(self) -> bool:
        """True if any work runs on a device."""
        if not self.is_selection:
            return any(map(self.slice_count, GPU_CATEGORIES))
        return self.has_categories(GPU_CATEGORIES)

    @property
    def no_work_reason(self) -> str | None:
        """The reason why no work runs on a device; None if some work does."""
        if self.has_work:
            return None
        return ONLY_RANGES if self.has_categories([RANGE_CATEGORY]) else NO_WORK

    @property
    def has_communication(self) -> bool:
        """True if a kernel communicates."""
        return self.cached("has communication", self._find_communication)

    def _find_communication(self) -> bool:
        from service.analysis.facts.device_events import TYPED, device_events  # noqa: PLC0415 - loads numba

        return device_events(self, TYPED).has_communication()

    @cached_property
    def is_call(self) -> str:
        """SQL condition: the event is a runtime or driver call, by the categories in the trace.

        Matching the pattern with the category of each event takes three times as long.
        """
        return self.has_category(is_launch)

    @cached_property
    def is_on_host(self) -> str:
        """SQL condition: the event is an operator, an annotation of the program, or a call as by `is_call`."""
        return self.has_category(lambda category: category in OP_CATEGORIES or is_launch(category))

    def has_category(self, condition: Callable[[str], Any]) -> str:
        """Return an SQL condition: the category of the event meets a condition."""
        return f"(cat IN {_sql_list(filter(condition, self.summary.categories))})"

    def slices(self) -> "Slices":
        """Return the slices of the host and the annotations on devices. The first call reads all events."""
        return self.cached("slices", self._read_slices)

    @contextmanager
    def beside(self, compute: "Callable[[Scope], Value]") -> Iterator["Future[Value]"]:
        """Compute something about the rank in another thread until the ``with`` block is left."""
        with closing(self.sibling()) as sibling, ThreadPoolExecutor(1, "beside") as thread:
            future = thread.submit(compute, sibling)
            yield future
            future.result()

    def _read_slices(self) -> "Slices":
        from service.analysis.facts.slices import columns_of, read_slices  # noqa: PLC0415 - loads numba, which the server does without

        slices = read_slices(self._events(columns_of(self.summary.counts)), self._slice_counts)
        self.cached("names", lambda: slices.names)
        return slices

    def define_device_events(self) -> None:
        """Create the view ``device_events`` of work on devices, unless it exists.

        It has the columns of `define_work` except ``type`` and ``args``; ``row``, the number of the event in order of
        time; and ``names_collective`` and ``configuration`` as in `service.attribution.work`. Many questions need only
        these few events, and arguments make up most of the bytes.
        """
        self.cached("device events", self._define_device_events)

    def _define_device_events(self) -> None:
        if self._has_file_of_work:
            name = str(self.columns / ATTRIBUTION).replace("'", "''")
            self.db.execute("CREATE VIEW device_events AS " + _DEVICE_EVENTS.format(slices=f"read_parquet('{name}')"))
            return
        self.db.register("slices_read", self._device_slices())
        self.db.execute("CREATE TABLE device_events AS " + _DEVICE_EVENTS.format(slices="slices_read"))
        self.db.unregister("slices_read")

    def read_work(self, columns: Sequence[str]) -> pa.Table:
        """Return columns of the work on devices, as `service.attribution.file.SCHEMA` has them, in order of time."""
        return self.cached("work columns", lambda: WorkColumns(self._read_work)).table(columns)

    def _read_work(self, columns: Sequence[str]) -> pa.Table:
        from service.attribution.file import read_work, work_in  # noqa: PLC0415 - loads numba, which the server does without

        if self._has_file_of_work and (work := read_work(self.columns, columns)) is not None:
            return work
        return work_in(self._device_slices(), columns)

    def _device_slices(self) -> pa.Table:
        """Return the slices on devices of a selection, or of a trace whose file of links can't be written."""
        return self.cached("device slices", self._match_device_slices)

    def _match_device_slices(self) -> pa.Table:
        from service.attribution.file import device_slices  # noqa: PLC0415 - loads numba, which the server does without
        from service.attribution.links import external_ids_in_summary  # noqa: PLC0415 - likewise
        from service.attribution.steps import StepClock  # noqa: PLC0415 - likewise

        clock = StepClock(replace(self.summary, steps=[*self.steps]))
        return device_slices(self._parts, clock, external_ids_in_summary(self.summary))

    @property
    def _has_file_of_work(self) -> bool:
        """True if the file of links of a whole trace has the fields of work."""
        return not self.is_selection and self.cached("file of work", self._ensure_file_of_work)

    def _ensure_file_of_work(self) -> bool:
        """Write the file of links anew if an earlier version wrote it; return False if it can't be written."""
        from service.attribution.file import has_work, rewrite_links  # noqa: PLC0415 - loads numba

        if has_work(self.columns):
            return True
        try:
            rewrite_links(self.columns, self.summary)
        except FileNotFoundError:  # the trace was deleted meanwhile
            return False
        except (DiskFull, OSError) as error:
            log.warning("work is not kept: %s can't be written: %s", self.columns / ATTRIBUTION, error)
            return False
        return True

    def _parts(self, columns: Sequence[str]) -> "Iterator[Part]":
        """Read columns of the events, in order of time. Arguments are long: only those of work are read."""
        from service.store.parts import Part  # noqa: PLC0415 - loads pyarrow.parquet, which the server does without

        schema = pa.schema([SCHEMA.field(name) for name in columns])
        first = 0
        values = (_ARGS_OF_WORK if name == "args" else name for name in columns)
        batches = self.db.sql(f"SELECT {', '.join(values)} FROM events").to_arrow_reader(_BATCH_ROWS)
        for index, batch in enumerate(batches):
            yield Part(index, first, pa.Table.from_batches([batch]).cast(schema))
            first += len(batch)

    def _events(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Read columns of all events, in order of time; text is dictionary-encoded."""
        from service.store.parts import Parts  # noqa: PLC0415 - loads pyarrow.parquet, which the server does without

        if not self.is_selection:
            with closing(Parts(self.columns / EVENTS)) as parts:
                yield from parts.tables(names)
            return
        columns = pa.schema([SCHEMA.field(name) for name in names])
        for batch in self.db.sql(f"SELECT {', '.join(names)} FROM events").to_arrow_reader(_BATCH_ROWS):
            yield pa.Table.from_batches([batch]).cast(columns)

    def args_at(self, rows: Sequence[int]) -> list[str | None]:
        """Return the arguments of the events at some rows, in their order."""
        from service.store.parts import Parts  # noqa: PLC0415 - loads pyarrow.parquet, which the server does without

        if self.is_selection:
            table = self.table("SELECT row, args FROM events WHERE row IN (SELECT unnest($rows))", rows=[*rows])
            found = dict(zip(table["row"].to_pylist(), table["args"].to_pylist(), strict=True))
            return [found[row] for row in rows]
        found = {}
        with closing(Parts(self.columns / EVENTS)) as parts:
            wanted = np.zeros(parts.rows, np.bool_)
            wanted[[*rows]] = True
            for part in parts.read(["args"], parts.holding(wanted)):
                own = part.first + np.flatnonzero(wanted[part.rows])
                found |= zip(own.tolist(), part.table["args"].take(own - part.first).to_pylist(), strict=True)
        return [found[row] for row in rows]

    def names_at(self, rows: "Ints") -> "tuple[Indices, list[str]]":
        """Return the names of the events at some rows, which ascend, as codes, and the names by code; null is -1."""
        from service.attribution.nesting import WordEncoder  # noqa: PLC0415 - loads numba, which the server does without

        encoder, codes, first = WordEncoder(), np.empty(len(rows), np.int32), 0
        for table in self._events(("name",)):
            begin, end = np.searchsorted(rows, [first, first + len(table)])
            names = table["name"].unify_dictionaries().combine_chunks().take(pa.array(rows[begin:end] - first))
            codes[begin:end] = np.where(names.is_valid(), encoder.encode(names), -1)
            first += len(table)
        return codes, encoder.words

    def names(self) -> list[str]:
        """Return the distinct names of all events except Python functions.

        They are few, so matching them is cheaper than matching the name of each event.
        """
        return self.cached("names", self._read_names)

    def _read_names(self) -> list[str]:
        condition = f"name NOTNULL AND cat IS DISTINCT FROM '{PYTHON_CATEGORY}'"
        names: list[str] = self.table(f"SELECT DISTINCT name FROM events WHERE {condition}")["name"].to_pylist()
        return names

    def name_matches(self, pattern: str) -> str:
        """Return an SQL condition: the name matches a regular expression; not for names of Python functions."""
        matching = _sql_list(name for name in self.names() if re.search(pattern, name))
        return f"name IN {matching}" if matching != _sql_list([]) else "false"

    @property
    def device_names(self) -> list[str]:
        """Distinct names of work on devices."""
        return self._names_of_work(kernels_only=False)

    @property
    def kernel_names(self) -> list[str]:
        """Distinct names of kernels."""
        return self._names_of_work(kernels_only=True)

    def _names_of_work(self, *, kernels_only: bool) -> list[str]:
        return self.cached(("names of work", kernels_only), lambda: self._read_names_of_work(kernels_only))

    def _read_names_of_work(self, kernels_only: bool) -> list[str]:
        from service.analysis.facts.device_events import device_events  # noqa: PLC0415 - loads numba

        return device_events(self, ("cat", "name")).distinct_names(kernels_only=kernels_only)

    def define_work(self, parameters: WorkParameters, *, typed: bool = True, args: bool = False) -> None:
        """Create the view ``work`` of the work on devices that the parameters count, in order of time.

        Its columns: ``position, name, device, stream, correlation, external_id, bytes, args, configuration, start_ns,
        end_ns, dur_ns``; ``launch_row, operator_row, step, rule`` as in `service.attribution.links.Links`, null for
        none; ``launch_name, launch_start_ns, launch_end_ns``, null if the launch is unknown; ``kind``: kernel, memcpy,
        memset, or other; ``type``: COMP, COMM, MEM, or OTHER. The kind ``other`` and the type ``OTHER`` appear only
        with HTA's types, which do not distinguish devices either: ``device`` is null.

        Args:
            parameters: rules by which work counts.
            typed: whether to determine types, which takes a while; otherwise ``type`` is null.
            args: whether ``args`` must be present; otherwise it may be null.
        """
        hta = parameters.types == "hta"
        conditions = ["true"]
        if parameters.linked_only:
            conditions.append(f"correlation IN (SELECT correlation FROM events WHERE ph = 'X' AND {self.is_call})")
        if parameters.last_step == "drop":
            conditions += self._before_last_step(parameters.types)
        type_ = "NULL"
        if typed:
            type_ = self._type_of_hta if hta else self._type(parameters)
        self.define_device_events()
        if hta or args:
            hta_work = f"stream <> -1 AND {_HAS_STREAM} AND dur_ns NOTNULL AND cat <> 'Trace'"
            counted = hta_work if hta else f"cat IN {WORK}"
            source = f"""(
                SELECT * EXCLUDE dur_ns, {_KIND} AS kind, {_TIMES} FROM events
                LEFT JOIN (SELECT position, names_collective, configuration, {_LINKS} FROM device_events)
                USING (position)
                WHERE ph = 'X' AND ts_ns NOTNULL AND {counted})"""
        else:
            source = "(SELECT *, NULL::VARCHAR AS args FROM device_events)"
        self.db.execute(f"""
            CREATE OR REPLACE TEMP VIEW work AS
            SELECT
                position, name, {"NULL::BIGINT" if hta else "device"} AS device, stream, correlation, external_id,
                bytes, args, configuration, start_ns, end_ns, dur_ns, kind, ({type_})::{TYPE} AS type, {_LINKS}
            FROM {source} WHERE {" AND ".join(conditions)}""")

    def last_step_start(self, types: str) -> int | None:
        """Return the start of the last step, in ns, if there are at least two steps.

        Steps count on the host or, by HTA's types, wherever the event is not known to be on a device.
        """
        condition = f"NOT ({_ON_DEVICE})" if types == "hta" else f"cat <> 'gpu_user_annotation' AND cat NOT IN {WORK}"
        [steps] = self.table(f"""
            SELECT count(DISTINCT name) AS steps, max(ts_ns) FILTER ({condition}) AS start_ns FROM events
            WHERE ph = 'X' AND dur_ns NOTNULL AND starts_with(name, 'ProfilerStep') AND ts_ns NOTNULL""").to_pylist()
        start: int | None = steps["start_ns"] if steps["steps"] > 1 else None
        return start

    def _before_last_step(self, types: str) -> list[str]:
        """Return SQL conditions for work launched before the last step starts; none for fewer than two steps.

        By HTA's types any event without a stream and a correlation id may be a launch.
        """
        start = self.last_step_start(types)
        if start is None:
            return []
        launched = "correlation IN (SELECT correlation FROM events WHERE ph = 'X' AND {} AND ts_ns < " + f"{start})"
        if types != "hta":
            return [launched.format(self.is_call)]
        launches = f"dur_ns NOTNULL AND cat <> 'Trace' AND correlation NOTNULL AND NOT ({_ON_DEVICE})"
        return [f"CASE WHEN {_ON_DEVICE} THEN {launched.format(launches)} ELSE ts_ns < {start} END"]

    def _type(self, parameters: WorkParameters) -> str:
        """Return SQL for the type of work.

        A kernel communicates by its name, or by the collective that its arguments name.
        """
        memory = "('memcpy', 'memset')" if parameters.memset == "mem" else "('memcpy')"
        return f"CASE WHEN kind IN {memory} THEN 'MEM' WHEN {self._communicates} THEN 'COMM' ELSE 'COMP' END"

    @cached_property
    def _communicates(self) -> str:
        """SQL condition: the name of work says that it communicates, or the arguments of a kernel name a collective."""
        rows = [{"name": name} for name in self.device_names if communicates(name)]
        self._create_table("communicating", rows)
        by_name = f"name IN {_COMMUNICATING} OR " if rows else ""
        return f"coalesce({by_name}kind = 'kernel' AND names_collective, false)"

    @cached_property
    def _type_of_hta(self) -> str:
        """SQL for the type of work by HTA's patterns."""
        names = self.table("SELECT DISTINCT name FROM events WHERE ph = 'X' AND stream NOTNULL AND name NOTNULL")
        typed = [
            {"name": name, "type": type_}
            for name in names["name"].to_pylist()
            if (type_ := next((type_ for type_, pattern in HTA_TYPES.items() if pattern.match(name)), None))
        ]
        self._create_table("hta_types", typed, ("name", "type"))
        cases = " ".join(
            f"WHEN name IN (SELECT name FROM hta_types WHERE type = '{type_}') THEN '{type_}'" for type_ in HTA_TYPES
        )
        return f"CASE {cases} ELSE 'COMP' END"

    def _create_table(self, table: str, rows: Sequence[Mapping[str, str]], columns: Sequence[str] = ("name",)) -> None:
        """Create a temporary table of text columns."""
        texts = pa.Table.from_pylist(rows, pa.schema([(column, pa.string()) for column in columns]))
        self.db.register("texts", texts)
        self.db.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT * FROM texts")
        self.db.unregister("texts")


def _sql_list(words: Iterable[str]) -> str:
    """Return an SQL list of texts; an empty text is added, so that the list is never empty."""
    return "(" + ", ".join("'" + word.replace("'", "''") + "'" for word in ["", *words]) + ")"


@contextmanager
def scope_of(database: RankDatabase) -> Iterator[Scope]:
    """Open the scope of one question to a rank, and close it afterwards.

    Raises:
        SelectionError: the selection matches no events.
        ExportFailed: the columns cannot be read.
        DiskFull: the disk has no room to spill.
    """
    scope = Scope(database)
    try:
        with database_errors(lambda error: ExportFailed(f"The trace's columns can't be read: {error}")):
            yield scope
    finally:
        scope.close()
