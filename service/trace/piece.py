"""Options of splits and merges."""

from typing import Literal

By = Literal["step", "stream", "device", "rank", "duration", "parts", "size"]
"""Criterion of a split."""

Align = Literal["none", "base", "collectives"]
"""Clock alignment of ranks: none, by the traces' base times, or also by the ends of collectives."""
