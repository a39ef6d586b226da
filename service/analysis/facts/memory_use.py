"""The use of memory, from what was allocated and freed: by device, time, operator and block."""

from typing import Any

import numpy as np
import pyarrow as pa

from service.analysis.facts.host import KINDS, Host
from service.analysis.facts.intervals import Ints
from service.analysis.facts.operator_rows import OperatorRows
from service.attribution.nesting import (
    NONE,
    Indices,
    add_to_ancestors,
    count_by_key,
    factorize,
    first_indices,
    innermost_at,
    require_countable,
    sum_by_key,
)
from service.trace.errors import NotApplicable

_TYPES = (
    *("CPU", "CUDA", "MKLDNN", "OPENGL", "OPENCL", "IDEEP", "HIP", "FPGA", "MAIA", "XLA", "VULKAN", "METAL", "XPU"),
    *("MPS", "META", "HPU", "VE", "LAZY", "IPU", "MTIA", "PRIVATEUSEONE"),
)
"""torch's types of devices, by their numbers."""

_CELLS = 1 << 24

Table = dict[str, Any]


class MemoryUse:
    """What changes of memory amount to.

    Args:
        changes: in order of time.
        host: operators and annotations.
    """

    def __init__(self, changes: pa.Table, host: Host) -> None:
        self.rows = OperatorRows(host, plugin=False)
        self.at, self.bytes = changes["at"].to_numpy(), changes["bytes"].to_numpy()
        require_countable(np.abs(self.bytes.astype(np.float64)), "What is allocated")
        self.told = {name: _values(changes[name]) for name in ("allocated", "reserved", "address")}
        types, ids = changes["device_type"].to_numpy(), changes["device_id"].to_numpy()
        (type_numbers, _), (id_numbers, ids_count) = factorize(types), factorize(ids)
        self.device_of, self.count = factorize(type_numbers.astype(np.int64) * ids_count + id_numbers)
        firsts = first_indices(self.device_of, self.count)
        self.types = [_TYPES[one] if 0 <= one < len(_TYPES) else str(one) for one in types[firsts].tolist()]
        self.ids = ids[firsts].tolist()
        self.order = np.argsort(self.device_of, kind="stable")
        self.groups = np.split(self.order, np.cumsum(np.bincount(self.device_of, minlength=self.count))[:-1])
        self.growth = np.empty(len(self.at), np.int64)
        for group in self.groups:
            self.growth[group] = np.cumsum(self.bytes[group])
        self.slices = innermost_at(
            *(self.rows.parents, host.threads, host.starts, host.ends),
            *(_numbers_of(changes["thread"].to_numpy().view(np.int64), host.thread_keys), self.at),
        )
        self._pair()

    def _pair(self) -> None:
        """Find blocks: for each the change that allocates it, and that which frees it, or -1."""
        address, known = self.told["address"]
        some = np.flatnonzero(known & (self.bytes != 0))
        some = some[np.lexsort((some, address[some], self.device_of[some]))]
        allocates = self.bytes[some] > 0
        follows = np.zeros(len(some), bool)  # the change before, at the same address
        follows[1:] = (np.diff(address[some]) == 0) & (np.diff(self.device_of[some]) == 0)
        frees = np.zeros(len(some), bool)
        frees[1:] = follows[1:] & allocates[:-1] & ~allocates[1:]
        freed = np.append(frees[1:], False)
        next_ = np.append(some[1:], NONE)
        lonely = ~allocates & ~frees
        self.begin = np.concatenate([some[allocates], np.full(int(lonely.sum()), NONE)])
        self.end = np.concatenate([np.where(freed, next_, NONE)[allocates], some[lonely]])
        self.of = np.where(self.begin >= 0, self.begin, self.end)  # a change of each block
        self.size = np.abs(self.bytes[self.of])

    def devices(self) -> Table:
        """What each device has in all."""
        values, known = self.told["allocated"]
        reserved, _ = self.told["reserved"]
        rows = []
        device, positive = self.device_of[self.of], self.bytes > 0
        unfreed, before = self.end < 0, self.begin < 0
        addressed = count_by_key(self.device_of[self.told["address"][1]], self.count)
        sums = {
            "allocations": count_by_key(self.device_of[positive], self.count),
            "frees": count_by_key(self.device_of[self.bytes < 0], self.count),
            "allocated_bytes": sum_by_key(self.device_of, np.maximum(self.bytes, 0), self.count),
            "freed_bytes": sum_by_key(self.device_of, -np.minimum(self.bytes, 0), self.count),
            "unfreed_bytes": sum_by_key(device[unfreed], self.size[unfreed], self.count),
            "unfreed_allocations": count_by_key(device[unfreed], self.count),
            "before_bytes": sum_by_key(device[before], self.size[before], self.count),
            "before_frees": count_by_key(device[before], self.count),
        }
        for number, group in enumerate(self.groups):
            top = group[np.argmax(self.growth[group])]
            row: dict[str, int | None] = {name: int(values_[number]) for name, values_ in sums.items()}
            row["peak_growth_bytes"], row["peak_growth_at_ns"] = int(self.growth[top]), int(self.at[top])
            if not addressed[number]:
                row |= dict.fromkeys(("unfreed_bytes", "unfreed_allocations", "before_bytes", "before_frees"))
            peak: dict[str, int | None] = {"peak_bytes": None, "peak_at_ns": None, "peak_reserved_bytes": None}
            if known[group].any():
                top = self._peak(group)
                peak = {"peak_bytes": int(values[top]), "peak_at_ns": int(self.at[top])}
                peak["peak_reserved_bytes"] = int(reserved[group].max())
            rows.append({**row, **peak})
        return {**self.named_devices(np.arange(self.count)), **{name: [row[name] for row in rows] for name in rows[0]}}

    def curve(self, points: int) -> Table:
        """How the memory of each device changes; of more than some points the least and the most of equal times."""
        chosen = np.concatenate([self._thinned(group, points) for group in self.groups])
        return {
            **self.named_devices(self.device_of[chosen]),
            "at_ns": self.at[chosen],
            **{f"{name}_bytes": _nullable(*self.told[name], chosen) for name in ("allocated", "reserved")},
            "growth_bytes": self.growth[chosen],
        }

    def operators(self) -> Table:
        """What changes in operators, by device."""
        rows = self.rows
        if self.count * rows.count > _CELLS:
            raise NotApplicable("There are too many devices and operators to tell the memory of each.")
        values = np.stack([self.device_of, self.bytes, self.bytes > 0, np.maximum(self.bytes, 0)], 1).astype(np.int64)
        cells = np.zeros((self.count, rows.count, 6), np.int64)
        add_to_ancestors(rows.parents, rows.own_keys, rows.all_keys, self.slices, values, cells)
        device, key = np.nonzero(cells.any(2))
        order = np.lexsort((key, -cells[device, key, 0], device))
        device, key = device[order], key[order]
        first, found = rows.firsts[key], cells[device, key]
        names = ("increase_{}_bytes", "allocations_{}", "allocated_{}_bytes")
        return {
            **self.named_devices(device),
            "operator": [rows.words[one] for one in rows.host.names[first]],
            "kind": [KINDS[one] for one in rows.host.kinds[first]],
            "calls": count_by_key(rows.all_keys, rows.count)[key],
            **{name.format("self"): found[:, place] for place, name in enumerate(names)},
            **{name.format("total"): found[:, place + 3] for place, name in enumerate(names)},
        }

    def at_peak(self) -> Table:
        """Whose blocks were held when each device had the most."""
        held = np.flatnonzero(self.held_at_peak())
        operator, caller = self._names(self.begin[held])
        many = len(self.rows.words) + 1
        device = self.device_of[self.of[held]]
        numbers, count = factorize((device.astype(np.int64) * many + operator) * many + caller)
        sizes, firsts = sum_by_key(numbers, self.size[held], count), first_indices(numbers, count)
        order = np.lexsort((firsts, -sizes, device[firsts]))
        firsts = firsts[order]
        return {
            **self.named_devices(device[firsts]),
            **self._words(operator[firsts], caller[firsts]),
            "allocations": count_by_key(numbers, count)[order],
            "held_bytes": sizes[order],
        }

    def held_at_peak(self) -> Any:
        """Which blocks were held when their device had the most."""
        peaks = np.array([self._peak(group) for group in self.groups])[self.device_of[self.of]]
        return (self.begin <= peaks) & ((self.end < 0) | (self.end > peaks))

    def largest(self, top: int) -> Ints:
        """The places of the largest blocks."""
        return np.lexsort((self.of, -self.size))[:top]

    def blocks(self, top: int) -> Table:
        """The largest blocks."""
        chosen = self.largest(top)
        begin, end = self.begin[chosen], self.end[chosen]
        start, stop = np.append(self.at, 0)[begin], np.append(self.at, 0)[end]
        return {
            **self.named_devices(self.device_of[self.of[chosen]]),
            **self._words(*self._names(begin)),
            "size_bytes": self.size[chosen],
            "allocated_at_ns": pa.array(start, mask=begin < 0),
            "freed_at_ns": pa.array(stop, mask=end < 0),
            "lasting_ns": pa.array(stop - start, mask=(begin < 0) | (end < 0)),
            "address": self.told["address"][0][self.of[chosen]],
        }

    def _peak(self, group: Ints) -> int:
        """The change of a device after which it has the most."""
        values, known = self.told["allocated"]
        told = group[known[group]]
        return int(told[np.argmax(values[told])] if len(told) else group[np.argmax(self.growth[group])])

    def _thinned(self, group: Ints, points: int) -> Ints:
        if len(group) <= points:
            return group
        values, known = self.told["allocated"]
        level = np.where(known[group], values[group], self.growth[group])
        since = (self.at[group] - self.at[group[0]]).astype(np.float64)
        part = (since * (points // 2) / max(since[-1], 1.0)).astype(np.int64)
        order = np.lexsort((level, part))
        first = np.flatnonzero(np.diff(part[order], prepend=-1))
        last = np.append(first[1:], len(order)) - 1
        chosen: Ints = group[np.unique(np.concatenate([order[first], order[last], [len(group) - 1]]))]
        return chosen

    def _names(self, changes: Ints) -> tuple[Ints, Ints]:
        """The name of the operator in which each change is, and of that around it; where there is none, one beyond."""
        rows, none = self.rows, len(self.rows.words)
        names = np.append(rows.host.names, none).astype(np.int64)
        slices = np.where(changes >= 0, np.append(self.slices, NONE)[changes], NONE)
        return names[slices], names[np.append(rows.parents, NONE)[slices]]

    def _words(self, operator: Ints, caller: Ints) -> Table:
        words = [*self.rows.words, None]
        return {"operator": [words[one] for one in operator], "caller": [words[one] for one in caller]}

    def named_devices(self, numbers: Any) -> Table:
        """The types and numbers of devices."""
        found = numbers.tolist()
        return {"device_type": [self.types[one] for one in found], "device": [self.ids[one] for one in found]}


def _values(column: pa.ChunkedArray) -> tuple[Ints, Any]:
    """The values of a column, and which there are."""
    return column.fill_null(0).to_numpy(), column.is_valid().to_numpy()


def _nullable(values: Ints, known: Any, chosen: Ints) -> pa.Array:
    return pa.array(values[chosen], mask=~known[chosen])


def _numbers_of(keys: Ints, known: Ints) -> Indices:
    """The place of each key among those that are known; `NONE` for others."""
    order = np.argsort(known)
    places = np.searchsorted(known[order], keys)
    at = np.append(order, NONE)[places]
    return np.where(np.append(known, 0)[at] == keys, at, NONE).astype(np.int32)
