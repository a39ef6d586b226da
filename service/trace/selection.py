"""Selection of a trace's events: one model for splits, downloads, sessions, queries and analyses.

An event is kept if it meets all given criteria. It meets a criterion if it matches any of the criterion's values. Then
`Closure` adds the events that belong to the kept ones, so that a viewer shows them as it would in the whole trace.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator, model_validator

from service.trace.errors import BadSelection
from service.trace.selection_fields import (
    PATTERN_LENGTH_MAX,
    PATTERNS_MAX,
    VALUES_MAX,
    Straddle,
    described,
    is_pattern,
)
from service.trace.summary import Summary

_INT64 = 1 << 63
_MODEL = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

Ns = Annotated[int, Field(ge=-_INT64, lt=_INT64, strict=True)]
Number = Annotated[int, Field(ge=-_INT64, lt=_INT64, strict=True)]
Duration = Annotated[int, Field(ge=0, lt=_INT64, strict=True)]
Word = Annotated[str, StringConstraints(max_length=10_000)]


def _values(name: str) -> Any:
    return Field(None, min_length=1, max_length=VALUES_MAX, description=described(name))


class Window(BaseModel):
    """A half-open span of time: its start is in it, its end is not; a missing edge leaves it open."""

    model_config = _MODEL

    start_ns: Ns | None = Field(None, description=described("window", "start_ns"))
    end_ns: Ns | None = Field(None, description=described("window", "end_ns"))
    relative: bool = Field(False, description=described("window", "relative"))
    from_: Word | None = Field(None, alias="from", description=described("window", "from"))
    to: Word | None = Field(None, description=described("window", "to"))

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.start_ns is not None and self.from_ is not None) or (self.end_ns is not None and self.to is not None):
            raise ValueError("a window's edge is either a time or an annotation")
        return self


class Criteria(BaseModel):
    """Criteria that an event must meet."""

    model_config = _MODEL

    window: Window | None = Field(None, description="the span of time; `straddle` treats slices that cross its edges")
    steps: list[Number] | None = _values("steps")
    ranks: list[Number] | None = _values("ranks")
    devices: list[Number] | None = _values("devices")
    streams: list[Word] | None = _values("streams")
    threads: list[Number | Word] | None = _values("threads")
    processes: list[Number | Word] | None = _values("processes")
    categories: list[Word] | None = _values("categories")
    names: list[Word] | None = _values("names")
    phases: list[Word] | None = _values("phases")
    min_dur_ns: Duration | None = Field(None, description=described("min_dur_ns"))

    @field_validator("names")
    @classmethod
    def _bound_patterns(cls, names: list[str] | None) -> list[str] | None:
        patterns = [name for name in names or () if is_pattern(name)]
        longest = max(map(len, patterns), default=0)
        if len(patterns) > PATTERNS_MAX or longest > PATTERN_LENGTH_MAX:
            raise ValueError(
                f"{len(patterns)} patterns, the longest of {longest} characters; at most {PATTERNS_MAX} patterns of"
                f" {PATTERN_LENGTH_MAX} characters and {VALUES_MAX} names without `*` and `?` are allowed"
            )
        return names


class Closure(BaseModel):
    """Events to add to those that meet the criteria."""

    model_config = _MODEL

    metadata: bool = Field(True, description=described("closure", "metadata"))
    flows: bool = Field(True, description=described("closure", "flows"))
    launches: bool = Field(True, description=described("closure", "launches"))
    kernels: bool = Field(True, description=described("closure", "kernels"))
    annotations: bool = Field(True, description=described("closure", "annotations"))


class Selection(Criteria):
    """Events to keep of a trace."""

    exclude: Criteria | None = Field(
        None,
        description="leave out events that meet any of these criteria; the closure may add back those that only the"
        " window excludes",
    )
    straddle: Straddle = Field("keep", description=described("straddle"))
    closure: Closure = Field(Closure(), description="what is kept in addition, because kept events need it")

    @classmethod
    def parsed(cls, value: object) -> "Selection":
        """Parse a selection from JSON text or a JSON value.

        Raises:
            BadSelection: the value is not a selection.
        """
        try:
            return cls.model_validate_json(value) if isinstance(value, str | bytes) else cls.model_validate(value)
        except ValidationError as error:
            raise bad_selection(error) from error

    def as_dict(self) -> dict[str, object]:
        """Return the selection as JSON values, without defaults."""
        return self.model_dump(by_alias=True, exclude_defaults=True)


def share_of_time(selection: Selection, summary: Summary) -> float:
    """Return the selected share of a trace's time, from 0 to 1.

    An edge of the window that is a name counts as the trace's own edge.
    """
    if not summary.bounds:
        return 1.0
    start, end = summary.bounds["start_ns"], summary.bounds["end_ns"]
    spans = [(start, end)]
    if window := selection.window:
        zero = start if window.relative else 0
        first = start if window.start_ns is None else zero + window.start_ns
        last = end if window.end_ns is None else zero + window.end_ns
        spans = intersection(spans, union([(first, last)]))
    if selection.steps and "steps" not in summary.totals:
        steps = [step for step in summary.steps if step["number"] in selection.steps]
        spans = intersection(spans, union((step["start_ns"], step["end_ns"]) for step in steps))
    return sum(b - a for a, b in spans) / max(end - start, 1)


def bad_selection(error: ValidationError) -> BadSelection:
    """Convert a pydantic error to a `BadSelection`."""
    faults = ["; ".join((".".join(map(str, fault["loc"])) or "selection", fault["msg"])) for fault in error.errors()]
    return BadSelection(f"The selection is invalid: {' · '.join(faults[:5])}.")


Interval = tuple[int, int]
"""A half-open span of time in ns, which includes its start and excludes its end."""

ALWAYS: Interval = (-_INT64, _INT64 - 1)
"""All of time."""


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the intervals sorted, with overlapping and adjacent ones joined and empty ones dropped."""
    joined: list[Interval] = []
    for start, end in sorted(interval for interval in intervals if interval[0] < interval[1]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def intersection(first: list[Interval], second: list[Interval]) -> list[Interval]:
    """Return the time that two lists of intervals share; each list must be a `union`."""
    shared, others = [], second[::-1]
    for start, end in first:
        while others and others[-1][1] <= start:
            others.pop()
        for a, b in reversed(others):
            if a >= end:
                break
            shared.append((max(start, a), min(end, b)))
    return union(shared)


def difference(first: list[Interval], second: list[Interval]) -> list[Interval]:
    """Return the time that the first list of intervals covers and the second does not."""
    edges = [ALWAYS[0], *(edge for interval in union(second) for edge in interval), ALWAYS[1]]
    return intersection(first, list(zip(edges[::2], edges[1::2], strict=True)))
