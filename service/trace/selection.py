"""What to keep of a trace: one model for splits, downloads, sessions, queries and analyses.

An event is kept where each criterion that is given lets it pass; of one criterion, any value will do. Then
`Closure` adds what belongs to the kept events, so that a viewer shows them as it would in the whole trace.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator, model_validator

from service.trace.errors import BadSelection

VALUES_MAX = 10_000
"""Values of one criterion."""
PATTERNS_MAX, PATTERN_LENGTH_MAX = 100, 1000
"""Patterns of names of one criterion, and characters of each."""
REGEX = "re:"
"""The beginning of a name that is a regular expression."""

_INT64 = 1 << 63
_MODEL = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

Ns = Annotated[int, Field(ge=-_INT64, lt=_INT64, strict=True)]
Number = Annotated[int, Field(ge=-_INT64, lt=_INT64, strict=True)]
Word = Annotated[str, StringConstraints(max_length=10_000)]
_VALUES: Any = {"default": None, "min_length": 1, "max_length": VALUES_MAX}


Args = Literal["all", "essential", "none"]
"""Which arguments of events are of interest; essential are those that tell which work a call launched, how many
bytes and where it ran, and all that collectives and allocations of memory have."""


class Window(BaseModel):
    """A span of time: from its start, which is in it, to its end, which is not; without one of them, it is open."""

    model_config = _MODEL

    start_ns: Ns | None = None
    end_ns: Ns | None = None
    relative: bool = Field(False, description="count from the trace's first event")
    from_: Word | None = Field(None, alias="from", description="start with the first slice of this name")
    to: Word | None = Field(None, description="end with the first slice of this name that begins no earlier")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.start_ns is not None and self.from_ is not None) or (self.end_ns is not None and self.to is not None):
            raise ValueError("a window's edge is either a time or an annotation")
        return self


class Criteria(BaseModel):
    """By what events are told apart."""

    model_config = _MODEL

    window: Window | None = None
    steps: list[Number] | None = Field(
        **_VALUES,
        description="numbers of ProfilerSteps: what begins in them on the host, and the work on devices that was"
        " launched in them; work without a launch counts by its own start",
    )
    ranks: list[Number] | None = Field(**_VALUES, description="ranks of a merged trace, or the trace's own")
    devices: list[Number] | None = Field(**_VALUES, description="what runs on a device")
    streams: list[Word] | None = Field(**_VALUES, description="`device/stream`, as the trace lists them")
    threads: list[Number | Word] | None = Field(**_VALUES, description="a tid, `pid/tid`, or a thread's name")
    processes: list[Number | Word] | None = Field(**_VALUES, description="a pid, or a process's name")
    categories: list[Word] | None = Field(**_VALUES, description="`kernel`, `cpu_op`, …; empty for events without one")
    names: list[Word] | None = Field(
        **_VALUES,
        description="names, or patterns: `*` and `?` stand for any text and any character; `re:` begins a regular"
        f" expression of RE2. At most {PATTERNS_MAX} patterns of {PATTERN_LENGTH_MAX} characters",
    )
    phases: list[Word] | None = Field(**_VALUES, description="`X`, `i`, `C`, …")
    min_dur_ns: Annotated[int, Field(ge=0, lt=_INT64, strict=True)] | None = Field(
        None, description="only what lasts at least so long"
    )

    @field_validator("names")
    @classmethod
    def _bound_patterns(cls, names: list[str] | None) -> list[str] | None:
        patterns = [name for name in names or () if is_pattern(name)]
        longest = max(map(len, patterns), default=0)
        if len(patterns) > PATTERNS_MAX or longest > PATTERN_LENGTH_MAX:
            raise ValueError(
                f"{len(patterns)} patterns, the longest of {longest} characters: at most {PATTERNS_MAX} patterns of"
                f" {PATTERN_LENGTH_MAX} characters can be given, and {VALUES_MAX} names without `*` and `?`"
            )
        return names


class Closure(BaseModel):
    """What comes along with the events that are kept, though it was not asked for itself."""

    model_config = _MODEL

    metadata: bool = Field(True, description="the names of processes and threads, but of those that lose all events")
    flows: bool = Field(True, description="arrows whole or not at all: where the slices at all their ends are kept")
    launches: bool = Field(True, description="the launch and the op of each kept kernel, copy and fill")
    kernels: bool = Field(True, description="what each kept launch started")
    annotations: bool = Field(True, description="of a window, the annotations that last longer than it")


class Selection(Criteria):
    """Which events to keep of a trace."""

    exclude: Criteria | None = Field(
        None, description="leave out what meets any of these; but for time, closure adds none of it"
    )
    straddle: Literal["keep", "start", "clip"] = Field(
        "keep",
        description="slices over an edge of the window: all that overlap it, those that begin in it, or all, cut to it",
    )
    closure: Closure = Closure()

    @classmethod
    def parsed(cls, value: Any) -> "Selection":
        """The selection that a JSON text, or a JSON value, means; raises `BadSelection`."""
        try:
            return cls.model_validate_json(value) if isinstance(value, str | bytes) else cls.model_validate(value)
        except ValidationError as error:
            raise bad_selection(error) from error

    def as_dict(self) -> dict[str, Any]:
        """The selection as JSON values, without what was left as it is."""
        return self.model_dump(by_alias=True, exclude_defaults=True)


def share_of_time(selection: Selection, summary: Mapping[str, Any]) -> float:
    """Which share of a trace's time is selected, from 0 to 1; edges that are names count as the trace's own."""
    bounds = summary["bounds"]
    if not bounds:
        return 1.0
    start: int = bounds["start_ns"]
    end: int = bounds["end_ns"]
    spans = [(start, end)]
    if window := selection.window:
        zero = start if window.relative else 0
        first = start if window.start_ns is None else zero + window.start_ns
        last = end if window.end_ns is None else zero + window.end_ns
        spans = common(spans, united([(first, last)]))
    if selection.steps and "steps" not in summary.get("totals", {}):
        steps = [step for step in summary["steps"] if step["number"] in selection.steps]
        spans = common(spans, united((step["start_ns"], step["end_ns"]) for step in steps))
    return sum(b - a for a, b in spans) / max(end - start, 1)


def bad_selection(error: ValidationError) -> BadSelection:
    """What pydantic says of a selection that is none."""
    faults = ["; ".join((".".join(map(str, one["loc"])) or "selection", one["msg"])) for one in error.errors()]
    return BadSelection(f"The selection can't be understood: {' · '.join(faults[:5])}.")


def is_pattern(name: str) -> bool:
    """Whether a name of a selection stands for other names."""
    return name.startswith(REGEX) or "*" in name or "?" in name


Interval = tuple[int, int]
"""A span of time in ns: its start, which is in it, and its end, which is not."""

ALWAYS: Interval = (-_INT64, _INT64 - 1)


def united(intervals: Iterable[Interval]) -> list[Interval]:
    """The intervals in order, those that overlap or touch made one; none that is empty."""
    made: list[Interval] = []
    for start, end in sorted(interval for interval in intervals if interval[0] < interval[1]):
        if made and start <= made[-1][1]:
            made[-1] = (made[-1][0], max(end, made[-1][1]))
        else:
            made.append((start, end))
    return made


def common(one: list[Interval], other: list[Interval]) -> list[Interval]:
    """What two lists of intervals share, each united."""
    shared, others = [], other[::-1]
    for start, end in one:
        while others and others[-1][1] <= start:
            others.pop()
        for a, b in reversed(others):
            if a >= end:
                break
            shared.append((max(start, a), min(end, b)))
    return united(shared)


def without(one: list[Interval], other: list[Interval]) -> list[Interval]:
    """What is left of the first list of intervals without those of the second."""
    edges = [ALWAYS[0], *(edge for interval in united(other) for edge in interval), ALWAYS[1]]
    return common(one, list(zip(edges[::2], edges[1::2], strict=True)))
