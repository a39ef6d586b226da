"""Health of a trace: refused, repaired and odd content, by case.

`CASES` lists the known defects of PyTorch profiler traces.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from service.trace.secrets import redacted_text
from service.trace.summary import HealthExample, HealthNote, HealthReport

EXAMPLES_MAX = 3
TEXT_MAX = 120
_SEARCHED_MAX = 4096  # characters of a text that are searched for secrets: no token is longer


class Kind(StrEnum):
    """Treatment of a defect, worst first."""

    REFUSED = "refused"
    REPAIRED = "repaired"
    ODDITY = "oddity"


class Case(NamedTuple):
    """Known defect: its kind, and a description of its treatment."""

    kind: Kind
    detail: str


CASES: Mapping[str, Case] = {
    "unreadable_event": Case(Kind.REFUSED, "Damaged beyond repair: left out."),
    "not_an_event": Case(Kind.REFUSED, "Elements among the events that are not objects: left out."),
    "event_too_large": Case(Kind.REFUSED, "Elements too large for an event: left out."),
    "cut": Case(Kind.REFUSED, "The file is truncated here: earlier events are kept."),
    "bad_compression": Case(Kind.REFUSED, "The compressed stream is corrupt here: earlier events are kept."),
    "envelope": Case(Kind.REFUSED, "Malformed text around the events: left out."),
    "damaged_table": Case(Kind.REFUSED, "Damaged tables: what follows the damage is left out."),
    "unusable_table": Case(Kind.REFUSED, "Tables in an unknown form: left out."),
    "damaged_packets": Case(Kind.REFUSED, "The packets of the trace are damaged here: earlier ones are kept."),
    "unknown_clock": Case(Kind.REFUSED, "Events on a clock that nothing relates to that of the trace: left out."),
    "unmatched_ends": Case(Kind.REFUSED, "Ends of slices whose begin the file lacks: left out."),
    "byte_order_mark": Case(Kind.REPAIRED, "The file starts with a byte order mark: skipped."),
    "several_documents": Case(Kind.REPAIRED, "Another document follows in the same file: its events are kept."),
    "several_arrays": Case(Kind.REPAIRED, "The document has another array of events: its events are kept."),
    "control_character": Case(Kind.REPAIRED, "Raw control characters in strings: escaped."),
    "bad_escape": Case(Kind.REPAIRED, "Backslashes without an escape sequence: doubled."),
    "invalid_utf8": Case(Kind.REPAIRED, "Bytes that are not UTF-8: replaced by U+FFFD."),
    "not_a_number": Case(Kind.REPAIRED, "NaN and Infinity, which are not JSON: converted to strings."),
    "bare_word": Case(Kind.REPAIRED, "Words without quotes: converted to strings."),
    "leading_zero": Case(Kind.REPAIRED, "Leading zeros of numbers: removed."),
    "extra_comma": Case(Kind.REPAIRED, "Superfluous commas: removed."),
    "missing_comma": Case(Kind.REPAIRED, "Missing commas between values: inserted."),
    "missing_colon": Case(Kind.REPAIRED, "Missing colons after keys: inserted."),
    "unescaped_quote": Case(Kind.REPAIRED, "Quotes inside strings: escaped."),
    "unclosed": Case(Kind.REPAIRED, "Unclosed brackets: closed."),
    "wrong_bracket": Case(Kind.REPAIRED, "Mismatched or superfluous brackets: corrected."),
    "absent_tables": Case(Kind.ODDITY, "Tables that the export lacks, often because nothing was recorded for them."),
    "absent_columns": Case(Kind.ODDITY, "Columns that this version of the export lacks."),
    "unknown_names": Case(Kind.ODDITY, "Events whose name the file lacks: named `unknown`."),
    "unknown_tracks": Case(Kind.ODDITY, "Events on tracks that were not described before: on tracks of their own."),
    "unread_packets": Case(Kind.ODDITY, "Packets of other kinds than events of tracks, GPU stages and counters."),
    "unread_arguments": Case(Kind.ODDITY, "Arguments that are damaged or unknown messages: left out, or null."),
    "open_ranges": Case(Kind.ODDITY, "Ranges that were never closed: they end with the last event."),
    "spans_left_out": Case(Kind.ODDITY, "Ranges for which not all spans on devices were computed: too many."),
    "overlaps": Case(Kind.ODDITY, "Slices that begin within another slice of their thread and end after it."),
    "ties": Case(Kind.ODDITY, "Slices listed after an inner slice that begins at the same time."),
    "outlier_times": Case(Kind.ODDITY, "Events far from all others in time."),
    "zero_times": Case(Kind.ODDITY, "Events at time 0, far before all others."),
    "negative_times": Case(Kind.ODDITY, "Events before the zero of the trace's clock."),
    "negative_durations": Case(Kind.ODDITY, "Slices that end before they begin."),
    "unlinked_kernels": Case(Kind.ODDITY, "Work on a device whose launch is not in the trace."),
    "no_time": Case(Kind.ODDITY, "Events without a numeric time."),
    "no_duration": Case(Kind.ODDITY, "Slices without a numeric duration: treated as empty."),
    "unknown_rank": Case(Kind.ODDITY, "Neither the document nor the file's name has the rank."),
    "replay_contradiction": Case(Kind.ODDITY, "The memory snapshot contradicts itself: its sizes are not exact."),
    "entry_numbers": Case(Kind.ODDITY, "Entries without a time: their numbers stand for times in µs."),
    "unordered_times": Case(Kind.ODDITY, "Entries with a time before that of an earlier one: given the earlier one's."),
    "unknown_base": Case(Kind.ODDITY, "The zero of the trace's clock is unknown."),
}


@dataclass
class Note:
    """Number of a defect's occurrences, with the first few as examples."""

    count: int = 0
    examples: list[HealthExample] = field(default_factory=list)


class Health:
    """Notes on the defects of a trace, or of a piece of one."""

    def __init__(self) -> None:
        self._notes: dict[str, Note] = {}

    def add(self, code: str, *, count: int = 1, offset: int | None = None, text: str | None = None) -> None:
        """Count a case of `CASES`, and add an example if a place or a text is given."""
        self._notes.setdefault(str(code), Note()).count += count
        if offset is not None or text is not None:
            self.add_example(code, offset=offset, text=text)

    def add_example(
        self,
        code: str,
        *,
        offset: int | None = None,
        text: str | None = None,
        examples_max: int = EXAMPLES_MAX,
    ) -> None:
        """Add an example of a counted case, truncated and without secrets; only the first few examples are kept."""
        examples = self._notes[code].examples
        if len(examples) < examples_max:
            examples.append({"offset": offset, "text": text and redacted_text(text[:_SEARCHED_MAX])[:TEXT_MAX]})

    def join(self, later: "Health") -> None:
        """Add the notes on a later piece of the trace."""
        for code, note in later._notes.items():  # noqa: SLF001 - of the same class
            own = self._notes.setdefault(code, Note())
            own.count += note.count
            own.examples += note.examples[: EXAMPLES_MAX - len(own.examples)]

    def count(self, code: str) -> int:
        """Return the number of occurrences of a case."""
        return self._notes[code].count if code in self._notes else 0

    def as_dict(self, *, refused: int) -> HealthReport:
        """Return the report as JSON values, with the notes on the worst defects first.

        Args:
            refused: number of events that were left out.
        """
        kinds, codes = list(Kind), list(CASES)
        notes: list[HealthNote] = [
            {
                "code": code,
                "kind": CASES[code].kind.value,
                "detail": CASES[code].detail,
                "count": self._notes[code].count,
                "examples": [*self._notes[code].examples],
            }
            for code in sorted(self._notes, key=lambda code: (kinds.index(CASES[code].kind), codes.index(code)))
        ]
        repaired = sum(note["count"] for note in notes if note["kind"] == Kind.REPAIRED.value)
        return {"repaired": repaired, "refused": refused, "notes": notes}
