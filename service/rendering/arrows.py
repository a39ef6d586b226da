"""The arrows of a trace: numbers that their ends have in common, and what must be known before they are written."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.rendering.lines import NUMBER_KEYS, READ_KEYS
from service.store.parts import MIXERS, Flags, Ints, Part, Words, mixed
from service.streaming.buffers import fixed
from service.streaming.scan.compiled import compiled
from service.trace.summary import FLOW_PHASES
from service.trace.text import read

Keys = npt.NDArray[np.uint64]

SCANNED = ("ph", "cat", "name", "id", "id_text", "rest")
"""The columns that `ArrowScan` reads."""

_TEXT_IDS = 1 << 61  # first number that is assigned to an id that is not an integer
_UNKNOWN = (READ_KEYS | NUMBER_KEYS) - {"bp"}  # to Fuchsia's format
_TEXTS_MAX = 1 << 10  # different texts of other members in a part; those of torch are a few


@compiled
def _mix(ids: Ints, has_id: Flags, rows: Ints, categories: Ints, names: Ints, keys: Keys) -> None:
    """Hash the ids, categories and names of some events; see `mixed`.

    Args:
        ids: the id of each event.
        has_id: flags of the events that have an id.
        rows: the events to hash.
        categories: the number of the category of each of these.
        names: the number of the name of each.
        keys: output: the hashes, which are never 0.
    """
    for place in range(len(rows)):
        key = np.uint64(0)
        for value in (ids[rows[place]], int(has_id[rows[place]]), categories[place], names[place]):
            key = (key ^ np.uint64(value)) * MIXERS[0]
            key = (key ^ (key >> np.uint64(30))) * MIXERS[1]
            key = (key ^ (key >> np.uint64(27))) * MIXERS[2]
            key ^= key >> np.uint64(31)
        keys[place] = key | np.uint64(1)


class ArrowKeys:
    """Numbers of arrows: two ends have the same number if their ids, categories and names are equal."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._kinds = Words()  # numbers of categories and names

    def ids(self, part: Part) -> tuple[Ints, Flags]:
        """Return the ids of events as integers, and flags of the events that have an id."""
        has_text = part.has("id_text")
        if not has_text.any():
            return part.ints("id"), part.has("id")
        codes, words = part.coded("id_text")
        numbers = np.array([*map(self._id, words), 0], np.int64)[codes]
        return np.where(has_text, numbers, part.ints("id")), has_text | part.has("id")

    def _id(self, text: str) -> int:
        return self._ids.setdefault(text, _TEXT_IDS + len(self._ids))

    def of(self, part: Part, rows: Ints) -> Keys:
        """Return the numbers of the arrows of some events, which are never 0."""
        ids, has_id = self.ids(part)
        categories, names = (self._kinds.of(part, column, rows) for column in ("cat", "name"))
        keys = np.empty(len(rows), np.uint64)
        _mix(fixed(ids), has_id, rows, categories, names, keys)
        return keys


def is_arrow_end(part: Part) -> Flags:
    """Flag the rows that begin, continue or end an arrow."""
    return part.which("ph", FLOW_PHASES.__contains__)


class _Places:
    """The arrows and the rows of some ends, in order of time."""

    def __init__(self) -> None:
        self._arrows = [np.zeros(0, np.uint64)]
        self._rows = [np.zeros(0, np.int64)]

    def add(self, arrows: Keys, rows: Ints) -> None:
        """Add the next ends."""
        self._arrows.append(arrows)
        self._rows.append(rows)

    @property
    def arrows(self) -> Keys:
        """The arrow of each place."""
        return np.concatenate(self._arrows)

    @property
    def rows(self) -> Ints:
        """The row of each place."""
        return np.concatenate(self._rows)


def _go_on(ends: _Places, steps: _Places) -> bool:
    """Return whether an arrow has a step after its first end."""
    stepping = steps.arrows
    if not len(stepping):
        return False
    arrows = ends.arrows
    order = np.argsort(arrows, kind="stable")  # the ends of one arrow stay in order of time
    ordered, rows = arrows[order], ends.rows[order]
    firsts = np.searchsorted(ordered, stepping)
    has_end = np.append(ordered, np.uint64(0))[firsts] == stepping  # no arrow has the number 0
    return bool((has_end & (steps.rows > np.append(rows, 0)[firsts])).any())


class ArrowScan:
    """Facts on all arrows of a trace, and on the members of its events that have no column.

    Args:
        tables: the events, with the columns `SCANNED`.
        keys: gives the numbers of arrows.

    Attributes:
        are_bound: True if all ends of arrows belong to the slice around them, not to the next one.
        are_short: True if no arrow with several ends has steps in between, and none goes on after an end.
        are_plain: True if no event has a member that the engine reads and that has no column, except ``bp``.
        ended: the keys of the arrows that go on or end somewhere, as `split` returns them; some may repeat.
    """

    def __init__(self, tables: Iterable[pa.Table], keys: ArrowKeys) -> None:
        self.are_bound = self.are_plain = True
        ends, steps = _Places(), _Places()
        first = 0
        for table in tables:
            part = Part(0, first, table)
            first += len(table)
            for phase, found in (("f", ends), ("t", steps)):
                rows = np.flatnonzero(part.which("ph", {phase}.__contains__))
                found.add(keys.of(part, rows), part.first + rows)
                if phase == "f":
                    self._scan_members(part.table["rest"], rows)
            if not (self.are_bound and self.are_plain):
                break
        ordered, stepping = np.sort(ends.arrows), steps.arrows
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(ordered) else np.zeros(0, np.int64)
        counts = np.diff(np.append(starts, len(ordered)))
        self._several, self._counts = ordered[starts[counts > 1]], counts[counts > 1]
        self._next = np.zeros(len(self._several), np.int64)
        self.are_short = not (np.isin(stepping, self._several).any() or _go_on(ends, steps))
        firsts = np.repeat(np.cumsum(self._counts) - self._counts, self._counts)
        parts_of_several = _numbered(np.repeat(self._several, self._counts), np.arange(len(firsts)) - firsts)
        self.ended = np.concatenate([ordered, stepping, parts_of_several])

    def _scan_members(self, rest: pa.ChunkedArray, ends: Ints) -> None:
        """Look at the members of a part's events that have no column, and at those of the ends of arrows."""
        texts = rest.combine_chunks().dictionary_encode()
        if len(texts.dictionary) > _TEXTS_MAX:
            self.are_plain = False
            return
        members = [dict(read(text)) for text in texts.dictionary.to_pylist()]
        is_bound = np.array([*(each.get("bp") == "e" for each in members), False])  # the last one is that of null
        self.are_bound &= bool(is_bound[texts.indices.take(pa.array(ends)).fill_null(-1).to_numpy()].all())
        self.are_plain &= all(each.keys().isdisjoint(_UNKNOWN) for each in members)

    def split(self, arrows: Keys, is_start: Flags) -> tuple[Ints, Keys]:
        """Split arrows with several ends into arrows with one end each. Calls must be in order of time.

        Args:
            arrows: the number of the arrow of each event; 0 for other events.
            is_start: flags of the events that begin an arrow.

        Returns:
            The row of each event, or several times that of the start of several arrows; and the arrow's number.
        """
        rows = np.arange(len(arrows))
        at = np.minimum(np.searchsorted(self._several, arrows), max(len(self._several) - 1, 0))
        among = np.flatnonzero(self._several[at] == arrows) if len(self._several) else rows[:0]
        if not len(among):
            return rows, arrows
        repeats = np.ones(len(arrows), np.int64)
        starts, ends = among[is_start[among]], among[~is_start[among]]
        repeats[starts] = self._counts[at[starts]]
        numbers = arrows.copy()
        for row in ends.tolist():
            numbers[row] = _numbered(arrows[row : row + 1], self._next[at[row]])[0]
            self._next[at[row]] += 1
        firsts = np.cumsum(repeats) - repeats
        rows = np.repeat(rows, repeats)
        numbers, nth = numbers[rows], np.arange(len(rows)) - firsts[rows]
        of_starts = np.isin(rows, starts)
        numbers[of_starts] = _numbered(numbers[of_starts], nth[of_starts])
        return rows, numbers


def _numbered(arrows: Keys, nth: "Ints | np.int64") -> Keys:
    """Return the numbers of the single arrows of arrows with several ends."""
    return mixed(arrows, np.broadcast_to(np.asarray(nth, np.int64), arrows.shape))
