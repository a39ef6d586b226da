"""Windows: a part of the trace of one rank, cut out of a dataset without reading the rest of its files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from service.cutting.cut import cut_document
from service.fleet.asking import traces_of_run
from service.fleet.dataset import COLUMNS, Dataset
from service.fleet.record import Record
from service.trace.errors import BadFleetRequest
from service.trace.selection import Selection

_RANKS_NAMED = 16


@dataclass(frozen=True)
class WindowRequest:
    """Request for a part of a rank's trace.

    Attributes:
        selection: selection of the events.
        run: name of the run; None for the only one.
        rank: number of the rank; None if the run has a single trace.
        file: file name of the trace, if the rank has several.
        redact: whether to hide secrets.
    """

    selection: Selection
    run: str | None = None
    rank: int | None = None
    file: str | None = None
    redact: bool = False


@dataclass(frozen=True)
class Window:
    """A part of a rank's trace.

    Attributes:
        record: record of the trace.
        chunks: the document of the part, in chunks of a few MB.
        size_bytes: size of the files that have the rank's events.
    """

    record: Record
    chunks: Iterator[bytes]
    size_bytes: int


@contextmanager
def window_of(dataset: Dataset, request: WindowRequest) -> Iterator[Window]:
    """Cut a part out of the trace of a rank.

    `dataset.location.meter` counts what is read for it, and the records of the run.

    Raises:
        BadFleetRequest: there is no such run, rank or file, or there are several.
        SelectionError: the selection is invalid or matches no event; raised before the first chunk.
        BadDataset: the trace is missing.
        ExportFailed: its columns can't be read.
        LocationError: the location can't be used, or a file was changed while it was read.
    """
    record = trace_of_rank(traces_of_run([*dataset.records().values()], request.run), request.rank, request.file)
    summary = dataset.summary(record.trace)
    with dataset.ranged(record.trace) as columns:
        source = record.digest or record.trace.partition(".")[0]
        chunks = cut_document(columns, request.selection, summary, source=source, redact=request.redact)
        yield Window(record, chunks, sum(columns.sizes.get(name, 0) for name in COLUMNS))


def trace_of_rank(records: Sequence[Record], rank: int | None, file: str | None) -> Record:
    """Return the record of a rank's trace.

    Args:
        records: the records of a run.
        rank: number of the rank; None for any.
        file: file name of the trace; None for any.

    Raises:
        BadFleetRequest: no trace fits, or several do.
    """
    ranked = [record for record in records if rank is None or record.rank == rank]
    if file is None:  # a memory snapshot lies beside the trace of its rank
        ranked = [record for record in ranked if not record.is_memory_snapshot] or ranked
    if not ranked:
        known = sorted({record.rank for record in records if record.rank is not None})
        raise BadFleetRequest(f"The run {records[0].run} has no trace of rank {rank}. {_ranks(known)}")
    named = [record for record in ranked if file is None or record.name == file]
    if len(named) == 1:
        return named[0]
    files = ", ".join(record.name for record in ranked[:_RANKS_NAMED])
    if file is not None:
        problem = "several files" if named else "no file"
        raise BadFleetRequest(f"There is {problem} {file!r} among the traces. There are {files}.")
    if rank is None and len({record.rank for record in ranked}) > 1:
        raise BadFleetRequest(f"Name a rank. {_ranks(sorted({each.rank for each in ranked if each.rank is not None}))}")
    raise BadFleetRequest(f"Name a file, because the rank has several traces: {files}.")


def _ranks(known: Sequence[int]) -> str:
    """Name the ranks that exist, as ranges: Its ranks are 0-7 and 9."""
    if not known:
        return "None of its traces has a rank."
    ranges: list[list[int]] = []
    for rank in known:
        if ranges and rank == ranges[-1][1] + 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    named = [f"{first}-{last}" if first < last else str(first) for first, last in ranges]
    more = f" and {len(named) - _RANKS_NAMED} further ranges" if len(named) > _RANKS_NAMED else ""
    return f"It has ranks {', '.join(named[:_RANKS_NAMED])}{more}."
