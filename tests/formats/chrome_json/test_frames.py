"""Frames are cut at guessed borders, which are later confirmed or revised; several threads read them, in order."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.formats.chrome_json import frames
from service.formats.chrome_json.frames import Feed, Frames, Pool
from service.streaming.scan.reader import Events
from service.trace.errors import BadCompression, Truncated
from tests.columns import parsed
from tests.events import rows_of, written_back

# Most events contain a false border: text like that between two events, in a string, an object or an array.
TRAPS = [
    '{"ph": "X", "name": "plain"}',
    '{"ph": "X", "name": "}, {\\"ph\\": 1}, {\\"ph\\""}',
    '{"ph": "X", "args": [{"a": 1}, {"ph": 1}, {"ph": 2}]}',
    '{"ph": "X", "args": {"a": [{}, {"ph": {}}, {"ph": []}]}}',
    '{"ph": "X", "name": "' + "x" * 300 + '"}',
    '{"ph": "é\U0001f600é\U0001f600é\U0001f600"}',
    "{}",
    '{"ph": "X", "name": "' + "}, {" * 40 + '"}',
]


def read(
    text: bytes, frame_size: int, *, threads: int = 2, chunk_size: int = 1 << 16
) -> tuple[list[Any], list[Events], Feed]:
    """Read an array; return its events, its frames, and the feed with the bytes after the array."""
    feed = Feed(iter([text[start : start + chunk_size] for start in range(0, len(text), chunk_size)]))
    with pytest.MonkeyPatch.context() as patched, Pool(threads) as pool:
        patched.setattr(frames, "FRAME_SIZE", frame_size)
        read_frames = list(Frames(feed, pool))
    return [written_back(row) for events in read_frames for row in rows_of(events.batches)], read_frames, feed


@given(st.lists(st.sampled_from(TRAPS), max_size=12), st.integers(1, 400), st.sampled_from([", ", ",", "\n , \n "]))
def test_false_borders_do_not_change_the_events(traps: list[str], frame_size: int, comma: str) -> None:
    text = comma.join(traps)

    events, _, feed = read(f'{text}] , "behind": 1}}'.encode(), frame_size)

    assert events == parsed(f"[{text}]")
    feed.fill(100)
    assert feed.text == b' , "behind": 1}'
    assert feed.offset == len(text.encode()) + 1


@given(
    st.lists(st.sampled_from([b"ascii", "\u00e9".encode(), b"\xff"]), min_size=1, max_size=30),
    st.integers(1, 400),
    st.integers(1, 100),
)
def test_ill_formed_text_is_replaced_in_whichever_frame_and_chunk_it_is(
    names: list[bytes], frame_size: int, chunk_size: int
) -> None:
    text = b", ".join(b'{"ph": "X", "name": "%b"}' % name for name in names)

    events, read_frames, _ = read(text + b"]", frame_size, chunk_size=chunk_size)

    assert events == parsed(f"[{text.decode(errors='replace')}]")
    assert sum(frame.health.count("invalid_utf8") for frame in read_frames) == names.count(b"\xff")


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_frames_are_yielded_in_order_with_any_number_of_threads(threads: int) -> None:
    array = ",".join(f'{{"ph": "X", "pid": {n}}}' for n in range(5000))

    events, read_frames, _ = read(array.encode() + b"]", 500, threads=threads)

    assert events == parsed(f"[{array}]")
    assert len(read_frames) > 100
    assert [frame.closed for frame in read_frames] == [False] * (len(read_frames) - 1) + [True]


def test_frames_at_confirmed_borders_are_read_once() -> None:
    array = ", ".join(f'{{"ph": "X", "pid": {n}}}' for n in range(1000))
    read_offsets: list[int] = []

    class RecordingPool(Pool):
        def submit(self, frame: Any, state: int) -> Any:
            read_offsets.append(frame.offset)
            return super().submit(frame, state)

    with pytest.MonkeyPatch.context() as patched, RecordingPool(2) as pool:
        patched.setattr(frames, "FRAME_SIZE", 1000)
        list(Frames(Feed(iter([array.encode() + b"]"])), pool))

    assert read_offsets == sorted(set(read_offsets))


@pytest.mark.parametrize("error", [Truncated("cut", offset=1), BadCompression("damaged", offset=1)])
def test_broken_stream_ends_the_array(error: Truncated | BadCompression) -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"ph": "X"}, {"ph": "Y"}, {"ph'
        raise error

    feed = Feed(chunks())
    with Pool(2) as pool:
        read_frames = list(Frames(feed, pool))

    assert [row["ph"] for events in read_frames for row in rows_of(events.batches)] == ["X", "Y"]
    assert feed.error is error
    assert read_frames[-1].health.count("cut") == read_frames[-1].refused == 1


def test_feed_returns_the_bytes_of_its_chunks() -> None:
    feed = Feed(iter([b"ab", b"", b"cde", b"f"]))

    feed.fill(3)
    assert (feed.text, feed.offset, feed.ended) == (b"abcde", 0, False)
    feed.skip(2)
    assert (feed.text, feed.offset) == (b"cde", 2)
    feed.put_back(b"b")
    assert (feed.text, feed.offset) == (b"bcde", 1)
    feed.fill(100)
    assert (feed.text, feed.ended, feed.error) == (b"bcdef", True, None)
