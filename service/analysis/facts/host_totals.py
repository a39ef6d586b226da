"""Counts and times of the host's slices, by name and kind."""

import numpy as np
import pyarrow as pa

from service.analysis.facts.scope import Scope
from service.trace.summary import ANNOTATION_CATEGORIES, OPERATOR_CATEGORIES, STEP_PREFIX

LONGEST = 1 << 62
"""Maximum of summed times; larger sums are clamped to it."""


def host_totals(scope: Scope) -> pa.Table:
    """Sum operators, annotations except steps, and runtime and driver calls: ``name, kind, count, duration_ns``."""
    return scope.cached("host totals", lambda: _host_totals(scope))


def _host_totals(scope: Scope) -> pa.Table:
    from service.attribution.nesting import count_by_key, sum_by_key  # noqa: PLC0415 - loads numba, which the server does without

    slices = scope.slices()
    host, names, categories = slices.host, [*slices.names, None], len(slices.categories)
    keys = host.names * np.int32(categories) + host.categories
    counts = count_by_key(keys, len(names) * categories)
    durations = host.ends - host.starts
    if durations.sum(dtype=np.float64) < LONGEST:
        sums = sum_by_key(keys, durations, len(counts))
    else:
        sums = np.minimum(np.bincount(keys, durations, len(counts)), LONGEST).astype(np.int64)
    totals: dict[tuple[str | None, str], list[int]] = {}
    for key in np.flatnonzero(counts).tolist():
        name, category = names[key // categories], slices.categories[key % categories]
        if category in OPERATOR_CATEGORIES | ANNOTATION_CATEGORIES and (name or "").startswith(STEP_PREFIX):
            continue
        total = totals.setdefault((name, _kind(category)), [0, 0])
        total[0] += int(counts[key])
        total[1] = min(total[1] + int(sums[key]), LONGEST)
    rows = [(*key, *total) for key, total in totals.items()]
    columns = zip(*rows, strict=True) if rows else [()] * 4
    types = {"name": pa.string(), "kind": pa.string(), "count": pa.int64(), "duration_ns": pa.int64()}
    return pa.table(
        {name: pa.array(values, type_) for (name, type_), values in zip(types.items(), columns, strict=True)}
    )


def _kind(category: str) -> str:
    if category in ANNOTATION_CATEGORIES:
        return "annotation"
    if category in OPERATOR_CATEGORIES:
        return "op"
    return "driver" if category.endswith("_driver") else "runtime"
