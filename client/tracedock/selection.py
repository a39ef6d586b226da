"""Selections: the events of a trace to keep, as keyword arguments of the client's methods, or as an object."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Literal, Optional, TypedDict, Union

_INTEGERS = frozenset({"steps", "ranks", "devices"})
_LISTS = _INTEGERS | {
    *("streams", "threads", "processes", "categories", "names", "phases"),
    *("exclude_categories", "exclude_names"),
}
_TIMES = frozenset({"window_start_ns", "window_end_ns", "min_dur_ns"})
_NESTED = frozenset({"window", "exclude", "closure"})
"""The prefixes of fields that are members of an object of that name in the API."""

Straddle = Literal["keep", "start", "clip"]


@dataclass(frozen=True)
class Selection:
    """Events to keep of a trace: those that match any value of each given criterion. `Criteria` has the same fields.

    Attributes:
        window_start_ns: start of the time window in ns, inclusive.
        window_end_ns: end of the time window in ns, exclusive.
        window_relative: whether the window's times count from the trace's first event.
        window_from: start the window at the start of the first slice of this name.
        window_to: end the window at the end of the first slice of this name that begins in it.
        steps: numbers of `ProfilerStep`.
        ranks: ranks of a merged trace, or the trace's own rank.
        devices: ids of devices.
        streams: streams as `device/stream`, like `0/7`.
        threads: threads by tid, `pid/tid` or name.
        processes: processes by pid or name.
        categories: categories like `kernel`; empty for events without one.
        names: event names or patterns: `*` matches any text, `?` any character, `re:` starts a regular expression.
        phases: phases of the trace format, like `X`.
        min_dur_ns: minimum duration of slices in ns.
        exclude_categories: categories to leave out.
        exclude_names: names or patterns to leave out.
        straddle: slices that cross an edge of the window: `keep`, only those that `start` in it, or `clip` them.
        closure_metadata: keep the names of processes and threads.
        closure_flows: keep flow arrows whose ends all lie on kept slices.
        closure_launches: keep the launch and the operator of each kept kernel, copy and fill.
        closure_kernels: keep the GPU work of each kept launch.
        closure_annotations: keep annotations of the steps of kept events, and annotations that enclose the window or
            a selected step.
    """

    window_start_ns: Optional[int] = None
    window_end_ns: Optional[int] = None
    window_relative: Optional[bool] = None
    window_from: Optional[str] = None
    window_to: Optional[str] = None
    steps: Optional[Iterable[int]] = None
    ranks: Optional[Iterable[int]] = None
    devices: Optional[Iterable[int]] = None
    streams: Optional[Iterable[str]] = None
    threads: Optional[Iterable[Union[int, str]]] = None
    processes: Optional[Iterable[Union[int, str]]] = None
    categories: Optional[Iterable[str]] = None
    names: Optional[Iterable[str]] = None
    phases: Optional[Iterable[str]] = None
    min_dur_ns: Optional[int] = None
    exclude_categories: Optional[Iterable[str]] = None
    exclude_names: Optional[Iterable[str]] = None
    straddle: Optional[Straddle] = None
    closure_metadata: Optional[bool] = None
    closure_flows: Optional[bool] = None
    closure_launches: Optional[bool] = None
    closure_kernels: Optional[bool] = None
    closure_annotations: Optional[bool] = None

    def __post_init__(self) -> None:
        """Convert lists to tuples, and integers of other types, such as NumPy's, to `int`.

        Raises:
            TypeError: a list is a text, or a number is not an integer.
        """
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                object.__setattr__(self, field.name, _exact(field.name, value))

    def as_json(self) -> dict[str, Any]:
        """Return the selection as JSON of the API, without absent fields."""
        selection: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            parent, _, key = field.name.partition("_")
            plain = list(value) if isinstance(value, tuple) else value
            if parent in _NESTED:
                selection.setdefault(parent, {})[key] = plain
            else:
                selection[field.name] = plain
        return selection


class Criteria(TypedDict, total=False):
    """Keyword arguments that select a part of a trace; `Selection` describes them."""

    window_start_ns: Optional[int]
    window_end_ns: Optional[int]
    window_relative: Optional[bool]
    window_from: Optional[str]
    window_to: Optional[str]
    steps: Optional[Iterable[int]]
    ranks: Optional[Iterable[int]]
    devices: Optional[Iterable[int]]
    streams: Optional[Iterable[str]]
    threads: Optional[Iterable[Union[int, str]]]
    processes: Optional[Iterable[Union[int, str]]]
    categories: Optional[Iterable[str]]
    names: Optional[Iterable[str]]
    phases: Optional[Iterable[str]]
    min_dur_ns: Optional[int]
    exclude_categories: Optional[Iterable[str]]
    exclude_names: Optional[Iterable[str]]
    straddle: Optional[Straddle]
    closure_metadata: Optional[bool]
    closure_flows: Optional[bool]
    closure_launches: Optional[bool]
    closure_kernels: Optional[bool]
    closure_annotations: Optional[bool]


def _exact(name: str, value: Any) -> Any:
    if name in _TIMES:
        return _integer(name, value)
    if name not in _LISTS:
        return value
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise TypeError(f"{name} takes a list, not {value!r}")
    if name in _INTEGERS:
        return tuple(_integer(name, item) for item in value)
    return tuple(item if isinstance(item, str) else _integer(name, item) for item in value)


def _integer(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} takes integers, not {value!r}") from None
