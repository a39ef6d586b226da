"""How traces are made of traces: by what one is split, how clocks are aligned, what the pieces are called."""

import re
from typing import Literal

By = Literal["step", "stream", "device", "rank", "duration", "parts", "size"]
"""What makes a piece of a trace."""

Align = Literal["none", "base", "collectives"]
"""How the clocks of ranks become one: not at all, by what the traces tell of theirs, also by when collectives end."""

_SUFFIXES = re.compile(r"(?:\.pt\.trace)?(?:\.(?:json|gz|zst|tmp))*$", re.IGNORECASE)


def child_name(name: str, suffix: str) -> str:
    """What a piece of a trace is called."""
    return f"{_SUFFIXES.sub('', name) or 'trace'}.{suffix}.pt.trace.json.gz"
