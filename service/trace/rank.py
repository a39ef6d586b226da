"""Rank and world size of a trace. An unknown rank stays unknown: it never becomes rank 0."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from service.trace.summary import MergedInput, MergedRank

_IN_FILE_NAME = re.compile(r"(?<![a-z])(?<!local[-_.])(?:rank|worker)[-_.]?(\d{1,6})(?!\d)", re.IGNORECASE)
"""Global rank in a file name; a local rank (``local_rank0``) or a rank of one dimension (``TP-0``) does not match."""


def whole_number(value: object) -> int | None:
    """Return the value if it is a non-negative integer that fits in 63 bits, else None."""
    return value if type(value) is int and 0 <= value < 1 << 63 else None


def distributed_info(envelope: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return Kineto's ``distributedInfo`` of a document, or an empty mapping."""
    info = envelope.get("distributedInfo")
    return info if isinstance(info, Mapping) else {}


def rank_of(envelope: Mapping[str, Any], file_name: str) -> int | None:
    """Return the rank from ``distributedInfo``, else from the file's name (``rank-3…``, ``worker3…``), else None."""
    rank = whole_number(distributed_info(envelope).get("rank"))
    return rank_in_name(file_name) if rank is None else rank


def rank_in_name(file_name: str) -> int | None:
    """Return the rank in a file's name, or None."""
    match = _IN_FILE_NAME.search(file_name)
    return int(match[1]) if match else None


def world_size_of(envelope: Mapping[str, Any]) -> int | None:
    """Return the number of ranks from ``distributedInfo``, else None."""
    return whole_number(distributed_info(envelope).get("world_size"))


def merged_ranks(envelope: Mapping[str, Any]) -> list[MergedRank]:
    """Return the ranks in the envelope of a merged trace; empty if the trace is not merged or the list is malformed."""
    provenance = envelope.get("tracedock")
    merged = provenance.get("merged") if isinstance(provenance, Mapping) else None
    ranks = [dict(rank) for rank in merged if isinstance(rank, Mapping)] if isinstance(merged, list) else []
    valid = [
        rank
        for rank in ranks
        if whole_number(rank.get("rank")) is not None
        and _are_pids(rank.get("pids"))
        and _are_inputs(rank.get("beside", []))
    ]
    return cast("list[MergedRank]", valid) if valid == merged else []


def _are_pids(pids: object) -> bool:
    return isinstance(pids, list) and all(isinstance(pid, list) and pid and type(pid[0]) is int for pid in pids)


def _are_inputs(inputs: object) -> bool:
    return isinstance(inputs, list) and all(
        isinstance(one, Mapping) and MergedInput.__required_keys__ <= one.keys() and _are_pids(one["pids"])
        for one in inputs
    )


def ranks_by_pid(ranks: Iterable[MergedRank]) -> dict[int, int]:
    """Return the rank of each process of a merged trace, by the pid in the merged trace."""
    return {pids[0]: rank["rank"] for rank in ranks for pids in rank["pids"] if isinstance(pids[0], int)}
