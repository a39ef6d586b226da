"""Times and memory of the host's slices, summed by operator."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from service.analysis.facts.device_work import DeviceWork
from service.analysis.facts.host import ANNOTATION, KINDS, OP, Host, with_double_times
from service.analysis.facts.intervals import Ints, percentage
from service.analysis.facts.tensor_cores import OPERATORS
from service.attribution.nesting import (
    DROPPED,
    NONE,
    Indices,
    WordEncoder,
    add_to_ancestors,
    child_sums,
    count_by_key,
    first_matches,
    match_times,
    merge_only_children,
    parents_of,
    require_countable,
    slice_keys,
    subtree_counts,
    sum_by_key,
    times_by_key,
)
from service.trace.summary import STEP_PREFIX

_MEMORY = tuple(f"{side}_memory_{kind}_bytes" for side in ("host", "device") for kind in ("self", "total"))
_STEPS = "ProfilerStep*"


class OperatorRows:
    """Sums of times and memory of slices by name, or by name and shapes.

    Args:
        host: slices of the host.
        plugin: whether to follow the TensorBoard plugin's rules.

    Attributes:
        host: slices of the host.
        words: names by code; those of steps are unified.
        codes: code of each of the host's names.
        parents: parent of each slice.
        count: number of keys, one for each row of the table.
        firsts: first slice of each key.
        extras: extra of each key; None if the slices have none.
        own_keys: key of each slice for its own values: the key of the slice into which it merges; `NONE` if hidden.
        all_keys: key of each slice for its totals; `NONE` if it is merged or hidden.
    """

    def __init__(self, host: Host, plugin: bool) -> None:
        self.plugin = plugin
        if plugin:
            host = with_double_times(host)
        encoder = WordEncoder()
        codes = encoder.encode(
            pa.array([_STEPS if word.startswith(STEP_PREFIX) else word for word in host.words], pa.string())
        )
        self.words = encoder.words
        self.codes = codes
        self.parents = parents_of(host.threads, host.starts, host.ends, drop=plugin)
        keys, self.firsts = slice_keys(  # torch has separate rows for annotations
            host.names, codes, host.kinds, ANNOTATION, host.extras, len(host.extra_words)
        )
        self.count = len(self.firsts)
        self.extras: Any = None if host.extras is None else host.extras[self.firsts]
        self.host = replace(host, extras=None)  # those of all slices are not needed any more
        if plugin:
            hidden = np.array([_is_hidden(word) for word in self.words], bool)[codes]
            keys[(host.kinds != OP) | (self.parents == DROPPED) | hidden[host.names]] = NONE
        mergeable = host.kinds == OP if plugin else None
        self.own_keys, self.merged = merge_only_children(self.parents, host.names, codes, mergeable, keys)
        self.all_keys = keys
        self.device_ns = 0
        self.columns: dict[str, Ints] = {}
        self.memory_rows: list[dict[str, Any]] = []

    def add(self, name: str, own: Ints, total: Ints) -> None:
        """Sum the slices' own values and their totals including descendants, by operator.

        Args:
            name: name of the columns, with `*` for `self` and `total`.
            own: value of each slice without its descendants.
            total: value of each slice with its descendants.
        """
        self.columns[name.replace("*", "self")] = sum_by_key(self.own_keys, own, self.count)
        self.columns[name.replace("*", "total")] = self._sum_unmerged(total)

    def add_time(self, work: DeviceWork, *, cores: bool = True) -> None:
        """Add the columns of calls and times on the host and on devices and, unless `cores` is false, tensor cores."""
        self.columns["calls"] = count_by_key(self.all_keys, self.count)
        if self.plugin:
            work = work.with_double_times()
        self._add_host_time(work.calls)
        self.device_ns = int(work.durations.sum())
        slices = self._without_merging(work.slices_by_external_id(self.host)) if self.plugin else work.slices(self.host)
        times = {"device_*_ns": work.durations}
        if cores:
            times["tensor_cores_*_ns"] = work.durations * (work.on_cores == 1)
            times["tensor_cores_unknown_*_ns"] = work.durations * (work.on_cores < 0)
            self._add_eligible(slices[(times["tensor_cores_*_ns"] > 0) & (slices >= 0)])
        cells = np.zeros((1, self.count, 2 * len(times)), np.int64)
        values = np.stack([np.zeros(len(slices), np.int64), *times.values()], axis=1)
        add_to_ancestors(self.parents, self.own_keys, self.all_keys, slices, values, cells)
        for place, name in enumerate(times):
            self.columns[name.replace("*", "self")] = cells[0, :, place]
            self.columns[name.replace("*", "total")] = cells[0, :, place + len(times)]

    def _add_eligible(self, on_cores: Indices) -> None:
        """Add the number of slices in each operator that can use tensor cores: by name, or because their work does."""
        is_eligible_name = np.array([word in OPERATORS for word in self.words], bool)
        eligible = is_eligible_name[self.codes][self.host.names]
        eligible[on_cores] = True
        self.columns["eligible"] = self._sum_unmerged(subtree_counts(self.parents, eligible))

    def _without_merging(self, slices: Indices) -> Indices:
        """Leave out the operators into which others are merged: the plugin loses their values."""
        return np.where(np.isin(slices, self.parents[self.merged]), np.int32(NONE), slices)

    def _add_host_time(self, calls: dict[str, Ints] | None) -> None:
        own, total = times_by_key(
            self.parents, self.host.starts, self.host.ends, self.own_keys, self.all_keys, self.count
        )
        if self.plugin and calls:
            slices = self._without_merging(first_matches(self.host.external_ids, calls["ids"]))
            own -= sum_by_key(np.append(self.own_keys, np.int32(NONE))[slices], calls["durations"], self.count)
        self.columns["host_self_ns"], self.columns["host_total_ns"] = own, total

    def add_memory(self, changes: pa.Table) -> None:
        """Add the columns of memory allocated and freed during slices, on any thread."""
        host, times, sizes = self.host, changes["at"].to_numpy(), changes["bytes"].to_numpy()
        on_host, shapes = changes["on_host"].to_numpy(), None if self.extras is None else "[]"
        require_countable(np.abs(sizes.astype(np.float64)).sum(), "The allocated memory")
        if not len(times):
            self.columns |= dict.fromkeys(_MEMORY, np.zeros(self.count, np.int64))
            return
        first, last, outside = match_times(host.starts, host.ends, times)
        memory = {"name": "[memory]", "kind": "memory", "shapes": shapes, "calls": int(outside.sum())}
        for side, on_side in (("host", on_host), ("device", ~on_host)):
            running = np.concatenate([[0], np.cumsum(sizes * on_side)])
            total = running[last] - running[first]
            self.add(f"{side}_memory_*_bytes", total - child_sums(self.parents, total), total)
            for kind in ("self", "total"):
                memory[f"{side}_memory_{kind}_bytes"] = int(sizes[outside & on_side].sum())
        if outside.any() and not self.plugin:
            self.memory_rows.append(memory)

    def _sum_unmerged(self, values: Ints | Indices) -> Ints:
        """Sum the values of slices that are not merged into others, by operator."""
        return sum_by_key(self.all_keys, values, self.count)

    def called(self) -> Ints:
        """Return the keys that have calls; those with the most time of their own come first."""
        columns, keys = self.columns, np.flatnonzero(self.columns["calls"])
        order = (self.firsts[keys], -columns["host_self_ns"][keys], -columns["device_self_ns"][keys])
        return keys[np.lexsort(order)]

    def tables(self) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Return the columns of the table of operators, and of the table of totals."""
        columns, host, device_ns = self.columns, self.host, self.device_ns
        rows = self.called()
        first = self.firsts[rows]
        values: dict[str, list[Any]] = {name: column[rows].tolist() for name, column in columns.items()}
        values["name"] = [self.words[name] for name in self.codes[host.names[first]]]
        values["kind"] = [KINDS[kind] for kind in host.kinds[first]]
        values["shapes"] = [None] * len(rows)
        if self.extras is not None:
            values["shapes"] = [host.extra_words[shapes] or "[]" for shapes in self.extras[rows]]
        for memory in self.memory_rows:
            for name, column in values.items():
                column.append(memory.get(name, 0))
        host_ns, attributed = sum(values["host_self_ns"]), sum(values["device_self_ns"])
        values["tensor_cores_eligible"] = ["yes" if eligible else "no" for eligible in values["eligible"]]
        values["host_self_pct"] = [percentage(time, host_ns) for time in values["host_self_ns"]]
        values["device_self_pct"] = [percentage(time, device_ns) for time in values["device_self_ns"]]
        values["host_mean_us"] = [
            total / calls / 1000 for total, calls in zip(values["host_total_ns"], values["calls"], strict=True)
        ]
        return values, {
            "calls": [sum(values["calls"])],
            "host_ns": [host_ns],
            "device_ns": [device_ns],
            "unattributed_ns": [device_ns - attributed],
        }


def _is_hidden(name: str) -> bool:
    """Return whether TensorBoard omits operators with this name."""
    return (
        name in {_STEPS, "DataParallel.forward", "DistributedDataParallel.forward"}
        or name.startswith(("Optimizer.", "enumerate(DataPipe)#"))
        or (name.startswith("enumerate(DataLoader)#") and name.endswith(".__next__"))
    )
