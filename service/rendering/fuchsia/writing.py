"""Compiled writing of events as records."""

from typing import Any

import numpy as np

from service.rendering.fuchsia.arguments import INT32, INT64, TEXT, put_argument
from service.rendering.fuchsia.words import EVENT, INLINE, Words, put_text, words_of
from service.rendering.sanitizing import Bytes
from service.rendering.text import ALL_ARGS, BLANK, SOME_ARGS
from service.store.parts import Flags, Ints
from service.streaming.scan.compiled import compiled, inlined
from service.streaming.scan.values import after_blanks

INSTANT, BEGIN, END, SLICE, FLOW_BEGIN, FLOW_STEP, FLOW_END = 0, 2, 3, 4, 8, 9, 10
"""Types of events."""

ARGS_MAX = 15
"""Largest number of arguments of a record."""

_OPEN_OBJECT = ord("{")
_HEAD_WORDS = 4  # words of an event before its texts
_SPARED = np.zeros(2 * ARGS_MAX + 3, np.int64)
_SPARED[[1, 3, 5, 9, 17]] = 4, 2, 4, 8, 16
"""By the count of an event's texts with numbers: words of memory that the engine saves if one of them has none.

Until the engine has sorted all events, it keeps the numbers of each in a vector, whose room doubles when it is full.
https://github.com/google/perfetto/blob/v54.0/src/trace_processor/importers/fuchsia/fuchsia_record.h
"""

LEFT_OUT = -1
"""In place of a type: the event has no record."""

_NO_TEXT = -1  # in place of the index of a category or a name, which the engine does not read of arrows


@inlined
def _head(
    out: Words, out_bytes: Bytes, end: int, kind: int, pid: int, tid: int,
    word_values: Bytes, word_starts: Ints, word_numbers: Ints, category: int, name: int, time: int,
) -> tuple[Any, int]:  # fmt: skip
    """Write an event up to its arguments; return its first word without size and count, and the new end."""
    out[end + 1], out[end + 2], out[end + 3] = time, pid, tid
    at = end + _HEAD_WORDS
    references = np.uint64(0)
    for nth in range(2):
        word = category if nth == 0 else name
        reference = 0
        if word != _NO_TEXT:
            reference = word_numbers[word]
            if reference == 0 and word_starts[word + 1] > word_starts[word]:
                reference = INLINE | (word_starts[word + 1] - word_starts[word])
                at = put_text(out, out_bytes, at, word_values, word_starts[word], word_starts[word + 1])
        references |= np.uint64(reference) << np.uint64(32 + 16 * nth)
    header = np.uint64(EVENT | kind << 16) | references
    return header, at


@inlined
def _is_number(reference: int) -> bool:
    return 0 < reference < INLINE


@inlined
def _inline_words(reference: int) -> Any:
    return words_of(reference ^ INLINE) if reference >= INLINE else 0


@inlined
def _number_count(out: Words, at: int, count: int) -> int:
    """Return how many texts of some arguments, the first of which begins at `at`, are numbers."""
    numbers = 0
    for _ in range(count):
        header = int(out[np.uintp(at)])
        numbers += _is_number(header >> 16 & 0xFFFF) + (header & 0xF == TEXT and _is_number(header >> 32 & 0xFFFF))
        at += header >> 4 & 0xFFF
    return numbers


@inlined
def _spare_number(
    out: Words, out_bytes: Bytes, begin: int, end: int, header: Any, count: int,
    word_values: Bytes, word_starts: Ints, category: int, name: int, later: Any, known: Ints,
) -> tuple[Any, int]:  # fmt: skip
    """Write an event's category or name in full in place of its number, if the engine needs less memory then.

    Returns:
        The event's first word, and the new end.
    """
    category_text, name_text = int(header) >> 32 & 0xFFFF, int(header) >> 48 & 0xFFFF
    has_category, has_name = _is_number(category_text), _is_number(name_text)
    if not has_category and not has_name:
        return header, end
    word, shift, at = category, 32, begin + _HEAD_WORDS
    name_at = at + _inline_words(category_text)
    size = word_starts[category + 1] - word_starts[category]
    name_size = word_starts[name + 1] - word_starts[name]
    if has_name and (not has_category or name_size < size):
        word, shift, at, size = name, 48, name_at, name_size
    numbers = has_category + has_name + _number_count(out, name_at + _inline_words(name_text), count)
    added = words_of(size)
    if added >= _SPARED[numbers]:
        return header, end
    for place in range(end - 1, at - 1, -1):
        out[np.uintp(place + added)] = out[np.uintp(place)]
    row = known[1]
    while row and later[row - 1, 0] >= at:
        row -= 1
        later[row, 0] += added
    put_text(out, out_bytes, at, word_values, word_starts[word], word_starts[word + 1])
    reference = np.uint64(INLINE | size) << np.uint64(shift)
    return header & ~(np.uint64(0xFFFF) << np.uint64(shift)) | reference, end + added


@inlined
def _put_rest(
    out: Words, out_bytes: Bytes, end: int, values: Bytes, start: int, stop: int, name: int
) -> int:  # fmt: skip
    """Write the members of an object from `start` on as one argument, a text; return the new end."""
    out_bytes[np.uintp(8 * (end + 1))] = _OPEN_OBJECT
    to = 8 * (end + 1) + 1
    for at in range(np.uintp(start), np.uintp(stop)):
        out_bytes[np.uintp(to)] = max(values[at], BLANK)
        to += 1
    while to & 7:
        out_bytes[np.uintp(to)] = 0
        to += 1
    out[end] = TEXT | ((to >> 3) - end) << 4 | name << 16 | (INLINE | (1 + stop - start)) << 32
    return to >> 3


@compiled
def write_events(
    out: Words, out_bytes: Bytes, order: Ints, kinds: Ints, lanes: Ints, pids: Ints, tids: Ints,
    word_values: Bytes, word_starts: Ints, word_numbers: Ints, categories: Ints, names: Ints,
    times: Ints, ends: Ints, arrows: Ints, modes: Ints, splits: Flags,
    values: Bytes, arg_starts: Ints, arg_stops: Ints, chosen: Any, has: Any, key_numbers: Ints,
    slots: Ints, spans: Any, known: Ints, number: Ints, doubles: Any, bits: Any, later: Any,
) -> int:  # fmt: skip
    """Write events; return the number of words.

    Args:
        out: output: the records.
        out_bytes: the same memory as bytes.
        order: the row of each record, in order of time; of slices at the same time, the longest first.
        kinds: the type of each event, or `LEFT_OUT`.
        lanes: the lane of each event.
        pids: process of each lane.
        tids: thread of each lane.
        word_values: the texts of categories and names.
        word_starts: the index at which each text begins, and that at which the last one ends.
        word_numbers: the number of each text; 0 if it has none.
        categories: the index of each event's category.
        names: the index of each event's name.
        times: the start of each event in ns.
        ends: the end of each slice in ns.
        arrows: the number of each record's arrow, in the order of `order`.
        modes: which arguments each event has.
        splits: flags of the slices that may be written as a begin and an end, which together hold more arguments.
        values: the JSON texts of arguments.
        arg_starts: the index in `values` at which those of each event begin.
        arg_stops: the index after their end.
        chosen: rows of the values of some arguments.
        has: rows of flags of those that are present.
        key_numbers: the numbers of the names of these, and of that of a text of further arguments.
        slots: hash table of strings: their numbers, and 0 for a free slot.
        spans: output: by number, the span in `values` of a string, and whether it is a name.
        known: the last number of a string, and the number of rows of `later`; updated.
        number: scratch memory for a number.
        doubles: scratch memory for a double.
        bits: the same memory as an integer.
        later: output: doubles to be written: their word, and their span in `values`.
    """
    end, more = 0, key_numbers[len(key_numbers) - 1]
    for place in range(len(order)):
        row = order[place]
        kind = kinds[row]
        if kind == LEFT_OUT:
            continue
        begin, lane, category, name = end, lanes[row], categories[row], names[row]
        if kind >= FLOW_BEGIN:
            category = name = _NO_TEXT
        header, end = _head(
            out, out_bytes, end, kind, pids[lane], tids[lane],
            word_values, word_starts, word_numbers, category, name, times[row],
        )  # fmt: skip
        count, is_split, last_at, last_end = 0, False, 0, 0
        if modes[row] == SOME_ARGS:
            for column in range(len(has)):
                if has[column, row]:
                    value = chosen[column, row]
                    if -(1 << 31) <= value < 1 << 31:
                        out[end] = INT32 | 1 << 4 | key_numbers[column] << 16 | (value & 0xFFFFFFFF) << 32
                        end += 1
                    else:
                        out[end] = INT64 | 2 << 4 | key_numbers[column] << 16
                        out[end + 1] = value
                        end += 2
                    count += 1
        elif modes[row] == ALL_ARGS and arg_stops[row] > arg_starts[row]:
            at = after_blanks(values, arg_starts[row] + 1)
            while values[at] != 0x7D:
                if count == ARGS_MAX and splits[row] and not is_split:
                    is_split = True
                    header = (header & ~np.uint64(0xF << 16)) | np.uint64(BEGIN << 16)
                    header, end = _spare_number(
                        out, out_bytes, begin, end, header, count,
                        word_values, word_starts, category, name, later, known,
                    )  # fmt: skip
                    out[begin] = header | np.uint64((end - begin) << 4 | count << 20)
                    begin = end
                    header = np.uint64(EVENT | END << 16)
                    out[end + 1], out[end + 2], out[end + 3] = ends[row], pids[lane], tids[lane]
                    end += 4
                    count = 0
                if count == ARGS_MAX:
                    while known[1] and later[known[1] - 1, 0] >= last_end:
                        known[1] -= 1  # of the argument in whose place the text comes
                    end = _put_rest(out, out_bytes, last_end, values, last_at, arg_stops[row], more)
                    break
                before = end
                if count == ARGS_MAX - 1:
                    last_at, last_end = at, end
                at, end = put_argument(
                    values, at, out, out_bytes, end, slots, spans, known, number, doubles, bits, later
                )  # fmt: skip
                count += end > before
                at = after_blanks(values, at)
                if values[at] == 0x2C:
                    at = after_blanks(values, at + 1)
        header, end = _spare_number(
            out, out_bytes, begin, end, header, count, word_values, word_starts, category, name, later, known
        )  # fmt: skip
        if kind == SLICE and not is_split:
            out[end] = ends[row]
            end += 1
        elif kind >= FLOW_BEGIN:
            out[end] = arrows[place]
            end += 1
        out[begin] = header | np.uint64((end - begin) << 4 | count << 20)
    return end
