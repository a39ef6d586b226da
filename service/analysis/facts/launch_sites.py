"""Launch sites: positions in the call tree that launch work, with identifiers that match between traces."""

import hashlib
from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa

from service.analysis.facts.host import IS_ANNOTATION, IS_MODULE, IS_OP, SHAPES, Host, host_where
from service.analysis.facts.intervals import Ints
from service.analysis.facts.scope import Scope
from service.attribution.nesting import factorize, parents_of
from service.trace.summary import STEP_PREFIX

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_WORK = """
SELECT
    name, kind::VARCHAR AS kind, dur_ns, coalesce(operator_row, -1) AS operator_row
FROM device_events ORDER BY start_ns, position
"""


def launch_sites(scope: Scope, names: Collection[str]) -> pa.Table:
    """Group the work with the given names by the position in the call tree that launches it.

    A place is made of the innermost op around the launch, the shapes of its inputs, the names of all enclosing slices,
    and the work's index among the op's own work of that kind. All steps count as one name. Work without an op is left
    out.

    Args:
        scope: scope of the rank.
        names: names of the work.

    Returns:
        ``name, kind, place, exact_place, count, duration_ns``. ``place`` and ``exact_place`` are hashes, comparable
        between traces. The exact one also distinguishes siblings of the same name by their order.
    """
    scope.define_device_events()
    work = scope.table(_WORK)
    host = host_where(scope, f"({IS_MODULE} OR {IS_OP} OR {IS_ANNOTATION})", SHAPES)
    parents = parents_of(host.threads, host.starts, host.ends)
    ops = host.indices_of(work["operator_row"].to_numpy())
    work_orders = _orders(_keys(ops, work["kind"]))
    chosen = np.flatnonzero((ops >= 0) & np.isin(work["name"].to_numpy(), list(names)))
    place, exact_place = _path_hashes(host, parents, ops[chosen])
    shapes = _hashes(host.extra_words)[np.asarray(host.extras)[ops[chosen]]]
    own = _combined(shapes, work_orders[chosen].astype(np.uint64))
    sites = work.select(["name", "kind", "dur_ns"]).take(pa.array(chosen))
    sites = sites.append_column("place", pa.array(_combined(place, own)))
    sites = sites.append_column("exact_place", pa.array(_combined(exact_place, own)))
    total = sites.group_by(["name", "kind", "place", "exact_place"], use_threads=False).aggregate(
        [("dur_ns", "count"), ("dur_ns", "sum")]
    )
    return total.rename_columns(["name", "kind", "place", "exact_place", "count", "duration_ns"])


def _keys(ops: Any, kinds: pa.ChunkedArray) -> Ints:
    """Return a key for each pair of op and kind of work."""
    encoded = kinds.combine_chunks().dictionary_encode()
    keys: Ints = (ops.astype(np.int64) + 1) * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy()
    return keys


def _orders(keys: Ints) -> Ints:
    """Return the index of each key among the equal keys, from 0."""
    groups, count = factorize(keys)
    order = np.argsort(groups, kind="stable")
    firsts = np.searchsorted(groups[order], np.arange(count))
    orders = np.empty(len(keys), np.int64)
    orders[order] = np.arange(len(keys)) - firsts[groups[order]]
    return orders


def _path_hashes(host: Host, parents: Any, ops: Any) -> tuple[Any, Any]:
    """Hash each op's path from the root: without the order among siblings, and with that order."""
    is_step = np.array([word.startswith(STEP_PREFIX) for word in host.words])
    names = _hashes(["ProfilerStep" if step else word for word, step in zip(host.words, is_step, strict=True)])
    siblings = _orders((parents.astype(np.int64) + 1) * (len(host.words) + 1) + host.names)
    siblings[is_step[host.names]] = 0
    paths, exact = np.zeros(len(ops), np.uint64), np.zeros(len(ops), np.uint64)
    ancestors, rows = ops, np.arange(len(ops))
    while len(rows):
        name = names[host.names[ancestors]]
        paths[rows] = _combined(paths[rows], name)
        exact[rows] = _combined(exact[rows], _combined(name, siblings[ancestors].astype(np.uint64)))
        ancestors = parents[ancestors]
        ancestors, rows = ancestors[ancestors >= 0], rows[ancestors >= 0]
    return paths, exact


def _combined(hashes: Any, others: Any) -> Any:
    """Combine two arrays of hashes into one."""
    mixed = (hashes ^ (others + _FACTOR + (hashes << np.uint64(6)))) * _FACTOR
    return mixed ^ (mixed >> np.uint64(29))


def _hashes(words: list[str]) -> Any:
    """Hash each word; a word has the same hash in all traces."""
    digests = [hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest() for word in words]
    return np.frombuffer(b"".join(digests), np.uint64)
