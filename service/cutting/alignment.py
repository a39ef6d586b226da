"""How far the clocks of ranks are apart, by the collectives that they did together: these end on all ranks at once.

A collective is told by its process group and number where the profiler wrote them, else by its name and how many of
that name came before, if all have as many.
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
from service.trace.summary import GPU_CATEGORIES

Collective = tuple[Any, ...]
"""What tells a collective from all others of a run."""

_ON_HOST = re.compile("(?:gloo|mpi|nccl):", re.IGNORECASE)


@dataclass(frozen=True)
class Aligned:
    """What was found for a rank.

    `shift_ns` is to be added to its times. The residual is how far its collectives still end from the middle of when
    they end on all ranks: the median, the 95th percentile and the largest of them; None where it has none in common.
    """

    shift_ns: int
    collectives: int
    residual_ns: dict[str, int] | None


def collective_ends(parts: Sequence[Parts]) -> dict[Collective, int]:
    """When each collective of a rank ended, in ns of its own clock.

    Args:
        parts: of its trace, or of the pieces of it; what is in several counts once.
    """
    on_device: set[tuple[int, int, str, str | None]] = set()
    on_host: set[tuple[int, int, str, str | None]] = set()
    for one in parts:
        for part in one.read(("ph", "cat", "name", "ts_ns", "dur_ns", "args")):
            slices = part.slices & part.has("ts_ns")
            device = slices & part.which("cat", GPU_CATEGORIES.__contains__)
            device &= part.which("name", lambda name: bool(name and communicates(name)))
            host = slices & ~device & part.which("cat", lambda cat: cat in ("user_annotation", "User"))
            host &= part.which("name", lambda name: bool(name and _ON_HOST.match(name)))
            for found, chosen in ((on_device, device), (on_host, host)):
                if chosen.any():
                    table = part.table.filter(chosen)
                    times, names, args = (table[column].to_pylist() for column in ("ts_ns", "name", "args"))
                    found.update(zip(times, part.ends[chosen].tolist(), names, args, strict=True))
    return _told_apart(sorted(on_device or on_host, key=lambda one: one[:3]))


def _told_apart(found: Sequence[tuple[int, int, str, str | None]]) -> dict[Collective, int]:
    ends: dict[Collective, int] = {}
    seen: Counter[str] = Counter()
    for _, end, name, args in found:
        told = json.loads(args, parse_int=str) if args and '"Seq"' in args else {}
        group, number = told.get("Process Group Name"), told.get("Seq")
        if number is not None:
            key: Collective = ("seq", str(group), str(number), str(told.get("Collective name")))
            ends[key] = max(end, ends.get(key, end))
        else:
            ends["name", name, seen[name]] = end
            seen[name] += 1
    return ends


def aligned(ends: Sequence[Mapping[Collective, int]], shifts: Sequence[int], *, refine: bool) -> list[Aligned]:
    """Put the clocks of ranks onto that of the first.

    Args:
        ends: of each rank, as `collective_ends` gives them.
        shifts: what is known before, to be added to each rank's times.
        refine: whether to move them by the collectives; if not, these only tell the residual.
    """
    comparable = _comparable(ends)
    clocks = [{key: end + shift for key, end in one.items()} for one, shift in zip(comparable, shifts, strict=True)]
    moved = _moves(clocks) if refine else [0] * len(clocks)
    middles = _middles([{key: end + move for key, end in one.items()} for one, move in zip(clocks, moved, strict=True)])
    found = []
    for one, shift, move in zip(clocks, shifts, moved, strict=True):
        apart = sorted(abs(end + move - middles[key]) for key, end in one.items() if key in middles)
        residual = {
            "median": round(median(apart)), "p95": apart[min(len(apart) * 95 // 100, len(apart) - 1)], "max": apart[-1],
        } if apart else None  # fmt: skip
        found.append(Aligned(shift + move, len(apart), residual))
    return found


def _comparable(ends: Sequence[Mapping[Collective, int]]) -> list[dict[Collective, int]]:
    """Without what is told by its name alone, where ranks that have that name have it not equally often."""
    counts: dict[str, set[int]] = defaultdict(set)
    for one in ends:
        for name, count in Counter(key[1] for key in one if key[0] == "name").items():
            counts[name].add(count)
    return [{key: end for key, end in one.items() if key[0] != "name" or len(counts[key[1]]) == 1} for one in ends]


def _middles(clocks: Sequence[Mapping[Collective, int]]) -> dict[Collective, int]:
    """When each collective of several ranks ended: the middle of what these say."""
    told: dict[Collective, list[int]] = defaultdict(list)
    for one in clocks:
        for key, end in one.items():
            told[key].append(end)
    return {key: round(median(each)) for key, each in told.items() if len(each) > 1}


def _moves(clocks: Sequence[Mapping[Collective, int]]) -> list[int]:
    """What to add to each clock; a rank that has no collective with those before it stays as it is."""
    moves = {0: 0}
    while len(moves) < len(clocks):
        told: dict[Collective, list[int]] = defaultdict(list)
        for index, move in moves.items():
            for key, end in clocks[index].items():
                told[key].append(end + move)
        shared = {index: clocks[index].keys() & told.keys() for index in range(len(clocks)) if index not in moves}
        best = max(shared, key=lambda index: len(shared[index]))
        apart = [median(told[key]) - clocks[best][key] for key in shared[best]]
        moves[best] = round(median(apart)) if apart else 0
    return [moves[index] for index in range(len(clocks))]
