"""Options of splits and merges."""

from typing import Literal

By = Literal["step", "stream", "device", "rank", "duration", "parts", "size"]
"""Criterion of a split."""

Align = Literal["none", "base", "collectives"]
"""Clock alignment of ranks: none, by the traces' base times, or also by the ends of collectives."""


def merged_name(traces: int, cycle: int | None = None) -> str:
    """Return the default name of a merged trace, from the number of its traces or their chosen cycle."""
    return f"merged-{traces if cycle is None else f'cycle{cycle}'}.pt.trace.json.gz"
