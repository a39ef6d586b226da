"""How much memory an engine will take for a trace: from what such loads took before, here and where this was made."""

BASE_BYTES = 32 << 20  # an engine without a trace takes 21 MB
PER_EVENT = {"all": 400, "essential": 280, "none": 200}
"""Bytes an event at the peak of its load, by how much of the arguments is loaded.

Measured on v54.0: 320 for 12 M events of a real trace with all arguments, 430 to 480 for 0.4 to 2.4 M generated ones;
290 and 215 for those with essential ones and with none.
"""

CAP_FACTOR = 1.5
CAP_FLOOR = 512 << 20
_ENOUGH_EVENTS = 100_000  # to learn from: below, the engine's own size tells more than the trace's
_WEIGHT = 0.3  # of a new load against all before


class MemoryModel:
    """Predicts what a load takes, and learns from each."""

    def __init__(self) -> None:
        self._ratio = dict.fromkeys(PER_EVENT, 1.0)  # of what loads took to what the constants say

    def predicted(self, args: str, events: int) -> int:
        """Bytes that a load of so many events takes at its peak, with `args` of their arguments."""
        return BASE_BYTES + int(PER_EVENT[args] * self._ratio[args] * events)

    def learn(self, args: str, events: int, peak_bytes: int, *, killed: bool = False) -> None:
        """Take in what a load took; one that was `killed` at that size would have taken more."""
        if events < _ENOUGH_EVENTS or not peak_bytes:
            return
        seen = min(max((peak_bytes - BASE_BYTES) / (PER_EVENT[args] * events), 0.2), 5.0)
        before = self._ratio[args]
        self._ratio[args] = max(seen, before) if killed else before + _WEIGHT * (seen - before)


def cap(predicted_bytes: int, budget_bytes: int) -> int:
    """The size at which an engine that was to take `predicted_bytes` is ended: queries need some room, too."""
    return min(max(int(predicted_bytes * CAP_FACTOR), CAP_FLOOR), budget_bytes)
