"""Communications of several ranks, matched into collectives."""

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.analysis.facts.bandwidths import POINT_TO_POINT, kind_of
from service.analysis.facts.intervals import Flags, Ints
from service.analysis.facts.lateness import BEFORE, CAUSES, HOST, DelaySplitter
from service.trace.process_groups import identities


class MatchedCollectives:
    """Communications of several ranks, matched into the collectives in which they take part.

    Args:
        rows: the communications of all ranks.
        rank_indices: index of the rank of each communication.
        shifts: offset in ns to add to each rank's clock for the first rank's clock.

    Attributes:
        starts: start of each communication, by the first rank's clock.
        ends: end of each communication, by the first rank's clock.
        durations: duration of each communication.
        order: indices of the communications, sorted by collective and start.
        firsts: position in `order` of each collective's first communication.
        lasts: position in `order` of each collective's last communication.
        collective_of: index of the collective of each communication.
        shortest_durations: shortest duration in each collective.
        complete: collectives that include all ranks of their group.
        waits: from each communication's start to the last start of its collective.
        delays: from the first start of its collective to each communication's start.
    """

    def __init__(self, rows: pa.Table, rank_indices: Ints, shifts: Ints) -> None:
        self.rows, self.rank_indices, self.rank_count, self._shifts = rows, rank_indices, len(shifts), shifts
        self.starts, self.ends = (rows[name].to_numpy() + shifts[rank_indices] for name in ("start_ns", "end_ns"))
        self.durations = self.ends - self.starts
        keys = [self._group_codes(), *(rows[name].to_numpy() for name in ("by_seq", "number", "occurrence"))]
        order = np.lexsort((-rank_indices, self.starts, *keys[::-1]))
        differs = [np.diff(key[order]) != 0 for key in keys]
        borders = np.concatenate([[True], np.logical_or.reduce(differs)]) if len(order) else np.zeros(0, bool)
        self.order, self.firsts = order, np.flatnonzero(borders)
        self.lasts = np.append(self.firsts, len(order))[1:] - 1
        self.collective_of = np.zeros(len(order), np.int64)
        self.collective_of[order] = np.cumsum(borders) - 1
        self.shortest_durations = self.min_by_collective(self.durations)
        self.complete = self.rank_counts >= self._expected_rank_counts()
        self.waits = self.starts[order[self.lasts]][self.collective_of] - self.starts
        self.delays = self.starts - self.starts[order[self.firsts]][self.collective_of]
        self.seqs = pc.if_else(pc.greater(rows["by_seq"], 0), rows["number"], pa.scalar(None, pa.int64()))

    @property
    def rank_counts(self) -> Ints:
        """Number of ranks whose communication each collective includes."""
        return self.lasts - self.firsts + 1

    @property
    def in_complete(self) -> Flags:
        """Communications of complete collectives."""
        flags: Flags = self.complete[self.collective_of]
        return flags

    @property
    def is_last(self) -> Flags:
        """Communications that start last in their collective."""
        last = np.zeros(len(self.order), bool)
        last[self.order[self.lasts]] = True
        return last

    @cached_property
    def rows_by_rank(self) -> list[Ints]:
        """The indices of each rank's communications, in ascending order; one sort finds those of all ranks."""
        order = np.argsort(self.rank_indices, kind="stable")
        return np.split(order, np.searchsorted(self.rank_indices[order], np.arange(1, self.rank_count)))

    def _expected_rank_counts(self) -> Ints:
        """Return the number of ranks that take part in each collective; at least two if it is unknown."""
        sizes = self.max_by_collective(self.rows["group_size"].fill_null(2).to_numpy())
        names = self.rows["collective"].take(pa.array(self.order[self.firsts])).to_pylist()
        in_pairs = np.array([kind_of(name) in POINT_TO_POINT for name in names], bool)
        return np.where(in_pairs, np.minimum(sizes, 2), sizes)

    def _group_codes(self) -> Ints:
        """Return a number for the process group of each communication; see `identities`."""
        columns = ["process_group", "group_ranks"]
        names, ranks = map(self.codes, columns)
        pairs = names * (len(ranks) + 1) + ranks
        _, examples, group_of = np.unique(pairs, return_index=True, return_inverse=True)
        recorded = [tuple(row.values()) for row in self.rows.select(columns).take(pa.array(examples)).to_pylist()]
        identity_of = identities(recorded)
        numbers = {identity: number for number, identity in enumerate(dict.fromkeys(identity_of.values()))}
        return np.array([numbers[identity_of[group]] for group in recorded], np.int64)[group_of]

    def codes(self, name: str) -> Ints:
        """Return the dictionary codes of a text column, -1 for null."""
        indices = self.rows[name].dictionary_encode().combine_chunks().indices.fill_null(-1)
        codes: Ints = indices.to_numpy().astype(np.int64)
        return codes

    def min_by_collective(self, values: Ints) -> Ints:
        """Return the smallest value in each collective."""
        return np.minimum.reduceat(values[self.order], self.firsts) if len(self.firsts) else values[:0]

    def max_by_collective(self, values: Ints) -> Ints:
        """Return the largest value in each collective."""
        return -self.min_by_collective(-values)

    def sum_by_collective(self, values: Ints) -> npt.NDArray[np.float64]:
        """Sum the values in each collective."""
        ordered = values[self.order].astype(float)
        return np.add.reduceat(ordered, self.firsts) if len(self.firsts) else ordered

    def consistent(self) -> Flags:
        """Flag the collectives for which all ranks record the same kind, type and group size."""
        agree = np.ones(len(self.firsts), bool)
        for name in ("collective", "dtype", "group_size"):
            codes = self.codes(name)
            agree &= self.min_by_collective(codes) == self.max_by_collective(codes)
        return agree

    def sizes(self) -> list[int | None]:
        """Return the size of each collective: the largest that a rank records."""
        largest = self.max_by_collective(self.rows["size_bytes"].fill_null(-1).to_numpy())
        return [size if size >= 0 else None for size in largest.tolist()]

    def transfers(self) -> Ints:
        """Return the time from the last start of its collective to the end of each communication."""
        transfers: Ints = np.maximum(self.durations - self.waits, 0)
        return transfers

    def latencies_and_transfers(self, groups: Collection[Ints]) -> list[tuple[int, int | None]]:
        """Return the time that the communications of each group cover, and the time that they would without waiting.

        The second time is None if one of their collectives is incomplete.

        Args:
            groups: indices of the communications of each group; each communication is in one group.
        """
        from service.analysis.facts.unions import lengths_of_groups  # noqa: PLC0415 - loads numba, which the server does without

        group_of = np.zeros(len(self.order), np.int64)
        for number, chosen in enumerate(groups):
            group_of[chosen] = number
        transfer_starts = self.ends - self.shortest_durations[self.collective_of]
        latencies = lengths_of_groups(group_of, self.starts, self.ends, len(groups)).tolist()
        transfers = lengths_of_groups(group_of, transfer_starts, self.ends, len(groups)).tolist()
        incomplete = {*group_of[~self.in_complete].tolist()}
        return [
            (latency, None if number in incomplete else transfer)
            for number, (latency, transfer) in enumerate(zip(latencies, transfers, strict=True))
        ]

    def least_waiting_ranks(self, candidates: int) -> list[int]:
        """Return the ranks that wait least, among those that wait less than the mean."""
        in_complete = self.in_complete
        ranks = np.unique(self.rank_indices[in_complete]).tolist()
        waits = self.sum_by_rank(np.where(in_complete, self.waits, 0))
        total = sum(waits[rank] for rank in ranks)
        late = [rank for rank in ranks if waits[rank] * len(ranks) < total]
        return sorted(late, key=lambda rank: waits[rank])[:candidates]

    def sum_by_rank(self, values: Any) -> list[int]:
        """Sum integers of each rank's communications."""
        return [int(values[rows].sum()) for rows in self.rows_by_rank]

    def delays_by_cause(self, intervals: Sequence[pa.Table], begins: Sequence[int | None]) -> dict[str, Ints]:
        """Split the delay of each communication by cause.

        Args:
            intervals: intervals of causes on each rank, from `delay_intervals`.
            begins: start of each rank's trace, if it is known.
        """
        causes = {cause: np.zeros(len(self.rank_indices), np.int64) for cause in CAUSES}
        launches = self.rows["launch_ns"]
        launched = launches.is_valid().to_numpy()
        launch_times = launches.fill_null(0).to_numpy()
        own_starts = self.starts - self._shifts[self.rank_indices]
        for rows, causes_of_rank, first in zip(self.rows_by_rank, intervals, begins, strict=True):
            splitter = DelaySplitter(causes_of_rank, np.iinfo(np.int64).min if first is None else first)
            starts = own_starts[rows]
            parts = splitter.split(starts - self.delays[rows], launch_times[rows], launched[rows], starts)
            for cause, part in parts.items():
                causes[cause][rows] = part
        return causes


def main_causes(causes: dict[str, Ints], chosen: Flags) -> list[str | None]:
    """Return the main cause of each communication's delay; None if a communication is not chosen or not late."""
    lengths = np.stack([causes[cause] for cause in CAUSES])
    main, late = lengths.argmax(0).tolist(), (lengths.max(0) > 0) & chosen
    return [CAUSES[cause] if is_late else None for cause, is_late in zip(main, late.tolist(), strict=True)]


def delay_at_launch(causes: dict[str, Ints]) -> Ints:
    """Return the part of each delay that existed before the rank launched the collective."""
    before = CAUSES[CAUSES.index(BEFORE) : CAUSES.index(HOST) + 1]
    delays: Ints = np.sum([causes[cause] for cause in before], axis=0)
    return delays
