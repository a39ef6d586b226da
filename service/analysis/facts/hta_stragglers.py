"""Stragglers by HTA's definition."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from service.analysis.facts.matched_collectives import MatchedCollectives

MIN_STEP_SHARE = 0.01
"""Minimum duration of a collective that HTA considers, as a share of the mean step duration."""


def hta_stragglers(matched: MatchedCollectives, abouts: Sequence[Mapping[str, Any]], candidates: int) -> list[int]:
    """Return the ranks that most often are among the latest to start the last long collective of a step.

    Args:
        matched: the collectives of all ranks.
        abouts: ``first_ns``, ``last_ns`` and ``steps`` of each rank.
        candidates: number of ranks that count as latest; also the maximum number of ranks to return.
    """
    steps = max(about["steps"] for about in abouts)
    mean = (max(about["last_ns"] for about in abouts) - min(about["first_ns"] for about in abouts)) / steps
    durations, starts = matched.durations.tolist(), matched.starts.tolist()
    ranks_of = matched.rank_indices.tolist()
    streams, numbers, names = (matched.rows[name].to_pylist() for name in ("stream", "step", "collective"))
    last: dict[tuple[Any, ...], dict[int, int]] = {}
    for row in np.argsort(matched.starts, kind="stable").tolist():
        if durations[row] >= mean * MIN_STEP_SHARE and (numbers[row] is not None or steps == 1):
            last.setdefault((streams[row], names[row], numbers[row]), {})[ranks_of[row]] = row
    spreads: dict[tuple[Any, ...], list[float]] = {}
    for (stream, name, _), row_by_rank in last.items():
        if len(row_by_rank) > 1:
            spread = float(np.std([durations[row] for row in row_by_rank.values()], ddof=1))
            spreads.setdefault((stream, name), []).append(spread)
    if not spreads:
        return []
    widest = max(spreads, key=lambda key: sum(spreads[key]) / len(spreads[key]))
    times_late = dict.fromkeys(range(matched.rank_count), 0)
    for (stream, name, _), row_by_rank in last.items():
        if (stream, name) == widest:
            threshold = sorted((starts[row] for row in row_by_rank.values()), reverse=True)[:candidates][-1]
            for rank, row in row_by_rank.items():
                times_late[rank] += starts[row] >= threshold
    latest = sorted(times_late, key=lambda rank: -times_late[rank])[:candidates]
    return [rank for rank in latest if times_late[rank]]
