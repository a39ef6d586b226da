"""Work on devices as arrays, read without the database: a query takes up to three times as long."""

from collections.abc import Sequence

import numpy as np

from service.analysis.facts.intervals import Flags, Ints
from service.analysis.facts.scope import Scope
from service.attribution.nesting import Indices
from service.store.parts import Part
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
    return DeviceEvents(0, 0, scope.read_work(columns))


class DeviceEvents(Part):
    """Work on devices, in order of time. Its arrays may be written to."""

    def ints(self, column: str, missing: int = 0) -> Ints:
        """Return the values of a column, with `missing` for null."""
        return np.require(super().ints(column, missing), requirements="W")  # compiled code is specialised by this flag

    @property
    def ends(self) -> Ints:
        """The end of each piece of work in ns; its start if the end overflows."""
        return _ends(self.starts, self.ints("dur_ns"))

    @property
    def launch_ends(self) -> Ints:
        """The end of the launch of each piece of work in ns; 0 if it is not known."""
        return _ends(self.ints("launch_ts_ns"), self.ints("launch_dur_ns"))

    def types(self, memory: frozenset[str] = MEMCPYS | MEMSETS) -> Indices:
        """Return the type of each piece of work; MEM is that of some categories."""
        return np.where(self.which("cat", memory.__contains__), MEM, self._communicating).astype(np.int32)

    @property
    def _communicating(self) -> Flags:
        """Flags of work whose name says that it communicates, and of kernels whose arguments name a collective."""
        named = self.which("name", lambda name: name is not None and communicates(name))
        return named | (self.which("cat", KERNELS.__contains__) & (self.ints("names_collective") > 0))

    def names(self) -> tuple[Indices, list[str]]:
        """Return the code of each name, and the names by code; the last one, an empty text, is that of null."""
        codes, words = self.coded("name")
        return np.where(codes < 0, np.int32(len(words)), codes), [*words, ""]


def _ends(starts: Ints, durations: Ints) -> Ints:
    return np.maximum(starts, starts + np.maximum(durations, 0))  # a smaller sum overflowed
