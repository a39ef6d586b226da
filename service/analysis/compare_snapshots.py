"""Comparison of the memory of two snapshots."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal

import pyarrow as pa
from pydantic import Field

from service.analysis import memory_snapshot
from service.analysis.facts.scope import Scope
from service.analysis.question import Comparison, Parameters, Question, RankAnswer, Tables
from service.analysis.rank_pairs import pair_ranks
from service.analysis.table import DEVICE, RANK, Columns, count, number, pct, size, table_of_rows, word

MEASURES = ("start", "peak", "peak_reserved", "end", "segments", "unused")
"""Bytes of a device that are compared, as in the table `devices` of `memory_snapshot`."""

_VERDICT = word("verdict", "`more`, `less` or `same`, by the threshold; `new` or `gone` if only one side has it")


def _compared(name: str, subject: str) -> Columns:
    """Return the columns that compare bytes."""
    return (
        size(f"base_{name}", f"{subject} of the base"),
        size(name, subject),
        size("difference", "difference from the base"),
        pct("difference", "difference in % of the base; empty if only one side has it, or the base's is 0"),
        number("ratio", "value divided by the base's; empty if only one side has it, or the base's is 0"),
        _VERDICT,
    )


_STACKS = (
    RANK,
    DEVICE,
    word("site", "innermost Python frame of the stacks, else their innermost operator or frame; empty if unknown"),
    count("base_blocks", "number of blocks of the base that are alive"),
    count("blocks", "number of blocks that are alive"),
    *_compared("held", "sum of these blocks"),
    word("frames", "innermost frames of the row's stack with the most bytes, a line for each"),
)
_DEVICES = (
    RANK,
    DEVICE,
    word("measure", f"{', '.join(f'`{name}`' for name in MEASURES)}, as in `memory_snapshot`"),
    *_compared("value", "bytes"),
)
_HELD = (
    DEVICE,
    word("place", "site, or a digest of all frames of the stack; empty if unknown"),
    _STACKS[2],
    count("blocks", "number of blocks"),
    size("held", "their sum"),
    _STACKS[-1],
)
_VALUES = (DEVICE, _DEVICES[2], size("value", "bytes"))
"""Columns of the tables of one side: a row for each place, and for each measure."""


class CompareSnapshotsParameters(Parameters):
    """Parameters of `compare_snapshots`."""

    moment: Literal["peak", "end"] = Field("peak", description="moment to compare: the peak of each device, or the end")
    by: Literal["site", "stack"] = Field("site", description="what a row stands for: a site, or a stack")
    threshold_pct: float = Field(5, ge=0, description="differences of at most this many % of the base count as `same`")
    least_bytes: int = Field(1_000_000, ge=0, description="differences of at most this many bytes count as `same`")


def answer(scope: Scope, parameters: CompareSnapshotsParameters) -> Tables:
    """Return what holds memory at the moment, by place, and the sums of the devices."""
    from service.analysis.facts.snapshot_memory import snapshot_memory_of  # noqa: PLC0415 - loads numba
    from service.analysis.facts.snapshot_rows import DeviceRows  # noqa: PLC0415 - likewise

    snapshot = snapshot_memory_of(scope)
    held, totals = [], []
    for gpu, device in snapshot.devices.items():
        rows = DeviceRows(snapshot, gpu, top=0)
        sums = rows.totals()
        totals += [[gpu, measure, sums[f"{measure}_bytes"]] for measure in MEASURES]
        places: dict[str | None, list[int]] = {}  # the stack with the most bytes, and the numbers of blocks and bytes
        moment = device.peak if parameters.moment == "peak" else rows.last
        for stack, blocks, bytes_ in zip(*(part.tolist() for part in device.by_stack(moment)), strict=True):
            place = snapshot.site(stack) if parameters.by == "site" else _digest(snapshot.text(stack, None))
            sum_ = places.setdefault(place, [stack, 0, 0])
            sum_[1] += blocks
            sum_[2] += bytes_
        for place, (stack, blocks, bytes_) in places.items():
            held.append([gpu, place, snapshot.site(stack), blocks, bytes_, snapshot.text(stack)])
    return {"stacks": table_of_rows(_HELD, held), "devices": table_of_rows(_VALUES, totals)}


def _digest(text: str | None) -> str | None:
    return None if text is None else sha256(text.encode()).hexdigest()


def compare_sides(
    base: Sequence[RankAnswer], other: Sequence[RankAnswer], parameters: CompareSnapshotsParameters
) -> Comparison:
    """Compare the other side with the base.

    Raises:
        BadAnalysisRequest: no rank is on both sides.
    """
    pairs, notes, skipped = pair_ranks(base, other)
    stacks: list[list[Any]] = []
    devices: list[list[Any]] = []
    for pair in pairs:
        rank = pair[1].rank
        held = [_by_place(answer.tables["stacks"]) for answer in pair]
        for key in {**held[0], **held[1]}:
            before, after = (side.get(key) for side in held)
            shown = after or before or {}
            compared = _difference([row["held_bytes"] if row else None for row in (before, after)], parameters)
            counts = [row["blocks"] if row else 0 for row in (before, after)]
            stacks.append([rank, key[0], shown["site"], *counts, *compared, shown["frames"]])
        totals = [_by_measure(answer.tables["devices"]) for answer in pair]
        for key in {**totals[0], **totals[1]}:
            values = [side.get(key) for side in totals]
            if any(key in side and side[key] is None for side in totals):
                continue  # unknown on a side, such as what is reserved before any entry
            devices.append([rank, *key, *_difference(values, parameters)])
    difference = [column.name for column in _STACKS].index("difference_bytes")
    stacks.sort(key=lambda row: -abs(row[difference]))
    tables = {"stacks": table_of_rows(_STACKS, stacks), "devices": table_of_rows(_DEVICES, devices)}
    return Comparison(tables, notes, skipped)


def _by_place(stacks: pa.Table) -> dict[tuple[int, str | None], dict[str, Any]]:
    """Return the rows of one side by device and place."""
    return {(row["device"], row["place"]): row for row in stacks.to_pylist()}


def _by_measure(devices: pa.Table) -> dict[tuple[int, str], int | None]:
    """Return the values of one side by device and measure; None for an unknown value."""
    return {(row["device"], row["measure"]): row["value_bytes"] for row in devices.to_pylist()}


def _difference(sides: Sequence[int | None], parameters: CompareSnapshotsParameters) -> list[Any]:
    """Return the columns of `_compared` from the bytes of the base and of the other side; None stands for none."""
    base, other = sides
    change = (other or 0) - (base or 0)
    if base is None or other is None:
        verdict = "new" if base is None else "gone"
        return [base or 0, other or 0, change, None, None, verdict]
    is_same = abs(change) <= max(parameters.least_bytes, base * parameters.threshold_pct / 100)
    verdict = "same" if is_same else "more" if change > 0 else "less"
    return [base, other, change, *((100 * change / base, other / base) if base else (None, None)), verdict]


TABLES: Mapping[str, Columns] = {"stacks": _STACKS, "devices": _DEVICES}

QUESTION = Question(
    name="compare_snapshots",
    short_question="What changed in memory between two snapshots?",
    definition="Exactly two sides, as for `compare`. Of each site, or stack, of a device: the blocks that are alive at"
    " the peak or at the end, as in `memory_snapshot`, and the difference from the base. A difference counts if it"
    " exceeds both `threshold_pct` and `least_bytes`. The bytes of blocks without a stack have a row without a site."
    " Measures that a side does not record are left out.",
    source="https://pytorch.org/docs/stable/torch_cuda_memory.html",
    tables=TABLES,
    parameters=CompareSnapshotsParameters,
    inapplicable_reason=memory_snapshot.missing,
    answer=answer,
    compare_sides=compare_sides,
    cost=3,
)
