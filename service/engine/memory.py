"""Prediction of the memory that an engine takes for a trace; it learns from earlier loads."""

BASE_BYTES = 32 << 20  # an engine without a trace takes 21 MB; the rest is a margin
PER_EVENT = {"all": 300, "essential": 200, "none": 180}
"""Bytes per event at the peak of a load, by the arguments that are loaded.

Measured on trace_processor v54.0, on a generated trace of 4 M events and three real ones of 0.5 to 0.9 M: 270 to 291
with all arguments, 178 to 195 with essential ones, 166 to 183 with none. Documents that are JSON: 303, 158 and 137.
"""

PER_ORIGINAL_BYTE = 6
"""Bytes per byte of a Perfetto trace that is loaded as it is.

Measured on trace_processor v54.0: 2.3 for slices with arguments, 4.8 for PyTorch's events, 5.6 for the scheduler's.
"""
_ORIGINAL_SPREAD = 3  # how much more an original may take: its size is estimated, and kinds of packets differ

LIMIT_FACTOR = 1.5  # memory limit of an engine as a multiple of its predicted memory
LIMIT_MIN_BYTES = 512 << 20
_LEARN_MIN_EVENTS = 100_000  # in smaller traces, the engine's own size hides the size of the events
_NEW_LOAD_WEIGHT = 0.3  # all earlier loads together have the remaining weight
_RATIO_MIN, _RATIO_MAX = 0.2, 5.0  # bounds of the ratio that is measured on one load


class MemoryModel:
    """Predicts the memory of a load, and learns from each load."""

    def __init__(self) -> None:
        self._ratios = dict.fromkeys(PER_EVENT, 1.0)  # measured bytes per event as a multiple of `PER_EVENT`

    def predict(self, args: str, events: int) -> int:
        """Return the expected peak memory in bytes of a load; `args` is the key in `PER_EVENT`."""
        return BASE_BYTES + int(PER_EVENT[args] * self._ratios[args] * events)

    @staticmethod
    def predict_original(size: int) -> tuple[int, int]:
        """Return the expected and the largest plausible peak memory in bytes of a load of an original.

        Args:
            size: its expected size in bytes after decompression.
        """
        expected = BASE_BYTES + PER_ORIGINAL_BYTE * size
        return expected, BASE_BYTES + _ORIGINAL_SPREAD * PER_ORIGINAL_BYTE * size

    def learn(self, args: str, events: int, peak_bytes: int, *, killed: bool = False) -> None:
        """Learn from a load.

        Args:
            args: the key in `PER_EVENT`.
            events: number of events of the trace.
            peak_bytes: peak memory of the load; 0 if it was not measured.
            killed: whether the load was killed for its size. Such a load would have taken more memory than measured,
                so it can only raise the prediction.
        """
        if events < _LEARN_MIN_EVENTS or not peak_bytes:
            return
        measured_ratio = (peak_bytes - BASE_BYTES) / (PER_EVENT[args] * events)
        measured_ratio = min(max(measured_ratio, _RATIO_MIN), _RATIO_MAX)
        earlier_ratio = self._ratios[args]
        if killed:
            self._ratios[args] = max(measured_ratio, earlier_ratio)
        else:
            self._ratios[args] = earlier_ratio + _NEW_LOAD_WEIGHT * (measured_ratio - earlier_ratio)


def memory_limit(predicted_bytes: int, budget_bytes: int) -> int:
    """Return the memory in bytes at which an engine is killed.

    The limit exceeds the prediction, because queries take memory, too. It never exceeds the budget.
    """
    return min(max(int(predicted_bytes * LIMIT_FACTOR), LIMIT_MIN_BYTES), budget_bytes)
