"""References to one slice of a trace, as in URLs and on command lines."""

from dataclasses import dataclass
from typing import Literal

from service.trace.errors import BadSlice

Kind = Literal["position", "at", "id"]

FORMS = ("position:POSITION", "at:TIME_NS:NAME", "id:ID")
"""Forms of a reference; a name may contain colons."""

_DIGITS_MAX = 19


@dataclass(frozen=True)
class SliceReference:
    """Reference to one slice.

    Attributes:
        kind: `position` in the trace's file, `at` a time with a name, or `id` in the engine's table `slice`.
        number: the position, the time at which the slice begins in ns of the trace's own clock, or the id.
        name: the slice's name; None unless the kind is `at`.
    """

    kind: Kind
    number: int
    name: str | None = None

    @classmethod
    def parsed(cls, text: str) -> "SliceReference":
        """Parse ``position:123``, ``at:1695000000123:aten::mm`` or ``id:456``.

        Raises:
            BadSlice: the text has none of these forms.
        """
        kind, _, rest = text.partition(":")
        number, colon, name = rest.partition(":")
        digits = number.removeprefix("-")
        if digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX and abs(int(number)) < 1 << 63:
            if kind == "at" and name:
                return cls("at", int(number), name)
            if kind == "position" and not colon and number == digits:
                return cls("position", int(number))
            if kind == "id" and not colon and number == digits:
                return cls("id", int(number))
        raise BadSlice(
            f"{text[:100]!r} does not name a slice; write {', '.join(FORMS[:-1])} or {FORMS[-1]}.", forms=FORMS
        )

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}" + (f":{self.name}" if self.name is not None else "")
