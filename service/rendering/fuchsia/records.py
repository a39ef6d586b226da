"""Events of a document as records of Fuchsia's format."""

import struct
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from service.formats.pftrace.messages import Packet, framed
from service.rendering.fuchsia.arguments import PREFIX, SLOTS
from service.rendering.fuchsia.words import (
    BLOB,
    INITIALIZATION,
    INLINE,
    MAGIC,
    OBJECT,
    STRINGS_MAX,
    Words,
    define_strings,
    header_of,
    packed_words,
    text_words,
)
from service.rendering.fuchsia.writing import FLOW_BEGIN, FLOW_END, FLOW_STEP, INSTANT, LEFT_OUT, SLICE, write_events
from service.rendering.phases import PHASES
from service.rendering.placed import ESSENTIAL_COLUMNS, PlacedEvents
from service.rendering.render_report import EngineTrack
from service.rendering.sanitizing import plain
from service.rendering.text import ALL_ARGS, BLANK, PackedTexts
from service.store.parts import Ints

_KINDS = {"X": SLICE, "s": FLOW_BEGIN, "t": FLOW_STEP, "f": FLOW_END}
_KIND_OF = np.array([_KINDS.get(phase, INSTANT) for phase in PHASES])
PHASES_KEPT = frozenset({"X", "i", "I", "R", "s", "t", "f"})
"""Phases whose events the records show as the engine shows them in JSON."""

TEXTS_MAX = 32_000
"""Largest size in bytes of all texts of an event.

A record has at most 32,760 bytes: 760 are enough for its other words, and for filling up 32 texts to whole words.
"""

_NO_NAME = "[No name]"  # as the engine's importer of JSON calls it
_PROCESS, _THREAD_OBJECT, _KOID, _PERFETTO = 1, 2, 8, 3
_TICKS_PER_S = 1_000_000_000
_KEYS = [PREFIX + name.encode() for name in (*ESSENTIAL_COLUMNS, "tracedock.more")]
_DOUBLE = struct.Struct("<d")
_WORDS_EACH = 24  # words of an event, at most, apart from texts without numbers and arguments read from JSON
_INLINE_BYTES = 8
"""Largest size of a category or a name that each event has in full: in the engine, a number takes more memory."""
_RELEASE_EVENTS = 1 << 13
"""Number of events after which the engine releases the memory of these events."""


def head() -> bytes:
    """Return the first records of a document, whose times count in ns."""
    return packed_words([MAGIC, header_of(INITIALIZATION, 2), _TICKS_PER_S])


def names_of(tracks: Iterable[EngineTrack]) -> Iterator[bytes]:
    """Yield the records that name processes and threads."""
    tracks = [*tracks]
    for pid, process in {track.pid: track.process_title for track in tracks}.items():
        text = plain(process).encode()
        words = text_words(text)
        header = header_of(OBJECT, 2 + len(words), (16, _PROCESS), (24, INLINE | len(text)))
        yield packed_words([header, pid, *words])
    key = text_words(b"process")
    argument = header_of(_KOID, 2 + len(key), (16, INLINE | len(b"process")))
    for track in tracks:
        text = plain(track.thread_title).encode()
        words = text_words(text)
        size = 2 + len(words) + 2 + len(key)
        header = header_of(OBJECT, size, (16, _THREAD_OBJECT), (24, INLINE | len(text)), (40, 1))
        yield packed_words([header, track.tid, *words, argument, *key, track.pid])


def records_of(events: PlacedEvents, rows: Ints, arrows: npt.NDArray[np.uint64], packets: Iterable[bytes]) -> bytes:
    """Return the records of events. They define all strings that they refer to.

    Args:
        events: the events.
        rows: the row of each record's event; see `ArrowScan.split`.
        arrows: the number of each record's arrow; see `ArrowNumbers`.
        packets: packets of Perfetto's protobuf that come before the records.
    """
    args = events.arguments(in_json=False)
    kinds = np.where(events.left_out, LEFT_OUT, _KIND_OF[events.phases])
    order = _order_of(events.starts[rows], events.durations[rows])
    categories = _words(events, "cat", "", len(_KEYS))
    names = _words(events, "name", _NO_NAME, len(_KEYS) + len(categories[0]))
    texts = PackedTexts.of([*_KEYS, *categories[0], *names[0]])
    numbers = np.arange(1, len(texts.lengths) + 1)
    numbers[len(_KEYS) :][texts.lengths[len(_KEYS) :] <= _INLINE_BYTES] = 0
    numbers[STRINGS_MAX:] = 0
    inline_words = np.where(numbers > 0, 0, (texts.lengths + 7) // 8)
    inline_count = int((inline_words[categories[1]] + inline_words[names[1]])[rows].sum())
    size = int((args.stops - args.starts)[args.modes == ALL_ARGS].sum())
    out = np.empty(_WORDS_EACH * len(rows) + inline_count + size // 2, np.uint64)  # `"":1,` becomes two words
    slots, spans = np.zeros(SLOTS, np.int64), np.zeros((STRINGS_MAX + 1, 3), np.int64)
    known, later = np.array([min(len(numbers), STRINGS_MAX), 0]), np.empty((size // 6 + 16, 3), np.int64)
    bits = np.zeros(1, np.uint64)
    end = write_events(
        out, out.view(np.uint8), rows[order], kinds, events.lanes, events.pids, events.tids,
        texts.values, texts.starts, numbers, categories[1], names[1],
        events.starts, events.starts + events.durations, arrows[order].view(np.int64),
        args.modes, (events.durations > 0) & ~events.ends_with_parent,
        args.values, args.starts, args.stops, *events.essential(), numbers[: len(_KEYS)],
        slots, spans, known, np.zeros(4, np.int64), bits.view(np.float64), bits, later,
    )  # fmt: skip
    for at, start, stop in later[: known[1]].tolist():  # doubles that need more than one multiplication
        [out[at]] = struct.unpack("<Q", _DOUBLE.pack(float(args.values[start:stop].tobytes())))
    defined = spans[min(len(numbers), STRINGS_MAX) + 1 : known[0] + 1].tolist()
    strings = [
        PREFIX + args.values[start:stop].tobytes() if named else np.maximum(args.values[start:stop], BLANK).tobytes()
        for start, stop, named in defined
    ]
    return b"".join(
        [
            *map(_blob, packets),
            _definitions(texts, 1),
            _definitions(PackedTexts.of(strings), int(known[0]) + 1 - len(strings)),
            out[:end].data,
            *map(_release, events.starts[_RELEASE_EVENTS - 1 :: _RELEASE_EVENTS].tolist()),
        ]
    )


def _order_of(starts: Ints, durations: Ints) -> Ints:
    """Return the order of records by time, and of those at one time by duration, longest first.

    Args:
        starts: the start of each record's event, in ascending order.
        durations: the duration of each.
    """
    order, moments = np.arange(len(starts)), np.cumsum(np.diff(starts, prepend=starts[:1]) > 0)
    grows = np.zeros(len(starts), np.bool_)  # by the number of a moment: whether a longer event follows another one
    grows[moments[1:][(moments[1:] == moments[:-1]) & (durations[1:] > durations[:-1])]] = True
    unordered = np.flatnonzero(grows.take(moments))
    order[unordered] = unordered[np.lexsort((-durations[unordered], starts[unordered]))]
    return order


def _words(events: PlacedEvents, column: str, empty: str, first: int) -> tuple[list[bytes], Ints]:
    """Return the words of a column, the last of which stands for null, and the number of each event's word.

    Args:
        events: the events.
        column: the column.
        empty: the text in place of null and of an empty word.
        first: the number of the first word.
    """
    codes, words = events.part.coded(column)
    texts = [(plain(word) or empty).encode() for word in [*words, ""]]
    return texts, first + np.where(codes < 0, len(words), codes)


def _definitions(texts: PackedTexts, first: int) -> bytes:
    """Return the records that give numbers to texts, from `first` on; texts beyond `STRINGS_MAX` get none."""
    count = min(len(texts.lengths), STRINGS_MAX + 1 - first)
    out: Words = np.empty(2 * count + int(texts.starts[count]) // 8 + 1, np.uint64)
    starts, stops = texts.starts[:count], texts.starts[1 : count + 1]
    return out[: define_strings(out, out.view(np.uint8), 0, texts.values, starts, stops, first)].tobytes()


def _release(time: int) -> bytes:
    """Return the record at which the engine releases the memory of the events before a time in ns.

    The engine sorts all events by time, and keeps the memory of those that it has stored until it turns to another
    source of events: here a packet of Perfetto's protobuf that has nothing but a time.
    https://github.com/google/perfetto/blob/v54.0/src/trace_processor/sorter/trace_sorter.cc
    """
    return _blob(framed(Packet(timestamp=time).SerializeToString()))


def _blob(packet: bytes) -> bytes:
    """Return the record that holds a packet of Perfetto's protobuf."""
    words = text_words(packet)
    return packed_words([header_of(BLOB, 1 + len(words), (32, len(packet)), (48, _PERFETTO)), *words])
