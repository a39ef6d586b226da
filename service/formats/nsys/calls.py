"""Calls of the runtime and the driver, and the launches among them."""

import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from service.formats.events import events, nullable, words
from service.formats.nsys.allowed import CALLS
from service.formats.nsys.arguments import Argument, ArgumentWriter, Correlations
from service.formats.nsys.database import Database
from service.formats.nsys.identifiers import Flags, Ints, Processes, has, pid_of, process_of, tid_of
from service.formats.nsys.strings import Strings
from service.streaming.integers import ints

_SUFFIX = re.compile(r"(?:_v\d+|_ptsz|_ptds)+$")
_DRIVER = re.compile(r"cu[A-Z]")
_ROWS_AT_ONCE = 1 << 15
_ARGUMENTS = (Argument("return value", ("error",)),)


def api_name(name: str) -> str:
    """Return the name of an API function without the suffixes of its version and of its default stream."""
    return _SUFFIX.sub("", name)


class Launches:
    """The calls that have a correlation, by which GPU work names its launch; the arrays are in order of correlation."""

    def __init__(self) -> None:
        self._pieces: list[tuple[Ints, Ints, Ints]] = []
        self.correlations = np.zeros(0, np.int64)
        self.starts = np.zeros(0, np.int64)
        self.threads = np.zeros(0, np.int64)
        self.used = np.zeros(0, np.bool_)

    def add(self, correlations: Ints, starts: Ints, threads: Ints) -> None:
        """Add calls."""
        self._pieces.append((correlations, starts, threads))

    def complete(self) -> None:
        """Prepare for `find`, once all calls were added. Of several calls with one correlation, the first counts."""
        if not self._pieces:
            return
        correlations, starts, threads = (np.concatenate(column) for column in zip(*self._pieces, strict=True))
        self._pieces = []
        if (np.diff(correlations) <= 0).any():
            order = np.lexsort((starts, correlations))
            order = order[np.concatenate([[True], np.diff(correlations[order]) != 0])]
            correlations, starts, threads = correlations[order], starts[order], threads[order]
        self.correlations, self.starts, self.threads = correlations, starts, threads
        self.used = np.zeros(len(correlations), np.bool_)

    def find(self, correlations: Ints, present: Flags) -> tuple[Ints, Flags]:
        """Return the index of the launch of each work, and flags of the work that has one; note which are used."""
        if not len(self.correlations):
            return np.zeros(len(correlations), np.int64), np.zeros(len(correlations), np.bool_)
        at = np.minimum(np.searchsorted(self.correlations, correlations), len(self.correlations) - 1)
        linked = present & (self.correlations[at] == correlations)
        self.used[at[linked]] = True
        return at, linked

    def flows(self) -> Iterator[pa.RecordBatch]:
        """Yield the starts of the flows from the launches that have work."""
        used = np.flatnonzero(self.used)
        for first in range(0, len(used), _ROWS_AT_ONCE):
            rows = used[first : first + _ROWS_AT_ONCE]
            threads = self.threads[rows]
            yield events(
                len(rows), ph="s", cat="ac2g", name="ac2g", ts=self.starts[rows],
                pid=pid_of(threads), tid=tid_of(threads), id=self.correlations[rows],
            )  # fmt: skip


def calls(database: Database, strings: Strings, processes: Processes, launches: Launches) -> Iterator[pa.RecordBatch]:
    """Yield the calls, and add them to the launches."""
    writer = ArgumentWriter(_ARGUMENTS)
    for batch in database.event_rows(CALLS):
        starts, threads = ints(batch["start"]), ints(batch["globalTid"])
        correlations = correlations_of(batch, process_of(threads), np.ones(len(batch), np.bool_), processes)
        present = correlations.present
        launches.add(correlations.unique[present], starts[present], threads[present])
        names, categories = _names(strings.words(ints(batch["nameId"]), np.ones(len(batch), np.bool_)))
        yield events(
            len(batch), cat=categories, name=names, ts=starts, dur=ints(batch["end"]) - starts,
            pid=pid_of(threads), tid=tid_of(threads), correlation=nullable(correlations.unique, present),
            args=writer.write(_errors(batch), correlations),
        )  # fmt: skip
    launches.complete()


def correlations_of(batch: pa.Table, process: Ints, known: Flags, processes: Processes) -> Correlations:
    """Return the correlations of a batch of rows.

    Args:
        batch: the rows.
        process: process of each row; see `process_of`.
        known: rows whose process is known.
        processes: the processes of the export.
    """
    if "correlationId" not in batch.column_names:
        nothing = np.zeros(len(batch), np.int64)
        return Correlations(nothing, nothing, np.zeros(len(batch), np.bool_))
    original = ints(batch["correlationId"])
    unique, present = processes.unique_correlations(process, known, original, has(batch["correlationId"]))
    return Correlations(unique, original, present)


def _names(raw: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the names of functions without suffixes, and their categories."""
    names = [api_name(name) for name in raw.dictionary.to_pylist()]
    codes = raw.indices.to_numpy()
    is_driver = np.array([_DRIVER.match(name) is not None for name in names], np.int64)
    return words(codes, names), words(is_driver[codes], ["cuda_runtime", "cuda_driver"])


def _errors(batch: pa.Table) -> dict[str, pa.ChunkedArray]:
    """Return the return values that are not 0, which means success."""
    if "returnValue" not in batch.column_names:
        return {}
    values = batch["returnValue"]
    failed = ints(values) != 0
    return {"error": pa.chunked_array([nullable(ints(values), failed)])} if failed.any() else {}
