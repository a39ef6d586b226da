"""Use of memory by device, time, operator and block, from allocations and frees."""

from typing import Any

import numpy as np
import pyarrow as pa

from service.analysis.facts.host import KINDS, Host
from service.analysis.facts.intervals import Ints
from service.analysis.facts.levels import thinned
from service.analysis.facts.memory_changes import device_type_name
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

_CELLS = 1 << 24

Table = dict[str, Any]


class MemoryUse:
    """The use of memory of a rank.

    Args:
        changes: allocations and frees in order of time, as from `memory_changes_of`.
        host: operators and annotations.

    Attributes:
        rows: sums by operator, with the slices of the host.
        at: time of each change.
        slices: innermost slice around each change on its thread, or `NONE`.
        device_of: index of each change's device.
        count: number of devices.
        begin: change that allocates each block, or -1 for a block from before the trace.
        end: change that frees each block, or -1.
        change_of: change that allocates each block or, for a block from before the trace, frees it.
        size: size of each block in bytes.
    """

    def __init__(self, changes: pa.Table, host: Host) -> None:
        self.rows = OperatorRows(host, plugin=False)
        self.at, self.bytes = changes["at"].to_numpy(), changes["bytes"].to_numpy()
        require_countable(np.abs(self.bytes.astype(np.float64)).sum(), "The allocated memory")
        self.recorded = {name: _values(changes[name]) for name in ("allocated", "reserved", "address")}
        types, ids = changes["device_type"].to_numpy(), changes["device_id"].to_numpy()
        (type_codes, _), (id_codes, ids_count) = factorize(types), factorize(ids)
        self.device_of, self.count = factorize(type_codes.astype(np.int64) * ids_count + id_codes)
        firsts = first_indices(self.device_of, self.count)
        self.types = [*map(device_type_name, types[firsts].tolist())]
        self.ids = ids[firsts].tolist()
        self.order = np.argsort(self.device_of, kind="stable")
        self.groups = np.split(self.order, np.cumsum(np.bincount(self.device_of, minlength=self.count))[:-1])
        self.growth = np.empty(len(self.at), np.int64)
        for group in self.groups:
            self.growth[group] = np.cumsum(self.bytes[group])
        self.slices = innermost_at(
            *(self.rows.parents, host.threads, host.starts, host.ends),
            *(_indices_of(changes["thread"].to_numpy().view(np.int64), host.thread_keys), self.at),
        )
        self._pair()

    def _pair(self) -> None:
        """Pair changes into blocks, each with the change that allocates it and the change that frees it, or -1."""
        address, valid = self.recorded["address"]
        changes = np.flatnonzero(valid & (self.bytes != 0))
        changes = changes[np.lexsort((changes, address[changes], self.device_of[changes]))]
        allocates = self.bytes[changes] > 0
        same_address = np.zeros(len(changes), bool)  # whether a change has the address of the previous one
        same_address[1:] = (np.diff(address[changes]) == 0) & (np.diff(self.device_of[changes]) == 0)
        frees = np.zeros(len(changes), bool)
        frees[1:] = same_address[1:] & allocates[:-1] & ~allocates[1:]
        is_freed = np.append(frees[1:], False)
        next_change = np.append(changes[1:], NONE)
        unpaired_free = ~allocates & ~frees
        self.begin = np.concatenate([changes[allocates], np.full(int(unpaired_free.sum()), NONE)])
        self.end = np.concatenate([np.where(is_freed, next_change, NONE)[allocates], changes[unpaired_free]])
        self.change_of = np.where(self.begin >= 0, self.begin, self.end)  # a change of each block
        self.size = np.abs(self.bytes[self.change_of])

    def devices(self) -> Table:
        """Return the totals of each device."""
        values, valid = self.recorded["allocated"]
        reserved, _ = self.recorded["reserved"]
        rows = []
        device, positive = self.device_of[self.change_of], self.bytes > 0
        unfreed, before = self.end < 0, self.begin < 0
        addressed = count_by_key(self.device_of[self.recorded["address"][1]], self.count)
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
            if valid[group].any():
                top = self._peak(group)
                peak = {"peak_bytes": int(values[top]), "peak_at_ns": int(self.at[top])}
                peak["peak_reserved_bytes"] = int(reserved[group].max())
            rows.append({**row, **peak})
        return {**self.device_columns(np.arange(self.count)), **{name: [row[name] for row in rows] for name in rows[0]}}

    def curve(self, points: int) -> Table:
        """Return the memory of each device over time.

        If a device has more changes than `points`, keep the minimum and maximum of equal intervals.
        """
        chosen = np.concatenate([self._thinned(group, points) for group in self.groups])
        return {
            **self.device_columns(self.device_of[chosen]),
            "at_ns": self.at[chosen],
            **{f"{name}_bytes": _nullable(*self.recorded[name], chosen) for name in ("allocated", "reserved")},
            "growth_bytes": self.growth[chosen],
        }

    def operators(self) -> Table:
        """Return the changes of memory by device and operator.

        Raises:
            NotApplicable: there are too many devices and operators.
        """
        rows = self.rows
        if self.count * rows.count > _CELLS:
            raise NotApplicable("There are too many devices and operators to sum the memory of each.")
        values = np.stack([self.device_of, self.bytes, self.bytes > 0, np.maximum(self.bytes, 0)], 1).astype(np.int64)
        cells = np.zeros((self.count, rows.count, 6), np.int64)
        add_to_ancestors(rows.parents, rows.own_keys, rows.all_keys, self.slices, values, cells)
        device, key = np.nonzero(cells.any(2))
        order = np.lexsort((key, -cells[device, key, 0], device))
        device, key = device[order], key[order]
        first, sums = rows.firsts[key], cells[device, key]
        names = ("increase_{}_bytes", "allocations_{}", "allocated_{}_bytes")
        return {
            **self.device_columns(device),
            "operator": [rows.words[name] for name in rows.codes[rows.host.names[first]]],
            "kind": [KINDS[kind] for kind in rows.host.kinds[first]],
            "calls": count_by_key(rows.all_keys, rows.count)[key],
            **{name.format("self"): sums[:, column] for column, name in enumerate(names)},
            **{name.format("total"): sums[:, column + 3] for column, name in enumerate(names)},
        }

    def at_peak(self) -> Table:
        """Return the operators and callers whose blocks were held at each device's peak."""
        held = np.flatnonzero(self.held_at_peak())
        operator, caller = self._names(self.begin[held])
        radix = len(self.rows.words) + 1
        device = self.device_of[self.change_of[held]]
        keys, count = factorize((device.astype(np.int64) * radix + operator) * radix + caller)
        sizes, firsts = sum_by_key(keys, self.size[held], count), first_indices(keys, count)
        order = np.lexsort((firsts, -sizes, device[firsts]))
        firsts = firsts[order]
        return {
            **self.device_columns(device[firsts]),
            **self._words(operator[firsts], caller[firsts]),
            "allocations": count_by_key(keys, count)[order],
            "held_bytes": sizes[order],
        }

    def held_at_peak(self) -> Any:
        """Flag the blocks that were held at their device's peak."""
        peaks = np.array([self._peak(group) for group in self.groups])[self.device_of[self.change_of]]
        return (self.begin <= peaks) & ((self.end < 0) | (self.end > peaks))

    def largest(self, top: int) -> Ints:
        """Return the indices of the largest blocks."""
        return np.lexsort((self.change_of, -self.size))[:top]

    def blocks(self, top: int) -> Table:
        """Return the largest blocks."""
        chosen = self.largest(top)
        begin, end = self.begin[chosen], self.end[chosen]
        start, stop = np.append(self.at, 0)[begin], np.append(self.at, 0)[end]
        return {
            **self.device_columns(self.device_of[self.change_of[chosen]]),
            **self._words(*self._names(begin)),
            "size_bytes": self.size[chosen],
            "allocated_at_ns": pa.array(start, mask=begin < 0),
            "freed_at_ns": pa.array(stop, mask=end < 0),
            "lasting_ns": pa.array(stop - start, mask=(begin < 0) | (end < 0)),
            "address": self.recorded["address"][0][self.change_of[chosen]],
        }

    def _peak(self, group: Ints) -> int:
        """Return the change after which a device holds the most memory."""
        values, valid = self.recorded["allocated"]
        recorded = group[valid[group]]
        return int(recorded[np.argmax(values[recorded])] if len(recorded) else group[np.argmax(self.growth[group])])

    def _thinned(self, group: Ints, points: int) -> Ints:
        values, valid = self.recorded["allocated"]
        level = np.where(valid[group], values[group], self.growth[group])
        chosen: Ints = group[thinned(self.at[group], level, points)]
        return chosen

    def _names(self, changes: Ints) -> tuple[Ints, Ints]:
        """Return the name codes of each change's operator and of its caller; the count of names stands for none."""
        rows, none = self.rows, len(self.rows.words)
        names = np.append(rows.codes[rows.host.names], none).astype(np.int64)
        slices = np.where(changes >= 0, np.append(self.slices, NONE)[changes], NONE)
        return names[slices], names[np.append(rows.parents, NONE)[slices]]

    def _words(self, operator: Ints, caller: Ints) -> Table:
        words = [*self.rows.words, None]
        return {"operator": [words[name] for name in operator], "caller": [words[name] for name in caller]}

    def device_columns(self, numbers: Any) -> Table:
        """Return the types and ids of devices as columns."""
        devices = numbers.tolist()
        return {
            "device_type": [self.types[device] for device in devices],
            "device": [self.ids[device] for device in devices],
        }


def _values(column: pa.ChunkedArray) -> tuple[Ints, Any]:
    """Return the values of a column, and which of them are valid."""
    return column.fill_null(0).to_numpy(), column.is_valid().to_numpy()


def _nullable(values: Ints, valid: Any, chosen: Ints) -> pa.Array:
    return pa.array(values[chosen], mask=~valid[chosen])


def _indices_of(keys: Ints, distinct: Ints) -> Indices:
    """Return the index of each key among distinct keys, or `NONE`."""
    order = np.argsort(distinct)
    positions = np.searchsorted(distinct[order], keys)
    candidates = np.append(order, NONE)[positions]
    return np.where(np.append(distinct, 0)[candidates] == keys, candidates, NONE).astype(np.int32)
