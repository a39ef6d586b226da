"""Ids of Nsight Systems: threads, processes, and correlations, which are unique for each process only."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

CORRELATION_BITS = 32
_ID_BITS = 24
_ID_MASK = (1 << _ID_BITS) - 1
_PROCESSES_MAX = 1 << 20  # so that correlations stay below 2^53, which JSON readers keep exact


def process_of(global_id: Ints) -> Ints:
    """Return the process, with its machine, of each ``globalTid`` or ``globalPid``: all bits but the thread's."""
    return global_id >> _ID_BITS


def pid_of(global_id: Ints) -> Ints:
    """Return the pid of each ``globalTid`` or ``globalPid``."""
    return (global_id >> _ID_BITS) & _ID_MASK


def tid_of(global_id: Ints) -> Ints:
    """Return the thread id of each ``globalTid``."""
    return global_id & _ID_MASK


def has(values: pa.ChunkedArray) -> Flags:
    """Return flags of the values that are not null."""
    if not values.null_count:
        return np.ones(len(values), np.bool_)
    flags: Flags = values.is_valid().to_numpy()
    return flags


class Processes:
    """Numbers the processes of an export in the order of their first appearance, and makes correlations unique.

    The correlations of the first process stay as they are. Those of each other process get its number in the bits above
    the 32 that a correlation has.
    """

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def unique_correlations(
        self, processes: Ints, known: Flags, correlations: Ints, present: Flags
    ) -> tuple[Ints, Flags]:
        """Return the correlation of each row that is unique in the export, and flags of the rows that have one.

        Args:
            processes: process of each row; see `process_of`.
            known: rows whose process is known. If the export has one process, all other rows belong to it.
            correlations: correlation of each row.
            present: rows that have a correlation.
        """
        number = np.zeros(len(processes), np.int64)
        named = pa.array(processes[known]).dictionary_encode()
        numbers = [self._numbers.setdefault(process, len(self._numbers)) for process in named.dictionary.to_pylist()]
        number[known] = np.array(numbers, np.int64)[named.indices.to_numpy()]
        valid = present & (correlations >= 0) & (correlations < 1 << CORRELATION_BITS) & (number < _PROCESSES_MAX)
        if len(self._numbers) > 1:
            valid &= known
        return number << CORRELATION_BITS | np.where(valid, correlations, 0), valid
