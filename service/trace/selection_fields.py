"""Fields of a selection, declared once; the model, the HTTP parameters and the command-line options derive from them.

The module does not import pydantic, so that commands start fast.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

VALUES_MAX = 10_000
"""Maximum number of values of one criterion."""
PATTERNS_MAX, PATTERN_LENGTH_MAX = 100, 1000
"""Maximum number of name patterns of one criterion, and maximum length of a pattern in characters."""
REGEX = "re:"
"""Prefix of a name that is a regular expression."""

Args = Literal["all", "essential", "none"]
"""Event arguments to load.

Essential arguments identify the work that a call launched, with its bytes and its device. All arguments of collectives
and memory allocations are essential too.
"""

ViewSource = Literal["columns", "original"]
"""The source of an engine's document: the columns of a trace, or its original."""

Straddle = Literal["keep", "start", "clip"]
"""Treatment of slices that cross an edge of the window."""

_ID = re.compile(r"-?[0-9]{1,18}")


class ValueKind(Enum):
    """Type of a field's values, and how a client writes them."""

    INTEGERS = "integers"
    """A list; a URL repeats the parameter, a command line takes commas and ranges like ``3-7``."""
    IDS = "ids"
    """A list of integers or names; a URL repeats the parameter, a command line takes commas between integers."""
    WORDS = "words"
    """A list; a URL repeats the parameter, a command line takes commas."""
    NAMES = "names"
    """A list whose values may contain commas; a URL repeats the parameter, a command line the option."""
    NANOSECONDS = "nanoseconds"
    """An integer; a command line takes units, like ``1.5ms``."""
    TIMESTAMP = "timestamp"
    """An integer number of nanoseconds; a command line writes it as part of a span."""
    SPAN = "span"
    """Start and end of the window in one option, like ``5us..1.5ms``."""
    NAME = "name"
    CHOICE = "choice"
    SWITCH = "switch"
    """A truth value that is false unless given."""
    OMISSION = "omission"
    """A truth value that is true unless given; its option turns it off."""


@dataclass(frozen=True)
class SelectionField:
    """A field of a selection.

    Attributes:
        path: its keys in the selection's JSON, outermost first.
        kind: type of its values.
        description: a phrase that reads after the field's name.
        parameter: name of its query parameter in a URL; empty if only JSON can set the field there.
        option: its name on a command line; empty if only JSON or another option can set the field there.
        metavar: the option's placeholder.
        minimum: smallest value.
        choices: values of a `CHOICE`.
    """

    path: tuple[str, ...]
    kind: ValueKind
    description: str
    parameter: str = ""
    option: str = ""
    metavar: str = ""
    minimum: int | None = None
    choices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The field's name as a Python identifier, unique among all fields."""
        return "_".join(self.path)

    @property
    def is_list(self) -> bool:
        """True if the field takes several values."""
        return self.kind in _LISTS


_LISTS = frozenset({ValueKind.INTEGERS, ValueKind.IDS, ValueKind.WORDS, ValueKind.NAMES})


def _criterion(name: str, kind: ValueKind, metavar: str, description: str) -> SelectionField:
    return SelectionField((name,), kind, description, parameter=name, option=f"--{name}", metavar=metavar)


def _excluded(name: str, kind: ValueKind, metavar: str) -> SelectionField:
    return SelectionField(("exclude", name), kind, f"{name} to leave out", option=f"--exclude-{name}", metavar=metavar)


def _closure(name: str, description: str) -> SelectionField:
    return SelectionField(("closure", name), ValueKind.OMISSION, description, option=f"--no-{name}")


FIELDS: tuple[SelectionField, ...] = (
    SelectionField(
        ("window", "start_ns"), ValueKind.TIMESTAMP, "start of the time window in ns, inclusive", parameter="start_ns"
    ),
    SelectionField(
        ("window", "end_ns"), ValueKind.TIMESTAMP, "end of the time window in ns, exclusive", parameter="end_ns"
    ),
    SelectionField(
        ("window", "relative"),
        ValueKind.SWITCH,
        "count the window's times from the trace's first event",
        parameter="relative",
    ),
    SelectionField(
        ("window",),
        ValueKind.SPAN,
        "time window in ns or with units (1.5ms..2s), counted from the trace's first event, or on the trace's own clock"
        " with @ before each number (@5..@9); either side may be empty",
        option="--window",
        metavar="START..END",
    ),
    SelectionField(
        ("window", "from"),
        ValueKind.NAME,
        "start the window at the start of the first slice of this name",
        option="--from",
        metavar="NAME",
    ),
    SelectionField(
        ("window", "to"),
        ValueKind.NAME,
        "end the window at the end of the first slice of this name that begins in it",
        option="--to",
        metavar="NAME",
    ),
    _criterion(
        "steps",
        ValueKind.INTEGERS,
        "N,…",
        "ProfilerStep numbers: host events that begin in these steps and the GPU work launched in them; GPU work"
        " without a launch counts by its own start",
    ),
    _criterion("ranks", ValueKind.INTEGERS, "N,…", "ranks of a merged trace, or the trace's own rank"),
    _criterion("devices", ValueKind.INTEGERS, "N,…", "ids of devices whose work to keep"),
    _criterion(
        "streams", ValueKind.WORDS, "DEVICE/STREAM,…", "streams as `device/stream`, like 0/7, as the trace lists them"
    ),
    _criterion("threads", ValueKind.IDS, "TID,…", "threads by tid, `pid/tid` or name"),
    _criterion("processes", ValueKind.IDS, "PID,…", "processes by pid or name"),
    _criterion(
        "categories", ValueKind.WORDS, "NAME,…", "categories like `kernel` or `cpu_op`; empty for events without one"
    ),
    _criterion(
        "names",
        ValueKind.NAMES,
        "PATTERN",
        "event names or patterns: `*` matches any text, `?` any character, and `re:` starts an RE2 regular expression;"
        f" at most {PATTERNS_MAX} patterns of {PATTERN_LENGTH_MAX} characters",
    ),
    _criterion("phases", ValueKind.WORDS, "PH,…", "phases of the trace format, like `X`, `i` or `C`"),
    SelectionField(
        ("min_dur_ns",),
        ValueKind.NANOSECONDS,
        "minimum duration of slices; other events are left out",
        parameter="min_dur_ns",
        option="--min-dur",
        metavar="TIME",
        minimum=0,
    ),
    _excluded("categories", ValueKind.WORDS, "NAME,…"),
    _excluded("names", ValueKind.NAMES, "PATTERN"),
    SelectionField(
        ("straddle",),
        ValueKind.CHOICE,
        "slices that cross an edge of the window: keep all that overlap it (`keep`, the default), only those that begin"
        " in it (`start`), or all, cut at the edge (`clip`)",
        parameter="straddle",
        option="--straddle",
        choices=("keep", "start", "clip"),
    ),
    _closure("metadata", "the names of processes and threads that keep an event or never had one"),
    _closure("flows", "flow arrows whose ends all lie on kept slices"),
    _closure("launches", "the launch and the operator of each kept kernel, copy and fill"),
    _closure("kernels", "the GPU work of each kept launch"),
    _closure(
        "annotations",
        "annotations of the steps of kept events, and annotations that enclose the window or a selected step",
    ),
)


def described(*path: str) -> str:
    """Return the description of the field at a path."""
    return next(field.description for field in FIELDS if field.path == path)


def nested(values: Iterable[tuple[SelectionField, Any]]) -> dict[str, Any]:
    """Return the JSON of a selection with values at the paths of fields; fields with None are left out."""
    selection: dict[str, Any] = {}
    for field, value in values:
        if value is None:
            continue
        if isinstance(value, Mapping):
            selection.setdefault(field.path[0], {}).update(value)
            continue
        parent = selection
        for key in field.path[:-1]:
            parent = parent.setdefault(key, {})
        parent[field.path[-1]] = value
    return selection


def id_or_name(text: str) -> int | str:
    """Return the integer that a text spells, else the text."""
    return int(text) if _ID.fullmatch(text) else text


def is_pattern(name: str) -> bool:
    """Return whether a name of a selection is a pattern or a regular expression."""
    return name.startswith(REGEX) or "*" in name or "?" in name
