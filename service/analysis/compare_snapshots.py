"""What changed in memory between two snapshots?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from pydantic import Field

from service.analysis import memory_snapshot
from service.analysis.facts.scope import Scope
from service.analysis.question import Comparison, Parameters, Question, RankAnswer, Tables
from service.analysis.rank_pairs import pair_ranks
from service.analysis.table import DEVICE, RANK, Column, Columns, count, number, pct, table_of_rows, word

MEASURES = ("start", "peak", "peak_reserved", "end", "segments", "unused")
"""Bytes of a device that are compared, as in the table `devices` of `memory_snapshot`."""

_VERDICT = word("verdict", "`more`, `less` or `same`, by the threshold; `new` or `gone` if only one side has it")


def _bytes(name: str, description: str) -> Column:
    return Column(f"{name}_bytes", "int", "bytes", description)


def _compared(name: str, subject: str) -> Columns:
    """Return the columns that compare bytes."""
    return (
        _bytes(f"base_{name}", f"{subject} of the base"),
        _bytes(name, subject),
        _bytes("difference", "difference from the base"),
        pct("difference", "difference from the base; empty if that is 0"),
        number("ratio", "that value over the base's; empty if only one side has it, or the base's is 0"),
        _VERDICT,
    )


_STACKS = (
    RANK,
    DEVICE,
    word("site", "innermost Python frame of the stacks, else their innermost frame; empty if unknown"),
    count("base_blocks", "number of blocks of the base that are alive"),
    count("blocks", "number of blocks that are alive"),
    *_compared("held", "sum of these blocks"),
    word("frames", "innermost frames of the stack that holds the most there, a line for each"),
)
_DEVICES = (
    RANK,
    DEVICE,
    word("measure", f"{', '.join(f'`{name}`' for name in MEASURES)}, as in `memory_snapshot`"),
    *_compared("value", "bytes"),
)
_HELD = (DEVICE, _STACKS[2], count("blocks", "number of blocks"), _bytes("held", "their sum"), _STACKS[-1])
_VALUES = (DEVICE, _DEVICES[2], _bytes("value", "bytes"))
"""Columns of the tables of one side: a row for each stack, and for each measure."""


class CompareSnapshotsParameters(Parameters):
    """Parameters of `compare_snapshots`."""

    moment: Literal["peak", "end"] = Field(
        "peak", description="when the blocks are alive: at each device's peak, or at the end"
    )
    by: Literal["site", "stack"] = Field("site", description="what rows are: sites, or whole stacks of the same frames")
    threshold_pct: float = Field(5, ge=0, description="differences of at most this many % of the base count as `same`")
    least_bytes: int = Field(1_000_000, ge=0, description="differences of at most this many bytes count as `same`")


def answer(scope: Scope, parameters: CompareSnapshotsParameters) -> Tables:
    """Return what holds memory at the moment, by stack, and the sums of the devices."""
    from service.analysis.facts.snapshot_memory import snapshot_memory_of  # noqa: PLC0415 - loads numba
    from service.analysis.facts.snapshot_rows import DeviceRows  # noqa: PLC0415 - likewise

    snapshot = snapshot_memory_of(scope)
    names = [column.name for column in memory_snapshot.DEVICES[2:]]
    held, totals = [], []
    for gpu, device in snapshot.devices.items():
        rows = DeviceRows(snapshot, gpu, top=0)
        sums = dict(zip(names, rows.totals(), strict=False))
        totals += [[gpu, measure, sums[f"{measure}_bytes"]] for measure in MEASURES]
        moment = device.peak if parameters.moment == "peak" else rows.last
        for stack, blocks, size in zip(*(part.tolist() for part in device.by_stack(moment)), strict=True):
            held.append([gpu, snapshot.site(stack), blocks, size, snapshot.text(stack)])
    return {"stacks": table_of_rows(_HELD, held), "devices": table_of_rows(_VALUES, totals)}


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
        held = [_held(answer.tables["stacks"], parameters.by) for answer in pair]
        for key in {**held[0], **held[1]}:
            before, after = (side.get(key, _NOTHING) for side in held)
            place = after if after.largest else before
            compared = _difference([None if side is _NOTHING else side.bytes for side in (before, after)], parameters)
            row = [rank, key[0], place.site, before.blocks, after.blocks, *compared, place.frames]
            stacks.append(row)
        totals = [_totals(answer.tables["devices"]) for answer in pair]
        devices += [
            [rank, *key, *_difference([side.get(key) for side in totals], parameters)]
            for key in {**totals[0], **totals[1]}
        ]
    difference = [column.name for column in _STACKS].index("difference_bytes")
    stacks.sort(key=lambda row: -abs(row[difference]))
    tables = {"stacks": table_of_rows(_STACKS, stacks), "devices": table_of_rows(_DEVICES, devices)}
    return Comparison(tables, notes, skipped)


@dataclass
class _Held:
    """Blocks of a place: their number and bytes, and the site and frames of the stack with the most bytes."""

    blocks: int = 0
    bytes: int = 0
    largest: int = 0
    site: str | None = None
    frames: str | None = None


_NOTHING = _Held()


def _held(stacks: pa.Table, by: str) -> dict[tuple[int, str | None], _Held]:
    """Return the blocks of each device and place."""
    places: dict[tuple[int, str | None], _Held] = {}
    for row in stacks.to_pylist():
        held = places.setdefault((row["device"], row["site" if by == "site" else "frames"]), _Held())
        held.blocks += row["blocks"]
        held.bytes += row["held_bytes"]
        if row["held_bytes"] > held.largest:
            held.largest, held.site, held.frames = row["held_bytes"], row["site"], row["frames"]
    return places


def _totals(devices: pa.Table) -> dict[tuple[int, str], int | None]:
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
    " exceeds both `threshold_pct` and `least_bytes`. The bytes of blocks without a stack have a row without a site.",
    source="https://pytorch.org/docs/stable/torch_cuda_memory.html",
    tables=TABLES,
    parameters=CompareSnapshotsParameters,
    inapplicable_reason=memory_snapshot.missing,
    answer=answer,
    compare_sides=compare_sides,
    cost=3,
)
