"""Slices of random traces have the times, names, places and arguments that a plain reading of the packets gives."""

from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tests.formats.pftrace.reading import read
from tests.pftrace import BEGIN, END, INSTANT, annotate, arguments_of, begin, content, end, event, thread

TRACKS = {uuid: (uuid % 3 + 10, 100 + uuid) for uuid in range(1, 5)}
VALUES = st.recursive(
    st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, min_size=1, max_size=3),
    max_leaves=6,
)  # fmt: skip


class Mark(NamedTuple):
    """A begin, an end or an instant of a track."""

    time: int
    track: int
    kind: int
    name: str
    arguments: dict[str, Any]


MARKS = st.lists(
    st.builds(
        Mark,
        st.integers(0, 40),
        st.sampled_from([*TRACKS]),
        st.sampled_from([BEGIN, BEGIN, END, END, INSTANT]),
        st.text(min_size=1),
        st.dictionaries(st.text(), VALUES, max_size=3),
    ),
    min_size=1,
    max_size=40,
)


def expected(marks: list[Mark]) -> tuple[list[tuple[Any, ...]], int]:
    """Return each slice and instant, and the number of ends without a begin: an end closes the latest open slice."""
    last = max(mark.time for mark in marks)
    found: list[tuple[Any, ...]] = []
    unmatched, open_ = 0, {track: list[Mark]() for track in TRACKS}
    for mark in sorted(marks, key=lambda mark: mark.time):
        if mark.kind == BEGIN:
            open_[mark.track].append(mark)
        elif mark.kind == INSTANT:
            found.append(("i", mark.name, *TRACKS[mark.track], mark.time, None, mark.arguments))
        elif open_[mark.track]:
            opened = open_[mark.track].pop()
            found.append(_slice(opened, mark.time))
        else:
            unmatched += 1
    found += [_slice(mark, last) for marks in open_.values() for mark in marks]
    return found, unmatched


def _slice(mark: Mark, stop: int) -> tuple[Any, ...]:
    return ("X", mark.name, *TRACKS[mark.track], mark.time, stop - mark.time, mark.arguments)


@given(MARKS)
def test_random_track_events_equal_a_plain_reading(marks: list[Mark]) -> None:
    marks = sorted(marks, key=lambda mark: mark.time)
    packets = [thread(uuid, *place) for uuid, place in TRACKS.items()]
    for mark in marks:
        if mark.kind == BEGIN:
            packets.append(begin(mark.time, mark.track, mark.name))
        else:
            packets.append(end(mark.time, mark.track) if mark.kind == END else event(mark.time, mark.track, INSTANT))
            packets[-1].track_event.name = mark.name
        annotate(packets[-1].track_event, mark.arguments)
    slices, unmatched = expected(marks)
    if not slices:
        return

    trace = read(content(packets))

    rows = [row for row in trace.rows if row["ph"] in "Xi"]
    found = [
        (row["ph"], row["name"], row["pid"], row["tid"], row["ts_ns"], row.get("dur_ns"), arguments_of(row.get("args")))
        for row in rows
    ]
    assert sorted(map(repr, found)) == sorted(map(repr, slices))
    assert (trace.refused, trace.notes.get("unmatched_ends", 0)) == (unmatched, unmatched)
