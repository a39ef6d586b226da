"""Steps of a whole trace that a selection is about. The envelope of a part has them, since the part lacks some work."""

from typing import Any, Self

import numpy as np
from pydantic import BaseModel, ValidationError, model_validator

from service.attribution.rank_steps import RankSteps, StepsByRank
from service.attribution.stored_steps import steps_of_ranks
from service.cutting.criteria import IntervalSet
from service.cutting.envelope import provenance
from service.store.column_files import ColumnFolder
from service.store.export import envelope
from service.trace.selection import ALWAYS, Ns, Selection, intersection, union
from service.trace.summary import Summary

FACT = "steps"
"""Name of the record in the fact ``part`` of a trace's provenance."""


class PartSteps:
    """The steps that a trace or a selection of it is about.

    Args:
        time: time of the selection.
        ranks: the steps of the whole trace; if they are chosen, only these.
        is_chosen: whether the selection names steps or limits the time. Otherwise it is about the steps of which it
            has the annotations.
    """

    def __init__(self, time: IntervalSet, ranks: StepsByRank, *, is_chosen: bool) -> None:
        self.time = time
        self.ranks = ranks
        self.is_chosen = is_chosen

    @classmethod
    def of_trace(cls, columns: ColumnFolder, summary: Summary) -> "PartSteps":
        """Return the steps of a trace; if it is a part, those that its envelope has.

        Args:
            columns: folder of the trace's columns.
            summary: the trace's summary with complete lists.

        Raises:
            ExportFailed: the columns can't be read.
            LocationError: their location can't be used.
        """
        recorded = recorded_steps(envelope(columns, redact=False))
        return recorded or cls(IntervalSet([ALWAYS]), steps_of_ranks(columns, summary), is_chosen=False)

    def of_selection(self, selection: Selection, time: IntervalSet) -> "PartSteps":
        """Return the steps that a selection is about.

        Args:
            selection: a selection of the trace.
            time: time of the selection.
        """
        shared = intersection([*self.time.intervals], [*time.intervals])
        time = IntervalSet(shared) if shared else time
        ranks = {rank: steps.only(_chosen(steps, selection, time)) for rank, steps in self.ranks.items()}
        return PartSteps(time, ranks, is_chosen=self.is_chosen or selection.steps is not None or time.is_limited)

    def as_record(self) -> dict[str, Any]:
        """Return the steps as JSON values, for an envelope."""
        return {
            "time": [[None if edge in ALWAYS else edge for edge in interval] for interval in self.time.intervals],
            "is_chosen": self.is_chosen,
            "ranks": [
                {"rank": rank, **{name: column.tolist() for name, column in steps._asdict().items()}}
                for rank, steps in self.ranks.items()
                if len(steps.numbers)
            ],
        }


def _chosen(steps: RankSteps, selection: Selection, time: IntervalSet) -> Any:
    """Flag the steps that a selection is about."""
    starts, ends = np.minimum(steps.starts, steps.device_starts), np.maximum(steps.ends, steps.device_ends)
    overlapping = time.overlaps(starts, ends)
    return overlapping if selection.steps is None else overlapping & np.isin(steps.numbers, selection.steps)


class _RankRecord(BaseModel):
    """Record of the steps of a rank; see `RankSteps`."""

    rank: int | None
    numbers: list[Ns]
    starts: list[Ns]
    ends: list[Ns]
    device_starts: list[Ns]
    device_ends: list[Ns]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len({len(column) for column in self._columns()}) > 1:
            raise ValueError("Each step has a number and all times.")
        return self

    def _columns(self) -> list[list[int]]:
        return [getattr(self, name) for name in RankSteps._fields]

    def steps(self) -> RankSteps:
        """Return the steps."""
        return RankSteps(*(np.array(column, np.int64) for column in self._columns()))


class _Record(BaseModel):
    """Record of the steps in an envelope, as `PartSteps.as_record` writes it."""

    time: list[tuple[Ns | None, Ns | None]]
    is_chosen: bool
    ranks: list[_RankRecord]

    def part_steps(self) -> PartSteps | None:
        """Return the steps; None if the record leaves no time."""
        time = union(
            (ALWAYS[0] if start is None else start, ALWAYS[1] if end is None else end) for start, end in self.time
        )
        ranks: StepsByRank = {one.rank: one.steps() for one in self.ranks}
        return PartSteps(IntervalSet(time), ranks, is_chosen=self.is_chosen) if time else None


def recorded_steps(text: bytes) -> PartSteps | None:
    """Return the steps that the envelope of a part of a trace has.

    They are None for a whole trace, for a part that an earlier version cut, and if the record is malformed.

    Args:
        text: the envelope.
    """
    part = provenance(text).get("part")
    if not isinstance(part, dict) or FACT not in part:
        return None
    try:
        return _Record.model_validate(part[FACT]).part_steps()
    except ValidationError:
        return None
