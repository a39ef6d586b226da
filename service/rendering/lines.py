"""Events of a document as lines of JSON."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from service.rendering.phases import JOINED_END, PHASES
from service.rendering.placed import PlacedEvents
from service.rendering.sanitizing import engine_number, plain, sanitized
from service.rendering.text import PackedTexts, member, write_lines
from service.store.parts import Ints
from service.trace.text import Members, Number, read, written

READ_KEYS = frozenset({"bp", "scope", "id2", "bind_id", "flow_in", "flow_out"})
NUMBER_KEYS = frozenset({"tts", "tdur"})
"""Members that the engine reads, apart from those that have columns; it treats other values of `NUMBER_KEYS` as the end
of the document.

Without the scope ``s``, an instant is on the track of its thread.
"""
_TIME_MAX_US = (1 << 63) / 1000
_PHASE_TEXTS = PackedTexts.of([*(phase.encode() for phase in PHASES), b'f","bp":"e'])


def lines_of(events: PlacedEvents) -> bytes:
    """Return the text of events, each after a comma and a line break."""
    part, args = events.part, events.arguments(in_json=True)
    is_slice, always = events.phases == PHASES.index("X"), np.ones(len(events), np.bool_)
    rest = part.table["rest"].combine_chunks().dictionary_encode()
    rests, count = rest.dictionary.to_pylist(), len(rest.dictionary)
    rest_codes = rest.indices.fill_null(count).to_numpy(zero_copy_only=False)
    has_binding = np.array([*('"bp"' in text for text in rests), False])[rest_codes]
    return write_lines(
        [
            (_PHASE_TEXTS, np.where(events.joined & ~has_binding, JOINED_END, events.phases)),
            _texts(*part.coded("cat"), lambda word: member("cat")(plain(word))),
            _texts(*part.coded("name"), lambda word: member("name")(plain(word))),
            _texts(rest_codes, rests, _rest_text),
        ],
        np.stack([events.pids[events.lanes], events.tids[events.lanes], events.starts, events.durations, events.ids]),
        np.stack([always, always, always, is_slice, events.has_id]),
        args.values,
        args.starts,
        args.stops,
        args.modes,
        events.left_out,
        *events.essential(),
    )


def _texts(codes: Any, words: Sequence[Any], text: Callable[[Any], str]) -> tuple[PackedTexts, Ints]:
    """Return the texts of words and an empty one, and the index of each event's text."""
    texts = PackedTexts.of([*(text(word).encode() for word in words), b""])
    return texts, np.where(codes < 0, len(words), codes)


def _rest_text(text: str) -> str:
    """Return the members in ``rest`` that the engine reads, as text with a comma before each."""
    kept = Members(
        (key, value) for key, value in dict(read(text)).items()
        if key in READ_KEYS or (key in NUMBER_KEYS and isinstance(value, Number) and _is_time(value))
    )  # fmt: skip
    return f",{sanitized(written(kept))[1:-1]}" if kept else ""


def _is_time(number: Number) -> bool:
    """Return whether the engine reads a time in µs, which it keeps as 64 bits of ns."""
    return engine_number(number) is not None and abs(float(number)) < _TIME_MAX_US
