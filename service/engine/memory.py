"""Prediction of the memory that an engine takes for a trace, from earlier loads."""

BASE_BYTES = 32 << 20  # an engine without a trace takes 21 MB
PER_EVENT = {"all": 400, "essential": 280, "none": 200}
"""Bytes per event at the peak of a load, by the arguments that are loaded.

Measured on trace_processor v54.0 with all arguments: 320 for a real trace of 12 M events, 430 to 480 for generated
traces of 0.4 to 2.4 M events. With essential arguments: 290; with none: 215.
"""

LIMIT_FACTOR = 1.5
LIMIT_MIN_BYTES = 512 << 20
_LEARN_MIN_EVENTS = 100_000  # in smaller traces, the engine's own size hides the size of the events
_WEIGHT = 0.3  # weight of a new load against all earlier ones


class MemoryModel:
    """Predicts the memory of a load, and learns from each load."""

    def __init__(self) -> None:
        self._ratio = dict.fromkeys(PER_EVENT, 1.0)  # measured memory as a multiple of `PER_EVENT`

    def predict(self, args: str, events: int) -> int:
        """Return the expected peak memory in bytes of a load; `args` is the key in `PER_EVENT`."""
        return BASE_BYTES + int(PER_EVENT[args] * self._ratio[args] * events)

    def learn(self, args: str, events: int, peak_bytes: int, *, killed: bool = False) -> None:
        """Learn from the peak memory of a load; a load that was `killed` for its size would have taken more."""
        if events < _LEARN_MIN_EVENTS or not peak_bytes:
            return
        measured = min(max((peak_bytes - BASE_BYTES) / (PER_EVENT[args] * events), 0.2), 5.0)
        before = self._ratio[args]
        self._ratio[args] = max(measured, before) if killed else before + _WEIGHT * (measured - before)


def memory_limit(predicted_bytes: int, budget_bytes: int) -> int:
    """Return the memory in bytes at which an engine is killed: more than predicted, since queries take memory, too."""
    return min(max(int(predicted_bytes * LIMIT_FACTOR), LIMIT_MIN_BYTES), budget_bytes)
