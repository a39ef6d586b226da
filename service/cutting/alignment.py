"""Clock alignment of ranks by their common collectives, which end on all ranks at once.

A collective is identified by its process group (see `identities`), sequence number and operation, if the profiler wrote
them. Otherwise it is identified by its name and its index among the rank's collectives with that name, provided that
all ranks have the same number of them.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from service.store.parts import Parts
from service.trace.kernel_names import communicates
from service.trace.process_groups import ProcessGroups, identities
from service.trace.summary import GPU_CATEGORIES, Residual

Collective = tuple[Any, ...]
"""Identity of a collective in a run: `seq`, `RecordedGroup`, number and operation, or `name`, its name and index."""

_ON_HOST = re.compile("(?:gloo|mpi|nccl):", re.IGNORECASE)


@dataclass(frozen=True)
class Alignment:
    """Alignment of a rank's clock.

    Attributes:
        shift_ns: ns to add to the rank's times.
        collectives: number of collectives that the rank shares with others.
        residual_ns: `median`, `p95` and `max` of the distances between the end of each shared collective on this rank,
            after the shift, and its median end on all ranks. None without shared collectives.
    """

    shift_ns: int
    collectives: int
    residual_ns: Residual | None


def collective_ends(parts: Sequence[Parts], groups: ProcessGroups) -> dict[Collective, int]:
    """Return the end of each collective of a rank, in ns on the rank's own clock.

    Collectives on the host count only if there are none on devices.

    Args:
        parts: columns of the rank's trace, or of pieces of it; an event that several pieces have counts once.
        groups: process groups that the trace lists.
    """
    on_device: set[tuple[int, int, str, str | None]] = set()
    on_host: set[tuple[int, int, str, str | None]] = set()
    for columns in parts:
        for part in columns.read(("ph", "cat", "name", "ts_ns", "dur_ns", "args")):
            slices = part.slices & part.has("ts_ns")
            device = slices & part.which("cat", GPU_CATEGORIES.__contains__)
            device &= part.which("name", lambda name: bool(name and communicates(name)))
            host = slices & ~device & part.which("cat", lambda cat: cat in ("user_annotation", "User"))
            host &= part.which("name", lambda name: bool(name and _ON_HOST.match(name)))
            for collectives, flags in ((on_device, device), (on_host, host)):
                if flags.any():
                    table = part.table.filter(flags)
                    times, names, args = (table[column].to_pylist() for column in ("ts_ns", "name", "args"))
                    collectives.update(zip(times, part.ends[flags].tolist(), names, args, strict=True))
    return _ends_by_identity(sorted(on_device or on_host, key=lambda collective: collective[:3]), groups)


def _ends_by_identity(
    collectives: Sequence[tuple[int, int, str, str | None]], groups: ProcessGroups
) -> dict[Collective, int]:
    """Return the end of each collective by its identity; the given tuples are (start, end, name, arguments)."""
    ends: dict[Collective, int] = {}
    counts: Counter[str] = Counter()
    for _, end, name, args in collectives:
        arguments = json.loads(args, parse_int=str) if args and '"Seq"' in args else {}
        if (number := arguments.get("Seq")) is not None:
            group = str(arguments.get("Process Group Name"))
            ranks = arguments.get("Process Group Ranks") or groups.of(group, any_recorded=True).ranks
            key: Collective = ("seq", (group, ranks and str(ranks)), str(number), str(arguments.get("Collective name")))
            ends[key] = max(end, ends.get(key, end))  # of several events of a collective, the last one ends it
        else:
            ends["name", name, counts[name]] = end
            counts[name] += 1
    return ends


def align_clocks(ends: Sequence[Mapping[Collective, int]], shifts: Sequence[int], *, refine: bool) -> list[Alignment]:
    """Align the clocks of ranks with the clock of the first rank.

    Args:
        ends: the collective ends of each rank, as `collective_ends` returns them.
        shifts: the known shift of each rank's clock in ns; it is added to the rank's times.
        refine: whether to align the clocks further by the collectives; if not, these only yield the residual.
    """
    comparable = _comparable(_with_identities(ends))
    clocks = [{key: end + shift for key, end in rank.items()} for rank, shift in zip(comparable, shifts, strict=True)]
    moves = _moves(clocks) if refine else [0] * len(clocks)
    medians = _medians(
        [{key: end + move for key, end in rank.items()} for rank, move in zip(clocks, moves, strict=True)]
    )
    alignments = []
    for rank, shift, move in zip(clocks, shifts, moves, strict=True):
        distances = sorted(abs(end + move - medians[key]) for key, end in rank.items() if key in medians)
        residual: Residual | None = {
            "median": round(median(distances)), "p95": distances[min(len(distances) * 95 // 100, len(distances) - 1)],
            "max": distances[-1],
        } if distances else None  # fmt: skip
        alignments.append(Alignment(shift + move, len(distances), residual))
    return alignments


def _with_identities(ends: Sequence[Mapping[Collective, int]]) -> list[dict[Collective, int]]:
    """Replace each recorded process group by its identity."""
    identity_of = identities({key[1] for rank in ends for key in rank if key[0] == "seq"})
    return [
        {("seq", identity_of[key[1]], *key[2:]) if key[0] == "seq" else key: end for key, end in rank.items()}
        for rank in ends
    ]


def _comparable(ends: Sequence[Mapping[Collective, int]]) -> list[dict[Collective, int]]:
    """Drop the collectives that only their name identifies, if ranks do not have equally many of that name."""
    counts: dict[str, set[int]] = defaultdict(set)
    for rank in ends:
        for name, count in Counter(key[1] for key in rank if key[0] == "name").items():
            counts[name].add(count)
    return [{key: end for key, end in rank.items() if key[0] != "name" or len(counts[key[1]]) == 1} for rank in ends]


def _medians(clocks: Sequence[Mapping[Collective, int]]) -> dict[Collective, int]:
    """Return the median end of each collective that several ranks have."""
    ends: dict[Collective, list[int]] = defaultdict(list)
    for rank in clocks:
        for key, end in rank.items():
            ends[key].append(end)
    return {key: round(median(times)) for key, times in ends.items() if len(times) > 1}


def _moves(clocks: Sequence[Mapping[Collective, int]]) -> list[int]:
    """Return the ns to add to each clock, to align it with the first one.

    The next rank to align is the one with the most collectives in common with the ranks aligned so far. A rank without
    any such collective gets 0.
    """
    moves = {0: 0}
    while len(moves) < len(clocks):
        ends: dict[Collective, list[int]] = defaultdict(list)
        for index, move in moves.items():
            for key, end in clocks[index].items():
                ends[key].append(end + move)
        shared = {index: clocks[index].keys() & ends.keys() for index in range(len(clocks)) if index not in moves}
        best = max(shared, key=lambda index: len(shared[index]))
        distances = [median(ends[key]) - clocks[best][key] for key in shared[best]]
        moves[best] = round(median(distances)) if distances else 0
    return [moves[index] for index in range(len(clocks))]
