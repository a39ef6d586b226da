"""What slices of the host cost, added up for each operator."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from service.analysis.facts.host import ANNOTATION, KINDS, OP, Host, in_doubles
from service.analysis.facts.intervals import Ints, percentage
from service.analysis.facts.tensor_cores import OPERATORS
from service.analysis.facts.work_owners import Work
from service.attribution.nesting import (
    DROPPED,
    NONE,
    Indices,
    WordEncoder,
    child_sums,
    count_by_key,
    factorize,
    first_indices,
    first_matches,
    match_times,
    merge_targets,
    parents_of,
    require_countable,
    subtree_sums,
    sum_by_key,
)
from service.trace.summary import STEP_PREFIX

_MEMORY = tuple(f"{side}_memory_{kind}_bytes" for side in ("host", "device") for kind in ("self", "total"))
_STEPS = "ProfilerStep*"


class OperatorRows:
    """Adds up what slices cost for each name, or name and shapes.

    Args:
        host: the slices.
        plugin: whether it is for TensorBoard's numbers.
    """

    def __init__(self, host: Host, plugin: bool) -> None:
        self.plugin = plugin
        if plugin:
            host = in_doubles(host)
        renamed = WordEncoder()
        numbers = renamed.encode(
            pa.array([_STEPS if one.startswith(STEP_PREFIX) else one for one in host.words], pa.string())
        )
        self.words = renamed.words
        self.host = host = replace(host, names=numbers[host.names]) if host.words else host
        self.parents = parents_of(host.threads, host.starts, host.ends, drop=plugin)
        is_op = host.kinds == OP
        into = merge_targets(self.parents, host.names, is_op if plugin else np.ones(len(host), bool))
        self.alone = into == np.arange(len(host), dtype=np.int32)
        keys = host.names.astype(np.int64) << 1 | (host.kinds == ANNOTATION)  # which torch tells apart
        if host.extras is not None:
            keys = keys * len(host.extra_words) + host.extras
        keys_, self.count = factorize(keys)
        self.firsts = first_indices(keys_, self.count)
        if plugin:
            hidden = np.array([_hidden(word) for word in self.words])
            keys_[(host.kinds != OP) | (self.parents == DROPPED) | hidden[host.names]] = NONE
        self.own_keys, self.all_keys = keys_[into], np.where(self.alone, keys_, np.int32(NONE))
        self.device_ns = 0
        self.columns: dict[str, Ints] = {}
        self.lonely: list[dict[str, Any]] = []

    def add(self, name: str, own: Ints, whole: Ints) -> None:
        """Add up what slices have themselves, and with all that they enclose."""
        self.columns[name.replace("*", "self")] = sum_by_key(self.own_keys, own, self.count)
        self.columns[name.replace("*", "total")] = self._of_alone(whole)

    def add_time(self, work: Work) -> None:
        """The time of slices, that of work on devices, and that of it on tensor cores."""
        self.columns["calls"] = count_by_key(self.all_keys, self.count)
        if self.plugin:
            work = work.in_doubles()
        self._add_host_time(work.calls)
        self.device_ns = int(work.lasting.sum())
        slices = work.slices_by_external_id(self.host) if self.plugin else work.slices(self.host)
        times = {
            "device_*_ns": work.lasting,
            "tensor_cores_*_ns": work.lasting * (work.on_cores == 1),
            "tensor_cores_unknown_*_ns": work.lasting * (work.on_cores < 0),
        }
        with ThreadPoolExecutor(len(times), "times") as threads:  # of compiled code, which runs at once
            _, own, _ = threads.map(lambda one: self._add_work(slices, *one), times.items())
        by_name = np.array([word in OPERATORS for word in self.words], bool)
        eligible = (by_name[self.host.names] | (own > 0)).astype(np.int64)
        self.columns["eligible"] = self._of_alone(subtree_sums(self.parents, eligible))

    def _add_work(self, slices: Indices, name: str, values: Ints) -> Ints:
        own = self._at_slices(slices, values)
        self.add(name, own, subtree_sums(self.parents, own))
        return own

    def _add_host_time(self, calls: dict[str, Ints] | None) -> None:
        lasting = self.host.durations
        own = lasting - child_sums(self.parents, lasting)
        if self.plugin and calls:
            own -= self._at_slices(first_matches(self.host.external_ids, calls["ids"]), calls["lasting"])
        self.add("host_*_ns", own, lasting)

    def add_memory(self, changes: pa.Table) -> None:
        """What was allocated and freed while slices lasted, on any thread."""
        host, times, sizes = self.host, changes["at"].to_numpy(), changes["bytes"].to_numpy()
        on_host, shapes = changes["on_host"].to_numpy(), None if host.extras is None else "[]"
        require_countable(np.abs(sizes.astype(np.float64)), "What is allocated")
        if not len(times):
            self.columns |= dict.fromkeys(_MEMORY, np.zeros(self.count, np.int64))
            return
        first, last, lonely = match_times(host.starts, host.ends, times)
        memory = {"name": "[memory]", "kind": "memory", "shapes": shapes, "calls": int(lonely.sum())}
        for side, here in (("host", on_host), ("device", ~on_host)):
            running = np.concatenate([[0], np.cumsum(sizes * here)])
            whole = running[last] - running[first]
            self.add(f"{side}_memory_*_bytes", whole - child_sums(self.parents, whole), whole)
            for kind in ("self", "total"):
                memory[f"{side}_memory_{kind}_bytes"] = int(sizes[lonely & here].sum())
        if lonely.any() and not self.plugin:
            self.lonely.append(memory)

    def _of_alone(self, values: Ints) -> Ints:
        """Values of what is not merged into another, added up."""
        return sum_by_key(self.all_keys, values, self.count)

    def made(self) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """The columns of the operators' table, and of that of totals."""
        columns, host, device_ns = self.columns, self.host, self.device_ns
        rows = np.flatnonzero(columns["calls"])
        rows = rows[np.lexsort((self.firsts[rows], -columns["host_self_ns"][rows], -columns["device_self_ns"][rows]))]
        first = self.firsts[rows]
        values: dict[str, list[Any]] = {name: column[rows].tolist() for name, column in columns.items()}
        values["name"] = [self.words[one] for one in host.names[first]]
        values["kind"] = [KINDS[one] for one in host.kinds[first]]
        values["shapes"] = [None] * len(rows)
        if host.extras is not None:
            values["shapes"] = [host.extra_words[one] or "[]" for one in host.extras[first]]
        for memory in self.lonely:
            for name, column in values.items():
                column.append(memory.get(name, 0))
        host_ns, attributed = sum(values["host_self_ns"]), sum(values["device_self_ns"])
        values["tensor_cores_eligible"] = ["yes" if one else "no" for one in values["eligible"]]
        values["host_self_pct"] = [percentage(one, host_ns) for one in values["host_self_ns"]]
        values["device_self_pct"] = [percentage(one, device_ns) for one in values["device_self_ns"]]
        values["host_mean_us"] = [
            whole / calls / 1000 for whole, calls in zip(values["host_total_ns"], values["calls"], strict=True)
        ]
        return values, {
            "calls": [sum(values["calls"])],
            "host_ns": [host_ns],
            "device_ns": [device_ns],
            "unattributed_ns": [device_ns - attributed],
        }

    def _at_slices(self, slices: Indices, values: Ints) -> Ints:
        """Values of slices, added up at these."""
        at = sum_by_key(slices, values, len(self.host))
        if self.plugin:  # which forgets those of an operator into which another is merged
            at[self.parents[~self.alone]] = 0
        return at


def _hidden(name: str) -> bool:
    """Whether TensorBoard has no row for operators of a name."""
    return (
        name in {_STEPS, "DataParallel.forward", "DistributedDataParallel.forward"}
        or name.startswith(("Optimizer.", "enumerate(DataPipe)#"))
        or (name.startswith("enumerate(DataLoader)#") and name.endswith(".__next__"))
    )
