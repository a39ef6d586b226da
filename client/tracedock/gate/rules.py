"""Rules of a gate, such as `step.median<+3%` or `kernel:nccl*.sum<+10%`.

    rule      = figure "<" tolerance
    figure    = subject "." statistic                             of one number of a step:   step.median
              | subject [":" pattern] "." quantity ["." statistic]  of what has a name:      kernel:nccl*.sum
    tolerance = ("+" | "-") number ("%" | unit)

Each step gives one value of a figure. The statistic summarises the steps; where it may be left out, it is the median. A
pattern has `*` for any characters and `?` for one. The last words after a dot are the quantity and the statistic, so a
pattern may have dots, colons and `<`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from tracedock.errors import ClientError
from tracedock.gate.significance import Value

STATISTICS = ("median", "mean")
"""Statistics over steps. Extremes are none of them: a test of a few steps can say nothing about these."""


@dataclass(frozen=True)
class Subject:
    """Something that a figure is of.

    Args:
        unit: unit of its values: `ns`, `bytes`, or empty for a number.
        column: column of the table `steps`, for one number of a step.
        table: table of the analysis `step_figures` that has its rows, for what has a name.
        quantities: what can be measured of it in a step.
        kinds: values of the table's column `kind` that belong to it; empty for all.
    """

    unit: str = "ns"
    column: str = ""
    table: str = "steps"
    quantities: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()


_WORK = ("sum", "count", "mean", "max")
_CALLS = ("sum", "count", "mean", "device")
SUBJECTS = {
    "step": Subject(column="total_ns"),
    "busy": Subject(column="busy_ns"),
    "idle": Subject(column="idle_ns"),
    "exposed": Subject(column="exposed_ns"),
    "memory": Subject(unit="bytes", column="peak_bytes"),
    "kernel": Subject(table="work", quantities=_WORK, kinds=("kernel",)),
    "copy": Subject(table="work", quantities=_WORK, kinds=("memcpy", "memset")),
    "collective": Subject(table="collectives", quantities=_WORK),
    "op": Subject(table="operators", quantities=_CALLS, kinds=("op",)),
    "annotation": Subject(table="operators", quantities=_CALLS, kinds=("annotation",)),
    "call": Subject(table="operators", quantities=_CALLS, kinds=("call",)),
}
"""The subjects of figures, by name."""

_UNITS = {
    "ns": {"ns": 1, "us": 10**3, "\u00b5s": 10**3, "\u03bcs": 10**3, "ms": 10**6, "s": 10**9},
    "bytes": {
        "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
    },
    "": {"": 1},
}  # fmt: skip
_NUMBER = re.compile(r"([+-])([0-9]{1,20}(?:\.[0-9]{1,20})?) ?(%|[^\W\d_]*)")


class RuleError(ClientError):
    """A rule or a figure that can't be understood, or that names what a trace does not have."""


@dataclass(frozen=True)
class Figure:
    """A figure of a step, and the statistic that summarises the steps.

    Args:
        text: the figure as written.
        name: name of its subject in `SUBJECTS`.
        pattern: pattern of names; None for all.
        quantity: what is measured of the subject in a step; empty for one number of a step.
        statistic: a name of `STATISTICS`.
    """

    text: str
    name: str
    pattern: str | None
    quantity: str
    statistic: str

    @property
    def subject(self) -> Subject:
        """What the figure is of."""
        return SUBJECTS[self.name]

    @property
    def unit(self) -> str:
        """Unit of its values: `ns`, `bytes`, or empty for a number."""
        return "" if self.quantity == "count" else self.subject.unit

    def matches(self, name: str | None) -> bool:
        """Return whether the figure counts what has this name; a name that is not known matches only `*`."""
        return self.pattern is None or matches(self.pattern, name or "")


@dataclass(frozen=True)
class Rule:
    """A rule: how much a figure may grow.

    Args:
        text: the rule as written.
        figure: the figure.
        factor: the limit is the baseline times this, for a tolerance in percent, else 1;
        growth: plus this, for a tolerance in the unit of the figure, else 0.
    """

    text: str
    figure: Figure
    factor: Fraction
    growth: Fraction

    def limit(self, value: Value) -> Fraction:
        """Return the most that a value of the baseline may grow to."""
        return value * self.factor + self.growth


def parse_rule(text: str) -> Rule:
    """Return the rule that a text describes; raises `RuleError`."""
    left, separator, right = text.rpartition("<")
    if not separator:
        raise RuleError(f"{text!r} is not a rule like step.median<+3%: it has no '<'.")
    figure = parse_figure(left.strip())
    match = _NUMBER.fullmatch(right.strip())
    units = _UNITS[figure.unit]
    if match is None or match[3] not in {"%", *units}:
        forms = " or ".join(["+3%", *(f"+5{unit}" for unit in list(units)[:4])])
        raise RuleError(f"{right.strip()!r} in {text!r} is no tolerance of {figure.text}. It is like {forms}.")
    number = Fraction(match[1] + match[2])
    if match[3] != "%":
        return Rule(text, figure, Fraction(1), number * units[match[3]])
    if number < -100:
        raise RuleError(f"{right.strip()!r} in {text!r} is less than nothing.")
    return Rule(text, figure, 1 + number / 100, Fraction(0))


def parse_figure(text: str) -> Figure:
    """Return the figure that a text describes; raises `RuleError`."""
    name, colon, rest = text.partition(":")
    if not colon:
        name, _, rest = text.partition(".")
    subject = SUBJECTS.get(name)
    if subject is None:
        raise RuleError(f"{name!r} in {text!r} is not a subject; the subjects are {', '.join(SUBJECTS)}.")
    if not subject.quantities:
        if colon or rest not in STATISTICS:
            raise RuleError(f"{text!r} is not a figure: of {name} there are {_listed(f'{name}.', STATISTICS)}.")
        return Figure(text, name, None, "", rest)
    *front, last = rest.split(".")
    statistic = STATISTICS[0]
    if last in STATISTICS and len(front) > bool(colon) and front[-1] in subject.quantities:
        statistic, last = last, front.pop()
    pattern = ".".join(front) if colon else None
    if last not in subject.quantities or (not colon and front) or pattern == "":
        names = _listed(f"{name}:PATTERN.", subject.quantities)
        raise RuleError(
            f"{text!r} is not a figure: of {name} there are {names}, each of the median step; '.mean' after it takes"
            " the mean of the steps."
        )
    return Figure(text, name, pattern, last, statistic)


def matches(pattern: str, name: str) -> bool:
    """Return whether a name matches a pattern, in which `*` stands for any characters and `?` for one."""
    parts = (".*" if part == "*" else "." if part == "?" else re.escape(part) for part in pattern)
    return re.fullmatch("".join(parts), name, re.DOTALL) is not None


def _listed(start: str, words: Iterable[str]) -> str:
    return ", ".join(f"{start}{word}" for word in words)
