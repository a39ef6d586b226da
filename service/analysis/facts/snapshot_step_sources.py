"""Sources of the steps of a memory snapshot: its own annotations, or a trace of its rank in the same run."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from service.analysis.table import RANK, count, word

ANNOTATIONS, TRACE = "snapshot", "trace"
"""Kinds of sources."""

_NAMED_MAX = 3

STEP_SOURCES = (
    RANK,
    word("source", "`snapshot`: its own annotations; `trace`: a trace of the same rank in its run"),
    word("trace", "name of the trace; empty for the annotations, and if there is no trace"),
    word("trace_id", "id of the trace"),
    word("used", "yes if the steps come from it"),
    count("steps", "number of its steps that overlap the snapshot's entries; empty if unknown"),
    count("of_steps", "number of all its steps; empty if unknown"),
    word("reason", "why it is not used"),
)


class StepSource(NamedTuple):
    """A source of steps, whose fields are the columns of `STEP_SOURCES` without the rank."""

    source: str
    trace: str | None = None
    trace_id: str | None = None
    used: str = "no"
    steps: int | None = None
    of_steps: int | None = None
    reason: str | None = None


def notes_of(sources: pa.Table) -> Iterator[str]:
    """Yield a note for each rank of a table of `STEP_SOURCES`: where its steps come from, or why it has none."""
    by_rank: dict[tuple[int | None, int | None], list[dict[str, Any]]] = {}
    for row in sources.to_pylist():
        by_rank.setdefault((row.get("cycle"), row["rank"]), []).append(row)
    for (_, rank), rows in by_rank.items():
        used = next((row for row in rows if row["used"] == "yes"), None)
        sentence = _origin(used) if used else "No steps: " + " ".join(_reasons(rows))
        yield sentence if rank is None else f"Rank {rank}: {sentence[0].lower()}{sentence[1:]}"


def _origin(used: Mapping[str, Any]) -> str:
    if used["source"] == ANNOTATIONS:
        return "Steps from the snapshot's own annotations."
    counts = f"{used['steps']:,} of its {used['of_steps']:,}"
    return f"Steps from trace {used['trace']}: {counts} overlap the snapshot's entries."


def _reasons(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield each reason with the traces that it concerns."""
    for reason in dict.fromkeys(row["reason"] for row in rows):
        names = [row["trace"] for row in rows if row["reason"] == reason and row["trace"] is not None]
        more = [f"{len(names) - _NAMED_MAX} more"] if len(names) > _NAMED_MAX else []
        yield f"{', '.join(names[:_NAMED_MAX] + more)}: {reason}" if names else reason
