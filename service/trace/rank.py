"""Which rank of how many wrote a trace. What is unknown stays unknown: it never becomes rank 0."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

_IN_FILE_NAME = re.compile(r"(?<![a-z])(?<!local[-_.])(?:rank|worker)[-_.]?(\d{1,6})(?!\d)", re.IGNORECASE)
"""Neither a rank on one machine (``local_rank0``) nor one of a dimension (``TP-0-DP-1``) tells which of all it is."""


def whole_number(value: object) -> int | None:
    """The value if it is a whole number of 63 bits, and so counts something that there can be, else None."""
    return value if type(value) is int and 0 <= value < 1 << 63 else None


def distributed_info(envelope: Mapping[str, Any]) -> Mapping[str, Any]:
    """Kineto's ``distributedInfo`` of a document, or an empty mapping."""
    info = envelope.get("distributedInfo")
    return info if isinstance(info, Mapping) else {}


def rank_of(envelope: Mapping[str, Any], file_name: str) -> int | None:
    """The rank from ``distributedInfo``, else from the file's name (``rank-3…``, ``worker3…``), else None."""
    told = whole_number(distributed_info(envelope).get("rank"))
    if told is not None:
        return told
    return rank_in_name(file_name)


def rank_in_name(file_name: str) -> int | None:
    """The rank that a file's name tells, or None."""
    named = _IN_FILE_NAME.search(file_name)
    return int(named[1]) if named else None


def world_size_of(envelope: Mapping[str, Any]) -> int | None:
    """The number of ranks from ``distributedInfo``, else None."""
    return whole_number(distributed_info(envelope).get("world_size"))


def merged_ranks(envelope: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of which ranks a trace was merged, as its document tells; nothing of one that was not, or tells it wrongly."""
    made_of = envelope.get("tracedock")
    told = made_of.get("merged") if isinstance(made_of, Mapping) else None
    ranks = [dict(one) for one in told if isinstance(one, Mapping)] if isinstance(told, list) else []
    known = [one for one in ranks if whole_number(one.get("rank")) is not None and _are_pids(one.get("pids"))]
    return known if known == told else []


def _are_pids(pids: object) -> bool:
    return isinstance(pids, list) and all(isinstance(pid, list) and pid and type(pid[0]) is int for pid in pids)


def ranks_by_pid(ranks: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """The rank of each process of a merged trace."""
    return {pid[0]: one["rank"] for one in ranks for pid in one["pids"]}
