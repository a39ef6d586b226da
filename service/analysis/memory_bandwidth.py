"""How fast are copies and memsets?"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from service.analysis.facts.intervals import (
    Ints,
    clamp_int64,
    concat_groups,
    covered,
    group_rows,
    peak_indices,
    quartiles,
    saturating_sum,
)
from service.analysis.facts.scope import Scope
from service.analysis.question import Question, Tables, WorkParameters
from service.analysis.table import DEVICE, RANK, Column, count, made, ns, number, rows_made, word

_GBPS = "GB/s"
_KIND = word("kind", "Memcpy HtoD, DtoH, DtoD, PtoP or Unknown, or Memset")
SUMMARY = (
    RANK,
    DEVICE,
    _KIND,
    count("count", "of copies or memsets"),
    Column("bytes", "int", "bytes", "of those that tell it"),
    ns("sum", "of their durations"),
    ns("busy", "in which any of them ran"),
    number("bandwidth_gbps", "bytes of those that tell them by their durations", _GBPS),
    count("points", "changes after which any runs"),
    number("mean_gbps", "of all that run at once, over these points", _GBPS),
    number("stddev_gbps", "of a sample; 0 of a single point", _GBPS),
    number("min_gbps", "at a point", _GBPS),
    number("p25_gbps", "at a quarter of the points it is at most as much", _GBPS),
    number("p50_gbps", "at half of the points it is at most as much", _GBPS),
    number("p75_gbps", "at three quarters of the points it is at most as much", _GBPS),
    number("max_gbps", "at a point", _GBPS),
)
SERIES = (
    RANK,
    DEVICE,
    _KIND,
    ns("at", "in the trace's own time"),
    number("bandwidth_gbps", "of all of the kind that run at once, from then on", _GBPS),
)
Doubles = npt.NDArray[np.float64]

_TRANSFERS = """
SELECT
    device, start_ns, end_ns, dur_ns, bytes,
    CASE WHEN starts_with(name, 'Memset') THEN 'Memset' WHEN starts_with(name, 'Memcpy') THEN substr(name, 1, 11)
         WHEN kind = 'memset' THEN 'Memset' ELSE 'Memcpy Unknown' END AS transfer,
    CASE WHEN contains(args, 'memory bandwidth (GB/s)')
         THEN try_cast(try(args->>'memory bandwidth (GB/s)') AS DOUBLE) END AS told_gbps
FROM work WHERE {}
"""


class BandwidthParameters(WorkParameters):
    """What counts as work, and how much of its bandwidth is told."""

    points: int = Field(
        1000,
        ge=1,
        le=10_000_000,
        description="how many points of each kind are told; where there are more, the largest of each run of them",
    )


def answer(scope: Scope, parameters: BandwidthParameters) -> Tables:
    """The transfers of a rank."""
    hta = parameters.types == "hta"
    wanted = "type = 'MEM'" if hta else "kind IN ('memcpy', 'memset')"
    scope.define_work(parameters, typed=hta)
    found = scope.table(_TRANSFERS.format(wanted))
    if not hta and len(scope.table(f"SELECT 1 FROM work WHERE {wanted} AND (bytes IS NULL OR dur_ns = 0) LIMIT 1")):
        scope.define_work(parameters, typed=False, args=True)  # which may tell what can't be worked out
        found = scope.table(_TRANSFERS.format(wanted))
    names = sorted(found["transfer"].unique().to_pylist())
    kinds = pc.index_in(found["transfer"], pa.array(names, pa.string())).cast(pa.int64())
    starts, ends, lasting = (found[name].to_numpy() for name in ("start_ns", "end_ns", "dur_ns"))
    sizes, told = (
        found[name].cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy() for name in ("bytes", "told_gbps")
    )
    whole = found["bytes"].fill_null(0).to_numpy()
    if hta:
        rates = np.nan_to_num(told)
        ends = np.where(lasting == 0, starts + 1000, ends)  # what takes no time takes a µs
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = np.where(np.isfinite(sizes) & (lasting > 0), sizes / lasting, told)
    summary: list[list[Any]] = []
    times_told: list[Ints] = []
    rates_told: list[Doubles] = []
    for (device, kind), mine in group_rows(found["device"], kinds):
        name = names[kind or 0]
        times, running = _at_once(starts[mine], ends[mine], rates[mine], exact=not hta)
        known = np.isfinite(sizes[mine]) & (lasting[mine] > 0)
        moved, took = float(sizes[mine][known].sum()), float(lasting[mine][known].sum())
        summary.append(
            [
                *(scope.rank, device, name, len(starts[mine])),
                *(
                    saturating_sum(whole[mine]),
                    saturating_sum(lasting[mine]),
                    clamp_int64(covered(starts[mine], ends[mine])),
                ),
                *(moved / took if took else None, *_statistics(running[running > 0])),
            ]
        )
        chosen = peak_indices(running, parameters.points)
        times_told.append(times[chosen])
        rates_told.append(running[chosen])
    keys = {name: [row[place] for row in summary] for place, name in enumerate(("rank", "device", "kind"))}
    points = concat_groups(keys, {"at_ns": times_told, "bandwidth_gbps": rates_told})
    return {"summary": rows_made(SUMMARY, summary), "series": made(SERIES, points)}


def _at_once(starts: Ints, ends: Ints, rates: Doubles, *, exact: bool) -> tuple[Ints, Doubles]:
    """When the sum of the rates of what runs changes, and what it is from then on.

    Sums of doubles do not come back to 0 when nothing runs any more: exact ones are made to.
    """
    times = np.concatenate([starts, ends])
    order = np.argsort(times, kind="stable")
    rates = np.nan_to_num(rates)
    with np.errstate(over="ignore", invalid="ignore"):
        running = np.cumsum(np.concatenate([rates, -rates])[order])
    times = times[order]
    if not exact:
        return times, running
    running[np.cumsum(np.where(order < len(starts), 1, -1)) <= 0] = 0
    last = np.append(times[1:] != times[:-1], True)  # of what happens at once, only the outcome lasts
    return times[last], running[last]


def _statistics(values: Doubles) -> list[int | float | None]:
    """Number, mean, deviation, least, quarters and most of values."""
    if not len(values):
        return [0, *[None] * 7]
    with np.errstate(over="ignore", invalid="ignore"):
        deviation = float(values.std(ddof=1)) if len(values) > 1 else 0.0
        return [
            len(values),
            float(values.mean()),
            deviation,
            float(values.min()),
            *quartiles(values),
            float(values.max()),
        ]


def missing(scope: Scope) -> str | None:
    """A reason where nothing is copied or set."""
    found = scope.table("""
        SELECT 1 FROM events WHERE ph = 'X' AND cat IN ('gpu_memcpy', 'Memcpy', 'gpu_memset', 'Memset') LIMIT 1""")
    return None if len(found) else "No copies or memsets of a GPU are in this trace."


QUESTION = Question(
    name="memory_bandwidth",
    answers="How fast are copies and memsets?",
    definition="Of each rank, device and kind of copy: bytes by time; and how fast all that run at once are together,"
    " whenever one starts or ends. The bandwidth of one is its bytes by its duration, else what the trace says of it."
    " With `types=hta` it is what the trace says or 0, and what takes no time takes a µs.",
    source="https://hta.readthedocs.io/en/latest/source/features/augmented_counters.html",
    tables={"summary": SUMMARY, "series": SERIES},
    parameters=BandwidthParameters,
    missing=missing,
    answer=answer,
)
