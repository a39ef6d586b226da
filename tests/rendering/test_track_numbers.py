"""Tracks get numbers in the order of first occurrence, the same in all parts."""

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from service.rendering.track_numbers import TrackNumbers
from service.store.parts import TRACK, Part
from service.trace.summary import Key
from tests.cutting.choices import cut

ids = st.integers(-2, 2) | st.sampled_from([1 << 40, (1 << 63) - 1, -(1 << 63)]) | st.sampled_from(["", "a", "1"])
tracks = st.lists(st.tuples(ids, ids), min_size=1, max_size=30)


def columns_of(name: str, values: tuple[Key, ...]) -> dict[str, Any]:
    """Return the columns of a pid or a tid: integers, and texts."""
    integers = [value if isinstance(value, int) else None for value in values]
    texts = [value if isinstance(value, str) else None for value in values]
    words = pa.array(texts, pa.string()).dictionary_encode()
    return {name: pa.array(integers, pa.int64()), f"{name}_text": words}


def part_of(pairs: list[tuple[Key, Key]]) -> Part:
    """Return a part with an event on each track."""
    pids, tids = zip(*pairs, strict=True)
    return Part(0, 0, pa.table(columns_of("pid", pids) | columns_of("tid", tids)))


@given(st.lists(tracks, min_size=1, max_size=4))
def test_tracks_are_numbered_in_the_order_of_first_occurrence(parts: list[list[tuple[Key, Key]]]) -> None:
    expected = [*dict.fromkeys(track for part in parts for track in part)]
    numbers = TrackNumbers()
    found = [numbers.of(part_of(part)).tolist() for part in parts]
    assert numbers.keys == expected
    assert found == [[*map(expected.index, part)] for part in parts]


def test_thousands_of_tracks_keep_their_numbers_when_more_come() -> None:
    powers = [1 << bit for bit in range(63)]
    hard = sorted({*range(-9, 9), *powers, *(-power for power in powers), *(power - 1 for power in powers)})
    pairs: list[tuple[Key, Key]] = [(pid, tid) for pid in hard for tid in hard]
    numbers = TrackNumbers()
    first = np.concatenate([numbers.of(part_of(pairs[at : at + 1000])) for at in range(0, len(pairs), 1000)])
    assert first.tolist() == numbers.of(part_of(pairs)).tolist() == [*range(len(pairs))]


def test_notations_of_an_id_are_the_same_track() -> None:
    events = (
        '{"pid": 1, "tid": "a", "ts": 1}, {"pid": 1, "tid": "\\u0061", "ts": 2}, {"pid": 1, "ts": 3},'
        ' {"pid": 1, "tid": "", "ts": 4}, {"pid": 1, "tid": null, "ts": 5}'
    )
    numbers = TrackNumbers()
    with cut(f'{{"traceEvents": [{events}]}}', row_group=1) as columns:
        found = [number for part in columns.parts.read(TRACK) for number in numbers.of(part).tolist()]

    assert [numbers.keys[number] for number in found] == [(1, "a"), (1, "a"), (1, ""), (1, ""), (1, "")]
    assert len({*found}) == len(numbers.keys) == 2
