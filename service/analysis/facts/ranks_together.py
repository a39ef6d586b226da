"""Communications of several ranks, and the collectives that they are together."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.analysis.facts.bandwidths import POINT_TO_POINT, kind_of
from service.analysis.facts.intervals import Ints, covered
from service.analysis.facts.lateness import BEFORE, CAUSES, HOST, LateRank

Flags = npt.NDArray[np.bool_]


class Together:
    """Communications of several ranks, and the collectives that they are.

    Args:
        found: the communications.
        who: the place of the rank of each.
        shifts: how far each rank's clock is ahead of the first one's.

    Attributes:
        starts: when each communication starts, by the first rank's clock.
        ends: likewise.
        lasting: how long each lasts.
        order: the communications by collective and, within it, by start.
        firsts: where each collective begins in that order.
        lasts: where it ends.
        of: the collective of each communication.
        shortest: the shortest duration in each collective.
        complete: whether all ranks of a collective's group are seen in it.
        waits: from each communication's start to the last start of its collective.
        late: from the first start of the collective to its own.
    """

    def __init__(self, found: pa.Table, who: Ints, shifts: Ints) -> None:
        self.found, self.who, self.count, self._shifts = found, who, len(shifts), shifts
        self.starts, self.ends = (found[name].to_numpy() + shifts[who] for name in ("start_ns", "end_ns"))
        self.lasting = self.ends - self.starts
        keys = [self.codes("process_group"), *(found[name].to_numpy() for name in ("by_seq", "number", "occurrence"))]
        order = np.lexsort((-who, self.starts, *keys[::-1]))
        differs = [np.diff(key[order]) != 0 for key in keys]
        borders = np.concatenate([[True], np.logical_or.reduce(differs)]) if len(order) else np.zeros(0, bool)
        self.order, self.firsts = order, np.flatnonzero(borders)
        self.lasts = np.append(self.firsts, len(order))[1:] - 1
        self.of = np.zeros(len(order), np.int64)
        self.of[order] = np.cumsum(borders) - 1
        self.shortest = self.least(self.lasting)
        self.complete = self.taking_part >= self._needed()
        self.waits = self.starts[order[self.lasts]][self.of] - self.starts
        self.late = self.starts - self.starts[order[self.firsts]][self.of]
        self.seqs = pc.if_else(pc.equal(found["by_seq"], 1), found["number"], pa.scalar(None, pa.int64()))

    @property
    def taking_part(self) -> Ints:
        """How many ranks are seen in each collective."""
        return self.lasts - self.firsts + 1

    @property
    def known(self) -> Flags:
        """Which communications are of a collective of which all ranks are seen."""
        known: Flags = self.complete[self.of]
        return known

    @property
    def is_last(self) -> Flags:
        """Which communications start last in their collective."""
        last = np.zeros(len(self.order), bool)
        last[self.order[self.lasts]] = True
        return last

    def _needed(self) -> Ints:
        """How many ranks take part in each collective; at least two where that is not told."""
        sizes = self.most(self.found["group_size"].fill_null(2).to_numpy())
        names = self.found["collective"].take(pa.array(self.order[self.firsts])).to_pylist()
        in_pairs = np.array([kind_of(name) in POINT_TO_POINT for name in names], bool)
        return np.where(in_pairs, np.minimum(sizes, 2), sizes)

    def codes(self, name: str) -> Ints:
        """A number for each word of a column, -1 for none."""
        indices = self.found[name].combine_chunks().dictionary_encode().indices.fill_null(-1)
        codes: Ints = indices.to_numpy().astype(np.int64)
        return codes

    def least(self, values: Ints) -> Ints:
        """The least value in each collective."""
        return np.minimum.reduceat(values[self.order], self.firsts) if len(self.firsts) else values[:0]

    def most(self, values: Ints) -> Ints:
        """The largest value in each collective."""
        return -self.least(-values)

    def summed(self, values: Ints) -> npt.NDArray[np.float64]:
        """The sum of values in each collective."""
        inside = values[self.order].astype(float)
        return np.add.reduceat(inside, self.firsts) if len(self.firsts) else inside

    def agreeing(self) -> Flags:
        """Of which collectives all ranks tell the same."""
        agree = np.ones(len(self.firsts), bool)
        for name in ("collective", "dtype", "group_size"):
            codes = self.codes(name)
            agree &= self.least(codes) == self.most(codes)
        return agree

    def sizes(self) -> list[int | None]:
        """The size of each collective: the largest that a rank tells."""
        largest = self.most(self.found["size_bytes"].fill_null(-1).to_numpy())
        return [size if size >= 0 else None for size in largest.tolist()]

    def transfers(self) -> Ints:
        """From the last start of its collective to the end of each communication."""
        transfers: Ints = np.maximum(self.lasting - self.waits, 0)
        return transfers

    def times(self, mine: Ints) -> tuple[int, int | None]:
        """How long some communications of a rank last, and how long they would if no rank waited for another.

        The latter is None if not all ranks of one of them are seen.
        """
        ends = self.ends[mine]
        lasting = covered(self.starts[mine], ends)
        known = bool(self.known[mine].all())
        return lasting, covered(ends - self.shortest[self.of[mine]], ends) if known else None

    def waiting_least(self, candidates: int) -> list[int]:
        """The ranks that wait least, of those that wait less than the mean."""
        known = self.known
        taking_part = np.unique(self.who[known]).tolist()
        waits = self.by_rank(np.where(known, self.waits, 0))
        whole = sum(waits[one] for one in taking_part)
        late = [one for one in taking_part if waits[one] * len(taking_part) < whole]
        return sorted(late, key=lambda one: waits[one])[:candidates]

    def by_rank(self, values: Any) -> list[int]:
        """The sum of whole numbers of each rank."""
        return [int(values[self.who == rank].sum()) for rank in range(self.count)]

    def causes(self, covers: Sequence[pa.Table], begins: Sequence[int | None]) -> dict[str, Ints]:
        """How long each cause delays each communication after the first of its collective.

        Args:
            covers: of each rank, as `covers_of` found them.
            begins: when each rank's trace begins, if that is known.
        """
        causes = {cause: np.zeros(len(self.who), np.int64) for cause in CAUSES}
        launches = self.found["launch_ns"]
        launched = launches.is_valid().to_numpy()
        at = launches.fill_null(0).to_numpy()
        own = self.starts - self._shifts[self.who]
        for rank in range(self.count):
            mine = np.flatnonzero(self.who == rank)
            first = begins[rank]
            late = LateRank(covers[rank], np.iinfo(np.int64).min if first is None else first)
            parts = late.parts(own[mine] - self.late[mine], at[mine], launched[mine], own[mine])
            for cause, part in parts.items():
                causes[cause][mine] = part
        return causes


def main_causes(causes: dict[str, Ints], chosen: Flags) -> list[str | None]:
    """The cause of most of the delay of each communication; None of those that are not chosen or not late."""
    lengths = np.stack([causes[cause] for cause in CAUSES])
    most, late = lengths.argmax(0).tolist(), (lengths.max(0) > 0) & chosen
    return [CAUSES[cause] if is_late else None for cause, is_late in zip(most, late.tolist(), strict=True)]


def late_at_launch(causes: dict[str, Ints]) -> Ints:
    """How much of each delay was there before the rank launched the collective."""
    before = CAUSES[CAUSES.index(BEFORE) : CAUSES.index(HOST) + 1]
    whole: Ints = np.sum([causes[cause] for cause in before], axis=0)
    return whole
