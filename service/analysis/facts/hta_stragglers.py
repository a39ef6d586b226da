"""Late ranks, as HTA finds them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from service.analysis.facts.ranks_together import Together

LONG = 0.01
"""HTA looks at collectives that last at least this share of a mean step."""


def late_as_hta(every: Together, abouts: Sequence[Mapping[str, Any]], candidates: int) -> list[int]:
    """The ranks that start the last long collective of most steps among the latest.

    Args:
        every: the communications.
        abouts: ``first_ns``, ``last_ns`` and ``steps`` of each rank.
        candidates: how many ranks are late.
    """
    steps = max(one["steps"] for one in abouts)
    mean = (max(one["last_ns"] for one in abouts) - min(one["first_ns"] for one in abouts)) / steps
    lasting, starts, who = every.lasting.tolist(), every.starts.tolist(), every.who.tolist()
    streams, numbers, names = (every.found[name].to_pylist() for name in ("stream", "step", "collective"))
    last: dict[tuple[Any, ...], dict[int, int]] = {}
    for one in np.argsort(every.starts, kind="stable").tolist():
        if lasting[one] >= mean * LONG and (numbers[one] is not None or steps == 1):
            last.setdefault((streams[one], names[one], numbers[one]), {})[who[one]] = one
    spreads: dict[tuple[Any, ...], list[float]] = {}
    for (stream, name, _), ranks in last.items():
        if len(ranks) > 1:
            spread = float(np.std([lasting[one] for one in ranks.values()], ddof=1))
            spreads.setdefault((stream, name), []).append(spread)
    if not spreads:
        return []
    widest = max(spreads, key=lambda key: sum(spreads[key]) / len(spreads[key]))
    times = dict.fromkeys(range(every.count), 0)
    for (stream, name, _), ranks in last.items():
        if (stream, name) == widest:
            latest = sorted((starts[one] for one in ranks.values()), reverse=True)[:candidates][-1]
            for rank, one in ranks.items():
                times[rank] += starts[one] >= latest
    most = sorted(times, key=lambda rank: -times[rank])[:candidates]
    return [rank for rank in most if times[rank]]
