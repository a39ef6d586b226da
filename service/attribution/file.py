"""The file of a trace's links and work: written once, read by every cut and analysis of the trace."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from service.attribution.link_builder import COLUMNS, LinkBuilder
from service.attribution.links import RULES, Links, external_ids_in_summary
from service.attribution.matching import Matched, Matches, Read
from service.attribution.nesting import NONE, Flags
from service.attribution.rank_steps import StepsWithWork, encoded
from service.attribution.steps import NO_STEP, StepClock
from service.attribution.work import FIELDS, LAUNCH, with_nulls
from service.store.column_files import ColumnFolder, ParquetColumns
from service.store.event_classes import EventClasses
from service.store.folder import ATTRIBUTION, EVENTS, new_file, unreadable
from service.store.parts import Part, Parts
from service.streaming.ahead import read_ahead
from service.trace.selection import ALWAYS, Interval
from service.trace.summary import Attribution, ExternalIdKind, Summary

_EXTERNAL_IDS = b"tracedock.external_ids"
_STEPS = b"tracedock.steps"
_INTS = {"row": "rows", "launch": "launches", "operator": "operators", "step": "steps"}
_MISSING = {"launch": NONE, "operator": NONE, "step": NO_STEP}
_ROW_GROUP = 1 << 15
_ENCODINGS = {  # most numbers grow with time
    **dict.fromkeys(_INTS, "DELTA_BINARY_PACKED"),
    **dict.fromkeys(("ts_ns", "correlation", "external_id", "bytes", "launch_ts_ns"), "DELTA_BINARY_PACKED"),
    **dict.fromkeys(("position", "dur_ns", "launch_dur_ns"), "BYTE_STREAM_SPLIT"),
}
_LINKS = pa.schema(
    [
        *(pa.field(name, pa.int64()) for name in _INTS),
        pa.field("rule", pa.dictionary(pa.int8(), pa.string())),
        pa.field("is_work", pa.bool_()),
    ]
)
SCHEMA = pa.schema([*_LINKS, *FIELDS, *LAUNCH])
"""Columns of the file.

Row numbers count events from 0; null means no launch, operator or step. The fields of slices that are not work are
null. Files of earlier versions have only the columns before these fields.
"""
_WORDS = [name for name in SCHEMA.names if name not in _ENCODINGS and not pa.types.is_boolean(SCHEMA.field(name).type)]


def match_events(columns: Path, builder: LinkBuilder, external_ids: ExternalIdKind = "unknown") -> Matches:
    """Match the events of a trace, which are written.

    Args:
        columns: folder of the trace's columns.
        builder: has all events of the trace.
        external_ids: meaning of External ids in the whole trace, if this trace is a part and the meaning is known.

    Raises:
        ExportFailed: the events cannot be read.
    """

    def read(names: Sequence[str]) -> Iterator[Part]:  # opens the file only for the few traces that need it
        with closing(Parts(columns / EVENTS)) as parts:
            yield from parts.read(names)

    return builder.match(read, external_ids)


def write_links(columns: Path, summary: Summary, matches: Matches) -> Attribution:
    """Write the links of a trace next to its events, and return their summary.

    Args:
        columns: folder of the trace's columns.
        summary: summary of the trace with complete lists.
        matches: from `match_events`.

    Raises:
        DiskFull: the disk has no room for the file.
    """
    counts, steps = np.zeros(len(RULES), np.int64), StepsWithWork(summary)
    schema = SCHEMA.with_metadata({_EXTERNAL_IDS: matches.external_ids.encode()})
    with new_file(columns / ATTRIBUTION) as file, pq.ParquetWriter(
        file, schema, compression="lz4", use_dictionary=_WORDS, column_encoding=_ENCODINGS, write_statistics=[*_INTS]
    ) as writer:  # fmt: skip
        for part, table in read_ahead(_tables(matches, StepClock(summary)), "links"):
            writer.write_table(table, row_group_size=_ROW_GROUP)
            counts += np.bincount(part.links.rules[part.links.is_work], minlength=len(RULES))
            steps.add(part.times)
        writer.add_key_value_metadata({_STEPS: encoded(steps.by_rank())})
    rules = {rule: count for rule, count in zip(RULES, counts.tolist(), strict=True) if count}
    return {"external_ids": matches.external_ids, "rules": rules}


def rewrite_links(columns: Path, summary: Summary) -> None:
    """Write the file of a trace's links anew, which an earlier version wrote without the fields of work.

    Args:
        columns: folder of the trace's columns.
        summary: the trace's summary with complete lists.

    Raises:
        DiskFull: the disk has no room for the file.
        ExportFailed: the events can't be read.
    """
    with closing(Parts(columns / EVENTS)) as parts:
        write_links(columns, summary, _matched(parts.read, external_ids_in_summary(summary)))


def _matched(read: Read, external_ids: ExternalIdKind) -> Matches:
    builder = LinkBuilder(EventClasses())
    for part in read(COLUMNS):
        builder.add(part)
    return builder.match(read, external_ids)


def device_slices(read: Read, clock: StepClock, external_ids: ExternalIdKind) -> pa.Table:
    """Return the slices on devices, with the columns and the metadata of the file.

    Args:
        read: reads columns of the trace.
        clock: steps of the trace.
        external_ids: meaning of External ids in the whole trace, if this trace is a part and the meaning is known.
    """
    matches = _matched(read, external_ids)
    tables = pa.concat_tables(table for _, table in _tables(matches, clock))
    return tables.replace_schema_metadata({_EXTERNAL_IDS: matches.external_ids})


def has_work(columns: Path) -> bool:
    """Return whether the file of a trace's links has the fields of work, too; files of earlier versions have not.

    Raises:
        ExportFailed: the file can't be read.
    """
    with _open(columns) as file:
        return file is not None


def read_work(columns: Path, names: Sequence[str]) -> pa.Table | None:
    """Return columns of the work in the file, in order of time; None if the file lacks the fields of work.

    Raises:
        ExportFailed: the file can't be read.
    """
    with _open(columns) as file:
        if file is None:
            return None
        is_work = file.read(["is_work"])["is_work"]
        work = {name: file.read([name])[name].filter(is_work) for name in names}  # all at once take much memory
        return pa.table(work, pa.schema([SCHEMA.field(name) for name in names]))


def work_in(slices: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return columns of the work among slices, which have the columns of the file."""
    return slices.select([*names]).filter(slices["is_work"])


@contextmanager
def _open(columns: Path) -> Iterator[pq.ParquetFile | None]:
    """Open the file, or None if the trace has none with the fields of work."""
    path = columns / ATTRIBUTION
    try:
        with pq.ParquetFile(path) as file:
            yield file if set(SCHEMA.names) <= set(file.schema_arrow.names) else None
    except FileNotFoundError:
        yield None
    except (OSError, pa.ArrowException) as error:
        raise unreadable(path, error) from error


def links_of(columns: Path, summary: Summary) -> Links:
    """Read all links of a trace; see `LinkReader`."""
    return LinkReader(columns, summary).all()


class LinkReader:
    """A reader of a trace's links, which reads each row group of their file at most once.

    It computes the links if the trace was ingested before such files existed.

    Args:
        columns: folder of the trace's columns.
        summary: summary of the trace, as in the catalog.

    Attributes:
        steps: the steps of the ranks, as `service.attribution.rank_steps.encoded` writes them; None if the file is of
            an earlier version.

    Raises:
        ExportFailed: the columns cannot be read; the methods raise this, too.
        LocationError: their location can't be used; likewise.
    """

    def __init__(self, columns: ColumnFolder, summary: Summary) -> None:
        self._path = columns / ATTRIBUTION
        self._links: dict[int, Links] = {}
        self._file: ParquetColumns | None = None
        self.steps: bytes | None = None
        if self._path.exists():
            with self._reading():
                self._file = ParquetColumns(self._path)
                texts = self._file.metadata.metadata
                self._external_ids = _external_ids(texts)
                self.steps = texts.get(_STEPS)
        else:
            with closing(Parts(columns / EVENTS)) as parts:
                slices = device_slices(parts.read, StepClock(summary), "unknown")
            self._links[0] = _links(slices, _external_ids(slices.schema.metadata))

    def all(self) -> Links:
        """Return all links."""
        if not self._file:
            return self._links[0]
        with self._reading():
            return _links(self._file.read(self._groups(), _LINKS.names), self._external_ids)

    def touching(self, rows: Flags) -> Links:
        """Return at least the links from and to the flagged events."""
        return self._of(
            group
            for group in self._groups()
            if any(
                span and rows[max(span[0], 0) : span[1] + 1].any()
                for span in (self._span(group, name) for name in ("row", "launch", "operator"))
            )
        )

    def within(self, rows: slice) -> Links:
        """Return at least the links of the events in a range of rows."""
        spans = ((group, self._span(group, "row")) for group in self._groups())
        return self._of(group for group, span in spans if span and span[0] < rows.stop and span[1] >= rows.start)

    def of_steps(self, numbers: Collection[int]) -> Links:
        """Return at least the links of the work of some steps."""
        spans = ((group, self._span(group, "step")) for group in self._groups())
        return self._of(
            group for group, span in spans if span and any(span[0] <= number <= span[1] for number in numbers)
        )

    def _groups(self) -> range:
        return range(len(self._file.groups) if self._file else 1)

    def _span(self, group: int, column: str) -> Interval | None:
        """Return the smallest and the largest value of a column in a row group; None if it has no value."""
        statistics = self._file.groups[group].column(self._file.places[column]).statistics if self._file else None
        if statistics is None:
            return ALWAYS
        return (statistics.min, statistics.max) if statistics.has_min_max else None

    def _of(self, groups: Iterable[int]) -> Links:
        """Return the links of some row groups, and read those that are missing."""
        chosen = [*groups]
        missing = [group for group in chosen if group not in self._links]
        if self._file and missing:
            with self._reading():
                self._file.fetch(missing, _LINKS.names)
                for group in missing:
                    self._links[group] = _links(self._file.read([group], _LINKS.names), self._external_ids)
        parts = [self._links[group] for group in chosen]
        return Links.joined(parts or [_links(_LINKS.empty_table(), "unknown")])

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn errors of reading the file into `ExportFailed`."""
        try:
            yield
        except (OSError, KeyError, ValueError, pa.ArrowException) as error:
            raise unreadable(self._path, error) from error


def _external_ids(metadata: Mapping[bytes, bytes]) -> ExternalIdKind:
    """Return the meaning of External ids, from the metadata of the file."""
    return cast("ExternalIdKind", metadata[_EXTERNAL_IDS].decode())


def _links(table: pa.Table, external_ids: ExternalIdKind) -> Links:
    """Return the links of a table of the file."""
    table = table.select(_LINKS.names).cast(_LINKS)
    ints = {
        field: table[name].fill_null(_MISSING[name]).to_numpy() if name in _MISSING else table[name].to_numpy()
        for name, field in _INTS.items()
    }
    rules = table["rule"].unify_dictionaries().combine_chunks()
    rule_indices = np.array([RULES.index(rule) for rule in rules.dictionary.to_pylist()] or [0], np.int64)
    return Links(
        **ints,
        is_work=table["is_work"].to_numpy(),
        rules=rule_indices[rules.indices.to_numpy()],
        external_ids=external_ids,
    )


def _tables(matches: Matches, clock: StepClock) -> Iterator[tuple[Matched, pa.Table]]:
    """Yield all slices part by part, at least one part, each with its table of the file."""
    for part in matches.parts(clock):
        yield part, _table(part.links, part.fields)


def _table(links: Links, work: Mapping[str, pa.Array]) -> pa.Table:
    """Return the table of the file for links and the fields of their work."""
    columns = {
        name: with_nulls(values, values == _MISSING[name]) if name in _MISSING else pa.array(values)
        for name, values in ((name, getattr(links, field)) for name, field in _INTS.items())
    }
    columns["rule"] = pa.DictionaryArray.from_arrays(pa.array(links.rules.astype(np.int8)), pa.array(RULES))
    columns["is_work"] = pa.array(links.is_work)
    if links.is_work.all():
        return pa.table({**columns, **work}, SCHEMA)
    places = pa.array(np.cumsum(links.is_work) - 1, mask=~links.is_work)
    spread = {name: pc.take(values, places, boundscheck=False) for name, values in work.items()}
    return pa.table({**columns, **spread}, SCHEMA)
