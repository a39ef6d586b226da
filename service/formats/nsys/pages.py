"""Reading of integer columns from the pages of an SQLite file, which takes a tenth of the time of SQL.

The compiled code knows the common form of rows alone; see https://www.sqlite.org/fileformat2.html. SQLite reads other
rows. The code reads nothing outside of the pages, whatever they hold.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from service.streaming.scan.compiled import compiled, inlined

_LEAF, _INTERIOR = 0x0D, 0x05
_LEAF_HEADER, _INTERIOR_HEADER = 8, 12
_DEPTH_MAX = 20  # as in SQLite
_PAGES_AT_ONCE = 64

MORE, FULL, UNCOMMON, DAMAGED = range(4)
"""Verdicts: all rows of the pages are decoded; the columns are full; a value lies outside of the page, or the row lacks
columns; the page is damaged."""

PAGE, CELL, GOOD, WRONG, LAST, LEFT = range(6)
"""Items of the state: the next page and cell, the counts of good and of wrong rows, the number of the last row, and the
count of rows of the page from the next cell on."""

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Number = Any
"""An integer in compiled code: of Python or NumPy, which are the same there."""


class DamagedPages(Exception):
    """The pages of a table are damaged."""


class Stored(NamedTuple):
    """Place and form of a table: the number of its root page, and the columns in their order in each row."""

    root_page: int
    columns: Sequence[str]


class Pages:
    """The pages of an SQLite file.

    Args:
        path: path of the file.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            head = file.read(100)
        size = int.from_bytes(head[16:18], "big")
        self._path = path
        self._size = 1 << 16 if size == 1 else size
        self._count = path.stat().st_size // self._size
        self.usable = self._size - head[20]
        """Bytes of a page that hold content."""

    def leaves(self, root_page: int) -> Iterator[Bytes]:
        """Yield the pages of a table that hold rows, in order, several at a time.

        Raises:
            DamagedPages: the pages are no tree.
        """
        with self._path.open("rb") as file:
            yield from self._below(file.fileno(), np.array([root_page]), [self._count], _DEPTH_MAX)

    def _below(self, file: int, numbers: Ints, unread: list[int], depth: int) -> Iterator[Bytes]:
        """Yield the leaves of pages, of which `unread` more may come: pages that point to each other have no end."""
        if not depth or (numbers < 1).any() or (numbers > self._count).any():
            raise DamagedPages
        for first in range(0, len(numbers), _PAGES_AT_ONCE):
            some = numbers[first : first + _PAGES_AT_ONCE]
            unread[0] -= len(some)
            if unread[0] < 0:
                raise DamagedPages
            pages = self._read(file, some)
            if (pages[:, 0] == _LEAF).all():
                yield pages
            elif (pages[:, 0] == _INTERIOR).all():
                for page in pages:
                    yield from self._below(file, self._children(page), unread, depth - 1)
            else:
                raise DamagedPages

    def _read(self, file: int, numbers: Ints) -> Bytes:
        pages = np.zeros((len(numbers), self._size), np.uint8)
        firsts = np.flatnonzero(np.diff(numbers, prepend=-1) != 1)  # neighbours are read together
        for first, end in zip(firsts.tolist(), [*firsts[1:].tolist(), len(numbers)], strict=True):
            os.preadv(file, [pages[first:end].data], (int(numbers[first]) - 1) * self._size)
        return pages

    def _children(self, page: Bytes) -> Ints:
        count = int.from_bytes(page[3:5].tobytes(), "big")
        places = page[_INTERIOR_HEADER : _INTERIOR_HEADER + 2 * count].tobytes()
        at = np.frombuffer(places, ">u2").astype(np.int64) if len(places) == 2 * count else np.full(1, self._size)
        if (at + 4 > self.usable).any():
            raise DamagedPages
        numbers = page[np.append(at, 8)[:, None] + np.arange(4)]  # the last child is named in the header
        return np.ascontiguousarray(numbers).view(">u4").astype(np.int64).reshape(-1)


class RowDecoder:
    """A decoder of rows into columns of integers.

    Args:
        stored: the columns of each row.
        wanted: the columns to decode.
        usable: bytes of a page that hold content.
        rows_max: the largest number of rows at a time.
        before: number before that of each row.
    """

    def __init__(self, stored: Sequence[str], wanted: Sequence[str], usable: int, rows_max: int, before: int) -> None:
        places = [wanted.index(column) if column in wanted else -1 for column in stored]
        self._places = np.array(places[: 1 + max(stored.index(column) for column in wanted)])
        self._usable = usable
        self._shape = len(wanted), rows_max
        self._state = np.zeros(6, np.int64)
        self._state[LAST] = before
        self._new_columns()

    def _new_columns(self) -> None:
        self._values, self._valid = np.empty(self._shape, np.int64), np.empty(self._shape, np.bool_)

    @property
    def last(self) -> int:
        """The number of the last row that was decoded."""
        return int(self._state[LAST])

    @property
    def left(self) -> int:
        """The number of rows of the page that are not decoded yet."""
        return int(self._state[LEFT])

    def decode(self, pages: Bytes) -> int:
        """Decode the next rows of some pages, and return the verdict. Until it is `MORE`, pass the same pages again.

        Raises:
            DamagedPages: a page is damaged.
        """
        verdict: int = _decode(pages, self._usable, self._places, self._values, self._valid, self._state)
        if verdict == DAMAGED:
            raise DamagedPages
        return verdict

    def skip_page(self, last: int) -> None:
        """Go on with the next page.

        Args:
            last: number of the last row of this page.
        """
        self._state[[PAGE, CELL, LAST]] = self._state[PAGE] + 1, 0, last

    def take(self) -> tuple[Ints, Flags, int]:
        """Return the decoded values by column, flags of those that are not null, and the number of wrong rows."""
        good, wrong = int(self._state[GOOD]), int(self._state[WRONG])
        taken = self._values[:, :good], self._valid[:, :good], wrong
        self._state[[GOOD, WRONG]] = 0
        self._new_columns()
        return taken


@inlined
def _varint(page: Bytes, at: Number, end: Number) -> tuple[Number, Number]:
    """Return the number at an offset, and the offset after it, or -1 if it does not end before `end`."""
    if at < end and page[at] < 0x80:  # as nearly all are
        return np.int64(page[at]), at + 1
    value = np.int64(0)
    for place in range(9):
        if at + place >= end:
            return 0, -1
        byte = np.int64(page[at + place])
        if place == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + place + 1
    return 0, -1


@inlined
def _local_size(payload: Number, usable: Number) -> Number:
    """Return how many bytes of a row lie in its page; the others lie in pages of their own."""
    if payload <= usable - 35:
        return payload
    least = (usable - 12) * 32 // 255 - 23
    size: Number = least + (payload - least) % (usable - 4)
    return size if size <= usable - 35 else least


@inlined
def _width(kind: Number) -> Number:
    """Return the size of a value: null is 0, an integer 1 to 6, a real 7, 0 and 1 are 8 and 9, others from 12 on."""
    if kind >= 12:
        return (kind - 12) // 2
    if kind <= 4:
        return kind
    return 6 if kind == 5 else 8 if kind <= 7 else 0


@inlined
def _integer(page: Bytes, at: Number, size: Number) -> Number:
    value = np.int64(page[at])
    if value >= 0x80:
        value -= 0x100
    for place in range(1, size):
        value = value << 8 | np.int64(page[at + place])
    return value


@compiled
def _row(  # noqa: PLR0913, PLR0917 - compiled code takes arrays one by one: objects would cost more
    page: Bytes, at: Number, end: Number, payload: Number, places: Ints, row: Number, values: Ints, valid: Flags
) -> Number:
    """Write the values of a row; return `GOOD`, or `WRONG` if a value is no integer, or -1 if SQLite must read the row.

    Args:
        page: the page.
        at: offset of the row's content.
        end: offset after the part of the content that lies in the page.
        payload: size of the whole content.
        places: the place of each column in the values, or -1.
        row: number of the row in the values.
        values: gets the values.
        valid: gets the flags of the values that are not null.
    """
    size, header = _varint(page, at, end)
    if header < 0 or size < 1 or size > end - at:
        return -1
    header_end, body, is_wrong = at + size, at + size, False
    for field in range(len(places)):
        kind, header = _varint(page, header, header_end)
        if header < 0 or kind < 0 or kind > 1 << 32 or 10 <= kind <= 11:
            return -1
        width = _width(kind)
        place = places[field]
        if place >= 0:
            valid[place, row], values[place, row] = kind != 0, 0
            if 8 <= kind <= 9:
                values[place, row] = kind - 8
            elif 1 <= kind <= 6:
                if body + width > end:
                    return -1
                values[place, row] = _integer(page, body, width)
            elif kind:
                is_wrong = True
        body += width
    if body > at + payload or (header == header_end and body < at + payload):
        return -1
    return WRONG if is_wrong else GOOD


@compiled
def _decode(pages: Any, usable: Number, places: Ints, values: Ints, valid: Flags, state: Ints) -> Number:
    """Decode rows of pages from the state on, and return the verdict."""
    while state[PAGE] < len(pages):
        page = pages[state[PAGE]]
        count = np.int64(page[3]) << 8 | np.int64(page[4])
        if _LEAF_HEADER + 2 * count > usable:
            return DAMAGED
        while state[CELL] < count:
            if state[GOOD] + state[WRONG] == values.shape[1]:
                return FULL
            state[LEFT] = count - state[CELL]
            pointer = _LEAF_HEADER + 2 * state[CELL]
            at = np.int64(page[pointer]) << 8 | np.int64(page[pointer + 1])
            payload, at = _varint(page, at, usable)
            if at < 0 or payload < 0 or payload > 1 << 31:
                return DAMAGED
            number, at = _varint(page, at, usable)
            local = _local_size(payload, usable)
            if at < 0 or at + local > usable or number <= state[LAST]:
                return DAMAGED
            kind = _row(page, at, at + local, payload, places, state[GOOD], values, valid)
            if kind < 0:
                return UNCOMMON
            state[kind] += 1
            state[CELL] += 1
            state[LAST] = number
        state[PAGE] += 1
        state[CELL] = 0
    state[PAGE] = 0
    return MORE
