"""Work on devices as arrays, read without the database: a query takes up to three times as long."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from service.analysis.facts.intervals import Flags, Ints
from service.analysis.facts.scope import Scope
from service.attribution.nesting import Indices
from service.store.parts import Part, Value
from service.trace.kernel_names import communicates
from service.trace.summary import GPU_CATEGORIES

TYPES = COMP, COMM, MEM = range(3)
"""Types of work, as in `Scope.define_work`."""

MEMCPYS = frozenset({"gpu_memcpy", "Memcpy"})
MEMSETS = frozenset({"gpu_memset", "Memset"})
KERNELS = GPU_CATEGORIES - MEMCPYS - MEMSETS
"""Categories of the kinds of work."""

TIMES = ("ts_ns", "dur_ns")
TYPED = ("cat", "name", "names_collective")
LAUNCHES = ("launch_ts_ns", "launch_dur_ns")
"""The columns that `DeviceEvents.ends`, `types` and `launch_ends` need."""


def device_events(scope: Scope, columns: Sequence[str]) -> "DeviceEvents":
    """Return columns of the work of a rank, as `service.attribution.file.SCHEMA` has them, in order of time."""
    return DeviceEvents(scope.read_work(columns), scope.cached)


class DeviceEvents(Part):
    """Work on devices, in order of time.

    Its arrays are shared between questions: do not write to them.

    Args:
        table: columns of the work.
        cached: returns a fact about the rank, which is computed if no question has asked for it yet.
    """

    def __init__(self, table: pa.Table, cached: Callable[[Hashable, Callable[[], Any]], Any]) -> None:
        super().__init__(0, 0, table)
        self._fact = cached

    def _cached(self, name: Any, make: Callable[[], Value]) -> Value:
        value: Value = self._fact(("work", name), make)
        return value

    def _ints(self, column: str, missing: int) -> Ints:
        values = self.table[column]
        numbers = super()._ints(column, missing)
        if len(values) and not values.null_count and values.type == pa.int64() and values.num_chunks == 1:
            chunk = values.chunk(0)
            numbers = np.frombuffer(chunk.buffers()[1], np.int64)[chunk.offset :][: len(chunk)]  # not read-only
        return np.require(numbers, requirements="W")  # compiled code is specialised by this flag

    @property
    def ends(self) -> Ints:
        """The end of each piece of work in ns; its start if the end overflows."""
        return self._cached("ends of work", lambda: _ends(self.starts, self.ints("dur_ns")))

    @property
    def launch_ends(self) -> Ints:
        """The end of the launch of each piece of work in ns; 0 if it is not known."""
        return _ends(self.ints("launch_ts_ns"), self.ints("launch_dur_ns"))

    def types(self, memory: frozenset[str] = MEMCPYS | MEMSETS) -> Indices:
        """Return the type of each piece of work; MEM is that of some categories."""
        return self._cached(
            ("types", memory),
            lambda: np.where(self.which("cat", memory.__contains__), MEM, self._communicating).astype(np.int32),
        )

    @property
    def _communicating(self) -> Flags:
        """Flags of work whose name says that it communicates, and of kernels whose arguments name a collective."""
        named = self.which("name", lambda name: name is not None and communicates(name))
        return named | (self._kernels & (self.ints("names_collective") > 0))

    def has_communication(self) -> bool:
        """Return whether a kernel communicates."""
        return bool((self._communicating & self._kernels).any())

    @property
    def _kernels(self) -> Flags:
        return self.which("cat", KERNELS.__contains__)

    def distinct_names(self, *, kernels_only: bool) -> list[str]:
        """Return the distinct names of work, or of kernels only."""
        codes, words = self.coded("name")
        used = np.unique(codes[self._kernels] if kernels_only else codes).tolist()
        return [words[code] for code in used if code >= 0]

    def names(self) -> tuple[Indices, list[str]]:
        """Return the code of each name, and the names by code; the last one, an empty text, is that of null."""
        codes, words = self.coded("name")
        return np.where(codes < 0, np.int32(len(words)), codes), [*words, ""]


def _ends(starts: Ints, durations: Ints) -> Ints:
    return np.maximum(starts, starts + np.maximum(durations, 0))  # a smaller sum overflowed
