"""Options of splits and merges, and names of pieces."""

import re
from typing import Literal

By = Literal["step", "stream", "device", "rank", "duration", "parts", "size"]
"""Criterion of a split."""

Align = Literal["none", "base", "collectives"]
"""Clock alignment of ranks: none, by the traces' base times, or also by the ends of collectives."""

_SUFFIXES = re.compile(r"(?:\.pt\.trace)?(?:\.(?:json|gz|zst|tmp))*$", re.IGNORECASE)


def child_name(name: str, suffix: str) -> str:
    """Return the name of a piece of a trace."""
    return f"{_SUFFIXES.sub('', name) or 'trace'}.{suffix}.pt.trace.json.gz"
