"""Real traces with mutated bytes keep their sound events, and the report covers all others."""

import gzip
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from operator import eq
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from service.formats.chrome_json.document import Document
from service.trace.errors import IngestError, NotATrace
from tests.conftest import DATA, SHARED
from tests.events import rows_of
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.system

CHANGES_IN_ALL = 6000
EVENTS = 150  # in a part
SPAN_MAX = 800  # bytes that are lost or duplicated
LOST_MAX = 3
"""Events that may be lost in addition to those that a change touches."""

Row = tuple[object, ...]


@dataclass(frozen=True)
class Part:
    """A document of consecutive events of a trace, with the text between them and the trace's envelope."""

    text: bytes
    spans: list[tuple[int, int]]
    """The start and the end of each event's text."""
    rows: list[Row]

    def before(self, at: int) -> int:
        """Return the number of events that end at or before a byte."""
        return sum(end <= at for _, end in self.spans)

    def behind(self, at: int) -> int:
        """Return the number of events that begin at or after a byte."""
        return sum(start >= at for start, _ in self.spans)


def read(text: bytes) -> tuple[list[Row], Document]:
    """Return the rows of a document without their positions, and the document."""
    document = Document([text], threads=1)
    rows = [tuple(row.values())[1:] for events in document.events() for row in rows_of(events.batches)]
    document.envelope()
    return rows, document


@cache
def text_and_spans(path: Path) -> tuple[str, list[tuple[int, int]]]:
    """Return the text of a trace, and the span of each event, as json parses it."""
    text = gzip.decompress(path.read_bytes()).decode("ascii")  # so that a character is a byte
    decoder, separators = json.JSONDecoder(), re.compile(r"[ \t\r\n,]*")
    at = text.index("[", text.index('"traceEvents"')) + 1
    spans: list[tuple[int, int]] = []
    while text[at := separators.match(text, at).end()] != "]":  # type: ignore[union-attr] # always matches
        _, end = decoder.raw_decode(text, at)
        spans.append((at, end))
        at = end
    return text, spans


def part_of(path: Path, random: Random) -> Part:
    """Return random consecutive events of a trace."""
    text, spans = text_and_spans(path)
    first = random.randrange(max(len(spans) - EVENTS, 1))
    chosen = spans[first : first + EVENTS]
    start, end = chosen[0][0], chosen[-1][1]
    text_of_part = text[: spans[0][0]] + text[start:end] + text[spans[-1][1] :]
    shift = spans[0][0] - start
    rows, document = read(text_of_part.encode())
    assert (len(rows), document.refused) == (len(chosen), 0)
    return Part(text_of_part.encode(), [(start + shift, end + shift) for start, end in chosen], rows)


# -- changes ------------------------------------------------------------------------------------------------------


class Changed(NamedTuple):
    """A changed text, and the span of the original text that was changed."""

    text: bytes
    start: int
    end: int


Change = Callable[[bytes, Random], Changed]
NUMBER = re.compile(rb"(?<=[:,\[] )-?\d[\d.]*")


def replaced(text: bytes, start: int, end: int, new: bytes) -> Changed:
    return Changed(text[:start] + new + text[end:], start, end)


def cut(text: bytes, random: Random) -> Changed:
    at = random.randrange(len(text))
    return Changed(text[:at], at, len(text))


def flip(text: bytes, random: Random) -> Changed:
    at = random.randrange(len(text))
    return replaced(text, at, at + 1, bytes([text[at] ^ 1 << random.randrange(8)]))


def insert(choice: Callable[[Random], bytes]) -> Change:
    def change(text: bytes, random: Random) -> Changed:
        at = random.randrange(len(text) + 1)
        return replaced(text, at, at, choice(random))

    return change


def renumber(choice: Callable[[Random], bytes]) -> Change:
    def change(text: bytes, random: Random) -> Changed:
        match = NUMBER.search(text, random.randrange(len(text))) or next(NUMBER.finditer(text))
        return replaced(text, match.start(), match.end(), choice(random))

    return change


def double_comma(text: bytes, random: Random) -> Changed:
    at = text.find(b",", random.randrange(len(text)))
    return replaced(text, at, at, b",")


def delete(text: bytes, random: Random) -> Changed:
    start = random.randrange(len(text))
    return replaced(text, start, min(start + random.randint(1, SPAN_MAX), len(text)), b"")


def double(text: bytes, random: Random) -> Changed:
    start = random.randrange(len(text))
    end = min(start + random.randint(1, SPAN_MAX), len(text))
    return Changed(text[:end] + text[start:], start, end)


def swap_in(text: bytes, random: Random) -> Changed:
    start, source = random.randrange(len(text)), random.randrange(len(text))
    length = random.randint(1, 100)
    return replaced(text, start, min(start + length, len(text)), text[source : source + length])


CHANGES: dict[str, Change] = {
    "cut": cut,
    "flipped bit": flip,
    "control character": insert(lambda random: bytes([random.randrange(32)])),
    "structure": insert(lambda random: bytes([random.choice(b'"\\{}[],:')])),
    "broken UTF-8": insert(lambda random: random.randbytes(random.randint(1, 4)).translate(bytes(range(128, 256)) * 2)),
    "any bytes": insert(lambda random: random.randbytes(random.randint(1, 8))),
    "doubled comma": double_comma,
    "large integer": renumber(lambda random: b"9" * random.choice([16, 18, 19, 20, 40, 5000])),
    "no number": renumber(lambda random: random.choice([b"NaN", b"-Infinity", b"N/A", b"inf", b"", b"007", b"-"])),
    "deleted span": delete,
    "doubled span": double,
    "foreign span": swap_in,
}


def traces() -> list[Path]:
    shared_traces = [path for path in SHARED.glob("*.gz") if not path.name.startswith("large_integers")]
    return sorted([*DATA.glob("*.gz"), *shared_traces, *SHARED.glob("dlrm_8_ranks/worker0*")])


QUICK = ("cpu_train_steps", "cpu_gloo_rank0", "h100_bert_small", "v100_resnet50_2021")
ROUNDS = -(-CHANGES_IN_ALL // (len(traces()) * len(CHANGES)))


def count_lost(part: Part, changed: Changed, rows: list[Row]) -> int:
    """Return the number of lost events before and after a change."""

    def in_both(events: list[Row], originals: list[Row]) -> int:
        return sum(1 for _ in takewhile(lambda pair: eq(*pair), zip(events, originals, strict=False)))

    kept_before = in_both(rows, part.rows)
    behind = in_both(rows[kept_before:][::-1], part.rows[kept_before:][::-1])
    return part.before(changed.start) + part.behind(changed.end) - kept_before - behind


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=() if path.name.startswith(QUICK) else pytest.mark.slow) for path in traces()],
    ids=lambda path: path.name.split(".")[0],
)
def test_change_costs_only_nearby_events_and_is_reported(path: Path) -> None:
    for turn in range(ROUNDS):
        part = part_of(path, Random(f"{path.name} {turn}"))
        for kind, change in CHANGES.items():
            name = f"{path.name}: {kind} {turn}"
            check(part, change(part.text, Random(name)), kind, name)


def check(part: Part, changed: Changed, kind: str, name: str) -> None:
    untouched = part.before(changed.start) + part.behind(changed.end)
    touched = len(part.rows) - untouched
    began = time.monotonic()
    try:
        rows, document = read(changed.text)
    except IngestError as error:
        refusal: IngestError | None = error
    else:
        refusal = None
    assert time.monotonic() - began < PATIENCE_S, name
    if "span" in kind and b'"traceEvents"' in changed.text[changed.start : changed.end]:
        return  # an event may contain the others in its own member `traceEvents`
    if refusal:
        assert refusal.code, name
        assert refusal.detail, name
        assert part.before(changed.start) <= LOST_MAX, name
        assert kind == "cut" or isinstance(refusal, NotATrace), name  # for example if the array's key has changed
        return
    report = document.health.as_dict(refused=document.refused)
    lost_events = count_lost(part, changed, rows)
    assert lost_events <= LOST_MAX, name
    assert report["notes"] or lost_events <= 0, name
    assert len(rows) == document.kept, name
    assert report["refused"] == document.refused, name
    assert untouched - LOST_MAX <= document.kept + document.refused <= len(part.rows) + touched + LOST_MAX, name
