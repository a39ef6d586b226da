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
    outline_indices,
    quartiles,
    saturating_sum,
)
from service.analysis.facts.scope import Scope
from service.analysis.question import Question, Tables, WorkParameters
from service.analysis.table import DEVICE, RANK, Column, count, ns, number, table_of, table_of_rows, word

_GBPS = "GB/s"
_KIND = word("kind", "Memcpy HtoD, DtoH, DtoD, PtoP or Unknown, or Memset")
SUMMARY = (
    RANK,
    DEVICE,
    _KIND,
    count("count", "of copies or memsets"),
    Column("bytes", "int", "bytes", "of those whose size is recorded; empty if none is"),
    ns("sum", "of their durations"),
    ns("busy", "in which any of them ran"),
    number("bandwidth_gbps", "recorded bytes divided by their durations", _GBPS),
    count("points", "changes after which at least one runs"),
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
FROM work WHERE {} ORDER BY start_ns, position
"""


class BandwidthParameters(WorkParameters):
    """Parameters of `memory_bandwidth`."""

    points: int = Field(
        1000,
        ge=3,
        le=10_000_000,
        description="maximum number of points of each kind; if there are more, the largest, the smallest and the"
        " last of each run of points",
    )


def answer(scope: Scope, parameters: BandwidthParameters) -> Tables:
    """Return statistics of the transfers of a rank, and their bandwidth over time."""
    hta = parameters.types == "hta"
    wanted = "type = 'MEM'" if hta else "kind IN ('memcpy', 'memset')"
    scope.define_work(parameters, typed=hta)
    transfers = scope.table(_TRANSFERS.format(wanted))
    if not hta and (transfers["bytes"].null_count or (transfers["dur_ns"].to_numpy() == 0).any()):
        scope.define_work(parameters, typed=False, args=True)  # arguments may record a bandwidth that can't be computed
        transfers = scope.table(_TRANSFERS.format(wanted))
    names = sorted(transfers["transfer"].unique().to_pylist())
    kinds = pc.index_in(transfers["transfer"], pa.array(names, pa.string())).cast(pa.int64())
    starts, ends, durations = (transfers[name].to_numpy() for name in ("start_ns", "end_ns", "dur_ns"))
    sizes, recorded = (
        transfers[name].cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy() for name in ("bytes", "told_gbps")
    )
    whole = transfers["bytes"].fill_null(0).to_numpy()
    if hta:
        rates = np.nan_to_num(recorded)
        ends = np.where(durations == 0, starts + 1000, ends)  # HTA counts a transfer without duration as a µs
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = np.where(np.isfinite(sizes) & (durations > 0), sizes / durations, recorded)
    summary: list[list[Any]] = []
    point_times: list[Ints] = []
    point_rates: list[Doubles] = []
    for (device, kind), members in group_rows(transfers["device"], kinds):
        name = names[kind or 0]
        times, running = _at_once(starts[members], ends[members], rates[members], exact=not hta)
        is_sized = np.isfinite(sizes[members]) & (durations[members] > 0)
        moved, took = float(sizes[members][is_sized].sum()), float(durations[members][is_sized].sum())
        summary.append(
            [
                *(scope.rank, device, name, len(starts[members])),
                *(
                    saturating_sum(whole[members]) if np.isfinite(sizes[members]).any() else None,
                    saturating_sum(durations[members]),
                    clamp_int64(covered(starts[members], ends[members])),
                ),
                *(moved / took if took else None, *_statistics(running[running > 0])),
            ]
        )
        chosen = outline_indices(running, parameters.points)
        point_times.append(times[chosen])
        point_rates.append(running[chosen])
    keys = {name: [row[place] for row in summary] for place, name in enumerate(("rank", "device", "kind"))}
    points = concat_groups(keys, {"at_ns": point_times, "bandwidth_gbps": point_rates})
    return {"summary": table_of_rows(SUMMARY, summary), "series": table_of(SERIES, points)}


def _at_once(starts: Ints, ends: Ints, rates: Doubles, *, exact: bool) -> tuple[Ints, Doubles]:
    """Return the times at which the sum of the rates of running transfers changes, and the sum from then on.

    With `exact`, changes at the same time are merged, and the sum is set to 0 when no transfer runs: sums of doubles
    do not return to exactly 0.
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
    last = np.append(times[1:] != times[:-1], True)  # of changes at the same time, only the last sum counts
    return times[last], running[last]


def _statistics(values: Doubles) -> list[int | float | None]:
    """Return the number, mean, standard deviation, minimum, quartiles and maximum of values."""
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
    """Return a reason if the trace has no copies or memsets."""
    has_transfers = scope.has_slice_of(("gpu_memcpy", "Memcpy", "gpu_memset", "Memset").__contains__)
    return None if has_transfers else "No copies or memsets of a GPU are in this trace."


QUESTION = Question(
    name="memory_bandwidth",
    short_question="How fast are copies and memsets?",
    definition="Of each rank, device and kind of copy: bytes per time; and the sum of the bandwidths of all transfers"
    " that run at once, whenever one starts or ends. The bandwidth of a transfer is its bytes divided by its duration,"
    " else the value that the trace records. With `types=hta` it is the recorded value or 0, and a transfer without"
    " duration counts as one of 1 µs.",
    source="https://hta.readthedocs.io/en/latest/source/features/augmented_counters.html",
    tables={"summary": SUMMARY, "series": SERIES},
    parameters=BandwidthParameters,
    inapplicable_reason=missing,
    answer=answer,
)
