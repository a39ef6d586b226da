"""What questions are asked of: one rank's events as views of a database, in bounded memory."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from service.analysis.facts.reading import Reading
from service.analysis.parameters import WorkParameters
from service.store.census import END, steps_in
from service.store.database import spill_errors
from service.store.export import parsed_envelope
from service.store.folder import EVENTS
from service.streaming.schema import SCHEMA
from service.trace.errors import ExportFailed
from service.trace.kernel_names import communicates
from service.trace.summary import GPU_CATEGORIES, LAUNCH_PATTERN

if TYPE_CHECKING:
    from service.analysis.facts.slices import Slices  # which loads numba; who only describes questions need not
    from service.attribution.links import Links
    from service.store.parts import Part

WORK = "(" + ", ".join(f"'{category}'" for category in sorted(GPU_CATEGORIES)) + ")"
"""SQL for the categories of what runs on devices."""

KERNELS = "('kernel', 'Kernel', 'mtia_ccp_events')"
"""SQL for the categories of work that are no copies and no memsets."""

NO_WORK = "Nothing in this trace runs on a GPU."
"""Why most questions can't be asked."""

RANGE_CATEGORY = "cuda_profiler_range"
"""The category of the ranges of CUPTI's profiler: what it counted while a kernel ran, once for each pass."""

ONLY_RANGES = "CUPTI's range profiler was on: GPU work has counters, which `counters` tells, and no times."
"""Why most questions can't be asked where there are ranges and no work."""

TYPE = "ENUM ('COMM', 'COMP', 'MEM', 'OTHER')"

HTA_TYPES = {
    "COMM": re.compile("nccl.*Kernel"),
    "MEM": re.compile("Memcpy|Memset|dma"),
    "OTHER": re.compile(".*Memcpy|Memset|.*Sync"),
}
"""How names begin by which HTA 0.5.0 sorts work into types; the first that fits counts, and all others compute."""

_HAS_STREAM = rf"""
(cat NOT IN {WORK} OR coalesce(stream <> tid, false) OR regexp_matches(args, '"stream"\s*:\s*"?-?[0-9]'))
"""
"""SQL for whether an event's arguments tell its stream; that of work is its tid where they do not."""

_ON_DEVICE = f"""(
coalesce(stream >= 0 AND correlation >= 0 AND {_HAS_STREAM}, false) OR name IN ('Event Sync', 'Context Sync'))"""
"""SQL for what HTA takes to be on a device as it looks for steps and launches."""

_COLLECTIVE = '"Collective name"'
_COMMUNICATING = "(SELECT name FROM communicating)"
_TELLING = "(SELECT name FROM telling)"

_NAMES = "CREATE TYPE event_names AS ENUM (SELECT name FROM names_read)"
_KIND = f"""
CASE WHEN cat IN {KERNELS} THEN 'kernel' WHEN cat IN ('gpu_memcpy', 'Memcpy') THEN 'memcpy'
     WHEN cat IN ('gpu_memset', 'Memset') THEN 'memset' ELSE 'other' END::ENUM ('kernel', 'memcpy', 'memset', 'other')
"""
_TIMES = f"ts_ns AS start_ns, {END} AS end_ns, greatest(coalesce(dur_ns, 0), 0) AS dur_ns"
_LINKS = "launch_row, operator_row, step, rule"
_DEVICE_EVENTS = f"""
CREATE TABLE device_events AS
SELECT
    position, name::event_names AS name, {_KIND} AS kind, device, stream, correlation, external_id, bytes, {_TIMES},
    {_LINKS}
FROM work_read
"""
_BATCH_ROWS = 1 << 15


class Scope:
    """What a question sees of a reading: one rank of a trace, or of a selection of it.

    ``events`` is a view of its columns; ``work`` makes one of what its GPUs do. What a question makes else in its
    database, as temporary tables and views, no other one sees.

    Args:
        reading: what is asked.
    """

    def __init__(self, reading: Reading) -> None:
        self.once = reading.once
        self.summary = reading.summary
        self.rank: int | None = reading.summary["rank"]
        self.columns = reading.columns
        self.cut = reading.selection is not None
        self._reading = reading

    @cached_property
    def db(self) -> duckdb.DuckDBPyConnection:
        """A connection to a database in which ``events`` is; it is only opened for those who ask for it."""
        return self._reading.database()

    def beside(self) -> "Scope":
        """Another one of the same, for another thread; to be closed."""
        return Scope(self._reading)

    def close(self) -> None:
        """Forget what this question has made in the database."""
        if "db" in self.__dict__:
            self.db.close()

    def table(self, sql: str, **values: Any) -> pa.Table:
        """The rows that a statement gives.

        Args:
            sql: the statement, with ``$name`` where a value is to stand.
            values: by name.
        """
        return self.db.sql(sql, params=values).to_arrow_table()

    @cached_property
    def envelope(self) -> Mapping[str, Any]:
        """What stands in the trace's document beside its events; nothing where that is no object that can be read."""
        return parsed_envelope(self.columns)

    def has(self, categories: Iterable[str]) -> bool:
        """Whether there is a slice of any of some categories of which the time is known."""
        known = [one for one in categories if self.summary["counts"].get(f"X|{one}")]
        return bool(known) and self.happens(f"cat IN {_listed(known)}")

    def happens(self, condition: str) -> bool:
        """Whether there is a slice of which a condition is true, in SQL, and of which the time is known."""
        return len(self.table(f"SELECT 1 FROM events WHERE ph = 'X' AND ts_ns NOTNULL AND {condition} LIMIT 1")) > 0

    @cached_property
    def has_work(self) -> bool:
        """Whether anything runs on a device."""
        if not self.cut:
            return any(self.summary["counts"].get(f"X|{category}") for category in GPU_CATEGORIES)
        return self.has(GPU_CATEGORIES)

    @property
    def missing_work(self) -> str | None:
        """Why there is no work on a device; None where there is."""
        if self.has_work:
            return None
        return ONLY_RANGES if self.has([RANGE_CATEGORY]) else NO_WORK

    @cached_property
    def has_communication(self) -> bool:
        """Whether a kernel communicates."""
        if self._are_communicating:
            kernels = "SELECT 1 FROM device_events WHERE kind = 'kernel'"
            if len(self.table(f"{kernels} AND name IN {_COMMUNICATING} LIMIT 1")):
                return True
        return self._are_telling and self.happens(
            f"cat IN {KERNELS} AND name IN {_TELLING} AND contains(args, '{_COLLECTIVE}')"
        )

    @cached_property
    def calls(self) -> str:
        """SQL for whether an event is a call of a runtime or a driver, by the categories that the trace has.

        To look for the pattern in the category of each event takes three times as long.
        """
        known = {key.partition("|")[2] for key in self.summary["counts"]}
        return f"(cat IN {_listed(one for one in known if re.fullmatch(LAUNCH_PATTERN, one))})"

    def slices(self) -> "Slices":
        """The slices of the host and the regions of devices: all events are read for these once, and for work.

        There is then a table ``device_events`` of what runs on devices, with the columns of `work` but for ``type`` and
        ``args``: many questions are about these, which are few of all events, and arguments are most of their bytes.
        And there is a type ``event_names`` of the names of slices.
        """
        return self.once("slices", self._read_slices)

    def _read_slices(self) -> "Slices":
        from service.analysis.facts.slices import read_slices  # noqa: PLC0415 - loads numba, which the server does without

        counts = {key.partition("|")[2]: count for key, count in self.summary["counts"].items() if key.startswith("X|")}
        slices, work = read_slices(self._events(), counts)
        self.db.register("names_read", pa.table({"name": pa.array(slices.names, pa.string())}))
        self.db.register("work_read", _with_links(work, self.links().of_work()))
        self.db.execute(_NAMES)
        self.db.execute(_DEVICE_EVENTS)
        self.db.unregister("names_read")
        self.db.unregister("work_read")
        return slices

    def links(self) -> "Links":
        """The launch, the operator and the step of all that devices do."""
        return self.once("links", self._links)

    def _links(self) -> "Links":
        from service.attribution.file import links_of  # noqa: PLC0415 - loads numba, which the server does without
        from service.attribution.links import external_ids_shown, linked  # noqa: PLC0415 - likewise
        from service.attribution.steps import StepClock  # noqa: PLC0415 - likewise

        if not self.cut:
            return links_of(self.columns, self.summary)
        clock = StepClock({**self.summary, "steps": steps_in(self.db)})
        return linked(self._parts, clock, external_ids_shown(self.summary))

    def _parts(self, columns: Sequence[str]) -> "Iterator[Part]":
        """Some columns of the events of a selection, in order of time."""
        from service.store.parts import Part  # noqa: PLC0415 - loads pyarrow.parquet, which the server does without

        schema = pa.schema([SCHEMA.field(name) for name in columns])
        first = 0
        batches = self.db.sql(f"SELECT {', '.join(columns)} FROM events").to_arrow_reader(_BATCH_ROWS)
        for index, batch in enumerate(batches):
            yield Part(index, first, pa.Table.from_batches([batch]).cast(schema))
            first += len(batch)

    def _events(self) -> Iterator[pa.Table]:
        """The columns that slices are read from, in order of time; words as dictionaries."""
        from service.analysis.facts.slices import COLUMNS  # noqa: PLC0415 - likewise
        from service.store.parts import Parts  # noqa: PLC0415 - loads pyarrow.parquet, which the server does without

        if not self.cut:
            with closing(Parts(self.columns / EVENTS)) as parts:
                yield from parts.tables(COLUMNS)
            return
        columns = pa.schema([SCHEMA.field(name) for name in COLUMNS])
        for batch in self.db.sql(f"SELECT {', '.join(COLUMNS)} FROM events").to_arrow_reader(_BATCH_ROWS):
            yield pa.Table.from_batches([batch]).cast(columns)

    def names(self) -> list[str]:
        """The names of all events, but for functions of Python.

        There are few, and to look at these is cheaper than to look at that of each event.
        """
        return self.slices().names

    def named(self, pattern: str) -> str:
        """SQL for whether a regular expression is found in an event's name, which is no function of Python."""
        known = _listed(name for name in self.names() if re.search(pattern, name))
        return f"name IN {known}" if known != _listed([]) else "false"

    @property
    def device_names(self) -> list[str]:
        """The names of what runs on devices, each once."""
        self.slices()
        found: list[str] = self.table("SELECT DISTINCT name::VARCHAR AS name FROM device_events WHERE name NOTNULL")[
            "name"
        ].to_pylist()
        return found

    @property
    def kernel_names(self) -> list[str]:
        """The names of kernels, each once."""
        self.slices()
        kernels = "SELECT DISTINCT name::VARCHAR AS name FROM device_events WHERE kind = 'kernel' AND name NOTNULL"
        found: list[str] = self.table(kernels)["name"].to_pylist()
        return found

    def work(self, parameters: WorkParameters, *, typed: bool = True, args: bool = False) -> None:
        """Make the view ``work`` of what devices do, as far as parameters count it, in order of time.

        Its columns: ``position, name, device, stream, correlation, external_id, bytes, args, start_ns, end_ns,
        dur_ns``; ``launch_row, operator_row, step, rule``, as `links` has them, null for none; ``kind``: kernel,
        memcpy, memset, or other; ``type``: COMP, COMM, MEM, or OTHER. The others are only there with HTA's types,
        which also tell no devices apart: ``device`` is null. To find out types takes a while, and can be left out:
        then ``type`` is null. Arguments may be null where they are not asked for.
        """
        hta = parameters.types == "hta"
        conditions = ["true"]
        if parameters.linked_only:
            conditions.append(f"correlation IN (SELECT correlation FROM events WHERE ph = 'X' AND {self.calls})")
        if parameters.last_step == "drop":
            conditions += self._before_last_step(parameters.types)
        type_ = "NULL"
        if typed:
            type_ = self._type_of_hta if hta else self._type(parameters)
        if hta or args or (typed and self._are_telling):
            of_hta = f"stream <> -1 AND {_HAS_STREAM} AND dur_ns NOTNULL AND cat <> 'Trace'"
            counted = of_hta if hta else f"cat IN {WORK}"
            self.slices()
            source = f"""(
                SELECT * EXCLUDE dur_ns, {_KIND} AS kind, {_TIMES} FROM events
                LEFT JOIN (SELECT position, {_LINKS} FROM device_events) USING (position)
                WHERE ph = 'X' AND ts_ns NOTNULL AND {counted})"""
        else:
            self.slices()
            source = "(SELECT *, NULL::VARCHAR AS args FROM device_events)"
        self.db.execute(f"""
            CREATE OR REPLACE TEMP VIEW work AS
            SELECT
                position, name, {"NULL::BIGINT" if hta else "device"} AS device, stream, correlation, external_id,
                bytes, args, start_ns, end_ns, dur_ns, kind, ({type_})::{TYPE} AS type, {_LINKS}
            FROM {source} WHERE {" AND ".join(conditions)}""")

    def last_step_start(self, types: str) -> int | None:
        """When the last step starts, if there are two: on the host; or as HTA has it, on a device that is not told."""
        condition = f"NOT ({_ON_DEVICE})" if types == "hta" else f"cat <> 'gpu_user_annotation' AND cat NOT IN {WORK}"
        [steps] = self.table(f"""
            SELECT count(DISTINCT name) AS steps, max(ts_ns) FILTER ({condition}) AS start_ns FROM events
            WHERE ph = 'X' AND dur_ns NOTNULL AND starts_with(name, 'ProfilerStep') AND ts_ns NOTNULL""").to_pylist()
        start: int | None = steps["start_ns"] if steps["steps"] > 1 else None
        return start

    def _before_last_step(self, types: str) -> list[str]:
        """Conditions for what is launched before the last step starts; none where there are not two of them.

        To HTA everything may be what launches that does not name a stream and a correlation.
        """
        start = self.last_step_start(types)
        if start is None:
            return []
        launched = "correlation IN (SELECT correlation FROM events WHERE ph = 'X' AND {} AND ts_ns < " + f"{start})"
        if types != "hta":
            return [launched.format(self.calls)]
        launches = f"dur_ns NOTNULL AND cat <> 'Trace' AND correlation NOTNULL AND NOT ({_ON_DEVICE})"
        return [f"CASE WHEN {_ON_DEVICE} THEN {launched.format(launches)} ELSE ts_ns < {start} END"]

    def _type(self, parameters: WorkParameters) -> str:
        """SQL for the type of work.

        A kernel communicates by its name, or by what is told of its collective.
        """
        memory = "('memcpy', 'memset')" if parameters.memset == "mem" else "('memcpy')"
        named = f"name IN {_COMMUNICATING}" if self._are_communicating else "false"
        by_args = f" OR name IN {_TELLING} AND contains(args, '{_COLLECTIVE}')" if self._are_telling else ""
        return f"CASE WHEN kind IN {memory} THEN 'MEM' WHEN {named}{by_args} THEN 'COMM' ELSE 'COMP' END"

    @cached_property
    def _are_communicating(self) -> bool:
        """Make a table of the names of what communicates, each of which is looked at once: are there any?"""
        found = [{"name": name} for name in self.device_names if communicates(name)]
        self._keep("communicating", found)
        return bool(found)

    @cached_property
    def _are_telling(self) -> bool:
        """Make a table of the names of other kernels that may tell of a collective: are there any?

        Arguments are long, and are read only where kernels with other names are launched by what tells of collectives;
        of a selection, which may lack that, they are.
        """
        telling = self.once("telling", self._telling)
        self._keep("telling", telling)
        return bool(telling)

    def _telling(self) -> list[dict[str, str]]:
        telling = []
        if "record_param_comms" in self.names() or self.cut:
            told = self.slices().host_named({"record_param_comms"}.__contains__)
            self.db.register("told", pa.table({"external_id": self.slices().host.external_ids[told]}))
            linked = "" if self.cut else "AND external_id IN (SELECT external_id FROM told)"
            others = f"AND name::VARCHAR NOT IN {_COMMUNICATING}" if self._are_communicating else ""
            telling = self.table(
                f"SELECT DISTINCT name::VARCHAR AS name FROM device_events WHERE kind = 'kernel' {linked} {others}"
            ).to_pylist()
            self.db.unregister("told")
        return telling

    @cached_property
    def _type_of_hta(self) -> str:
        """SQL for the type of work by HTA's patterns."""
        names = self.table("SELECT DISTINCT name FROM events WHERE ph = 'X' AND stream NOTNULL AND name NOTNULL")
        typed = [
            {"name": name, "type": type_}
            for name in names["name"].to_pylist()
            if (type_ := next((type_ for type_, pattern in HTA_TYPES.items() if pattern.match(name)), None))
        ]
        self._keep("hta_types", typed, ("name", "type"))
        cases = " ".join(
            f"WHEN name IN (SELECT name FROM hta_types WHERE type = '{type_}') THEN '{type_}'" for type_ in HTA_TYPES
        )
        return f"CASE {cases} ELSE 'COMP' END"

    def _keep(self, table: str, rows: Sequence[Mapping[str, str]], columns: Sequence[str] = ("name",)) -> None:
        """Make a table of texts."""
        kept = pa.Table.from_pylist(rows, pa.schema([(column, pa.string()) for column in columns]))
        self.db.register("kept", kept)
        self.db.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT * FROM kept")
        self.db.unregister("kept")


def _with_links(work: pa.Table, links: "Links") -> pa.Table:
    """Work, each with its launch, operator and step."""
    from service.attribution.links import RULES  # noqa: PLC0415 - loads numba, which the server does without

    rules = pa.DictionaryArray.from_arrays(pa.array(links.rules.astype("int8")), pa.array(RULES))
    work = work.append_column("rule", rules)
    for name, values in {
        "launch_row": links.launches,
        "operator_row": links.operators,
        "step": links.steps,
    }.items():
        work = work.append_column(name, pa.array(values, mask=values < 0))
    return work


def _listed(words: Iterable[str]) -> str:
    """SQL for a list of texts, which is not empty."""
    return "(" + ", ".join("'" + word.replace("'", "''") + "'" for word in ["", *words]) + ")"


@contextmanager
def scope_of(reading: Reading) -> Iterator[Scope]:
    """What a question sees of a reading, while it is asked.

    Raises:
        SelectionError: the trace has nothing of the selection.
        ExportFailed: the columns can't be read.
        DiskFull: there was no room to spill.
    """
    scope = Scope(reading)
    try:
        with spill_errors():
            yield scope
    except duckdb.Error as error:
        raise ExportFailed(f"The trace's columns can't be read: {error}") from error
    finally:
        scope.close()
